"""The loop of a slot, by a clock of its own: whatever takes how long, no record waits for longer than an interval and the work."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
from types import TracebackType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.engine.live import slot as slots
from streams.engine.live.alignment import Bound
from tests.live.test_slot import Task, slot_of

INTERVAL_S = 0.1
TASKS = 3


class Time:
    """Time that passes only where somebody works or waits; what happens meanwhile happens at its own time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.idle: list[tuple[float, float]] = []
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def at(self, when: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def __call__(self) -> float:
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
        return self.now

    def next_by(self, until: float) -> float:
        return min([until, *(when for when, *_ in self._events[:1])])

    def idle_in(self, begin: float, end: float) -> float:
        return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in self.idle)


class Bell:
    """A `Wake` of this time."""

    def __init__(self, time: Time, works: Callable[[], bool]) -> None:
        self._time, self._works, self._rung, self.file = time, works, False, 0

    def __enter__(self) -> Bell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It is closed."""

    def listen_to(self, file: int) -> None:
        """The driver says nothing."""

    def set(self, _: object = None) -> None:
        self._rung = True

    def wait(self, seconds: float) -> None:
        until = self._time() + max(seconds, 1e-6)
        while not self._rung and (began := self._time.now) < until:
            idle, self._time.now = not self._works(), self._time.next_by(until)
            if idle:
                self._time.idle.append((began, self._time.now))
            self._time()
        self._rung = False


class Broker:
    """A pool whose work is over when it would be: a commit takes its time beside what the slot does."""

    def __init__(self, time: Time) -> None:
        self._time = time

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is under way."""

    def submit(self, work: Callable[..., Any], *arguments: object) -> Future[Any]:
        done, began = Future[Any](), self._time.now
        result = work(*arguments)
        ended, self._time.now = self._time.now, began
        self._time.at(ended, lambda: done.set_result(result))
        return done


def run(arrivals: Sequence[tuple[float, int]], takes_s: Sequence[float]) -> tuple[Time, list[tuple[float, float, int]]]:
    """Runs a slot until all records are committed.

    Args:
        arrivals: When a record arrives, and for which task.
        takes_s: How long the next part of the work takes, over and over: a step, a commit, the stores.

    Returns:
        When each record arrived and was committed, and how many transactions were committed meanwhile.
    """
    time, parts, found, commits = Time(), count(), list[tuple[float, float, int]](), list[float]()

    def work() -> None:
        time.now += takes_s[next(parts) % len(takes_s)]

    class Works(Task):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.rests_s = 60.0
            self.waiting, self.taken = list[float](), list[float]()
            for when, task in arrivals:
                if task == self.task:
                    time.at(when, lambda when=when: self.arrives(when))

        def arrives(self, when: float) -> None:
            self.waiting.append(when)
            slot._wake.set()

        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            time()
            self.taken, self.waiting = self.waiting, []
            if self.taken:
                work()
            return bool(self.taken)

        def commit(self) -> None:
            work()
            commits.append(time.now)

        def apply(self) -> None:
            committed = commits[-1]
            found.extend((when, committed, sum(when < at <= committed for at in commits)) for when in self.taken)
            work()
            slot._link.stopped = len(found) == len(arrivals) or time.now > 1_000.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            slots, "Wake", lambda: Bell(time, lambda: slot._committing is not None and not slot._committing.done())
        )
        slot = slot_of(Works, patch, INTERVAL_S)
        patch.setattr(slot, "_pool", lambda threads: Broker(time))
        slot.run(time)
    return time, found


_S = (st.integers(0, 40) | st.integers(0, 500)).map(lambda ms: ms / 1000)


@settings(max_examples=150, deadline=None)
@example(
    [(0.0, 0), (0.02, 1), (0.04, 2)], [0.01, 0.02, 0.01, 0.01, 0.03, 0.06]
)  # the third comes while the second is committed
@example([(0.0, 0), (0.0, 1), (0.0, 2)] + [(1.0, 0), (0.0, 1)] * 20, [0.5])  # two tasks always have something
@given(
    gaps=st.lists(st.tuples(_S, st.integers(0, TASKS - 1)), min_size=1, max_size=30),
    takes_s=st.lists(_S.map(lambda s: s + 1e-4), min_size=1, max_size=9),
)
def test_no_record_waits_for_longer_than_an_interval_and_the_work(
    gaps: list[tuple[float, int]], takes_s: list[float]
) -> None:
    arrivals, now = list[tuple[float, int]](), 1.0
    for gap, task in gaps:
        now += gap
        arrivals.append((now, task))
    time, found = run(arrivals, takes_s)
    assert sorted(when for when, *_ in found) == [when for when, _ in arrivals]
    for when, committed, commits in found:
        assert time.idle_in(when, committed) <= INTERVAL_S + 1e-3
        # One may be under way, and then each has at least one more task in its turn.
        assert commits <= TASKS + 1
