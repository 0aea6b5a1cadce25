"""Counts of distinct values: those of Python's sets, however the records come into steps, and with the application restarted."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    CalendarWindows,
    EmitStrategy,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    agg,
    col,
    fields,
)
from streams.testing import TopologyTestDriver
from streams.topology.plan import plan_alone
from streams.topology.ways import Way, ways
from tests.budget import up_to

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


@up_to(20)
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


# --- In windows that are known before their records.

HOPPING = TimeWindows.of_size_and_grace(10, 40).advance_by(5)
timed = st.lists(
    st.tuples(st.sampled_from(["a", "ab", None]), values, st.integers(0, 40), st.sampled_from(["", "restart", "step"])),
    max_size=14,
)


def windowed(builder, windows, on_close=False, materialized=None):
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    if on_close:
        grouped = grouped.emit_strategy(EmitStrategy.on_window_close())
    aggregates = {"n": agg.count(), "x": agg.count_distinct("x"), "big": agg.count_distinct("x", where=col("t") > 20)}
    grouped.aggregate(**aggregates, materialized=materialized).to_stream().to("out")


def windows_of(windows, records):
    """What each window of each key counts."""
    found = {}
    for key, x, time, _ in records:
        for start in windows.starts(time) if key is not None else ():
            found.setdefault((key, start), []).append((x, time))
    return {
        place: {"n": len(here), "x": distinct(x for x, _ in here), "big": distinct(x for x, time in here if time > 20)}
        for place, here in found.items()
    }


@pytest.mark.parametrize("windows", [HOPPING, UnlimitedWindows(), CalendarWindows.of("day", "UTC", grace=100)])
@pytest.mark.parametrize("on_close", [False, True])
@up_to(6)
@given(given_records=timed, caching=st.booleans())
def test_windows_count_the_values_of_their_own_records(windows, on_close, given_records, caching):
    on_close = on_close and windows.closes
    builder = StreamsBuilder()
    windowed(builder, windows, on_close, Materialized("s", caching=caching))
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        records = list(given_records)
        while records:
            size = next((at for at, one in enumerate(records, 1) if one[3]), len(records))
            with driver.batch():
                for key, x, time, _ in records[:size]:
                    topic.pipe_input(key, {"x": x, "t": time}, time)
            if records[size - 1][3] == "restart":
                driver.restart()
            del records[:size]
        if on_close:
            topic.pipe_input("end", {}, 10**12)
        rows = driver.create_output_topic("out").read_records_to_list()
        found = {(row.key.key, row.key.window.start): row.value for row in rows if row.key.key != "end"}
        assert not on_close or len(found) == sum(row.key.key != "end" for row in rows)
    assert found == windows_of(windows, given_records)


def test_the_values_of_a_window_are_forgotten_with_it():
    builder = StreamsBuilder()
    hour = 3_600_000
    windowed(builder, TimeWindows.of_size_with_no_grace(hour), materialized="s")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            for number in range(40):
                topic.pipe_input("a", {"x": number % 3, "t": 0}, number * hour // 2)
        topic.pipe_input("a", {"x": 1, "t": 0}, 20 * hour - 1)
        assert len(list(driver.get_window_store("s-seen").fetch_all(0, 10**9))) < 10
        topic.pipe_input("a", {"x": 1, "t": 0}, 3)  # late: it leaves no row
        assert driver.dropped("late") == 1
        last = driver.create_output_topic("out").read_records_to_list()[-1]
        assert (last.key.window.start, last.value) == (19 * hour, {"n": 3, "x": 3, "big": 0})


DAYS = CalendarWindows.of("day", "UTC")


@pytest.mark.parametrize(
    ("windows", "caching", "counted", "way", "why"),
    [
        (None, True, "x", Way.COLUMNS, ""),
        (HOPPING, True, "x", Way.COLUMNS, ""),
        (DAYS, True, "x", Way.COLUMNS, ""),
        (None, False, "x", Way.ONE_BY_ONE, "each of which it looks up"),
        (UnlimitedWindows(), True, "x", Way.ONE_BY_ONE, "each of which it looks up"),
        (None, True, col("x").cast(Decimal), Way.ONE_BY_ONE, "each of which it looks up"),
    ],
)
def test_explain_says_what_is_counted_on_columns(windows, caching, counted, way, why):
    """Decimals are not, which columns do not hold."""
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped = grouped if windows is None else grouped.windowed_by(windows)
    how = Materialized("s", caching=caching)
    grouped.aggregate(x=agg.count_distinct(counted), materialized=how).to_stream().to("out")
    (sub,) = plan_alone(builder.build()).sub_topologies
    (found,) = (one for one in ways(sub) if "AGGREGATE" in one.node)
    assert found.way is way
    assert why in found.remark


@pytest.mark.parametrize(
    "windows",
    [
        SlidingWindows.of_time_difference_with_no_grace(10),
        SessionWindows.of_inactivity_gap_with_no_grace(5),
    ],
)
def test_windows_that_depend_on_their_records_are_refused(windows):
    grouped = StreamsBuilder().stream("in").group_by_key().windowed_by(windows)
    with pytest.raises(TopologyError, match="counts over all time, or in windows that are known before their records"):
        grouped.aggregate(x=agg.count_distinct("x"))
