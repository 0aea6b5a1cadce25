"""Tables in strict mode, for every input, split, restart and interleaving of their topics: the model's rows at the end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Consumed, Joined, Materialized, StringSerde, Suppressed
from tests.properties import model
from tests.properties.runs import bag, examples, feeds, last, run, sequences
from tests.properties.test_stream_joins import SIDES, both

DISORDER = 10
CACHING = st.booleans()


def join_of(kind: str, left: Any, right: Any, *more: Any, **how: Any) -> Any:
    """The join of a kind."""
    return {"inner": left.join, "left": left.left_join, "outer": getattr(left, "outer_join", None)}[kind](
        right, *more, **how
    )


def values(rows: list[Any]) -> dict[Any, Any]:
    """The value of each key at the end."""
    return {key: value for key, (value, _) in last(rows).items()}


@examples
@given(
    kind=st.sampled_from(("inner", "left", "outer")),
    caching=CACHING,
    feed=feeds(SIDES, disorder=None, keys=("a", "b", "c", "d")),
    tasks=st.integers(1, 3),
    filtered=st.booleans(),
)
def test_tables_joined_by_key(kind, caching, feed, tasks, filtered):
    """A row of both tables' last values; steps of a filter or a mapping before it change nothing."""

    def build(builder: Any) -> None:
        left, right = (builder.table(topic, materialized=Materialized(caching=caching)) for topic in SIDES)
        if filtered:
            left, right = left.filter(lambda value: True), right.map_values(lambda value: value)
        joined = join_of(kind, left, right, both, materialized=Materialized(caching=caching))
        joined.to_stream().to("out")

    rows, _ = run(build, feed, partitions=3, tasks=tasks, by_key=True)
    assert values(rows) == model.joined_tables(feed.log, kind)


def number_key(value: Any) -> str | None:
    """The right key that a left value names; some name none that is ever there."""
    return f"k{value % 4}" if value % 5 else None


@pytest.mark.slow
@examples
@given(
    kind=st.sampled_from(("inner", "left")),
    caching=CACHING,
    feed=feeds(SIDES, disorder=None, keys=("k0", "k1", "k2", "k3")),
    tasks=st.integers(1, 3),
)
def test_tables_joined_by_a_foreign_key(kind, caching, feed, tasks):
    """Each left row with the right row that it names, however the two topics interleave."""

    def build(builder: Any) -> None:
        how = Materialized(caching=caching)
        left, right = (builder.table(topic, materialized=how) for topic in SIDES)
        joined = join_of(kind, left, right, both, foreign_key=lambda value: number_key(value["v"]), materialized=how)
        joined.to_stream().to("out")

    rows, _ = run(build, feed, partitions=2, tasks=tasks, by_key=True)
    assert values(rows) == model.joined_by_foreign_key(feed.log, kind, number_key)


@pytest.mark.slow
@examples
@given(caching=CACHING, feed=feeds(("left",), disorder=None, keys=("a", "b", "c", "d")), tasks=st.integers(1, 3))
def test_a_table_grouped_anew(caching, feed, tasks):
    """Count and sum of each group, of the rows that are there at the end.

    A group without rows stays, with 0, or was never told if its rows came and went within a step; both are left out.
    """

    def build(builder: Any) -> None:
        table = builder.table("left", materialized=Materialized(caching=caching))
        grouped = table.group_by(lambda key, value: (number_key(value["v"]), value))
        grouped.aggregate(
            lambda: [0, 0],
            lambda value, held: [held[0] + 1, held[1] + value["v"]],
            lambda value, held: [held[0] - 1, held[1] - value["v"]],
            materialized=Materialized(caching=caching),
        ).to_stream().to("out")

    rows, _ = run(build, feed, partitions=3, tasks=tasks, by_key=True)
    found = {key: value for key, value in values(rows).items() if value[0]}
    assert found == model.grouped_table(feed.log, number_key)


@examples
@given(kind=st.sampled_from(("inner", "left")), feed=feeds(SIDES, partitions=1, disorder=None))
def test_a_stream_looks_a_table_up(kind, feed):
    """As the table was when the record was processed, whatever the records' times."""

    def build(builder: Any) -> None:
        join_of(kind, builder.stream("left"), builder.table("right"), both).to("out")

    rows, _ = run(build, feed, tasks=1)
    wanted = model.looked_up(model.merged(feed.steps), kind)
    assert bag(rows) == bag([(key, [left, right], time) for key, left, right, time in wanted])


@examples
@given(
    kind=st.sampled_from(("inner", "left")),
    feed=feeds(SIDES, disorder=DISORDER, apart=64),
    tasks=st.integers(1, 3),
)
def test_a_stream_looks_a_versioned_table_up(kind, feed, tasks):
    """As the table was at the record's time, however the two topics interleave within grace."""
    grace = (DISORDER + 1) * 64

    def build(builder: Any) -> None:
        table = builder.table("right", materialized=Materialized(history_retention=100 * grace))
        join_of(kind, builder.stream("left"), table, both, joined=Joined(grace=grace)).to("out")

    rows, _ = run(build, feed, partitions=3, tasks=tasks, by_key=True, flush="left")
    wanted = [row for row in model.looked_up_as_of(feed.log, kind) if kind == "left" or row[0] is not None]
    assert bag(rows) == bag([(key, [left, right], time) for key, left, right, time in wanted])


@pytest.mark.slow
@examples
@given(limit=st.integers(0, 60), feed=feeds(("in",), partitions=1, disorder=None, keys=("a", "b", "c")))
def test_updates_held_back_for_a_time(limit, feed):
    """Without a cache above, what leaves and when depends on the order alone, not on splits and restarts."""

    def build(builder: Any) -> None:
        table = builder.table("in", Consumed(key_serde=StringSerde()), Materialized(caching=False))
        table.suppress(Suppressed.until_time_limit(limit)).to_stream().to("out")

    rows, _ = run(build, feed)
    plain, _ = run(build, feed.one_by_one())
    assert sequences(rows) == sequences(plain)
