"""A task without records still gets its steps by the wall clock, each a commit of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from streams import StreamsBuilder
from streams.metrics.application import TaskMetrics
from streams.model.record import Record
from streams.operators.processor import Processor, ProcessorContext
from streams.spark.progress import Progress
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


def _version(progress: Progress, task: int) -> int:
    tasks = _tasks(progress)
    return (tasks[task].version or 0) if task in tasks else 0


def test_punctuators_run_without_records(harness: Harness) -> None:
    source, target = harness.topic("in", 1), harness.topic("out", 1)
    builder = StreamsBuilder()
    builder.stream(source).process(Ticker).to(target)
    harness.send(source, [Sent(b"a", b"1", 1000)])
    with running(harness, builder.build(), wall_clock_interval_ms=200) as progress:
        eventually(lambda: len(harness.read(target)) >= 3, "three ticks")
        # A commit is visible before its step is reported.
        eventually(lambda: _version(progress, 0) >= 4, "reports")
    values = [record.value for record in harness.read(target)]
    assert values[:3] == [b'{"ticks":%d,"seen":1}' % n for n in (1, 2, 3)]
    assert _tasks(progress)[0].records_in == 1


def test_a_start_without_any_record_ticks_too(harness: Harness) -> None:
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
