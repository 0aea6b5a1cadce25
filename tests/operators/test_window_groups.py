"""`group_by_window`: a window's groups are those of its rows, however they come into steps; and they go when the window closes."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    CalendarWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    agg,
    col,
)
from streams.operators.table import table_aggregate
from streams.testing import TopologyTestDriver
from tests.budget import up_to


@pytest.fixture(scope="module", autouse=True)
def _few_rows_in_memory():
    """Groups are read again whenever another one is needed."""
    with patch.object(table_aggregate, "_MOST_IN_MEMORY", 1):
        yield


HOPPING = TimeWindows.of_size_and_grace(10, 60).advance_by(5)
WINDOWS = {"hopping": HOPPING, "days": CalendarWindows.of("day", "UTC", grace=100)}
HOUR = 3_600_000

records = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.sampled_from(["", "restart", "step"])), max_size=16
)


def counted(builder, windows, caching=True):
    """Rows with the key, and how often it is there in the window."""
    windowed = builder.stream("in").group_by_key().windowed_by(windows)
    return windowed.count(materialized=Materialized("counts", caching=caching)).map_values(
        lambda key, n: {"key": key.key, "n": n}
    )


def send(driver, given_records):
    topic, left = driver.create_input_topic("in"), list(given_records)
    while left:
        size = next((at for at, one in enumerate(left, 1) if one[2]), len(left))
        with driver.batch():
            for key, time, _ in left[:size]:
                topic.pipe_input(key, 1, time)
        if left[size - 1][2] == "restart":
            driver.restart()
        del left[:size]


def results(driver, topic):
    return [
        (row.key.key, row.key.window.start, row.value, row.timestamp)
        for row in driver.create_output_topic(topic).read_records_to_list()
    ]


@pytest.mark.parametrize("kind", WINDOWS)
@up_to(20)
@given(given_records=records, caching=st.booleans(), own_caching=st.booleans())
def test_of_the_rows_of_each_window(kind, given_records, caching, own_caching):
    windows, builder = WINDOWS[kind], StreamsBuilder()
    rows = counted(builder, windows, caching)
    whole = rows.group_by_window()
    how = Materialized(caching=own_caching)
    whole.top(1, by=col("n"), ties=True, materialized=how).to_stream().to("top")
    whole.aggregate(keys=agg.count(), n=agg.sum("n"), materialized=how).to_stream().to("sums")
    parity = rows.group_by_window(lambda key, row: ("even" if row["n"] % 2 == 0 else "odd", row), name="parity")
    parity.count(materialized=how).to_stream().to("parity")
    with TopologyTestDriver(builder.build(), tasks=2, partitions={"in": 2}) as driver:
        send(driver, given_records)
        found = {
            topic: {(key, start): value for key, start, value, _ in results(driver, topic)}
            for topic in ("top", "sums", "parity")
        }
        assert not driver.dropped()
    expected = {"top": {}, "sums": {}, "parity": {}}
    for start in {start for _, time, _ in given_records for start in windows.starts(time)}:
        end, counts = windows.end_of(start), {}
        for key, time, _ in given_records:
            if start <= time < end:
                counts[key] = counts.get(key, 0) + 1
        most = max(counts.values())
        expected["top"][start, start] = {key for key, n in counts.items() if n == most}
        expected["sums"][start, start] = {"keys": len(counts), "n": sum(counts.values())}
        for name, rest in (("even", 0), ("odd", 1)):
            expected["parity"][name, start] = sum(n % 2 == rest for n in counts.values())
    found["top"] = {place: {row["key"] for row in rows} for place, rows in found["top"].items()}
    # A group that never had a row has no result.
    found["parity"] = {**dict.fromkeys(expected["parity"], 0), **found["parity"]}
    assert found == expected


@up_to(12)
@given(
    given_records=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 90)), max_size=20),
    on_top=st.booleans(),
)
def test_late_updates_are_those_whose_window_has_closed(given_records, on_top):
    """The same together and one by one: windows of both sides close by the same times, but rows come late behind a filter."""

    def played(together):
        builder = StreamsBuilder()
        rows = counted(builder, TimeWindows.of_size_and_grace(10, 5), caching=False)
        grouped = rows.group_by_window()
        how = Materialized("s", caching=False)
        top = partial(grouped.top, 2, by=col("n"))
        table = top(materialized=how) if on_top else grouped.aggregate(n=agg.sum("n"), materialized=how)
        table.to_stream().to("out")
        with TopologyTestDriver(builder.build()) as driver:
            with driver.batch() if together else nullcontext():
                for key, time in given_records:
                    driver.create_input_topic("in").pipe_input(key, 1, time)
            return results(driver, "out"), driver.dropped("late")

    assert played(True) == played(False)


def of_top(grouped):
    return grouped.top(2, by=col("n"), materialized="s")


def of_aggregate(grouped):
    return grouped.mean("n", materialized="s")


@pytest.mark.parametrize("build", [of_top, of_aggregate])
def test_rows_go_when_their_window_has_closed(build):
    builder = StreamsBuilder()
    table = builder.table("in").filter(lambda row: row is not None)
    hours = TimeWindows.of_size_and_grace(HOUR, HOUR)
    rows = table.to_stream().group_by_key().windowed_by(hours).aggregate(n=agg.last("n"))
    build(rows.group_by_window()).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for hour in range(20):
            for key in "abc":
                topic.pipe_input(key, {"n": hour}, hour * HOUR)
            if hour % 7 == 3:
                driver.restart()
        # The windows that begin at 18 and 19 h are open.
        starts = {key.window.start // HOUR for key, _ in driver.get_key_value_store("s").all()}
        assert starts == {18, 19}
        for name in ("s-open", "s-rows") if build is of_top else ("s-open",):
            assert len(list(driver.get_key_value_store(name).all())) <= 6
        assert not driver.dropped()


def test_a_longer_retention_keeps_rows_and_a_shorter_one_is_refused():
    builder = StreamsBuilder()
    grouped = counted(builder, TimeWindows.of_size_with_no_grace(10)).group_by_window()
    grouped.count(materialized=Materialized("s", retention=40)).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for time in (5, 15, 25, 35, 45):
            driver.create_input_topic("in").pipe_input("a", 1, time)
        starts = [key.window.start for key, _ in driver.get_key_value_store("s").all()]
        assert sorted(starts) == [10, 20, 30, 40]
    with pytest.raises(TopologyError, match="must keep its windows for at least their size plus grace"):
        grouped.count(materialized=Materialized("t", retention=9))


@pytest.mark.parametrize("on_top", [True, False])
def test_an_update_is_late_if_another_task_is_ahead(on_top):
    """Each task of the windows has its own time; that of the groups is the largest."""
    builder = StreamsBuilder()
    rows = counted(builder, TimeWindows.of_size_with_no_grace(10))
    grouped = rows.group_by_window(lambda key, row: ("all", row))
    table = grouped.top(2, by=col("n")) if on_top else grouped.count()
    table.to_stream().to("out")
    table.dropped().to("late")
    with TopologyTestDriver(builder.build(), tasks=2, partitions={"in": 2}) as driver:
        for key, time in (("a", 25), *((key, 4) for key in "bcdefg")):
            driver.create_input_topic("in").pipe_input(key, 1, time)
        assert [start for _, start, _, _ in results(driver, "out")] == [20]
        here = driver.create_output_topic("late").queue_size
        assert 0 < (here() if callable(here) else here) < driver.dropped("late") == 6


def test_suppress_waits_for_these_windows():
    builder = StreamsBuilder()
    rows = counted(builder, TimeWindows.of_size_and_grace(10, 5))
    best = rows.group_by_window().top(1, by=col("n"), ties=True).suppress(Suppressed.until_window_closes())
    best.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for key, time in (("a", 1), ("b", 2), ("b", 3), ("a", 14), ("a", 16)):
            driver.create_input_topic("in").pipe_input(key, 1, time)
        assert results(driver, "out") == [(0, 0, [{"key": "b", "n": 2}], 3)]


@pytest.mark.parametrize(
    "windows",
    [SlidingWindows.of_time_difference_with_no_grace(10), SessionWindows.of_inactivity_gap_with_no_grace(5)],
)
def test_windows_that_keys_do_not_share_are_refused(windows):
    table = StreamsBuilder().stream("in").group_by_key().windowed_by(windows).count()
    with pytest.raises(TopologyError, match="do not share their windows"):
        table.group_by_window()


def test_a_table_without_windows_is_refused():
    with pytest.raises(TopologyError, match="has no windows to group by"):
        StreamsBuilder().table("in").group_by_window()
