"""Windows and Kafka Streams' checks of them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import JoinWindows, Materialized, StreamsBuilder, TimeWindows, TopologyError


def test_durations_are_timedeltas_or_milliseconds():
    assert TimeWindows.of_size_with_no_grace(timedelta(minutes=1)) == TimeWindows(60_000, 60_000, 0)
    assert TimeWindows.of_size_and_grace(60_000, timedelta(seconds=2)) == TimeWindows(60_000, 60_000, 2_000)
    for wrong in (1.5, "10", True):
        with pytest.raises(TopologyError, match="timedelta or whole milliseconds"):
            TimeWindows.of_size_with_no_grace(wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeWindows.of_size_with_no_grace(0), "size must be larger than zero"),
        (lambda: TimeWindows.of_size_with_no_grace(-1), "size must be larger than zero"),
        (lambda: TimeWindows.of_size_with_no_grace(10).advance_by(11), "cannot advance by 11 ms"),
        (lambda: TimeWindows.of_size_with_no_grace(10).advance_by(0), "cannot advance by 0 ms"),
        (lambda: TimeWindows.of_size_and_grace(10, -1), "Grace must not be negative"),
        (lambda: JoinWindows.of_time_difference_and_grace(10, -1), "Grace must not be negative"),
        (lambda: JoinWindows.of_time_difference_with_no_grace(10).before(-11), "before \\+ after must not be negative"),
        (lambda: JoinWindows.of_time_difference_with_no_grace(-1), "before \\+ after must not be negative"),
    ],
)
def test_impossible_windows(make, message):
    with pytest.raises(TopologyError, match=message):
        make()


def test_join_windows_may_be_lopsided():
    windows = JoinWindows.of_time_difference_and_grace(10, 3).before(-5)
    assert (windows.before_ms, windows.after_ms, windows.grace_ms, windows.size_ms) == (-5, 10, 3, 5)
    # A left record waits 10 + 3 for its partner, although the interval is only 5 long.
    assert windows.keep_ms == 13
    assert JoinWindows.of_time_difference_and_grace(10, 3).keep_ms == 23


@given(st.integers(0, 500), st.integers(1, 60), st.integers(1, 60))
def test_starts_are_all_windows_around_a_timestamp(timestamp, size, advance):
    if advance > size:
        return
    windows = TimeWindows.of_size_with_no_grace(size).advance_by(advance)
    brute = [start for start in range(0, timestamp + 1, advance) if start <= timestamp < start + size]
    assert list(windows.starts(timestamp)) == brute


def grouped():
    return StreamsBuilder().stream("t").group_by_key()


def test_retention_holds_open_windows():
    windows = TimeWindows.of_size_and_grace(100, 20)
    with pytest.raises(
        TopologyError, match="at least their size plus grace, 100 \\+ 20 ms, but its retention is 119 ms"
    ):
        grouped().windowed_by(windows).count(materialized=Materialized(name="s", retention=119))
    grouped().windowed_by(windows).count(materialized=Materialized(name="s", retention=120))


def test_retention_needs_windows():
    with pytest.raises(TopologyError, match="'s' has no windows"):
        grouped().count(materialized=Materialized(name="s", retention=119))


def test_windowed_by_takes_windows():
    with pytest.raises(TopologyError, match=r"takes TimeWindows, .* not int"):
        grouped().windowed_by(10)
