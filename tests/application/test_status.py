"""Where an application is, told from what Kafka knows: offsets, ends and commit markers. (Kafka is a fake.)"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from rich.table import Table

from streams import Materialized, StreamsBuilder
from streams.application import status as status_module
from streams.application.status import SinkStatus, Status, SubStatus, TaskStatus, records_per_second, sink_statuses
from streams.cli.status import _table, _unmatched, as_dict
from streams.config.settings import age_in_words
from streams.engine.graph.looked_up import LookedUp
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.engine.source.pauses import NOTHING, WHOLE, Pauses
from streams.lake.commit import TABLE_COMMIT, SinkCommit, SinkId
from streams.testing.simulation import SimulatedKafka
from streams.topology.graph import DeltaTable, InternalTopic, LakeSink


def sub(read: int, *committed: TaskStatus) -> SubStatus:
    return SubStatus(
        "visits", 2, {("visits", 0): read, ("visits", 1): 5}, {("visits", 0): 100, ("visits", 1): 5}, committed
    )


def look(at_ms: int, read: int, *committed: TaskStatus) -> Status:
    return Status("app", at_ms, (sub(read, *committed),))


FIRST = TaskStatus(0, version=3, committed_ms=9_000, stream_time=4_000, records_out=7)
SECOND = TaskStatus(1, version=1, committed_ms=8_000, stream_time=-1, records_out=0)


def test_lag_rate_and_ages() -> None:
    found = as_dict(look(8_000, 40), look(10_000, 60, FIRST, SECOND))
    (visits,) = found["sub_topologies"]
    assert {name: visits[name] for name in ("lag", "records_per_s", "since_last_commit_ms", "event_time_lag_ms")} == {
        "lag": 40,
        "records_per_s": 10.0,
        "since_last_commit_ms": 1_000,
        "event_time_lag_ms": 6_000,
    }
    assert [task["stream_time"] for task in visits["committed"]] == [4_000, None]


def test_an_application_that_never_committed_has_no_ages() -> None:
    found = as_dict(look(0, 0), look(1_000, 0))["sub_topologies"][0]
    assert (found["lag"], found["since_last_commit_ms"], found["event_time_lag_ms"]) == (100, None, None)
    assert not look(0, 0).has_committed


def test_a_paused_sub_topology_says_since_when() -> None:
    paused = Status("app", 9_000, (replace(sub(40), paused_since_ms=8_000),))
    assert as_dict(paused, paused)["sub_topologies"][0]["paused_since"] == 8_000
    assert "paused 1 s ago" in str(next(iter(_table(paused, paused).columns[0].cells)))


def test_an_execution_that_was_asked_for_stands_beside_the_one_that_runs() -> None:
    asked = Status("app", 9_000, (replace(sub(40), committed=(FIRST,)),), asked="auto")
    assert as_dict(asked, asked)["asked_execution"] == "auto"
    assert _table(asked, asked).title == "app, asked to run with execution=auto"
    assert str(next(iter(_table(asked, asked).columns[0].cells))) == "visits\nmicro-batch"
    as_set = replace(asked, asked=None)
    assert as_dict(as_set, as_set)["asked_execution"] is None
    assert (_table(as_set, as_set).title, str(next(iter(_table(as_set, as_set).columns[0].cells)))) == ("app", "visits")


def test_joins_that_have_found_nothing_are_named() -> None:
    builder = StreamsBuilder()
    builder.stream("visits").join(builder.table("users", materialized=Materialized("users")), min, name="enrich").to(
        "out"
    )
    joins = (LookedUp("enrich", 200, {"no_row": 120}), LookedUp("whole", 7))
    found = Status("app", 9_000, (replace(sub(40), joins=joins),))
    (line,) = _unmatched(found, builder.build())
    assert line == (
        "visits: join 'enrich': 120 of 200 records found nothing in 'users' (120 whose key the table did not have then)"
    )
    assert as_dict(found, found)["sub_topologies"][0]["joins"] == [
        {"operator": "enrich", "looked_up": 200, "unmatched": {"no_row": 120}},
        {"operator": "whole", "looked_up": 7, "unmatched": {}},
    ]


@pytest.mark.parametrize(("seconds", "rate"), [(2, 10.0), (0, None)])
def test_a_rate_needs_two_moments(seconds: int, rate: float | None) -> None:
    assert records_per_second(look(0, 40), look(seconds * 1000, 60), "visits") == rate


@pytest.mark.parametrize(("lag", "rate"), [(60, 25.0), (0, 0.0)])
def test_between_two_long_micro_batches_the_rate_is_that_since_the_last_one_began(lag: int, rate: float) -> None:
    committed = (TaskStatus(0, 3, 10_000, -1, 0),)
    place = ("visits", 0)
    looks = [
        Status("app", at_ms, (SubStatus("visits", 1, {place: 40}, {place: 40 + lag}, committed, last_records=100),))
        for at_ms in (12_000, 14_000)
    ]
    assert records_per_second(looks[0], looks[1], "visits") == rate


@pytest.mark.parametrize(
    ("ms", "text"), [(-5, "0 s"), (119_000, "119 s"), (120_000, "2 min"), (7_200_000, "2 h"), (86_400_000 * 3, "3 d")]
)
def test_ages_are_read_at_a_glance(ms: int, text: str) -> None:
    assert age_in_words(ms) == text


def sink(read: int, **more: Any) -> SinkStatus:
    return SinkStatus("flights-out", "delta table /lake/f", {("t", 0): read}, {("t", 0): 100}, **more)


def test_a_lake_sink_has_a_lag_and_a_rate() -> None:
    before, after = (Status("app", at, (), (sink(read),)) for at, read in ((8_000, 40), (10_000, 60)))
    (found,) = as_dict(before, after)["lake_sinks"]
    assert found == {
        "sink": "flights-out",
        "target": "delta table /lake/f",
        "lag": 40,
        "lag_at_most": False,
        "paused_since": None,
        "records_per_s": 10.0,
        "partitions": [{"topic": "t", "partition": 0, "read": 60, "end": 100}],
    }
    assert cells(_table(before, after)) == ["flights-out", "40", "10", "sink"]


def test_a_lag_that_may_be_smaller_says_so() -> None:
    for found, lag in ((sink(40, at_most=True, paused_since_ms=8_000), "≤ 60"), (sink(100, at_most=True), "0")):
        look = Status("app", 9_000, (), (found,))
        assert cells(_table(look, look))[1] == lag
    assert "paused 1 s ago" in cells(_table(*[Status("app", 9_000, (), (sink(40, paused_since_ms=8_000),))] * 2))[0]


def cells(table: Table) -> list[str]:
    """The cells of the first row that have text."""
    return [text for column in table.columns if (text := str(next(iter(column.cells))))]


@dataclass
class Info:
    partitions: int


class FakeAdmin:
    """The topic `visits` from offset 10 to 100, of which 60 were read; partition 1 was never read."""

    def describe_topics(self, names: Iterable[str]) -> dict[str, Info]:
        return {name: Info(2) for name in names}

    def begin_offsets(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 10)

    def end_offsets(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 100)

    def group_offsets(self, group: str, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        assert group == "app"
        return {place: 60 for place in places if place[1] == 0}


@dataclass
class Named:
    application_id: str = "app"
    name: str = "visits"
    topics: tuple[str, ...] = ("visits",)


@dataclass
class Prepared:
    sub: Named
    tasks: int


@dataclass
class Planned:
    config: Named
    subs: tuple[Prepared, ...]


@dataclass
class Marker:
    task: int
    version: int
    now_ms: int
    stream_time: int
    counts: dict[str, int]
    ranges: dict[str, dict[str, tuple[int, int]]]
    live: bool = False
    operator_state: dict[str, Any] = field(default_factory=dict)
    placement: str = "murmur2"

    @property
    def live_positions(self) -> dict[tuple[str, int], int]:
        return {("visits", 0): 90} if self.live else {}


def test_what_was_never_read_waits_from_its_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[int]]] = []

    def newest_markers(log: object, topic: str, partitions: Iterable[int]) -> list[Marker]:
        asked.append((topic, list(partitions)))
        read = {"visits": {"0": (10, 40)}}
        # Two tasks have read the same range, and a third one has its last records from an earlier micro-batch.
        return [Marker(n, 4, ms, 8_000, {"out": 3}, read) for n, ms in ((1, 9_000), (0, 9_000), (2, 5_000))]

    monkeypatch.setattr(status_module, "newest_markers", newest_markers)
    planned = Planned(Named(), (Prepared(Named(), 2),))
    found = status_module.application_status(planned, FakeAdmin(), None, 10_000)  # type: ignore[arg-type]
    assert asked == [("app-visits-commits", [0, 1])]
    (visits,) = found.subs
    assert visits.read == {("visits", 0): 60, ("visits", 1): 10}
    assert (visits.lag, visits.committed[1]) == (130, TaskStatus(1, 4, 9_000, 8_000, 3))
    assert visits.last_records == 30
    assert visits.execution == "micro-batch"


def test_a_live_task_is_as_far_as_its_marker_though_its_group_does_not_know_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker = Marker(0, 4, 9_000, 8_000, {"out": 3}, {"visits": {"0": (60, 90)}}, live=True)
    monkeypatch.setattr(status_module, "newest_markers", lambda *_: [marker])
    planned = Planned(Named(), (Prepared(Named(), 2),))
    (visits,) = status_module.application_status(planned, FakeAdmin(), None, 10_000).subs  # type: ignore[arg-type]
    assert visits.read == {("visits", 0): 90, ("visits", 1): 10}
    assert visits.execution == "live"


# --- How far lake sinks are, told from what Kafka and the checkpoint know. (Kafka is simulated, the checkpoint is made by hand.)

TOPIC = InternalTopic("out").topic_name("app")
PLACE = (TOPIC, 0)


@pytest.fixture
def kafka() -> SimulatedKafka:
    """The internal topic of the sink, with the offsets 4 to 10."""
    made = SimulatedKafka({TOPIC: 1})
    for number in range(10):
        made.append(TOPIC, b"k", b"v", number)
    made.delete_records({PLACE: 4})
    return made


def sink_status(kafka: SimulatedKafka, checkpoint_dir: str, *, delta: bool, pauses: Pauses = NOTHING) -> SinkStatus:
    target: Any = DeltaTable("/lake/out", is_path=True) if delta else print
    layout: Any = None
    sink = LakeSink("out", InternalTopic("out"), layout, target)
    config = SimpleNamespace(application_id="app", checkpoint_dir=checkpoint_dir)
    application: Any = SimpleNamespace(
        config=config, plan=SimpleNamespace(topology=SimpleNamespace(lake_sinks={"out": sink}))
    )
    admin: Any = kafka
    (found,) = sink_statuses(application, admin, pauses)
    return found


def spark_has(folder: Path, committed: int, *ends: int, topic_id: str) -> None:
    """Writes the checkpoint of the sink's query: the end of each batch, and which one is confirmed."""
    for name in ("offsets", "commits"):
        (folder / "out" / name).mkdir(parents=True)
    (folder / "out" / "metadata").write_bytes(orjson.dumps({"id": "query"}))
    for batch, end in enumerate(ends):
        offsets = orjson.dumps(SourceOffsets({TOPIC: TopicOffsets(topic_id, (end,))}).to_json()).decode()
        (folder / "out" / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offsets}")
    for batch in range(committed + 1):
        (folder / "out" / "commits" / str(batch)).write_text("v1\n{}")


