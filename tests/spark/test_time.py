"""A task without records still gets its steps by the wall clock, each a commit of its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import orjson

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from state.kafka.key_hash import partition_for_key
from streams import EmitStrategy, Materialized, StreamsBuilder, TimeWindows
from streams.driver.progress import Progress
from streams.metrics.application import TaskMetrics
from streams.model.record import Record
from streams.operators.processor import Processor, ProcessorContext
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent
from tests.spark.live import eventually, running


class Ticker(Processor):
    """Forwards how often it was called by the wall clock."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(200, "wall_clock", self.tick)

    def process(self, record: Record) -> None:
        self.context.state["seen"] = self.context.state.get("seen", 0) + 1

    def tick(self, now_ms: int) -> None:
        state: dict[str, Any] = self.context.state
        state["ticks"] = state.get("ticks", 0) + 1
        self.context.forward(Record("tick", {"ticks": state["ticks"], "seen": state.get("seen", 0)}, now_ms))


def _tasks(progress: Progress) -> Mapping[int, TaskMetrics]:
    (sub,) = progress.subs.values()
    return sub.tasks


def test_punctuators_run_without_records_and_at_a_start_without_any(harness: Harness) -> None:
    """After a run over what was there, and after that of a clock; task 1 never has a record."""
    source, target = harness.topic("in", 1), harness.topic("out", 1)
    builder = StreamsBuilder()
    builder.stream(source).process(Ticker).to(target)
    topology = builder.build()
    harness.send(source, [Sent(b"a", b"1", 1000)])
    harness.run(topology, tasks=2)
    ticks = 0
    for _ in range(2):
        with running(harness, topology, tasks=2, wall_clock_interval_ms=200) as progress:
            more = ticks + 4
            eventually(lambda more=more: len(harness.read(target)) >= more, "ticks of a start without records")
            eventually(lambda of=progress: {0, 1} <= set(_tasks(of)), "steps of both tasks")
        ticks = len(harness.read(target))
    harness.send(source, [Sent(b"a", b"2", 2000)])
    harness.run(topology, tasks=2)
    seen = [orjson.loads(record.value or b"") for record in harness.read(target)]
    by_task = [[one["ticks"] for one in seen if (one["seen"] > 0) == first] for first in (True, False)]
    assert all(numbers == list(range(1, len(numbers) + 1)) and numbers for numbers in by_task)


# --- A task whose keys are silent: its windows close by the wall clock; a backlog is no silence.

MINUTE = 60_000
HOUR = 60 * MINUTE


def finals(source: str, target: str, late: str, size_ms: int = MINUTE) -> Topology:
    """Final counts per window."""
    builder = StreamsBuilder()
    windowed = builder.stream(source).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(size_ms))
    counts = windowed.emit_strategy(EmitStrategy.on_window_close()).count(materialized=Materialized(name="counts"))
    counts.to_stream().to(target)
    counts.dropped().to(late)
    return builder.build()


def keys_of(task: int, count: int) -> list[bytes]:
    """Keys that go to a task of two."""
    found = (b"k%d" % n for n in range(1000))
    return [key for key in found if partition_for_key(key, 2) == task][:count]


def number(value: bytes | None) -> int:
    """What Kafka's LongSerializer has written."""
    return int.from_bytes(value or b"", "big")


def idle_state(harness: Harness, source: str) -> dict[int, dict[str, object]]:
    """Task -> what its last marker says of idle time."""
    markers = harness.read(commits_topic(harness.application_id, source))
    found = {marker.partition: CommitMarker.from_bytes(marker.value or b"") for marker in markers}
    return {task: marker.operator_state["task"]["idle"] for task, marker in found.items()}


def test_silent_keys_close_their_windows_and_what_comes_later_is_late(harness: Harness) -> None:
    source, target, late = harness.topic("in", 2), harness.topic("out", 1), harness.topic("late", 1)
    (silent,), (lively,) = keys_of(0, 1), keys_of(1, 1)
    # Half a second before the window's end: soon closed, once time goes on.
    harness.send(source, [Sent(silent, b"1", MINUTE - 500), Sent(lively, b"1", MINUTE - 500)])
    settings = {"wall_clock_interval_ms": 300, "idle_timeout_ms": 1500}
    # Far apart: if this test is held up, the lively key is silent too, and yet its next record must not be late.
    hours = itertools.count(HOUR, HOUR)
    with running(harness, finals(source, target, late), **settings) as progress:

        def closed() -> bool:
            harness.send(source, [Sent(lively, b"2", next(hours))])
            tasks = [task for sub in list(progress.subs.values()) for task in list(sub.tasks.items())]
            return any(at == 0 and (task.event_time_ms or 0) >= MINUTE for at, task in tasks)

        eventually(closed, "the silent key's time goes on while another key has records")
        harness.send(source, [Sent(silent, b"3", MINUTE - 1)])
        eventually(lambda: len(harness.read(late)) > 0, "the late record is in the side stream")
    (row,) = [record for record in harness.read(target) if record.key and record.key.startswith(silent)]
    assert (number(row.value), row.timestamp) == (1, MINUTE - 500)
    (dropped,) = harness.read(late)
    assert (dropped.key, dropped.value) == (silent, b"3")
    assert dict(dropped.headers)["__streams.dropped.reason"] == b"late"
    first = idle_state(harness, source)
    assert len({str(of["start"]) for of in first.values()}) == 1
    # Each start is one of its own.
    with running(harness, finals(source, target, late), **settings):
        eventually(lambda: idle_state(harness, source)[0]["start"] != first[0]["start"], "a step of the second start")


def test_a_backlog_is_no_silence(harness: Harness) -> None:
    """Key b's records wait behind many of key a: its windows must not close before they are read."""
    source, target, late = harness.topic("in", 2), harness.topic("out", 1), harness.topic("late", 1)
    (waits,), (many,) = keys_of(0, 1), keys_of(1, 1)
    backlog = [Sent(many, b"1", MINUTE + n) for n in range(600)]
    harness.send(source, [Sent(waits, b"1", MINUTE), *backlog, Sent(waits, b"2", MINUTE + 700)])
    # The window lasts a second, the backlog seven micro-batches: time would run past its end meanwhile.
    settings = {"wall_clock_interval_ms": 300, "idle_timeout_ms": 1, "max_records_per_trigger": 100}
    with running(harness, finals(source, target, late, 1000), **settings):
        eventually(lambda: len(harness.read(target)) >= 2, "both windows are closed in the end")
    assert {number(record.value) for record in harness.read(target)} == {2, 600}
    assert harness.read(late) == []
