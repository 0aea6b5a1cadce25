"""`top` over columns: the same results, changelogs, counters and state, to the last byte, as record by record."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    CalendarWindows,
    JsonSerde,
    Materialized,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    UnlimitedWindows,
    col,
)
from streams.operators.aggregate import aggregates, top_columns
from streams.operators.aggregate.top import TopAggregator, WithRanks
from streams.operators.aggregate.top_columns import Items, with_ranks_in
from streams.operators.columnar import Changes, EncodedValues, JsonValues
from streams.testing import TopologyTestDriver
from tests.budget import up_to
from tests.operators.both_ways import HUGE, NUMBERS, Step, left_behind, steps

MANY = 10**9
TEXTS = ("", "a", "ab", "Z", "é", "\U0001f600", '"', "a\n")
SCORES = {
    "field": col("x"),
    "nested": col("o.z"),
    "computed": -col("x") * 2,
    "otherwise": col("o.z").otherwise(1),
    "function": lambda value: value.get("x") if isinstance(value, dict) else None,
}
WINDOWS = {
    "none": st.none(),
    "time": st.sampled_from([TimeWindows(10, 10, 0), TimeWindows(10, 3, 4), TimeWindows(20, 5, 30)]),
    "calendar": st.just(CalendarWindows.of("day", "Europe/Berlin", 0)),
    "unlimited": st.just(UnlimitedWindows()),
}


def ranking(windows: Any, by: Any, caching: bool, **how: Any) -> Any:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=JsonSerde())
    grouped: Any = builder.stream("in").group_by_key()
    if windows is not None:
        grouped = grouped.windowed_by(windows)
    best = grouped.top(by=by, materialized=Materialized(name="s", caching=caching), **how)
    best.to_stream().to("out")
    # A function that changes what it gets, and a table that needs old values.
    best.to_stream().map_values(lambda found: found.append(0) or found).to("longer")
    sizes = best.group_by(lambda key, found: (str(len(found)), len(found)))
    sizes.reduce(lambda one, other: one + other, lambda one, other: one - other).to_stream().to("sizes")
    return builder.build()


@pytest.mark.parametrize("kind", WINDOWS)
@up_to(160)
@given(data=st.data())
def test_lists_and_ranks(kind, data):
    """A batch over columns, and one that turns out to need the definition, leave what the definition leaves."""
    windows, by = data.draw(WINDOWS[kind]), SCORES[data.draw(st.sampled_from(sorted(SCORES)))]
    how = {
        "n": data.draw(st.integers(1, 3)),
        "largest": data.draw(st.booleans()),
        "ties": data.draw(st.booleans()),
        "rank": data.draw(st.sampled_from([None, "rank", "x"])),
    }
    numbers = data.draw(st.sampled_from([NUMBERS, TEXTS, HUGE, (1, 2, 3)]))
    records, caching = data.draw(steps(numbers=numbers)), data.draw(st.integers(0, 3)) > 0
    found = []
    for few in (0, MANY):
        with patch.object(top_columns, "FEW_CELLS", few):
            found.append(left_behind(ranking(windows, by, caching, **how), records))
    assert found[0] == found[1]


rows = st.fixed_dictionaries({"x": st.integers(-3, 3) | st.none(), "t": st.sampled_from(TEXTS)})


@pytest.mark.parametrize("windows", [None, TimeWindows(10, 5, 100)])
@pytest.mark.parametrize("by", ["x", "t"])
@up_to(40)
@given(
    batches=st.lists(
        st.tuples(st.lists(st.tuples(st.sampled_from("ab"), rows), min_size=1, max_size=8), st.booleans())
    ),
    ties=st.booleans(),
)
def test_no_function_is_called_for_plain_scores(windows, by, batches, ties):
    """Numbers, texts and missing fields are ranked by columns, behind a restart, too."""
    steps = [Step([(key, row, at) for at, (key, row) in enumerate(records)], restarts) for records, restarts in batches]
    topology = ranking(windows, col(by), True, n=2, ties=ties, rank="rank")
    expected = left_behind(topology, steps)
    refused = AssertionError("it is ranked one by one")
    with (
        patch.object(top_columns, "FEW_CELLS", 0),
        patch.object(TopAggregator, "__call__", side_effect=refused),
        patch.object(WithRanks, "__call__", side_effect=refused),
        patch.object(aggregates.Fold, "run", lambda fold: pytest.fail(str(refused)) if top_of(fold) else run(fold)),
    ):
        assert left_behind(topology, steps) == expected


run = aggregates.Fold.run


def top_of(fold: Any) -> bool:
    return any(isinstance(one.operator.functions.aggregator, TopAggregator) for one in fold._parts)


def test_a_list_that_another_program_has_stored_is_sorted_by_the_definition():
    """`insort` puts a value into a list that is in another order; sorting all of it would give something else."""
    found = []
    for few in (0, MANY):
        with (
            TopologyTestDriver(ranking(None, col("x"), True, n=3)) as driver,
            patch.object(top_columns, "FEW_CELLS", few),
        ):
            driver.get_key_value_store("s").put("k", [{"x": 1}, {"x": 5}, {"x": 3}], timestamp=1)  # type: ignore[call-arg]
            driver.create_input_topic("in").pipe_input("k", {"x": 4}, 2)
            found.append(driver.create_output_topic("out").read_values_to_list())
    assert found[0] == found[1] == [[{"x": 1}, {"x": 5}, {"x": 4}]]


def test_a_value_as_deep_as_json_is_written_fails_in_a_list():
    deep: Any = 1
    with suppress(TypeError):  # orjson's limit
        while orjson.dumps({"x": 1, "a": {"a": deep}}):
            deep = {"a": deep}
    found = []
    for few in (0, MANY):
        with patch.object(top_columns, "FEW_CELLS", few):
            records = [("k", {"x": 1, "a": deep}, 1), ("k", {"x": 2}, 2)]
            found.append(left_behind(ranking(None, col("x"), True, n=3), [Step(records, False)]))
    assert found[0] == found[1]
    assert found[0]["counts"]


json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-2, 2) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@up_to(200)
@given(st.lists(st.none() | st.lists(json, max_size=4), max_size=5))
def test_items_of_lists_are_found_and_joined(lists):
    texts = [None if one is None else orjson.dumps(one) for one in lists]
    items = Items.of(pa.array(texts, pa.binary()))
    expected = [(number, orjson.dumps(one)) for number, of in enumerate(lists) for one in of or ()]
    assert list(zip(items.lists.tolist(), items.texts.to_pylist(), strict=True)) == expected
    assert items.written(len(lists)).to_pylist() == [text or b"[]" for text in texts]


@up_to(200)
@given(
    st.lists(
        st.none() | st.lists(st.dictionaries(st.text('xr"é', max_size=2), json, max_size=3), max_size=4), max_size=4
    )
)
def test_ranks_are_written_into_texts(lists):
    texts = pa.array([None if one is None else orjson.dumps(one) for one in lists], pa.binary())
    ranks = WithRanks("r", None)
    with patch.object(top_columns, "FEW_CELLS", -1):
        values = EncodedValues(texts, JsonSerde(), "", {})
        found = with_ranks_in(ranks, Changes(values, values.fresh()), True)
    named = any("r" in item for one in lists for item in one or ())
    if found is None:
        assert named or any(b'"r":' in text for text in texts.to_pylist() if text), "some object may have the field"
        return
    expected = [None if one is None else orjson.dumps(ranks(one)) for one in lists]
    assert not named
    assert isinstance(found.new, JsonValues)
    assert found.new.column(JsonSerde(), "").to_pylist() == expected
    assert found.old is not None
    assert list(found.old) == [None if one is None else ranks(one) for one in lists]