def id_of(kafka: SimulatedKafka) -> str:
    return kafka.describe_topics([TOPIC])[TOPIC].topic_id


def test_the_lag_of_a_table_is_what_was_not_deleted_from_its_topic(kafka: SimulatedKafka, tmp_path: Path) -> None:
    for checkpoint in (str(tmp_path), "s3a://elsewhere"):
        found = sink_status(kafka, checkpoint, delta=True)
        assert (found.lag, found.at_most, found.read) == (6, False, {PLACE: 4})
        assert found.target == "delta table /lake/out"


@pytest.mark.parametrize(("topic", "lag"), [("this", 2), ("deleted by a reset", 6)])
def test_the_last_commit_of_a_table_counts_before_its_rows_are_deleted(
    kafka: SimulatedKafka, tmp_path: Path, topic: str, lag: int
) -> None:
    position = TopicOffsets(id_of(kafka) if topic == "this" else topic, (8,))
    saved = {"table_id": "id", **SinkCommit(3, position, "attempt").to_json(SinkId("app", "out"))}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / TABLE_COMMIT).write_bytes(orjson.dumps(saved))
    assert sink_status(kafka, str(tmp_path), delta=True).lag == lag


def test_a_batch_that_spark_has_confirmed_is_no_lag_of_a_function(kafka: SimulatedKafka, tmp_path: Path) -> None:
    spark_has(tmp_path, 1, 4, 9, 10, topic_id=id_of(kafka))
    found = sink_status(kafka, str(tmp_path), delta=False)
    assert (found.lag, found.at_most) == (1, False)
    assert found.target == "function print"


