"""The server: its files and figures, who may ask, and what the settings refuse."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from state.kafka.topics import TopicInfo, TopicPartition
from streams import Int64Serde, StreamsBuilder, StringSerde
from streams.application.dead_letters import Letter
from streams.config import StreamsConfig, load_config
from streams.config.settings import Address
from streams.engine.graph.following import FOLLOWED
from streams.errors import ConfigError
from streams.metrics.recorder import START, MetricsRecorder
from streams.model.record import ERROR_HEADERS
from streams.serve.http import servers as module
from streams.topology.topology import Topology
from streams.ui import figures, kafka
from streams.ui.history import History
from streams.ui.kafka import KafkaLook, groups_of
from streams.ui.running import check_page, page_of_running
from streams.ui.server import API, FILES, FOLDER
from streams.ui.watch import KafkaWatch
from tests.metrics.made import recorder, step

TOKEN = "a-token-for-the-page"
PAGE = Path(__file__).parents[2] / "docs" / "ui.md"


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders").filter(lambda key, value: value, named="paid").group_by_key().count().to_stream().to(
        "counts"
    )
    return builder.build()


def config(**settings: object) -> StreamsConfig:
    # Nobody listens there: what is tested here asks Kafka nothing.
    return load_config(None, {"application_id": "app", "bootstrap_servers": "127.0.0.1:1", "ui": "0", **settings})


def get(url: str, token: str = "", host: str = "", data: bytes | None = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Host": host} if host else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if "json" in answer.headers["Content-Type"] else text
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def served(
    made: MetricsRecorder | None = None, history: History | None = None, *, answers: bool = True, **settings: object
) -> Iterator[str]:
    """The address of a page; whether its brokers answer when it asks whether they do."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        if answers:
            patch.setattr(KafkaLook, "ask", lambda look: None)
        yield from _served(made, history, said, settings)


def _served(
    made: MetricsRecorder | None, history: History | None, said: list[str], settings: dict[str, object]
) -> Iterator[str]:
    with page_of_running(config(**settings), topology(), made or recorder(), history or History(), said.append):
        (url,) = re.findall(r"http://\S+", said[0])
        yield url


def test_the_page_needs_nothing_from_elsewhere() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {name or "index.html" for name in FILES}
    with served() as url:
        for name in FILES:
            status, text = get(url + name)
            assert (status, text) == (200, (FOLDER / (name or "index.html")).read_text(encoding="utf-8"))
            # The namespace of drawings is a name, not an address.
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 200_000


def test_each_figure_is_listed_and_documented() -> None:
    with served() as url:
        status, found = get(url + API[1:])
    assert status == 200
    documented = set(re.findall(r"`GET (/api/v1/[\w-]+)`", PAGE.read_text(encoding="utf-8")))
    assert set(found["figures"]) == documented


def test_the_figures_of_a_running_application() -> None:
    made, history = MetricsRecorder("app"), History()
    with served(made, history) as url:
        made.starting("orders", 2, ("orders",))
        made.obstacle(START, None)
        made.begun("orders")
        sample = {
            "operator": "paid",
            "dropped": "null_key",
            "key": "k",
            "value": "1",
            "timestamp": 7,
            "source": ["orders", 0, 3],
        }
        counters = {"in:paid": 5, "out:paid": 3, "dropped:paid:null_key": 2, "cpu_ns:paid": 2_000_000}
        counters[FOLLOWED + json.dumps(sample)] = 1
        stores = {"disk_bytes": 4096, "stores": {"KSTREAM-AGGREGATE-orders-STATE-STORE": [10, 200]}}
        made.step("orders", 0, (step(0, counters=counters, state=stores, host="here"), step(1, attempt=2)))
        made.positions("orders", {("orders", 0): (4, 7)})
        overview, operators, tasks, steps, followed = (
            get(f"{url}api/v1/{name}")[1] for name in ("overview", "operators", "tasks", "steps", "followed")
        )
    assert (overview["state"], overview["lag_records"], overview["may_change"]) == ("RUNNING", 3, False)
    (sub,) = overview["sub_topologies"]
    assert (sub["records_in"], sub["micro_batch"], sub["partitions"][0]["lag"]) == (10, 0, 3)
    (paid,) = operators["operators"]
    assert (paid["operator"], paid["records_in"], paid["dropped"]) == ("paid", 5, {"null_key": 2})
    assert paid["cpu_s"] == 0.002
    (seen,) = followed["dropped"]
    assert seen.items() >= {"sub_topology": "orders", "task": 0, **sample}.items()
    first, second = tasks["sub_topologies"][0]["tasks"]
    assert (first["host"], first["state_rows"], first["history"]["records"]) == ("here", 10, [5])
    assert (second["failed_attempts"], second["history"]["failed_attempts"]) == (2, [2])
    parts = {one["part"]: one for one in steps["sub_topologies"][0]["parts"]}
    assert parts["process"] == {"part": "process", "p50_ms": 200, "p99_ms": 200}


