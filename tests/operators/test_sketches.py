"""Quantiles and approximate counts of distinct values are as near to the exact results as they promise."""

from __future__ import annotations

import math
import random
from contextlib import nullcontext
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.errors import RestoreError
from streams import (
    EmitStrategy,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    agg,
    col,
)
from streams.errors import ConfigError, RecordError
from streams.model import sketch_forms
from streams.model.sketch_forms import buckets, empty_hll, read_hll, written_hll
from streams.model.sketches import ApproxCountDistinct
from streams.operators.aggregate import accumulators
from streams.operators.aggregate.accumulators import accumulators_of
from streams.operators.aggregate.functions import FieldAggregates
from streams.operators.columnar import OneByOne
from streams.testing import TopologyTestDriver
from tests.budget import up_to
from tests.operators.test_aggregates_over_columns import column

QS = [0.99, 0, 0.5, 1, 0.05]
numbers = st.one_of(
    st.integers(-50, 50),
    st.integers(-(2**70), 2**70),
    st.floats(-1e3, 1e3),
    st.floats(-1.7e308, 1.7e308),
    st.sampled_from([0.0, -0.0, 5e-324, 2.2e-308, -1e-300, 0.1]),
)


def is_near(found, exact, accuracy):
    # Below the smallest normal float, all numbers are as zero.
    return abs(found - exact) <= accuracy * abs(exact) * (1 + 1e-9) + 3e-308


def exact_quantiles(values, wanted=tuple(QS)):
    ranked = sorted(values)
    return [ranked[max(0, math.ceil(Fraction(str(q)) * len(ranked)) - 1)] for q in wanted]


def added(aggregate, values):
    found = aggregate.initial()
    for value in values:
        found = aggregate.updated(found, value)
    return found


# --- How far the results are from the exact ones.


@given(st.lists(numbers, min_size=1, max_size=40), st.sampled_from([0.001, 0.01, 0.25]), st.randoms())
def test_quantiles_are_off_by_the_accuracy_at_most(values, accuracy, at_random):
    aggregate = agg.quantile("x", QS, accuracy=accuracy)
    found = added(aggregate, values)
    for one, exact in zip(aggregate.result(found), exact_quantiles(values), strict=True):
        assert is_near(one, exact, accuracy)
    shuffled = at_random.sample(values, len(values))
    cut = at_random.randint(0, len(values))
    assert aggregate.merge(added(aggregate, shuffled[:cut]), added(aggregate, shuffled[cut:])) == found


@given(st.lists(numbers, max_size=20), st.lists(numbers, max_size=20))
def test_a_number_that_is_removed_was_never_there(stay, leave):
    aggregate = agg.quantile("x", 0.5)
    found = added(aggregate, [*stay, *leave])
    for value in leave:
        found = aggregate.remove(found, value)
    assert found == added(aggregate, stay)


@pytest.mark.parametrize("rsd", [0.01, 0.02, 0.1])
def test_counts_are_off_by_a_few_deviations(rsd):
    aggregate = ApproxCountDistinct("x", rsd)
    sketch, errors = aggregate.read(None), []
    for number in range(20_000):
        aggregate.put(sketch, aggregate.item(number))
        errors.append(aggregate.shown(sketch) / (number + 1) - 1)
    assert aggregate.shown(aggregate.read(added(aggregate, range(5)))) == 5
    assert np.abs(errors).max() < 4 * rsd
    assert np.sqrt(np.mean(np.square(errors[5_000:]))) < 2 * rsd


@pytest.mark.parametrize("rsd", [0.02, 0.1])
@pytest.mark.parametrize("apart", [0, 3_000])
def test_counts_of_merged_sketches_are_those_of_all_values(apart, rsd):
    aggregate = ApproxCountDistinct("x", rsd)
    parts = []
    for begin in range(3):
        sketch = aggregate.read(None)
        for number in range(4_000):
            aggregate.put(sketch, aggregate.item(begin * apart + number))
        parts.append(aggregate.written(sketch))
    found = aggregate.initial()
    for part in parts:
        found = aggregate.merge(found, part)
    assert abs(aggregate.result(found) / (4_000 + 2 * apart) - 1) < 4 * rsd
    assert aggregate.merge(found, aggregate.initial()) == found


def test_equal_values_are_those_of_exact_counts():
    values = [1, 1.0, True, "1", 2.5, {"a": [1]}, {"a": [1]}, 2**70, "é", None]
    aggregate = agg.approx_count_distinct("x")
    assert aggregate.result(added(aggregate, values)) == 7