@pytest.mark.parametrize("where", ["elsewhere", "missing", "damaged", "of another topic"])
def test_without_its_checkpoint_the_lag_of_a_function_is_at_most_what_its_topic_has(
    kafka: SimulatedKafka, tmp_path: Path, where: str
) -> None:
    if where not in ("elsewhere", "missing"):
        spark_has(tmp_path, 0, 10, topic_id="another" if where == "of another topic" else id_of(kafka))
    if where == "damaged":
        (tmp_path / "out" / "offsets" / "0").write_text("v1")
    found = sink_status(kafka, "s3a://elsewhere" if where == "elsewhere" else str(tmp_path), delta=False)
    assert (found.lag, found.at_most) == (6, True)


def test_what_was_handed_over_is_noted_in_the_group(kafka: SimulatedKafka) -> None:
    kafka.groups["app"] = {PLACE: 9}
    found = sink_status(kafka, "s3a://elsewhere", delta=False)
    assert (found.lag, found.at_most) == (1, False)


def test_a_paused_sink_says_since_when(kafka: SimulatedKafka, tmp_path: Path) -> None:
    assert sink_status(kafka, str(tmp_path), delta=True, pauses=Pauses({WHOLE: 7})).paused_since_ms == 7
    assert sink_status(kafka, str(tmp_path), delta=True, pauses=Pauses({"other": 7})).paused_since_ms is None


def test_a_sink_that_has_never_run_has_no_lag(tmp_path: Path) -> None:
    assert sink_status(SimulatedKafka({}), str(tmp_path), delta=False).lag == 0
