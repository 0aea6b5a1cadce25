"""Faults around the application: other writers, brokers and disks. Each is produced, and the doctor says what mends it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from state.commit.marker import MARKER_KEY
from streams import JsonSerde, StreamsBuilder, agg, col, fields
from streams.application.doctor.inspection import Finding, Severity
from streams.application.doctor.program import FEWEST
from streams.cluster.admin import Replicas
from tests.doctor.world import NOW_MS, World, only

COMMITS, CHANGELOG = "app-in-commits", "app-counts-changelog"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An application that has processed two micro-batches."""
    return World(tmp_path).run().run("d", "e")


def where(finding: Finding) -> str:
    return str(finding.place)


def test_a_transaction_that_hangs(world: World) -> None:
    span = world.kafka.hang(COMMITS, 1)
    found = only(world.findings(), "transactions")
    assert "a transaction of an unknown transactional id (producer id 999) hangs" in found.says
    assert found.command == "streams transactions app.py -a app --hanging"
    assert where(found) == f"topic {COMMITS}, partition 1, offset {span.first}"


def test_a_transaction_of_a_producer_at_work_is_no_hanging_one(world: World) -> None:
    producer = world.kafka.producer("writer")
    producer.init_transactions()
    producer.begin()
    producer.send("in", 0, b"k", b"v", 1)
    found = only(world.findings(), "transactions")
    assert "a transaction of writer is open for 5 s; its coordinator aborts it after 60000 ms" in found.says
    assert found.severity is Severity.NOTE


def test_without_java_an_open_transaction_is_seen_nevertheless(world: World) -> None:
    world.kafka.hang("in", 0)
    found = only(world.findings(transactions=lambda: None), "transactions")
    assert "that needs Java and the broker's jars" in found.says
    assert found.command == "streams transactions app.py -a app"


def test_two_drivers_that_take_turns(world: World) -> None:
    for turn in ("query of two", world.checkpoint.query_id, "query of two", world.checkpoint.query_id):
        producer = world.kafka.producer("app-in-0")
        producer.init_transactions()
        producer.begin()
        marker = replace(world.marker(), query_id=str(turn))
        producer.send(COMMITS, 0, MARKER_KEY, marker.to_bytes(), NOW_MS)
        producer.commit()
    found = only(world.findings(), "drivers")
    assert "take turns: two drivers run under the application id app" in found.says
    assert where(found) == f"sub-topology in, task 0, topic {COMMITS}, partition 0"


def test_attempts_that_were_fenced(world: World) -> None:
    producer = world.kafka.producer("app-in-0")
    producer.init_transactions()
    producer.begin()
    producer.send(COMMITS, 0, MARKER_KEY, world.marker().to_bytes(), NOW_MS)
    world.run("f")
    found = only(world.findings(), "drivers")
    assert "1 attempt of this task were aborted within the last 10 min" in found.says
    assert found.severity is Severity.WARNING


# --- brokers and disks


@pytest.mark.parametrize(
    ("settings", "said", "severity"),
    [
        ({"transaction.max.timeout.ms": "1000"}, "broker 1 allows transactions of 1000 ms at most", Severity.ERROR),
        ({"unclean.leader.election.enable": "true"}, "broker 1 elects unclean leaders", Severity.WARNING),
        ({"offsets.retention.minutes": "5"}, "forgets the offsets of a group", Severity.NOTE),
    ],
)
def test_brokers_that_break_exactly_once(world: World, settings: dict[str, str], said: str, severity: Severity) -> None:
    world.kafka.brokers = {1: settings}
    found = only(world.findings(), "brokers")
    assert said in found.says
    assert found.severity is severity


def test_a_cluster_that_keeps_its_own_logs_once(world: World) -> None:
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    world.kafka.brokers = dict.fromkeys((1, 2, 3), settings)
    found = world.findings()
    assert ["log of transactions" in one.says or "min.isr is 1" in one.says for one in found["brokers"]] == [True, True]
    assert {one.place.topic for one in found["replicas"]} == {COMMITS, CHANGELOG}
    assert "the topic has 1 replica in a cluster of 3 brokers: the loss of one disk" in found["replicas"][0].says


def test_a_partition_without_enough_replicas_in_sync(world: World) -> None:
    world.kafka.settings["out"] = {"min.insync.replicas": "2"}
    world.kafka.in_sync = {("out", 0): Replicas(3, 1), ("out", 1): Replicas(3, 3)}
    found = only(world.findings(), "replicas")
    assert "1 replica of 3 in sync, and min.insync.replicas is 2" in found.says
    assert where(found) == "topic out, partition 0"


def test_local_state_of_another_origin(world: World) -> None:
    world.restore()
    other = World(world.folder / "other")
    other.driver = other.start(name="two")
    other.run().run("d", "e", "f")
    found = only(
        other.findings(config=other.config.model_copy(update={"state_dir": world.config.state_dir})), "local state"
    )
    assert "store 'counts' cannot go on with its local state" in found.says
    assert found.severity is Severity.NOTE


def test_local_state_that_is_damaged(world: World) -> None:
    world.restore()
    (world.config.state_dir / "app/in/1/db/CURRENT").write_text("no such manifest\n")
    found = only(world.findings(), "local state")
    assert "local state cannot be read" in found.says
    assert where(found) == "sub-topology in, task 1"


def test_local_state_of_a_task_that_is_gone(world: World) -> None:
    (world.config.state_dir / "app/in/7/db").mkdir(parents=True)
    found = only(world.findings(), "local state")
    assert found.command == f"rm -r {world.config.state_dir}/app/in/7"


def test_a_disk_that_is_nearly_full(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=usage.total // 100))
    found = only(world.findings(), "disk")
    assert "MiB free of" in found.says
    assert found.command == "streams run app.py -a app --set state_dir=FOLDER"


def test_a_state_folder_of_another_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.restore()
    monkeypatch.setattr("os.getuid", lambda: 12_345)
    found = world.findings()["disk"][0]
    assert "this is user 12345" in found.says
    assert found.command == f"chown -R 12345 {world.config.state_dir}"


@pytest.mark.parametrize("objects", [FEWEST, FEWEST - 1])
def test_a_field_that_no_record_has(tmp_path: Path, objects: int) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in", value_serde=JsonSerde())
    orders.filter(col("amuont") > 0).select_key(col("id.nr")).map_values(fields(n=col("amount") * 2)).to("out")
    orders.group_by_key().aggregate(total=agg.sum("amount"), most=agg.max("amunt"))
    world = World(tmp_path, builder.build())
    for value in [b'{"amount":1,"id":{"nr":1}}'] * objects + [b"no JSON"]:
        world.kafka.append("in", b"k", value, NOW_MS, partition=0)
    found = world.findings().get("fields", [])
    assert [one.severity for one in found] == [Severity.NOTE] * (2 if objects == FEWEST else 0)
    for one, name in zip(found, ("amuont", "amunt"), strict=False):
        assert f"reads the field '{name}', which none of the last {objects} objects has" in one.says
        assert "Did you mean 'amount'?" in one.says
