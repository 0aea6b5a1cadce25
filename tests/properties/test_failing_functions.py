"""A record for which a function fails leaves the state as it was, however much of an aggregate the function has changed before.

Random aggregations whose functions change aggregates in place, random cuts of steps, and a plain model that works on copies.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import EmitStrategy, Materialized, SessionWindows, SlidingWindows, TimeWindows
from tests.properties.runs import Feed, examples, feeds, last, run

HOPPING = TimeWindows.of_size_and_grace(20, 200).advance_by(8)
WINDOWS = {
    "tumbling": TimeWindows.of_size_and_grace(12, 200),
    "hopping": HOPPING,
    "on close": HOPPING,
    "sliding": SlidingWindows.of_time_difference_and_grace(12, 200),
    "sessions": SessionWindows.of_inactivity_gap_and_grace(12, 200),
}
KINDS = ("aggregate", "reduce", "cogroup", "table", *WINDOWS)


class Failing(NamedTuple):
    """When functions fail: for every third value, or for an aggregate of some length; always after they have changed it."""

    by_value: bool

    def start(self) -> dict[str, Any]:
        return {"sum": 0, "seen": []}

    def add(self, value: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
        number = value["v"]
        held["seen"].append(number)
        if number % 3 == 2 if self.by_value else len(held["seen"]) in (3, 4) and number % 2:
            raise ValueError("fails with half of its work done")
        held["sum"] += number
        return held

    def subtract(self, value: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
        held["seen"].append(-value["v"])
        held["sum"] -= value["v"]
        return held

    def reduce(self, held: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        return self.add(value, held if "seen" in held else self.add(held, self.start()))

    def merge(self, key: Any, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        one["seen"] += other["seen"]
        return {"sum": one["sum"] + other["sum"], "seen": sorted(one["seen"])}

    def in_order(self, value: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
        held = self.add(value, held)
        held["seen"].sort()
        return held

    def build(self, kind: str, builder: Any) -> None:
        how = Materialized("held")
        if kind == "table":
            group = builder.table("in", materialized=Materialized(caching=False)).group_by(
                lambda key, value: ("g", value)
            )
            table = group.aggregate(self.start, self.add, self.subtract, materialized=how)
        elif kind == "cogroup":
            group = builder.stream("in").group_by_key().cogroup(lambda key, value, held: self.add(value, held))
            table = group.aggregate(self.start, materialized=how)
        else:
            group = builder.stream("in").group_by_key()
            if kind in WINDOWS:
                group = group.windowed_by(WINDOWS[kind])
            if kind == "on close":
                group = group.emit_strategy(EmitStrategy.on_window_close())
            if kind == "reduce":
                table = group.reduce(self.reduce, materialized=how)
            else:
                more = (self.merge,) if kind == "sessions" else ()
                add = self.in_order if kind in ("sessions", "sliding") else self.add
                table = group.aggregate(self.start, add, *more, materialized=how)
        table.to_stream().to("out")


class Model:
    """Aggregates by place; a call works on a copy, and a record's copies replace the aggregates once all calls have succeeded."""

    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def record(self, places: list[Any], change: Callable[[Any], Any]) -> None:
        with suppress(ValueError):
            self.held.update({place: change(deepcopy(self.held.get(place))) for place in places})


def expected(kind: str, failing: Failing, feed: Feed) -> dict[Any, Any]:
    """What the model holds after a log."""
    model, rows = Model(), dict[Any, Any]()

    def added(value: Any, held: Any) -> Any:
        if kind == "reduce":
            return deepcopy(value) if held is None else failing.reduce(held, deepcopy(value))
        return failing.add(value, failing.start() if held is None else held)

    for _, _, key, value, time in feed.log:
        if kind == "table":
            old, rows[key] = rows.get(key), value
            subtracted = lambda held, old=old: held if None in (old, held) else failing.subtract(old, held)  # noqa: E731
            model.record(["g"], lambda held, value=value, without=subtracted: added(value, without(held)))
        else:
            starts = WINDOWS[kind].starts(time) if kind in WINDOWS else [None]  # type: ignore[attr-defined]
            places = [key if at is None else (key, at, WINDOWS[kind].end_of(at)) for at in starts]  # type: ignore[attr-defined]
            model.record(places, lambda held, value=value: added(value, held))
    return model.held


@pytest.mark.slow
@examples
@given(
    kind=st.sampled_from([kind for kind in KINDS if kind not in ("sliding", "sessions", "on close")]),
    failing=st.builds(Failing, st.booleans()),
    feed=feeds(partitions=1, keys=("a", "b"), nulls=False, most=30),
    policy=st.sampled_from(("skip", "dlq")),
    mode=st.sampled_from(("strict", "compat")),
)
def test_the_state_is_that_of_the_model(kind, failing, feed, policy, mode):
    """The last value of each row."""
    rows, _ = run(
        lambda builder: failing.build(kind, builder), feed, processing=policy, mode=mode, dead_letter_topic="dead"
    )
    assert {place: value for place, (value, _) in last(rows).items()} == expected(kind, failing, feed)


@pytest.mark.slow
@examples
@given(
    kind=st.sampled_from(sorted(WINDOWS)),
    feed=feeds(partitions=1, keys=("a", "b"), nulls=False, most=30),
    policy=st.sampled_from(("skip", "dlq")),
)
def test_records_that_fail_might_as_well_be_missing(kind, feed, policy):
    """The same rows as for the other records alone, each a step of its own."""
    failing = Failing(by_value=True)
    good = [one for one in feed.log if one.value["v"] % 3 != 2]
    flush = "in" if kind == "on close" else None
    rows, _ = run(
        lambda builder: failing.build(kind, builder), feed, flush=flush, processing=policy, dead_letter_topic="dead"
    )
    alone, _ = run(lambda builder: failing.build(kind, builder), Feed(good, [1] * len(good)), flush=flush)
    assert last(rows) == last(alone)
