"""Counts of distinct values: those of Python's sets, however the records come into steps, and with the application restarted."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import Materialized, SessionWindows, StreamsBuilder, TimeWindows, TopologyError, agg, col, fields
from streams.testing import TopologyTestDriver

values = st.sampled_from([None, 1, 2, 1.0, 2.5, "1", "é", True, 2**70])
records = st.lists(st.tuples(st.sampled_from(["a", "ab", None]), values, values), max_size=14)


def played(given_records, together, caching):
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    wanted = {
        "n": agg.count(),
        "x": agg.count_distinct("x"),
        "other": agg.count_distinct("x", where=col("y").is_not_null()),
        "y": agg.count_distinct("y"),
    }
    grouped.aggregate(**wanted, materialized=Materialized("s", caching=caching)).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch() if together else nullcontext():
            for number, (key, x, y) in enumerate(given_records):
                topic.pipe_input(key, {"x": x, "y": y}, number)
                if not together and number % 4 == 3:
                    driver.restart()
        return driver.create_output_topic("out").read_key_values_to_map()


def distinct(found):
    # In Python, True is 1; in JSON it is not.
    return len({(type(one) is bool, one) for one in found if one is not None})


@settings(max_examples=40, deadline=None)
@given(records, st.booleans(), st.booleans())
def test_counts_are_those_of_sets(given_records, together, caching):
    expected = {}
    for key in {key for key, *_ in given_records if key is not None}:
        here = [(x, y) for one, x, y in given_records if one == key]
        expected[key] = {
            "n": len(here),
            "x": distinct(x for x, _ in here),
            "other": distinct(x for x, y in here if y is not None),
            "y": distinct(y for _, y in here),
        }
    assert played(given_records, together, caching) == expected


def test_a_record_that_fails_leaves_no_value_behind():
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(fields("k"))
    grouped.aggregate(x=agg.count_distinct("x"), sum=agg.sum("n")).to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        topic = driver.create_input_topic("in")
        for x, n in ((1, 1), (2, "text"), (2, 2)):
            topic.pipe_input("k", {"k": 1, "x": x, "n": n})
        assert driver.create_output_topic("out").read_values_to_list() == [{"x": 1, "sum": 1}, {"x": 2, "sum": 3}]


@pytest.mark.parametrize(
    "windows", [TimeWindows.of_size_with_no_grace(10), SessionWindows.of_inactivity_gap_with_no_grace(5)]
)
def test_windows_are_refused(windows):
    grouped = StreamsBuilder().stream("in").group_by_key().windowed_by(windows)
    with pytest.raises(TopologyError, match="counts over all time, not in windows: make the window's day"):
        grouped.aggregate(x=agg.count_distinct("x"))
