"""Joins of streams in strict mode, for every window, input, split, restart and interleaving: the model's rows."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import JoinWindows, col
from tests.properties import model
from tests.properties.model import Entry
from tests.properties.runs import Feed, bag, examples, feeds, run

DISORDER = 10
SIDES = ("left", "right")


class Shape(NamedTuple):
    """A join; lengths in ms."""

    kind: str
    before: int
    after: int
    grace: int
    steps_before: bool
    bound: bool = False

    def build(self, builder: Any) -> None:
        left, right = builder.stream("left"), builder.stream("right")
        if self.steps_before:
            left = left.filter(lambda key, value: True).map_values(lambda value: value)
        self.joined(left, right).to("out")

    def build_self(self, builder: Any) -> None:
        stream = builder.stream("in")
        self.joined(stream, stream).to("out")

    def joined(self, left: Any, right: Any) -> Any:
        windows = JoinWindows(self.before, self.after, self.grace, col("u") if self.bound else None)
        join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[self.kind]
        return join(right, both, windows)


def both(left: Any, right: Any) -> Any:
    """Both numbers, None for a side that is not there."""
    return [None if side is None else side["v"] for side in (left, right)]


def rows_of(joined: list[Any]) -> list[Any]:
    """The model's rows as the engine writes them."""
    return [(key, [left, right], time) for key, left, right, time in joined]


@st.composite
def shapes(draw: Any, grace: Any) -> Shape:
    before = draw(st.integers(-12, 30))
    after = draw(st.integers(max(-12, -before), 30))
    return Shape(draw(st.sampled_from(("inner", "left", "outer"))), before, after, draw(grace), draw(st.booleans()))


def twice(log: list[Entry]) -> list[Entry]:
    """Each record as a left one, then as a right one: what a stream is to itself."""
    return [entry._replace(topic=side) for entry in log for side in SIDES]


@examples
@given(shape=shapes(st.integers(DISORDER, 30)), feed=feeds(SIDES, disorder=DISORDER), tasks=st.integers(1, 3))
def test_within_grace_only_the_records_count(shape, feed, tasks):
    """All pairs within the window, and on outer sides one row for each record that found nobody."""
    rows, late = run(shape.build, feed, partitions=3, tasks=tasks, flush="left")
    assert late == 0
    assert bag(rows) == bag(rows_of(model.join_in_time(model.by_time(feed.log), shape.before, shape.after, shape.kind)))


@pytest.mark.slow
@examples
@given(shape=shapes(st.integers(0, 15)), feed=feeds(SIDES, partitions=2, disorder=None))
def test_the_order_alone_decides_which_records_are_late(shape, feed):
    """A record that is not open when it comes gives no row at all; splits and restarts play no part."""
    rows, late = run(shape.build, feed, partitions=2, tasks=1, flush="left")
    wanted, late_in_model = model.join_with_late(
        model.merged(feed.steps), shape.before, shape.after, shape.grace, shape.kind
    )
    assert bag(rows) == bag(rows_of(wanted))
    assert late == late_in_model


def bounded(feed: Feed) -> Feed:
    """The same with the time up to which a left record is joined: before it, at it, after it, or none."""
    log = [
        entry
        if entry.value is None or entry.topic != "left"
        else entry._replace(value={**entry.value, "u": _until(entry.value["v"], entry.time)})
        for entry in feed.log
    ]
    return feed._replace(log=log)


def _until(number: int, time: int) -> int | None:
    return None if number % 7 == 6 else time + number * 11 % 40 - 8


@examples
@given(shape=shapes(st.integers(DISORDER, 30)), feed=feeds(SIDES, disorder=DISORDER), tasks=st.integers(1, 3))
def test_within_grace_a_field_bounds_the_join(shape, feed, tasks):
    """As above, with a bound that is a field."""
    feed = bounded(feed)
    rows, late = run(shape._replace(bound=True).build, feed, partitions=3, tasks=tasks, flush="right")
    assert late == 0
    assert bag(rows) == bag(rows_of(model.join_in_time(model.by_time(feed.log), shape.before, shape.after, shape.kind)))


@pytest.mark.slow
@examples
@given(
    shape=shapes(st.integers(0, 15)),
    feed=feeds(SIDES, partitions=2, disorder=None),
    mode=st.sampled_from(("strict", "compat")),
)
def test_the_order_alone_decides_what_is_late_for_a_bound_that_is_a_field(shape, feed, mode):
    """As above, and the same in both modes."""
    feed = bounded(feed)
    rows, late = run(shape._replace(bound=True).build, feed, partitions=2, tasks=1, flush="right", mode=mode)
    wanted, late_in_model = model.join_with_late(
        model.merged(feed.steps), shape.before, shape.after, shape.grace, shape.kind
    )
    assert bag(rows) == bag(rows_of(wanted))
    assert late == late_in_model


@pytest.mark.slow
@examples
@given(
    shape=shapes(st.integers(DISORDER, 30)),
    feed=feeds(disorder=DISORDER),
    tasks=st.integers(1, 3),
    optimize=st.booleans(),
)
def test_a_stream_joined_with_itself(shape, feed, tasks, optimize):
    """With one store or two the same, and the same as of two equal streams."""
    rows, _ = run(shape.build_self, feed, partitions=3, tasks=tasks, flush="in", optimize=optimize)
    wanted = model.join_in_time(twice(model.by_time(feed.log)), shape.before, shape.after, shape.kind)
    assert bag(rows) == bag(rows_of(wanted))


@pytest.mark.slow
@examples
@given(shape=shapes(st.integers(0, 15)), feed=feeds(partitions=2, disorder=None))
def test_a_self_join_over_one_store_gives_what_one_over_two_gives(shape, feed):
    """Also of records that come too late."""
    one, two = (run(shape.build_self, feed, partitions=2, tasks=1, flush="in", optimize=how) for how in (True, False))
    assert (bag(one[0]), one[1]) == (bag(two[0]), two[1])


@pytest.mark.slow
@examples
@given(
    kind=st.sampled_from(("inner", "left")),
    within=st.integers(0, 3000),
    feed=feeds(SIDES, disorder=DISORDER, apart=64),
    tasks=st.integers(1, 3),
)
def test_as_of_join(kind, within, feed, tasks):
    """Each left record meets the newest right one that is not newer; lateness within grace changes nothing."""

    def build(builder: Any) -> None:
        left, right = builder.stream("left"), builder.stream("right")
        left.as_of_join(right, both, within, grace=(DISORDER + 1) * 64, left=kind == "left").to("out")

    rows, late = run(build, feed, partitions=3, tasks=tasks, flush="left")
    assert late == 0
    assert bag(rows) == bag(rows_of(model.as_of(feed.log, within, kind)))


@pytest.mark.slow
@examples
@given(within=st.integers(1, 40), grace=st.integers(0, 40), feed=feeds(disorder=None, partitions=2))
def test_deduplicate(within, grace, feed):
    """What passes depends on the order of the records alone, not on splits and restarts."""

    def build(builder: Any) -> None:
        builder.stream("in").deduplicate(within, grace=grace).map_values(lambda value: value and value["v"]).to("out")

    rows, _ = run(build, feed, partitions=2, tasks=1)
    assert bag(rows) == bag(model.deduplicated(model.merged(feed.steps), within, grace))