def test_while_the_broker_is_away_nothing_is_green_and_the_lag_is_unknown() -> None:
    made, history = MetricsRecorder("app"), History()
    with served(made, history, answers=False) as url:
        made.starting("orders", 1, ("orders",))
        made.obstacle(START, None)
        made.step("orders", 0, (step(0),))
        made.positions("orders", {("orders", 0): (4, 7)})
        began = time.monotonic()
        status, overview = get(f"{url}api/v1/overview")
        assert time.monotonic() - began < 2.5
    assert (status, overview["state"], overview["level"], overview["old"]) == (200, "WAITING", "bad", True)
    assert overview["sentence"].startswith("no answer from the brokers for")
    (sub,) = overview["sub_topologies"]
    assert (overview["lag_records"], sub["lag_records"], sub["lag_ms"]) == (None, None, None)
    assert sub["partitions"][0]["lag"] is None


def test_dead_letters_of_an_application_that_runs_elsewhere_reach_the_headline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = int(time.time() * 1000)
    letters = [{"written": now - 1_000}, {"written": now - 2_000}, {"written": now - 3_600_000}]
    monkeypatch.setattr(KafkaLook, "dead_letters", lambda look: {"topics": [{"letters": letters}]})
    with closing(KafkaLook(config(), topology())) as look:
        made, history = MetricsRecorder("app"), History()
        KafkaWatch(look, made, history)._count_letters()
    made.obstacle(START, None)
    assert figures.overview(made.snapshot(), history)["sentence"].startswith("2 dead letters in the last 10 min")


def test_log_lines_are_kept_without_secrets(capfd: pytest.CaptureFixture[str]) -> None:
    with served() as url:
        logging.getLogger("streams.somewhere").warning("password=%s is wrong", "a-secret")
        _, found = get(f"{url}api/v1/logs")
    line = next(one for one in found["lines"] if one["logger"] == "streams.somewhere")
    assert (line["level"], "a-secret" in str(found)) == ("WARNING", False)


def test_pauses_need_a_token_and_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, bool]] = []

    def pause(look: KafkaLook, sub_topology: str | None, resume: bool) -> dict[str, object]:
        asked.append((sub_topology, resume))
        return {"paused": {}}

    monkeypatch.setattr(KafkaLook, "pause", pause)
    with served() as url:
        status, text = get(f"{url}api/v1/pause", data=b"{}")
        assert (status, "STREAMS_UI_TOKEN" in text) == (403, True)
    with served(ui_token=TOKEN) as url:
        assert get(f"{url}api/v1/pause", data=b"{}")[0] == 401
        for body in (b"[]", b'{"sub_topology": 3}'):
            status, text = get(f"{url}api/v1/pause", TOKEN, data=body)
            assert (status, "sub_topology" in text) == (400, True)
        assert get(f"{url}api/v1/pause", TOKEN, data=b'{"sub_topology": "orders"}') == (200, {"paused": {}})
        assert get(f"{url}api/v1/resume", TOKEN, data=b"{}")[0] == 200
    assert asked == [("orders", False), (None, True)]


def test_the_last_records_of_a_topic_are_shown_as_its_serdes_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Admin:
        @staticmethod
        def close() -> None: ...

        def describe_topics(self, names: list[str]) -> dict[str, TopicInfo]:
            return {name: TopicInfo("id", 2) for name in names}

        def begin_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(places, 0)

        def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
            return {place: 100 * place[1] for place in places}

    def read(log: object, place: TopicPartition, start: int, end: int) -> Iterator[Letter]:
        yield from (Letter(place, at, at, b"ann", (at).to_bytes(8, "big"), ()) for at in range(start, end))
        yield Letter(place, end, end, b"ann", b"not a number", ())

    monkeypatch.setattr(kafka, "letters_of", read)
    with closing(KafkaLook(config(), None)) as look:
        monkeypatch.setattr(look, "_admin", Admin)
        monkeypatch.setattr(look, "_topics", lambda: {"counts"})
        monkeypatch.setattr(look, "_serdes", lambda topic: (StringSerde(), Int64Serde()))
        found = look.last_records("counts")["records"]
        with pytest.raises(ConfigError, match="app neither reads nor writes a topic 'elsewhere'"):
            look.last_records("elsewhere")
    # What a serde cannot read is shown as its bytes: that is the record somebody looks for.
    assert [(one["position"], one["key"], one["value"]) for one in found[:2]] == [
        ("counts-1@100", "ann", "not a number"),
        ("counts-1@99", "ann", "99"),
    ]
    assert len(found) == 20


