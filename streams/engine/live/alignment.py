"""Keeps the tasks of a backlog together in event time: the driver hears how far each has come, and says how far each may go.

Without it, a task with few records would be months ahead of one with many, and what the slower one writes would be late where both
meet: in the partitions of a repartition topic. So no task goes further ahead of the slowest than an allowance (as in Flink's
watermark alignment, FLIP-182). Nor does a sub-topology behind a repartition topic, because what it is still to get there may be
as old as the next record of whoever writes it. Micro-batches are aligned by their planner (`streams.engine.source.backlog`).

A task at the end of its partitions holds up nobody, and as long as all are there, nothing is sent and nobody waits.
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
"""How far a task may be ahead of the slowest where nothing behind it drops late records, ms. Each round costs a step of each task:
in rounds of a day, a year of few records would take minutes."""
LEAST_MS = 1000
"""How far it may be ahead whatever grace there is, ms: each round costs a step."""
WAIT_MS = -(1 << 52)
"""The time of a task that has not said yet what it has reached, ms."""
SILENT_S = 120.0
"""How long a task that says nothing holds up the others, s: it hangs, or its slot is lost and restores somewhere else."""
BEHIND_AFTER_S = 2.0
"""How long records may wait before a task that was at the end of its partitions has a backlog, s."""


@dataclass(frozen=True)
class Reading:
    """What bounds the tasks of a sub-topology.

    Attributes:
        bounded_by: The sub-topologies whose progress bounds it, itself included.
        above: The sub-topologies that write to what it reads and do not also come behind it.
        allowance_ms: How far its tasks may be ahead of the slowest task of these.
        meets: Whether what its tasks write or read meets somewhere in the application. Then no task with a backlog continues
            before all have said where they are.
    """

    bounded_by: frozenset[str]
    above: frozenset[str]
    allowance_ms: int
    meets: bool


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
        grace_ms = min((late[one] for one in (after | {name} if before[name] else after)), default=inf)
        # Who else writes what is read behind it must keep up with it; who reads what it writes need not.
        writers = before[name].union(*(before[one] for one in after)) - (after - before[name])
        above = {one for one in before[name] - after if name in following[one]}
        allowance_ms = MOST_MS if grace_ms == inf else int(max(LEAST_MS, grace_ms / 2))
        meets = bool(before[name] or after)
        found[name] = Reading(frozenset(writers | {name}), frozenset(above), allowance_ms, meets)
    return found


def _behind(name: str, following: Mapping[str, Collection[str]]) -> set[str]:
    """All that comes behind a sub-topology; in a circle it comes behind itself."""
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
        before_ms: They take no record of this time or a later one; None: those with a backlog wait.
        slowest: The slowest task, with its sub-topology.
        slowest_before_ms: How far that one may go, which need not wait for itself; infinite: it is the only one with a backlog.
        coming_ms: The time of the oldest record that may still come from sub-topologies above it; infinite: none has a backlog.
        asked: Whether others wait for what will be written of the records of its tasks, however new they are.
    """

    before_ms: float | None
    slowest: tuple[str, int] | None = None
    slowest_before_ms: float = inf
    coming_ms: float = inf
    asked: bool = False

    def of(self, sub: str, task: int, has_backlog: bool) -> float:
        """The bound of a task; infinite: none; minus infinite: it waits."""
        if self.before_ms is None:
            return -inf if has_backlog else inf
        return self.slowest_before_ms if self.slowest == (sub, task) else self.before_ms

    def said(self) -> Sequence[Any]:
        """It, as the driver sends it."""
        times = (self.before_ms, self.slowest_before_ms, self.coming_ms)
        return [self.slowest, *(None if time_ms == inf else time_ms for time_ms in times)]

    @classmethod
    def heard(cls, said: Sequence[Any]) -> Bound:
        slowest, *times = said
        before_ms, slowest_before_ms, coming_ms = (inf if time_ms is None else time_ms for time_ms in times)
        return cls(before_ms, slowest and tuple(slowest), slowest_before_ms, coming_ms, asked=True)


FREE = Bound(inf)
UNSAID = Bound(None)
"""What holds until the driver says more: it does so once it hears of a backlog, and where all tasks are."""


class Reached(NamedTuple):
    """How far a task has come.

    Attributes:
        next_ms: The time of the next record, before which everything is committed; at the end of its partitions, that of the
            oldest record that may still come there, as last heard from the driver; None: none may.
        is_behind: Whether it has a backlog, and not only records that have just come.
        asked: Whether it has said this under a bound, and so after it had heard how far others had come.
    """

    next_ms: int | None
    is_behind: bool
    asked: bool


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
            running = self._places.keys() - set(paused)
            asked = {name for name in running if self._is_asked(self._near[name] & running, now)}
            self._asked = {name: self._asked.get(name, now) for name in asked}
            times = {place: time_ms for name in asked for place, time_ms in self._times(name, now)}
            return {name: self._bound(self._readings[name], times) for name in asked}

    def _is_asked(self, near: Collection[str], now: float) -> bool:
        """Whether any task has a backlog whose progress concerns others or is theirs, and where all are is known."""
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
        """How far the tasks of a sub-topology have come, but for the tasks that hold up nobody."""
        asked_s = self._asked[name]
        for place in self._places[name]:
            reached, heard = self._reached.get(place, (None, 0.0))
            if self._readings[name].above and (reached is None or not reached.asked or heard < asked_s):
                # At the end of its partitions, when it last said something; but of what has come since, others have said more.
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
