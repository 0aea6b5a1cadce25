"""Keeps the tasks of a backlog together in event time: the driver hears how far each has come, and says how far each may go.

Without it, a task with few records would be months ahead of one with many, and what the slower one writes would be late where both
meet: in the partitions of a repartition topic. So no task goes further ahead of the slowest than an allowance (as in Flink's
watermark alignment, FLIP-182). Nor does a sub-topology behind a repartition topic, because what it is still to get there may be
as old as the next record of whoever writes it. Micro-batches are aligned by their planner (`streams.source.backlog`).

A task at the end of its partitions holds up nobody, and as long as all are there, nothing is sent and nobody waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from streams.topology.plan import SubTopology

MOST_MS = 24 * 3600 * 1000
"""How far a task may be ahead of the slowest where nothing behind it drops late records, ms."""
LEAST_MS = 1000
"""How far it may be ahead whatever grace there is, ms: each round costs a step."""
SILENT_S = 120.0
"""How long a task that says nothing holds up the others, s: it hangs, or its slot is lost and restores somewhere else."""
BEHIND_AFTER_S = 2.0
"""How long records may wait before a task that was at the end of its partitions has a backlog, s."""


@dataclass(frozen=True)
class Reading:
    """What bounds the tasks of a sub-topology.

    Attributes:
        beside: The sub-topologies whose progress bounds it, itself included.
        allowance_ms: How far its tasks may be ahead of the slowest task of these.
    """

    beside: frozenset[str]
    allowance_ms: int


def readings(subs: Sequence[SubTopology]) -> dict[str, Reading]:
    """What bounds each sub-topology."""
    written = {sub.name: {str(sink.topic) for sink in sub.sinks} for sub in subs}
    # What is retried waits for its time, not for others.
    read = {sub.name: set(sub.topics) - sub.delays.keys() for sub in subs}
    following = {one: {other for other, topics in read.items() if topics & written[one]} for one in written}
    behind = {name: _behind(name, following) for name in written}
    before = {name: {one for one, after in behind.items() if name in after} for name in written}
    late = {sub.name: _least_grace(sub) for sub in subs}
    found = {}
    for name, after in behind.items():
        # Its own partitions are in one order; but what comes out of a repartition topic may lag behind other topics.
        grace_ms = min((late[one] for one in {*after, *([name] if before[name] else [])}), default=inf)
        # What is on its way through each sub-topology behind it may be one step older than where its writer is.
        share_ms = grace_ms / (1 + max(after.values(), default=1))
        # Who else writes what is read behind it must keep up with it; who reads what it writes need not.
        writers = before[name].union(*(before[one] for one in after)) - (after.keys() - before[name])
        found[name] = Reading(frozenset(writers | {name}), int(max(LEAST_MS, min(MOST_MS, share_ms))))
    return found


def _behind(name: str, following: Mapping[str, Collection[str]]) -> dict[str, int]:
    """All that comes behind a sub-topology, and how many steps behind it; in a circle it comes behind itself."""
    found: dict[str, int] = {}
    waiting, steps = set(following[name]), 1
    while waiting:
        found |= dict.fromkeys(waiting, steps)
        waiting = {one for last in waiting for one in following[last]} - found.keys()
        steps += 1
    return found


def _least_grace(sub: SubTopology) -> float:
    return min((late for node in sub.processors if (late := node.spec.late_after_ms) is not None), default=inf)


@dataclass(frozen=True)
class Bound:
    """How far the tasks of a sub-topology may go.

    Attributes:
        before_ms: They take no record of this time or a later one; None: those with a backlog wait.
        slowest: The slowest task, with its sub-topology.
        slowest_before_ms: How far that one may go, which need not wait for itself; infinite: it is the only one with a backlog.
    """

    before_ms: float | None
    slowest: tuple[str, int] | None = None
    slowest_before_ms: float = inf

    @property
    def is_set(self) -> bool:
        """Whether others wait for what a task has not processed yet."""
        return self.before_ms is not None and self.before_ms < inf

    def of(self, sub: str, task: int, has_backlog: bool) -> float:
        """The bound of a task; infinite: none; minus infinite: it waits."""
        if self.before_ms is None:
            return -inf if has_backlog else inf
        return self.slowest_before_ms if self.slowest == (sub, task) else self.before_ms

    def said(self) -> Sequence[Any]:
        """It, as the driver sends it."""
        return [self.before_ms, self.slowest, None if self.slowest_before_ms == inf else self.slowest_before_ms]

    @classmethod
    def heard(cls, said: Sequence[Any]) -> Bound:
        before_ms, slowest, slowest_before_ms = said
        return cls(before_ms, tuple(slowest), inf if slowest_before_ms is None else slowest_before_ms)


FREE = Bound(inf)
UNSAID = Bound(None)
"""What holds until the driver says more: it does so once it hears of a backlog, and where all tasks are."""


class Reached(NamedTuple):
    """How far a task has come.

    Attributes:
        next_ms: The time of the next record, behind which everything is committed; None: it is at the end of its partitions.
        is_behind: Whether it has a backlog, and not only records that have just come.
    """

    next_ms: int | None
    is_behind: bool


class Alignment:
    """What the driver knows of the progress of all live tasks; it outlasts leases. Thread-safe.

    Args:
        tasks: Sub-topology -> the number of its tasks.
        readings: What bounds each sub-topology.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, tasks: Mapping[str, int], readings: Mapping[str, Reading], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tasks = dict(tasks)
        self._readings = readings
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._reached: dict[tuple[str, int], tuple[Reached, float]] = {}

    def hear(self, sub: str, reached: Iterable[Sequence[Any]]) -> None:
        """Takes in how far tasks have come: the number of each, and then `Reached`."""
        now = self._clock()
        with self._lock:
            for task, *said in reached:
                self._reached[sub, task] = Reached(*said), now

    def bounds(self, paused: Collection[str] = ()) -> dict[str, Bound]:
        """The bounds of the sub-topologies; where there is none, `UNSAID` holds.

        Args:
            paused: Sub-topologies that read nothing at present, and hold up nobody.
        """
        now = self._clock()
        with self._lock:
            bounds = {name: self._bound(reading, paused, now) for name, reading in self._readings.items()}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def _bound(self, reading: Reading, paused: Collection[str], now: float) -> Bound | None:
        places = [(name, task) for name in sorted(reading.beside - set(paused)) for task in range(self._tasks[name])]
        if now - self._began < SILENT_S and any(place not in self._reached for place in places):
            return None
        heard = [(*self._reached[place], place) for place in places if place in self._reached]
        known = [(reached, place) for reached, heard_s, place in heard if now - heard_s < SILENT_S]
        if not any(reached.is_behind for reached, _ in known):
            return None
        (least_ms, slowest), *others = sorted(
            (reached.next_ms, place) for reached, place in known if reached.next_ms is not None
        )
        ahead = reading.allowance_ms
        return Bound(least_ms + ahead, slowest, others[0][0] + ahead if others else inf)
