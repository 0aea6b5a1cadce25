"""The recorder collects the driver's information about an application, and returns its metrics at any moment. Thread-safe.

The runner feeds it through the progress display (`streams.driver.progress`): reports of steps, Spark's progress of queries, and the
obstacles that keep the application from working. Workers report restores while these run (`streams.metrics.reports`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from streams.engine.graph.settings import MOVED, RESTORED_FROM_COPY, Counters
from streams.metrics.application import (
    ApplicationMetrics,
    MicroBatchFigures,
    PartitionMetrics,
    Readiness,
    RestoreFigures,
    StepFigures,
    StoreRestore,
    SubTopologyMetrics,
    TaskMetrics,
)
from streams.metrics.memory import MemoryMeter

log = logging.getLogger(__name__)

MetricsListener = Callable[[MicroBatchFigures], object]
"""Called after each micro-batch of any sub-topology, by the thread of its query."""
START = "start"
"""The obstacle that is known when an application begins."""


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MetricsRecorder:
    def __init__(self, application_id: str, clock_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self.application_id = application_id
        self._clock_ms = clock_ms
        self._started_ms = clock_ms()
        self._lock = threading.Lock()
        self._subs: dict[str, SubTopologyMetrics] = {}
        self._listeners: list[MetricsListener] = []
        self._obstacles: dict[str, str] = {START: "the application is starting"}
        self._failure: str | None = None
        self._memory = MemoryMeter()

    def listen(self, listener: MetricsListener) -> None:
        """Adds a listener. An error in a listener is logged and has no other effect."""
        self._listeners.append(listener)

    def starting(self, sub: str, tasks: int, topics: tuple[str, ...]) -> None:
        """Notes that a query starts; one that starts again continues its totals."""
        with self._lock:
            known = self._subs.get(sub) or SubTopologyMetrics(tasks, topics)
            # The restores of the failed query begin again, perhaps with less to read.
            ended = {place: one for place, one in known.restores.items() if not one.remaining}
            self._subs[sub] = replace(known, starts=known.starts + 1, running_since_ms=None, restores=ended)
            self._obstacles[f"first {sub}"] = f"the sub-topology {sub} has not finished its first step"

    def begun(self, sub: str) -> None:
        with self._lock:
            self._subs[sub] = replace(self._subs[sub], running_since_ms=self._clock_ms())

    def waits(self, sub: str) -> None:
        """Notes that live tasks work, and may have nothing to do: all that had begun for them is done, even without a step."""
        with self._lock:
            if not self._subs[sub].running_restores:
                self._subs[sub] = replace(self._subs[sub], running_since_ms=None)

    def restoring(self, sub: str, task: int, store: str, progress: StoreRestore) -> None:
        """Records the progress of a store's restore. After its micro-batch, or a report of its live task, it counts as ended."""
        with self._lock:
            known = self._subs.get(sub)
            if known is None:
                return
            late = known.running_since_ms is None and not known.is_live
            found = _ended(progress) if late else progress
            self._subs[sub] = replace(known, restores={**known.restores, (task, store): found})

    def opened(self, sub: str, task: int, restore: RestoreFigures | None, moved: bool, again: bool = False) -> None:
        """Records the restore that a live task needed before it could begin, and whether the task was on another host before.

        `again`: an attempt of it has failed before, which the reports of its steps do not say.
        """
        with self._lock:
            known = self._subs[sub]
            counters, tasks, before = Counters(known.counters), dict(known.tasks), known.tasks.get(task, TaskMetrics())
            counters.add(MOVED, moved)
            if restore is not None:
                counters.add(RESTORED_FROM_COPY, restore.copies)
                tasks[task] = before = replace(before, restored=before.restored.plus(restore))
            if again:
                tasks[task] = replace(before, failed_attempts=before.failed_attempts + 1)
            self._subs[sub] = replace(known, counters=counters, tasks=tasks)

    def step(
        self, sub: str, batch_id: int, steps: tuple[StepFigures, ...], at_ms: int | None = None
    ) -> MicroBatchFigures:
        """Records a finished micro-batch, and calls the listeners. It ended at `at_ms`; by default, just now."""
        now = self._clock_ms() if at_ms is None else at_ms
        with self._lock:
            began_ms = self._subs[sub].running_since_ms
            batch = MicroBatchFigures(self.application_id, sub, batch_id, now, steps, began_ms)
            self._subs[sub] = _after(self._subs[sub], batch)
            self._obstacles.pop(f"first {sub}", None)
        for listener in self._listeners:
            try:
                listener(batch)
            except Exception:
                log.exception("a metrics listener of %s has failed", self.application_id)
        return batch

    def positions(self, sub: str, found: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Records how far a query has read: (topic, partition) -> next offset and end offset."""
        with self._lock:
            known = self._subs.get(sub)
            if known is None:
                return
            partitions = dict(known.partitions)
            for place, (position, end) in found.items():
                before = partitions.get(place, PartitionMetrics())
                partitions[place] = replace(before, position=position, end=end)
            self._subs[sub] = replace(known, partitions=partitions)
            self._obstacles.pop(f"first {sub}", None)

    def obstacle(self, name: str, why: str | None) -> None:
        """Notes an obstacle that keeps the application from working; an empty reason removes it."""
        with self._lock:
            if why is None:
                self._obstacles.pop(name, None)
            else:
                self._obstacles[name] = why

    def failed(self, why: str) -> None:
        with self._lock:
            self._failure = why

    def readiness(self) -> Readiness:
        with self._lock:
            return self._readiness()

    def _readiness(self) -> Readiness:
        if self._failure is not None:
            return Readiness(False, False, f"{self.application_id} has ended with an error: {self._failure}")
        if self._obstacles:
            restores = (_in_words(name, sub) for name, sub in self._subs.items() if sub.running_restores)
            why = "; ".join([*self._obstacles.values(), *restores])
            return Readiness(True, False, why, tuple(self._obstacles))
        return Readiness(True, True, f"{self.application_id} is running")

    def measured(self) -> ApplicationMetrics:
        """The metrics now, with the memory of the processes, which is measured at most every few seconds."""
        found = self.snapshot()
        return replace(found, processes=self._memory.everywhere(found))

    def snapshot(self) -> ApplicationMetrics:
        """The metrics now, without the memory of the processes."""
        with self._lock:
            now, subs = self._clock_ms(), dict(self._subs)
            return ApplicationMetrics(self.application_id, now, self._started_ms, self._readiness(), subs)


def _after(known: SubTopologyMetrics, batch: MicroBatchFigures) -> SubTopologyMetrics:
    counters, tasks, partitions = Counters(known.counters), dict(known.tasks), dict(known.partitions)
    reported, live = {step.task for step in batch.steps}, any(step.live for step in batch.steps)
    for step in batch.steps:
        task = tasks.get(step.task, TaskMetrics())
        tasks[step.task] = task.after(step)
        if task.counts(step):
            counters.add_all(step.counters)
        for time_ in step.event_times:
            place = (time_.topic, time_.partition)
            partitions[place] = replace(partitions.get(place, PartitionMetrics()), event_time_ms=time_.event_time_ms)
    return replace(
        known,
        batch_id=batch.batch_id,
        micro_batches=known.micro_batches + 1,
        committed_ms=batch.at_ms,
        running_since_ms=None,
        counters=counters,
        tasks=tasks,
        partitions=partitions,
        # The last message of a restore may be lost. Other live tasks may still restore.
        restores={at: _ended(one) if at[0] in reported or not live else one for at, one in known.restores.items()},
    )


def _ended(one: StoreRestore) -> StoreRestore:
    return replace(one, remaining=0)


def _in_words(name: str, sub: SubTopologyMetrics) -> str:
    """The progress of a sub-topology's running restores, in a sentence."""
    running = sub.running_restores
    offsets, left = sum(one.offsets for one in running), sum(one.remaining for one in running)
    stores = "1 store" if len(running) == 1 else f"{len(running)} stores"
    return f"{name} restores {stores}: {100 * (offsets - left) // offsets} % of {offsets:,} changelog offsets are read"
