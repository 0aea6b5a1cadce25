"""`streams doctor` and `streams transactions`, with a cluster that is simulated below them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streams.application.transactions import OpenTransaction, end, open_transactions
from streams.cli.inspection import doctor, transactions
from streams.cluster.java_admin import CoordinatorView, OpenProducer, java_properties
from streams.errors import ConfigError, JarsMissingError
from tests.doctor.world import NOW_MS, Kafka, World

TARGET = "tests.doctor.world:counting"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """An application that has run, below the commands."""
    world = World(tmp_path / "var").run()

    @contextmanager
    def admin(*_: object) -> Iterator[Kafka]:
        yield world.kafka

    class Java:
        admin = world.kafka

        def __init__(self, _: object) -> None: ...
        def __enter__(self) -> Java:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("state.kafka.admin.KafkaAdmin", admin)
    monkeypatch.setattr(transactions, "KafkaAdmin", admin)
    monkeypatch.setattr(transactions, "JavaRequests", Java)
    monkeypatch.setattr("streams.cli.options.reachable", lambda config: config)
    monkeypatch.setattr("streams.cluster.admin.Survey", lambda _: world.kafka)
    monkeypatch.setattr(doctor, "live", lambda config: world.kafka)
    monkeypatch.setattr(transactions, "_PAUSE_S", 0)
    monkeypatch.setattr(transactions.time, "time", lambda: NOW_MS / 1000)
    return world


def run(streams: Any, name: str, *more: str) -> Any:
    return streams(name, TARGET, "-a", "app", "-b", "nowhere:1", *more)


def test_a_healthy_application_ends_with_0(streams: Any, world: World) -> None:
    result = run(streams, "doctor")
    assert result.exit_code == 0, result.output
    assert "ok  checkpoint: it fits the commit markers of all tasks." in result.output
    assert result.output.endswith("app: healthy\n")


def test_warnings_end_with_3_and_errors_with_1(streams: Any, world: World) -> None:
    world.kafka.members = ["x on y"]
    result = run(streams, "doctor")
    assert (result.exit_code, "app: 1 finding" in result.output) == (3, True), result.output
    span = world.kafka.hang("in", 1)
    result = run(streams, "doctor")
    assert result.exit_code == 1
    assert f"error  transactions: topic in, partition 1, offset {span.first}: a transaction of" in result.output
    assert f"-> streams transactions {TARGET} -a app --hanging" in result.output


def test_json_has_every_finding_with_its_place(streams: Any, world: World) -> None:
    world.kafka.hang("in", 1)
    found = json.loads(run(streams, "doctor", "--json").output)
    assert (found["application_id"], found["verdict"]) == ("app", "error")
    (one,) = [each for each in found["findings"] if each["check"] == "transactions"]
    assert (one["topic"], one["partition"], one["sub_topology"]) == ("in", 1, None)


def test_hanging_transactions_are_listed_and_ended_on_request_only(streams: Any, world: World) -> None:
    span = world.kafka.hang("in", 1)
    producer = world.kafka.producer("writer")
    producer.init_transactions()
    producer.begin()
    producer.send("in", 0, b"k", b"v", 1)
    listed = run(streams, "transactions")
    assert [line.split()[-1] for line in listed.output.splitlines()[1:]] == ["open", "hangs"], listed.output
    (one,) = json.loads(run(streams, "transactions", "--hanging", "--json").output)
    assert (one["topic"], one["partition"], one["start_offset"], one["hangs"]) == ("in", 1, span.first, True)
    refused = streams("transactions", TARGET, "-a", "app", "-b", "nowhere:1", "--abort-hanging", answer="n\n")
    assert refused.exit_code == 1
    assert span.committed is None
    ended = run(streams, "transactions", "--abort-hanging", "--yes")
    assert f"aborted the transaction on in-1 from offset {span.first} on" in ended.output
    assert span.committed is False
    assert [line.split()[-1] for line in run(streams, "transactions").output.splitlines()[1:]] == ["open"]
    fenced = run(streams, "transactions", "--abort", "writer", "--yes")
    assert "fenced the producer of writer" in fenced.output
    assert "no such transaction is open" in run(streams, "transactions").output


def test_a_transaction_that_is_committed_elsewhere_is_not_torn_apart(
    streams: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = world.kafka.hang("in", 1)
    decided = CoordinatorView("app-in-1", 0, "CompleteCommit", None, 60_000, frozenset())
    monkeypatch.setattr(world.kafka, "coordinators", lambda ids: dict.fromkeys(ids, decided))
    refused = run(streams, "transactions", "--abort-hanging", "--yes")
    assert refused.exit_code == 1
    assert "an abort here would split the step" in refused.output
    assert span.committed is None
    assert run(streams, "transactions", "--abort-hanging", "--yes", "--force").exit_code == 0
    assert span.committed is False


def test_something_must_be_named(streams: Any) -> None:
    assert "streams transactions TARGET, or --topic TOPIC" in streams("transactions", "-b", "nowhere:1").output
    result = streams("transactions", "--topic", "t", "--abort-hanging", "--json", "-b", "nowhere:1")
    assert "--json cannot ask" in result.output


def test_a_transaction_that_ends_between_two_looks_does_not_hang(tmp_path: Path) -> None:
    kafka = World(tmp_path).kafka
    span = kafka.hang("in", 0)

    def ends() -> None:
        kafka.abort(("in", 0), OpenProducer(1, 0, -1, span.first))

    assert open_transactions(kafka, kafka, [("in", 0), ("in", 1)], ends) == []  # type: ignore[arg-type]


def test_ages_and_what_is_overdue() -> None:
    view = CoordinatorView("id", 0, "Ongoing", 1_000, 60_000, frozenset([("in", 0)]))
    one = OpenTransaction(("in", 0), OpenProducer(1, 0, -1, 0), view, blocks=True, hangs=False)
    assert (one.age_ms(5_000), one.overdue(5_000), one.overdue(62_000)) == (4_000, False, True)
    said: list[str] = []
    end(Kafka.__new__(Kafka), [], said.append)
    assert said == []


def test_properties_of_librdkafka_become_javas(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("CERT")
    (tmp_path / "key").write_text("KEY")
    found = java_properties(
        {
            "bootstrap.servers": "b:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": 'a"b',
            "sasl.password": "c",
            "ssl.ca.location": "/ca",
            "ssl.certificate.location": str(tmp_path / "cert"),
            "ssl.key.location": str(tmp_path / "key"),
            "ssl.endpoint.identification.algorithm": "none",
            "message.max.bytes": "7",
        }
    )
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a\\"b" password="c";'
    assert found.pop("sasl.jaas.config") == jaas
    assert found == {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    "client", [{"sasl.mechanism": "GSSAPI"}, {"sasl.oauthbearer.config": "x"}, {"ssl.crl.location": "x"}]
)
def test_properties_without_a_translation_are_refused(client: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"kafka-transactions\.sh --command-config FILE"):
        java_properties(client)


def test_without_jars_the_doctor_still_looks_at_the_rest(
    streams: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoJars:
        def __init__(self, _: object) -> None: ...
        def __enter__(self) -> NoJars:
            return self

        def __exit__(self, *_: object) -> None: ...

        @property
        def admin(self) -> Any:
            raise JarsMissingError("no jars")

    monkeypatch.setattr(transactions, "JavaRequests", NoJars)
    world.kafka.hang("in", 0)
    result = run(streams, "doctor")
    assert (result.exit_code, "streams broker fetch" in result.output) == (3, True), result.output