def test_dead_letters_of_one_error_are_one_group() -> None:
    def letter(offset: int, error: str, node: str) -> Letter:
        headers = {"exception": error, "node": node, "stage": "processing", "message": f"message {offset}"}
        return Letter(
            ("dead", 0),
            offset,
            1_000 + offset,
            b"k",
            b"v",
            tuple((f"{ERROR_HEADERS}{n}", t.encode()) for n, t in headers.items()),
        )

    made = groups_of([letter(n, "ValueError", "check") for n in range(45)] + [letter(50, "KeyError", "join")])
    assert [(one["error"], one["node"], one["count"]) for one in made] == [
        ("ValueError", "check", 45),
        ("KeyError", "join", 1),
    ]
    assert (made[0]["first"], made[0]["last"], made[0]["message"]) == (1_000, 1_044, "message 44")


def test_the_graph_has_operators_with_the_users_line_of_code() -> None:
    with served() as url:
        _, found = get(f"{url}api/v1/topology")
    boxes = {one["name"]: one for one in found["boxes"]}
    assert re.fullmatch(r"tests/ui/test_server\.py, line \d+", boxes["paid"]["line"])
    assert 'named="paid"' in boxes["paid"]["code"]
    assert {one["kind"] for one in found["boxes"]} == {"source", "operator", "store", "sink", "topic"}
    names = {one["id"] for one in found["boxes"]}
    assert all({arrow["from"], arrow["to"]} <= names for arrow in found["arrows"])


def test_without_a_token_only_this_hosts_own_names_are_answered() -> None:
    with served() as url:
        assert get(f"{url}api/v1/overview", host="evil.example")[0] == 400
        assert get(f"{url}api/v1/overview", host="localhost")[0] == 200
        assert get(f"{url}api/v1/elsewhere")[0] == 404


def test_with_a_token_every_figure_asks_for_it() -> None:
    with served(ui_token=TOKEN) as url:
        for given, status in (("", 401), ("another-token", 401), (TOKEN, 200)):
            assert get(f"{url}api/v1/overview", given)[0] == status
        assert get(f"{url}api/v1/dead-letters/replay", "", data=b"{}")[0] == 401
        assert get(url)[0] == 200
        assert get(f"{url}api/v1/overview", TOKEN)[1]["may_change"] is True


def test_a_replay_needs_a_token_and_says_what_is_wrong() -> None:
    with served() as url:
        status, text = get(f"{url}api/v1/dead-letters/replay", data=b'{"topic": "dead"}')
        assert (status, "STREAMS_UI_TOKEN" in text) == (403, True)
    with served(ui_token=TOKEN, dead_letter_topic="dead") as url:
        for body, says in (
            (b"{", "not JSON"),
            (b"[]", "topic"),
            (b'{"topic": "dead", "positions": [1]}', "pairs"),
            (b'{"topic": "orders"}', "is not a topic of dead letters of app. Known: dead"),
        ):
            status, text = get(f"{url}api/v1/dead-letters/replay", TOKEN, data=body)
            assert (status, says in text) == (400, True), text


def test_the_settings_refuse_a_page_that_anybody_could_read() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:8080 could be read from other hosts: set ui_token"):
        config(ui="0.0.0.0:8080")
    with pytest.raises(ConfigError, match=r"fewer than 16 characters"):
        config(ui_token="short")
    assert config(ui="0.0.0.0:8080", ui_token=TOKEN).ui_address == ("0.0.0.0", 8080)
    assert config(ui="[::1]:8080").ui_address == ("::1", 8080)
    assert config(ui="none").ui_address is None
    assert TOKEN not in str(config(ui_token=TOKEN))


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("host", False)]
)
def test_a_loopback_address(host: str, loopback: bool) -> None:
    assert Address(host, 1).is_loopback is loopback


def test_a_taken_port_is_refused_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"the dashboard cannot be served at 127.0.0.1:{port}: .*--ui HOST:PORT"):
            check_page(config(ui=str(port)))


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'streams-on-spark\[serve\]'"):
        check_page(config())
    check_page(config(ui=""))


def test_nothing_is_served_without_the_setting() -> None:
    said: list[str] = []
    with page_of_running(config(ui=""), topology(), recorder(), History(), said.append):
        assert not said
