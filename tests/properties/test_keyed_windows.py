"""Sessions and sliding windows, every update of them, against plain models that take one record after the other.

The functions may fail, which leaves everything as it was, and may return None, which deletes a window, so that the next records
meet others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Materialized, SessionWindows, SlidingWindows
from tests.properties.runs import examples, feeds, run

Update = tuple[Any, Any, int]
"""(key, start, end), value, time."""


class Functions(NamedTuple):
    """A list of numbers; adding fails for some numbers, and deletes the aggregate for others."""

    fails: bool
    deletes: bool

    def add(self, key: Any, value: Any, numbers: list[Any]) -> list[Any] | None:
        number = -1 if value is None else value["v"]
        if self.fails and number % 5 == 3:
            raise ValueError("fails")
        return None if self.deletes and number % 4 == 2 else [*numbers, number]

    def merge(self, key: Any, one: list[Any], other: list[Any]) -> list[Any]:
        return [*one, *other]


class Sessions:
    """The rule of `KStreamSessionWindowAggregate`."""

    def __init__(self, gap: int, grace: int, functions: Functions) -> None:
        self.gap, self.grace, self.functions = gap, grace, functions
        self.held: dict[str, dict[tuple[int, int], Any]] = {}
        self.newest = -1

    def record(self, key: str, value: Any, time: int) -> Iterator[Update]:
        self.newest = max(self.newest, time)
        mine = self.held.setdefault(key, {})
        found = [(s, e) for e, s in sorted((e, s) for s, e in mine) if e >= time - self.gap and s <= time + self.gap]
        start, end = min([time, *(s for s, _ in found)]), max([time, *(e for _, e in found)])
        if end < self.newest - self.grace - self.gap:
            return
        numbers: list[Any] = []
        for session in found:
            numbers = self.functions.merge(key, numbers, mine[session])
        added = self.functions.add(key, value, numbers)
        for session in found:
            del mine[session]
            if start < end:
                yield (key, *session), None, session[1]
        if added is not None:
            mine[start, end] = added
        yield (key, start, end), added, end


class Sliding:
    """The rule of `KStreamSlidingWindowAggregate`."""

    def __init__(self, difference: int, grace: int, functions: Functions) -> None:
        self.difference, self.grace, self.functions = difference, grace, functions
        self.held: dict[str, dict[int, tuple[Any, int]]] = {}
        self.newest = -1

    def record(self, key: str, value: Any, time: int) -> Iterator[Update]:
        if value is None:
            return
        self.newest = max(self.newest, time)
        mine, d = self.held.setdefault(key, {}), self.difference
        if time + d < self.newest - self.grace:
            return
        plan = self._early if time < d else self._full
        made: list[tuple[int, Any, int]] = []
        for start, numbers, at in plan(mine, time):
            if start + d >= self.newest - self.grace:
                # A window that only copies another one does not get the record.
                made.append((start, numbers if start == time + 1 else self.functions.add(key, value, numbers), at))
        for start, added, at in made:
            mine.pop(start, None)
            if added is not None:
                mine[start] = added, at
            yield (key, start, start + d), added, at

    def _full(self, mine: dict[int, tuple[Any, int]], time: int) -> Iterator[tuple[int, Any, int]]:
        d, starts = self.difference, set(mine)
        holding = [start for start in sorted(starts, reverse=True) if time - d <= start <= time]
        for start in holding:
            yield start, mine[start][0], max(mine[start][1], time)
        left = mine.get(time - d)
        if left is not None and left[1] >= time:
            return
        before = max((start for start in starts if time - 2 * d <= start < time - d), default=None)
        previous = mine[before][1] if before is not None else left[1] if left is not None else None
        if previous is not None and previous + 1 not in starts and previous + 1 + d >= time:
            yield previous + 1, [], time
        if left is None:
            yield time - d, mine[before][0] if before is not None and mine[before][1] >= time - d else [], time
        around = next((start for start in holding if start > time - d), None)
        yield from self._right(mine, time, around)

    def _early(self, mine: dict[int, tuple[Any, int]], time: int) -> Iterator[tuple[int, Any, int]]:
        holding = [start for start in sorted(mine) if 0 < start <= time]
        for start in holding:
            yield start, mine[start][0], max(mine[start][1], time)
        first = mine.get(0)
        around = holding[-1] if holding else 0 if first is not None and first[1] > time else None
        yield from self._right(mine, time, around)
        if first is not None and first[1] < time and first[1] + 1 not in mine:
            yield first[1] + 1, [], time
        yield 0, first[0] if first is not None else [], max(first[1] if first is not None else time, time)

    @staticmethod
    def _right(mine: dict[int, tuple[Any, int]], time: int, around: int | None) -> Iterator[tuple[int, Any, int]]:
        if around is not None and time + 1 not in mine and mine[around][1] > time:
            yield time + 1, *mine[around]


KINDS: dict[str, Callable[..., Any]] = {"sessions": Sessions, "sliding": Sliding}


def updates(model: Any, log: list[Any]) -> list[Update]:
    """All updates of a log; a record for which a function fails has none."""
    found: list[Update] = []
    for _, _, key, value, time in log:
        if key is not None:
            try:
                found += list(model.record(key, value, time))
            except ValueError:
                continue
    return found


def build(kind: str, size: int, grace: int, functions: Functions, how: Materialized, builder: Any) -> None:
    groups = builder.stream("in").group_by_key()
    if kind == "sessions":
        windowed = groups.windowed_by(SessionWindows.of_inactivity_gap_and_grace(size, grace))
        table = windowed.aggregate(list, functions.add, functions.merge, materialized=how)
    else:
        windowed = groups.windowed_by(SlidingWindows.of_time_difference_and_grace(size, grace))
        table = windowed.aggregate(list, functions.add, materialized=how)
    table.to_stream().to("out")


@pytest.mark.slow
@examples
@given(
    kind=st.sampled_from(sorted(KINDS)),
    size=st.integers(1, 30),
    grace=st.integers(0, 30),
    functions=st.builds(Functions, st.booleans(), st.booleans()),
    feed=feeds(partitions=1, disorder=None, keys=("a", "b", None), most=40),
    mode=st.sampled_from(("strict", "compat")),
)
def test_every_update_is_the_models(kind, size, grace, functions, feed, mode):
    """However the records are divided into steps: the same updates in the same order."""
    found, _ = run(
        lambda builder: build(kind, size, grace, functions, Materialized(caching=False), builder),
        feed,
        processing="skip",
        mode=mode,
    )
    assert found == updates(KINDS[kind](size, grace, functions), feed.log)