def test_a_quantile_is_taken_as_it_is_written():
    """As a float, 0.07 times 100 is a little more than 7."""
    aggregate = agg.quantile("x", [0.07, 0.29, 0.5], accuracy=0.001)
    assert [round(one) for one in aggregate.result(added(aggregate, range(1, 101)))] == [7, 29, 50]


# --- A sketch that is read goes on as the one that was written would: bytes do not depend on steps and restarts.


@pytest.mark.parametrize("seed", range(8))
def test_hyperloglogs_that_are_written_and_read_in_between(seed):
    at_random, size = random.Random(seed), [7, 12][seed % 2]
    kept, read = empty_hll(size), empty_hll(size)
    for _ in range(3_000):
        value = str(at_random.randrange(10 ** at_random.choice([1, 2, 3, 5])))
        kept.update(value)
        read.update(value)
        if at_random.random() < 0.3:
            read = read_hll(written_hll(read))
        if at_random.random() < 0.02:
            assert written_hll(kept) == written_hll(read)


anything = numbers | st.none() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(0, 3), max_size=2)


@given(st.sampled_from(["quantile", "distinct"]), st.data(), st.lists(numbers, max_size=3))
def test_columns_are_added_as_the_definition_does(kind, data, before):
    aggregate = agg.quantile("x", QS) if kind == "quantile" else agg.approx_count_distinct("x", rsd=0.1)
    cells = (numbers if kind == "quantile" else anything) | st.none()
    rows = data.draw(st.lists(st.tuples(cells, st.integers(0, 3)), min_size=1, max_size=20))
    merges = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=3))
    start = [added(aggregate, [x]) for x in before]
    expected = [*start, *(aggregate.initial() for _ in range(4 - len(start)))]
    for value, slot in rows:
        expected[slot] = aggregate.updated(expected[slot], value)
    for source, slot in merges:
        expected[slot] = aggregate.merge(expected[slot], expected[source])
    with patch.multiple(accumulators, FEW=0):
        fields = FieldAggregates({"x": aggregate}, bare=True)
        made = accumulators_of(fields, [column([x for x, _ in rows])], start, 4, len(rows))
        added_rows, slots = [*range(len(rows))], [slot for _, slot in rows]
        at = np.array([*added_rows, *(~source for source, _ in merges)], np.int64)
        made.apply(at, np.array([*slots, *(slot for _, slot in merges)], np.int64))
        assert made.take(np.arange(4)) == expected


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_buckets_of_columns_are_those_of_the_library(values):
    aggregate = agg.quantile("x", 0.5)
    try:
        found = accumulators._bucket_numbers(aggregate, column(values))
    except OneByOne:
        assert max(map(abs, values)) > buckets(0.01).largest
    else:
        assert found == [buckets(0.01).of(value) for value in values]


# --- In programs.


def played(build, records, together, topic="in", **settings):
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build(), **settings) as driver:
        source = driver.create_input_topic(topic)
        with driver.batch() if together else nullcontext():
            for number, (key, value, time) in enumerate(records):
                source.pipe_input(key, value, time)
                if not together and number % 4 == 3:
                    driver.restart()
        return driver.create_output_topic("out").read_key_values_to_map()


timed = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 99), st.integers(0, 60)), min_size=1, max_size=14)
SESSIONS = SessionWindows.of_inactivity_gap_and_grace(5, 100)
KINDS = {
    "tumbling": TimeWindows.of_size_and_grace(10, 100),
    "hopping": TimeWindows.of_size_and_grace(10, 100).advance_by(5),
    "sliding": SlidingWindows.of_time_difference_and_grace(5, 100),
    "sessions": SESSIONS,
}


def windowed(windows, on_close=False):
    def build(builder):
        grouped = builder.stream("in").group_by_key().windowed_by(windows)
        if on_close:
            grouped = grouped.emit_strategy(EmitStrategy.on_window_close())
        wanted = {
            "all": agg.collect("x", last=100),
            "median": agg.quantile("x", 0.5),
            "positive": agg.quantile("x", [0, 1], where=col("x") > 0),
            "distinct": agg.approx_count_distinct("x"),
        }
        grouped.aggregate(**wanted, materialized=Materialized("s")).to_stream().to("out")

    return build


