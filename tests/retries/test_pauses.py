"""Pauses: recorded in Kafka, looked up by the planner, in force for one sub-topology or all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from state.changelog import commits_topic, pauses_topic
from streams.application.pausing import parts
from streams.driver.ingest import query as query_module
from streams.driver.ingest.query import IngestRun, PauseHold
from streams.driver.stopping import BatchInterruptedError
from streams.engine.source.offsets import SourceOffsets
from streams.engine.source.pauses import (
    LOOK_MS,
    NOTHING,
    WHOLE,
    Pauses,
    PauseWatch,
    execution_record,
    pause_record,
    read_pauses,
)
from streams.engine.source.planner import BatchPlanner
from streams.engine.source.topics import SourceSpec
from streams.testing.simulation import SimulatedKafka
from streams.topology.graph.nodes import Ingest


@pytest.fixture
def kafka():
    kafka = SimulatedKafka({"in": 1, "in-retry": 1})
    for time in (1_000, 1_500):
        kafka.append("in", b"k", b"v", time)
        kafka.append("in-retry", b"k", b"v", time)
    return kafka


def pause(kafka, name, since_ms):
    """Pauses a part of the application, or resumes it without a time."""
    kafka.create_topic(pauses_topic("app"), 1, "compact")
    kafka.append(pauses_topic("app"), *pause_record(name, since_ms), partition=0)


def planner(kafka, clock, **spec):
    source = SourceSpec(dict.fromkeys(["in", *spec.get("delays", ())], "earliest"), **spec)
    now = lambda: clock[0]  # noqa: E731
    return BatchPlanner(kafka, source, kafka.sample, None, now, paused=PauseWatch(kafka, "app", "in", now))


def test_a_paused_sub_topology_plans_nothing_until_it_is_resumed(kafka):
    clock = [10_000]
    plans = planner(kafka, clock, tick_ms=100)
    start = plans.initial()
    pause(kafka, "in", 9_000)
    assert plans.latest(start) == start, "neither records nor a tick"
    pause(kafka, "in", None)
    assert plans.latest(start) == start, "it looks once in a while"
    clock[0] += LOOK_MS
    assert plans.latest(start).topics["in"].offsets == (2,)


@pytest.mark.parametrize(("name", "paused"), [("in", True), (WHOLE, True), ("other", False)])
def test_a_pause_holds_the_one_it_names_or_all(kafka, name, paused):
    pause(kafka, name, 9_000)
    assert PauseWatch(kafka, "app", "in", lambda: 0)() is paused
    assert not PauseWatch(kafka, "another-app", "in", lambda: 0)()


def test_pauses_are_counted_from_the_first_one_that_holds(kafka):
    assert read_pauses(kafka, "app").since_ms == {}
    for name, since_ms in (("in", 5), ("other", 6), (WHOLE, 7), ("other", None)):
        pause(kafka, name, since_ms)
    pauses = read_pauses(kafka, "app")
    assert pauses.since_ms == {"in": 5, WHOLE: 7}
    assert (pauses.of("in"), pauses.of("other")) == (5, 7)


def test_the_execution_that_is_asked_for_is_no_pause(kafka):
    pause(kafka, WHOLE, 7)
    said = []
    for execution in ("auto", "micro-batch", None):
        kafka.append(pauses_topic("app"), *execution_record(execution, 8), partition=0)
        said.append(read_pauses(kafka, "app"))
    assert [one.execution for one in said] == ["auto", "micro-batch", None]
    assert all(one.since_ms == {WHOLE: 7} for one in said)


def test_a_planned_range_of_a_retry_topic_ends_before_the_first_record_that_is_not_due(kafka):
    clock = [1_999]
    plans = planner(kafka, clock, delays={"in-retry": 1_000})
    at = plans.initial()

    def offsets():
        nonlocal at
        at = plans.latest(at)
        return at.topics["in"].offsets, at.topics["in-retry"].offsets

    assert offsets() == ((2,), (0,))
    clock[0] = 2_000
    assert offsets() == ((2,), (1,))
    clock[0] = 2_499
    assert offsets() == ((2,), (1,))
    clock[0] = 2_500
    assert offsets() == ((2,), (2,))
    assert plans.latest(at) == at
    assert isinstance(at, SourceOffsets)


def test_a_failure_of_a_clock_that_was_ahead_waits_no_longer_than_twice_its_delay(kafka):
    for time in (90_000_000, 90_000_001):
        kafka.append("in-retry", b"k", b"v", time)
    clock = [2_500]
    plans = planner(kafka, clock, delays={"in-retry": 1_000})
    at, found = plans.initial(), []
    for _ in range(4):
        at = plans.latest(at)
        found.append(at.topics["in-retry"].offsets)
    assert found == [(2,), (3,), (4,), (4,)]


def test_retried_records_are_not_held_back_by_a_backlog():
    """Their time is that of the failure, later than all records of a backlog of old events."""
    kafka = SimulatedKafka({"in": 1, "in-retry": 1})
    for time in range(1_000):
        kafka.append("in", b"k", b"v", time)
    kafka.append("in-retry", b"k", b"v", 50_000)
    plans = planner(kafka, [60_000], delays={"in-retry": 1_000}, max_records=40)
    assert plans.latest(plans.initial()).topics["in-retry"].offsets == (1,)


def test_the_parts_of_an_application_are_known_by_their_commits():
    class Admin:
        def topic_names(self):
            sources = [
                "app-flights-repartition",
                commits_topic("app", "flights-ingest"),
                commits_topic("app", "x-ingest"),
            ]
            return ["in", pauses_topic("app"), commits_topic("app", "in"), "app-x-changelog", *sources]

    assert parts(Admin(), "app") == ["flights", "in", "x-ingest"], (
        "x-ingest is a topic's name, without an internal topic x"
    )
    assert parts(Admin(), "other") == []


class Gate:
    """A gate that is open, until it has been asked some times."""

    def __init__(self, times):
        self.left = times

    def enter(self):
        self.left -= 1
        if self.left < 0:
            raise BatchInterruptedError


@pytest.mark.parametrize(("name", "held"), [("flights", True), (WHOLE, True), ("flights-repartition", False)])
def test_a_batch_of_a_source_outside_kafka_waits_for_the_resume(kafka, name, held):
    pause(kafka, name, 9_000)
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            pause(kafka, name, None)

    hold = PauseHold(lambda: read_pauses(kafka, "app"), sleep)
    assert hold.holds("flights") is held
    hold.pass_when_resumed("flights", Gate(9))
    assert waited == ([LOOK_MS / 1000] * 3 if held else [])


def test_a_stop_ends_a_batch_that_is_held(kafka):
    pause(kafka, WHOLE, 9_000)
    with pytest.raises(BatchInterruptedError):
        PauseHold(lambda: read_pauses(kafka, "app"), lambda seconds: None).pass_when_resumed("flights", Gate(5))


def test_a_batch_that_was_resumed_while_the_query_stops_does_not_begin(kafka):
    with pytest.raises(BatchInterruptedError):
        PauseHold(lambda: read_pauses(kafka, "app"), lambda seconds: None).pass_when_resumed("flights", Gate(0))


# --- Sources outside Kafka while they are paused: batches wait, and what cannot wait is left to a later start. (Spark is a fake.)

PAUSED = Pauses({WHOLE: 1})


class Frame:
    """A DataFrame, or the writer of its stream, which gives away the function of its batches."""

    def __init__(self, streaming: bool) -> None:
        self.isStreaming = streaming
        self.writeStream = self
        self.runId = "run"
        self.batch: Callable[[Any, int], None] | None = None

    def queryName(self, *_: object) -> Frame:
        return self

    option = queryName

    def trigger(self, **_: object) -> Frame:
        return self

    def foreachBatch(self, batch: Callable[[Any, int], None]) -> Frame:
        self.batch = batch
        return self

    def start(self) -> Frame:
        return self


@dataclass
class Told:
    """What is shown to the user, and which sources were said to start."""

    said: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def started(self, name: str, *_: object) -> None:
        self.sources.append(name)


@dataclass(frozen=True)
class Run(IngestRun):
    """Sources whose rows are not written but noted."""

    frames: dict[str, Frame] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    def _frame(self, ingest: Ingest) -> Any:
        return self.frames[ingest.name]

    def _write(self, ingest: Ingest, *_: object) -> None:
        self.written.append(ingest.name)


@pytest.fixture(autouse=True)
def _no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was ever written, and Spark's checkpoint has an id."""
    for name, found in {"last_markers": {}, "checkpoint_files": None, "query_id_of": "id"}.items():
        monkeypatch.setattr(query_module, name, lambda *_, found=found, **__: found)
    monkeypatch.setattr(query_module, "logged_batch", lambda *_: None)


