"""Windowed aggregations in strict mode: for every topology of the family, input, split and restart, the model's result."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import EmitStrategy, Materialized, SessionWindows, SlidingWindows, Suppressed, TimeWindows, agg
from tests.properties import model
from tests.properties.runs import Feed, bag, examples, feeds, last, run, sequences

AGGREGATES = {"listed": model.listed, "counted": model.counted, "built_in": model.built_in}
DISORDER = 10


class Shape(NamedTuple):
    """A random topology of the family; lengths in ms."""

    kind: str
    size: int
    advance: int
    grace: int
    aggregate: str
    emit: str
    caching: bool
    retention: int | None
    steps_before: tuple[str, ...]

    def windows(self) -> Any:
        if self.kind == "sliding":
            return SlidingWindows.of_time_difference_and_grace(self.size, self.grace)
        if self.kind == "session":
            return SessionWindows.of_inactivity_gap_and_grace(self.size, self.grace)
        return TimeWindows.of_size_and_grace(self.size, self.grace).advance_by(self.advance)

    def build(self, builder: Any) -> None:
        stream = builder.stream("in")
        for step in self.steps_before:
            stream = _step(builder, stream, step)
        windowed = stream.group_by_key().windowed_by(self.windows())
        if self.emit == "close":
            windowed = windowed.emit_strategy(EmitStrategy.on_window_close())
        table = self._aggregated(windowed)
        if self.emit == "suppress":
            table = table.suppress(Suppressed.until_window_closes())
        table.to_stream().to("out")

    def _aggregated(self, windowed: Any) -> Any:
        how = Materialized(caching=self.caching, retention=self.retention)
        if self.aggregate == "counted":
            return windowed.count(materialized=how)
        if self.aggregate == "built_in":
            return windowed.aggregate(
                n=agg.count(), sum=agg.sum("v"), max=agg.max("v"), mean=agg.mean("v"), materialized=how
            )
        merger = (lambda one, other: sorted([*one, *other]),) if self.kind == "session" else ()
        return windowed.aggregate(list, _insert, *merger, materialized=how)

    def rows(self, log: Any) -> tuple[dict[Any, Any], int]:
        """The model's result over the log in order of processing: {place: (value, time)}, and how many were late."""
        late = 0
        if self.kind == "sliding":
            found = model.sliding_windows(log, self.size)
        elif self.kind == "session":
            found, final, late = model.late_sessions(log, self.size, self.grace)
            found = found if self.emit == "update" else final
        else:
            found, late = model.time_windows(log, self.size, self.advance, self.grace)
        make = AGGREGATES[self.aggregate]
        return {window: (make(values), time) for window, (values, time) in found.items()}, late


def _insert(value: Any, values: Any) -> Any:
    return sorted([*values, -1 if value is None else value["v"]])


def _step(builder: Any, stream: Any, step: str) -> Any:
    if step == "filter":
        return stream.filter(lambda key, value: True)
    if step == "map_values":
        return stream.map_values(lambda value: value)
    if step == "merge":
        return stream.merge(builder.stream("other"))
    branches = stream.split().branch(lambda key, value: key == "a").default_branch()
    return branches["1"].merge(branches["0"])


@st.composite
def shapes(draw: Any, grace: Any) -> Shape:
    kind = draw(st.sampled_from(("tumbling", "hopping", "sliding", "session")))
    size = draw(st.integers(0 if kind in ("sliding", "session") else 1, 40))
    advance = draw(st.integers(1, size)) if kind == "hopping" else max(size, 1)
    wait, emit = draw(grace), draw(st.sampled_from(("update", "close", "suppress")))
    return Shape(
        kind,
        size,
        advance,
        wait,
        draw(st.sampled_from(tuple(AGGREGATES))),
        emit,
        draw(st.booleans()),
        draw(st.sampled_from((None, 10_000))),
        tuple(draw(st.lists(st.sampled_from(("filter", "map_values", "merge", "split")), max_size=2, unique=True))),
    )


def check(shape: Shape, rows: list[Any], wanted: dict[Any, Any]) -> None:
    """Updates end in the model's result; final results are there once each, and nothing else."""
    if shape.emit == "update":
        assert last(rows) == wanted
    else:
        assert bag(rows) == bag([(window, value, time) for window, (value, time) in wanted.items()])


@pytest.mark.slow
@examples
@given(
    shape=shapes(st.integers(DISORDER, 30)),
    feed=feeds(disorder=DISORDER),
    partitions=st.just(3),
    tasks=st.integers(1, 3),
)
def test_within_grace_only_the_records_count(shape, feed, partitions, tasks):
    """Any interleaving of three partitions, any steps and restarts, any number of tasks: the result of the sorted log."""
    rows, late = run(shape.build, feed, partitions=partitions, tasks=tasks, flush="in")
    assert late == 0
    check(shape, rows, shape.rows(model.by_time(feed.log))[0])


@pytest.mark.slow
@examples
@given(
    shape=shapes(st.integers(0, 15)).filter(lambda shape: shape.kind != "sliding"),
    feed=feeds(disorder=None, partitions=2),
)
def test_the_order_alone_decides_which_records_are_late(shape, feed):
    """What is late depends on the records before it, not on steps or restarts."""
    rows, late = run(shape.build, feed, partitions=2, tasks=1, flush="in")
    wanted, late_in_model = shape.rows(model.merged(feed.steps))
    check(shape, rows, wanted)
    assert late == late_in_model


@pytest.mark.slow
@examples
@given(shape=shapes(st.integers(0, 15)), feed=feeds(disorder=None, partitions=1))
def test_steps_and_restarts_change_nothing(shape, feed):
    """The same order one by one and cut at random: the same updates (without a cache) or the same last ones."""
    shape = shape._replace(caching=shape.caching and shape.emit == "update")
    rows, late = run(shape.build, feed, flush="in")
    plain, late_plain = run(shape.build, feed.one_by_one(), flush="in")
    assert late == late_plain
    assert last(rows) == last(plain)
    if not shape.caching:
        assert sequences(rows) == sequences(plain)


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_the_model_and_the_engine_are_not_empty(kind):
    """A guard for the tests above: the simplest case gives rows in both."""
    shape = Shape(kind, 10, 10, 0, "listed", "update", True, None, ())
    log = [model.Entry("in", 0, "a", {"v": 1}, 12), model.Entry("in", 0, "a", {"v": 2}, 15)]
    wanted, _ = shape.rows(log)
    assert wanted
    check(shape, run(shape.build, Feed(log, [0, 0]))[0], wanted)
