"""Keeps the tasks of a backlog together in event time: the driver hears how far each has come, and limits how far each may go.

Without it, a task with few records would be months ahead of one with many. Records of the slower one would then be late where both
meet: in the partitions of a repartition topic. So no task goes further ahead of the slowest than an allowance (as in Flink's
    watermark alignment, FLIP-182). This also holds for a sub-topology that reads a repartition topic, because the records still to
    come
there may be as old as the next record of the sub-topology that writes it. Micro-batches are aligned by their planner
(`streams.engine.source.backlog`).

Example: with a grace of one hour the allowance is 30 minutes. If the next record of task 0 is from 10:00, task 1 takes records from
before 10:30, and waits until task 0 has come further.

A task at the end of its partitions holds up no other. As long as all tasks are there, nothing is sent and nothing waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from streams.topology.plan import SubTopology

MOST_MS = 30 * 24 * 3600 * 1000
"""How far a task may be ahead of the slowest if nothing downstream drops late records, ms. Each round costs a step of each task: in
rounds of a day, a year of few records would take minutes."""
LEAST_MS = 1000
"""How far a task may be ahead even if the grace is short, ms, because each round costs a step."""
WAIT_MS = -(1 << 52)
"""The assumed time of a task that has not yet reported its time, ms."""
SILENT_S = 120.0
"""How long a silent task holds up the others, s. After that it counts as hanging, or as lost and restoring somewhere else."""
BEHIND_AFTER_S = 2.0
"""How long records may wait before a task that was at the end of its partitions counts as having a backlog, s."""


@dataclass(frozen=True)
class Reading:
    """Which tasks limit the tasks of a sub-topology, and how far ahead these may be.

    Attributes:
        bounded_by: The sub-topologies whose progress limits it, itself included.
        above: The sub-topologies that write to a topic that it reads, and are not also downstream of it.
        allowance_ms: How far its tasks may be ahead of the slowest task of `bounded_by`.
        meets: Whether records that its tasks write or read meet those of other tasks somewhere in the application. Then no task
            with a backlog continues before all tasks have reported where they are.
    """

    bounded_by: frozenset[str]
    above: frozenset[str]
    allowance_ms: int
    meets: bool


def readings(subs: Sequence[SubTopology]) -> dict[str, Reading]:
    """Returns the `Reading` of each sub-topology."""
    written = {sub.name: {str(sink.topic) for sink in sub.sinks} for sub in subs}
    # A record in a retry topic waits for its own time, not for other tasks.
    read = {sub.name: set(sub.topics) - sub.delays.keys() for sub in subs}
    following = {one: {other for other, topics in read.items() if topics & written[one]} for one in written}
    behind = {name: _behind(name, following) for name in written}
    before = {name: {one for one, after in behind.items() if name in after} for name in written}
    late = {sub.name: _least_grace(sub) for sub in subs}
    found = {}
    for name, after in behind.items():
        # A task reads its own partitions in one order, but records from a repartition topic may lag behind those of other topics.
        grace_ms = min((late[one] for one in (after | {name} if before[name] else after)), default=inf)
        # Every sub-topology that writes to a topic read downstream must keep up; one that reads its output need not.
        writers = before[name].union(*(before[one] for one in after)) - (after - before[name])
        above = {one for one in before[name] - after if name in following[one]}
        allowance_ms = MOST_MS if grace_ms == inf else int(max(LEAST_MS, grace_ms / 2))
        meets = bool(before[name] or after)
        found[name] = Reading(frozenset(writers | {name}), frozenset(above), allowance_ms, meets)
    return found


def _behind(name: str, following: Mapping[str, Collection[str]]) -> set[str]:
    """All sub-topologies downstream of this one. In a circle, it is downstream of itself."""
    found: set[str] = set()
    waiting = set(following[name])
    while waiting:
        found |= waiting
        waiting = {one for last in waiting for one in following[last]} - found
    return found


def _least_grace(sub: SubTopology) -> float:
    return min((late for node in sub.processors if (late := node.spec.late_after_ms) is not None), default=inf)


@dataclass(frozen=True)
class Bound:
    """How far the tasks of a sub-topology may go.

    Attributes:
        before_ms: Tasks take only records from before this time. None: tasks with a backlog wait.
        slowest: The slowest task, with its sub-topology.
        slowest_before_ms: The limit of the slowest task, which need not wait for itself. Infinite if no other task has a backlog.
        coming_ms: The time of the oldest record that may still come from sub-topologies in `above`. Infinite if none has a backlog.
        asked: Whether other tasks wait for what its tasks will write, however new the records are.
    """

    before_ms: float | None
    slowest: tuple[str, int] | None = None
    slowest_before_ms: float = inf
    coming_ms: float = inf
    asked: bool = False

    def of(self, sub: str, task: int, has_backlog: bool) -> float:
        """The limit of one task. Infinite: it has none; minus infinite: it waits."""
        if self.before_ms is None:
            return -inf if has_backlog else inf
        return self.slowest_before_ms if self.slowest == (sub, task) else self.before_ms

    def said(self) -> Sequence[Any]:
        """The bound in the form in which the driver sends it."""
        times = (self.before_ms, self.slowest_before_ms, self.coming_ms)
        return [self.slowest, *(None if time_ms == inf else time_ms for time_ms in times)]

    @classmethod
    def heard(cls, said: Sequence[Any]) -> Bound:
        slowest, *times = said
        before_ms, slowest_before_ms, coming_ms = (inf if time_ms is None else time_ms for time_ms in times)
        return cls(before_ms, slowest and tuple(slowest), slowest_before_ms, coming_ms, asked=True)


FREE = Bound(inf)
UNSAID = Bound(None)
"""Applies until the driver sends a limit, which it does once it hears of a backlog and knows where all tasks are."""


class Reached(NamedTuple):
    """How far a task has come.

    Attributes:
        next_ms: The time of its next record; everything before it is committed. At the end of its partitions, the time of the
            oldest record that may still come there, as last heard from the driver, or None if none may come.
        is_behind: Whether it has a backlog, rather than only records that have just come.
        asked: Whether it reported this under a limit, and therefore after it had heard how far others had come.
    """

    next_ms: int | None
    is_behind: bool
    asked: bool


class Alignment:
    """The progress of all live tasks, as the driver knows it. It outlasts leases. Thread-safe.

    Args:
        tasks: Sub-topology -> the number of its tasks.
        readings: The `Reading` of each sub-topology.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, tasks: Mapping[str, int], readings: Mapping[str, Reading], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places = {name: [(name, task) for task in range(count)] for name, count in tasks.items()}
        self._readings = readings
        self._near = {
            name: reading.bounded_by | {other for other, theirs in readings.items() if name in theirs.bounded_by}
            for name, reading in readings.items()
        }
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._reached: dict[tuple[str, int], tuple[Reached, float]] = {}
        self._asked: dict[str, float] = {}

    def hear(self, sub: str, reached: Iterable[Sequence[Any]]) -> None:
        """Takes in the progress of tasks: for each, its number and the fields of `Reached`."""
        now = self._clock()
        with self._lock:
            for task, *said in reached:
                self._reached[sub, task] = Reached(*said), now

    def bounds(self, paused: Collection[str] = ()) -> dict[str, Bound]:
        """The limits of the sub-topologies. For a sub-topology that is missing, `UNSAID` applies.

        Args:
            paused: Sub-topologies that read nothing at present, and hold up no others.
        """
        now = self._clock()
        with self._lock:
            running = self._places.keys() - set(paused)
            asked = {name for name in running if self._is_asked(self._near[name] & running, now)}
            self._asked = {name: self._asked.get(name, now) for name in asked}
            times = {place: time_ms for name in asked for place, time_ms in self._times(name, now)}
            return {name: self._bound(self._readings[name], times) for name in asked}

    def _is_asked(self, near: Collection[str], now: float) -> bool:
        """Whether one of these tasks has a backlog, so that the others must know its progress, and all have reported theirs."""
        places = [place for name in near for place in self._places[name]]
        if (
            now - self._began < SILENT_S
            and any(self._readings[name].meets for name in near)
            and any(place not in self._reached for place in places)
        ):
            return False
        known = (self._reached[place] for place in places if place in self._reached)
        return any(reached.is_behind and now - heard < SILENT_S for reached, heard in known)

    def _times(self, name: str, now: float) -> Iterator[tuple[tuple[str, int], int]]:
        """The time that each task of a sub-topology has reached, without the tasks that hold up no others."""
        asked_s = self._asked[name]
        for place in self._places[name]:
            reached, heard = self._reached.get(place, (None, 0.0))
            if self._readings[name].above and (reached is None or not reached.asked or heard < asked_s):
                # It was at the end of its partitions when it last reported. But others have since reported records that may come to
                # it.
                if now - asked_s < SILENT_S:
                    yield place, WAIT_MS
            elif reached is not None and reached.next_ms is not None and now - heard < SILENT_S:
                yield place, reached.next_ms

    def _bound(self, reading: Reading, times: Mapping[tuple[str, int], int]) -> Bound:
        ordered = sorted((time_ms, place) for place, time_ms in times.items() if place[0] in reading.bounded_by)
        if not ordered:
            return Bound(inf, asked=True)
        (least_ms, slowest), *others = ordered
        ahead = reading.allowance_ms
        coming_ms = min((time_ms for time_ms, (name, _) in ordered if name in reading.above), default=inf)
        return Bound(least_ms + ahead, slowest, others[0][0] + ahead if others else inf, coming_ms, asked=True)