@pytest.mark.parametrize("kind", KINDS)
@up_to(20)
@given(records=timed, together=st.booleans(), on_close=st.booleans())
def test_windows_and_sessions_summarise_their_own_records(kind, records, together, on_close):
    given_records = [(key, {"x": x}, time) for key, x, time in records] + [("end", {"x": 1}, 10_000)]
    found = played(windowed(KINDS[kind], on_close), given_records, together)
    assert any(found.values())
    for one in found.values():
        if one is None:
            continue  # of a session that another one has taken in
        values, positive = one["all"], [x for x in one["all"] if x > 0]
        assert one["distinct"] == len(set(values))
        assert is_near(one["median"], *exact_quantiles(values, [0.5]), 0.01)
        assert (one["positive"] is None) == (not positive)
        for edge, exact in zip(
            one["positive"] or (), exact_quantiles(positive, [0, 1]) if positive else (), strict=True
        ):
            assert is_near(edge, exact, 0.01)


rows = st.fixed_dictionaries({"team": st.sampled_from("rb"), "n": st.none() | st.integers(-9, 10**6)})


@up_to(20)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | rows), max_size=12), st.booleans())
def test_grouped_tables_take_numbers_back(updates, together):
    def build(builder):
        grouped = builder.table("in").group_by(col("team"))
        grouped.aggregate(n=agg.count(), median=agg.quantile("n", 0.5)).to_stream().to("out")

    found = played(build, [(key, value, time) for time, (key, value) in enumerate(updates)], together)
    last = [value for value in dict(updates).values() if value is not None]
    for team, one in found.items():
        here = [row["n"] for row in last if row["team"] == team and row["n"] is not None]
        assert (one["median"] is None) == (not here)
        assert not here or is_near(one["median"], *exact_quantiles(here, [0.5]), 0.01)


def test_grouped_tables_cannot_count_distinct_values_without_their_rows():
    grouped = StreamsBuilder().table("in").group_by(col("team"))
    with pytest.raises(TopologyError, match=r"agg\.approx_count_distinct\('n', rsd=0\.02\) cannot aggregate the rows"):
        grouped.aggregate(n=agg.approx_count_distinct("n"))


def test_a_number_without_a_bucket_fails_its_record_alone():
    def build(builder):
        builder.stream("in").group_by_key().aggregate(x=agg.quantile("x", 1)).to_stream().to("out")

    values = [1, 1.79e308, 10**400, "text", True, None, 3.0]
    for together in (True, False):
        found = played(build, [("a", {"x": x}, 0) for x in values], together, processing="skip")
        assert is_near(found["a"]["x"], 3, 0.01)
    with pytest.raises(RecordError, match=r"agg\.quantile\('x', 1, .* beyond its largest number, 1\.76e\+308"):
        added(agg.quantile("x", 1), [10**400])


# --- Definitions that are wrong, and rows of other versions.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: agg.quantile("x", 50), "a quantile is a number from 0 to 1"),
        (lambda: agg.quantile("x", [0.5, None]), "a quantile is a number from 0 to 1"),
        (lambda: agg.quantile("x", "0.5"), "a quantile is a number from 0 to 1"),
        (lambda: agg.quantile("x", []), "a quantile is a number from 0 to 1"),
        (lambda: agg.quantile("x", 0.5, accuracy=0), "accuracy= is the share"),
        (lambda: agg.approx_count_distinct("x", rsd=0.5), "rsd= is the relative standard deviation"),
        (lambda: agg.approx_count_distinct("x", rsd=True), "rsd= is the relative standard deviation"),
        (lambda: agg.quantile("a..b", 0.5), "a field is a name"),
    ],
)
def test_wrong_definitions(make, message):
    with pytest.raises(TopologyError, match=message):
        make()


def test_names_do_not_depend_on_how_a_number_is_given():
    given_otherwise = agg.quantile("x", np.array([0.5, 0.9]), accuracy=np.float64(0.05))
    assert given_otherwise.identity == agg.quantile("x", [0.5, 0.9], accuracy=0.05).identity
    assert given_otherwise.identity == "quantile(x, (0.5, 0.9), accuracy=0.05)"


def test_without_the_libraries_the_definition_says_what_to_install():
    with (
        patch.object(sketch_forms, "library", sketch_forms.library.__wrapped__),
        patch.dict("sys.modules", {"datasketches": None, "ddsketch.mapping": None}),
    ):
        for make in (lambda: agg.quantile("x", 0.5, accuracy=0.123), lambda: agg.approx_count_distinct("x")):
            with pytest.raises(ConfigError, match=r"pip install 'streams-on-spark\[sketches\]'"):
                make()


def test_a_sketch_of_another_version_is_an_error():
    for aggregate, value in ((agg.quantile("x", 0.5), [2, 1, 1]), (agg.approx_count_distinct("x"), "AgAA")):
        with pytest.raises(RestoreError, match="has the format 2, and this version knows 1"):
            aggregate.result(value)