def run(hold: PauseHold, told: Told, available_now: bool = False) -> Run:
    """A run of a streaming source and a static one."""
    frames = {"events": Frame(True), "airlines": Frame(False)}
    ingests = {name: SimpleNamespace(name=name, partitions=1, lasting_name=name) for name in frames}
    config = SimpleNamespace(
        application_id="app",
        client={},
        transaction_timeout_ms=1,
        bulk_io=False,
        available_now=available_now,
        checkpoint_dir="c",
    )
    plan = SimpleNamespace(topology=SimpleNamespace(ingests=ingests))
    application: Any = SimpleNamespace(config=config, plan=plan)
    fake: Any = told
    session: Any = None
    return Run(session, application, {}, {}, fake, hold, frames)


def test_a_batch_of_a_paused_source_is_written_after_the_resume() -> None:
    pauses, written_while_paused = [PAUSED], []

    def sleep(seconds: float) -> None:
        written_while_paused.extend(made.written)
        pauses.append(NOTHING)

    made = run(PauseHold(lambda: pauses[-1], sleep), Told())
    (start,) = made.starts()
    start()
    batch = made.frames["events"].batch
    assert batch is not None
    batch(None, 0)
    assert written_while_paused == []
    assert made.written == ["events"]


@pytest.mark.parametrize(("available_now", "left_out"), [(False, ["airlines"]), (True, ["events", "airlines"])])
def test_what_cannot_wait_for_the_resume_is_left_to_a_later_start(available_now: bool, left_out: list[str]) -> None:
    told = Told()
    made = run(PauseHold(lambda: PAUSED), told, available_now)
    assert len(made.starts()) == 2 - len(left_out)
    assert made.written == []
    assert told.said == [
        f"the source '{name}' is paused: it is read at the first start after a resume" for name in left_out
    ]
    # What is said to start is waited for until the application is ready.
    assert told.sources == [name for name in ("events", "airlines") if name not in left_out]


def test_a_static_source_that_was_read_before_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_module, "last_markers", lambda *_: {0: None})
    told = Told()
    made = run(PauseHold(lambda: NOTHING), told)
    assert len(made.starts()) == 1
    assert (made.written, told.sources) == ([], ["events"])
