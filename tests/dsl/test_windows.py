"""All kinds of windows, and Kafka Streams' checks of them."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    CalendarWindows,
    Consumed,
    EmitStrategy,
    Int64Serde,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    Windowed,
    Windows,
    agg,
)
from streams.testing import TopologyTestDriver


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


# --- Sliding, session, calendar, unlimited windows and windows of one's own: shapes, names, checks, and the DSL around them.


BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3_600_000


def ms(*date, zone=BERLIN):
    return int(datetime(*date, tzinfo=zone).timestamp() * 1000)


@pytest.mark.parametrize(
    ("unit", "inside", "start", "end", "hours"),
    [
        ("day", (2026, 3, 29, 12), (2026, 3, 29), (2026, 3, 30), 23),  # summer time begins
        ("day", (2026, 10, 25, 23, 59), (2026, 10, 25), (2026, 10, 26), 25),  # and ends
        ("day", (2026, 6, 1), (2026, 6, 1), (2026, 6, 2), 24),
        ("week", (2026, 3, 29, 12), (2026, 3, 23), (2026, 3, 30), 7 * 24 - 1),
        ("month", (2026, 2, 28, 23), (2026, 2, 1), (2026, 3, 1), 28 * 24),
        ("month", (2026, 12, 31), (2026, 12, 1), (2027, 1, 1), 31 * 24),
        ("year", (2028, 2, 29), (2028, 1, 1), (2029, 1, 1), 366 * 24),
    ],
)
def test_calendar_windows(unit, inside, start, end, hours):
    windows = CalendarWindows.of(unit, "Europe/Berlin")
    assert list(windows.starts(ms(*inside))) == [ms(*start)]
    assert windows.end_of(ms(*start)) == ms(*end)
    assert ms(*end) - ms(*start) == hours * HOUR <= windows.size_ms


def test_the_first_calendar_window_begins_at_the_epoch():
    windows = CalendarWindows.of("day", "Asia/Tokyo")
    assert list(windows.starts(0)) == [0]
    assert windows.end_of(0) == 15 * HOUR
    assert list(windows.starts(15 * HOUR)) == [15 * HOUR]


def test_unlimited_windows():
    windows = UnlimitedWindows.start_on(datetime(1970, 1, 2, tzinfo=timezone.utc))
    assert list(windows.starts(24 * HOUR - 1)) == []
    assert list(windows.starts(24 * HOUR)) == [24 * HOUR]
    assert windows.end_of(24 * HOUR) == 2**63 - 1
    assert UnlimitedWindows.start_on(datetime(1970, 1, 2)) == windows, "without a zone: UTC, as in extractors"  # noqa: DTZ001


@dataclass(frozen=True)
class EvenAndOdd(Windows):
    """Windows that overlap and differ in length."""

    grace_ms: int = 0

    @property
    def size_ms(self):
        return 20

    def starts(self, timestamp):
        start = timestamp // 10 * 10
        return [one for one in (start - 10, start) if one >= 0 and timestamp < self.end_of(one)]

    def end_of(self, start):
        return start + (20 if start % 20 == 0 else 10)


def test_windows_known_by_a_memory_address_are_refused():
    class Nameless(EvenAndOdd):
        __repr__ = object.__repr__

    windowed = StreamsBuilder().stream("in").group_by_key().windowed_by(Nameless())
    with pytest.raises(TopologyError, match=r"give .*Nameless a __repr__"):
        windowed.count()


@pytest.mark.parametrize("on_close", [False, True])
def test_windows_of_ones_own(on_close):
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(EvenAndOdd())
    counts = windowed.emit_strategy(EmitStrategy(on_close)).aggregate(n=agg.count())
    counts.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for timestamp in (5, 15, 25, 40):
            driver.create_input_topic("in").pipe_input("a", {}, timestamp)
        rows = driver.create_output_topic("out").read_key_values_to_list()
    wanted = [((0, 20), 1), ((0, 20), 2), ((10, 20), 1), ((20, 40), 1), ((40, 60), 1)]
    closed = [((0, 20), 2), ((10, 20), 1), ((20, 40), 1)]
    assert [(tuple(key.window), value["n"]) for key, value in rows] == (closed if on_close else wanted)


def test_sessions_with_built_in_aggregates_can_be_looked_up():
    builder = StreamsBuilder()
    sessions = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(10, 0))
    table = sessions.aggregate(n=agg.count(), mean=agg.mean("v"), materialized=Materialized(name="sessions"))
    table.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        with driver.batch():
            for timestamp, value in ((0, 1), (20, 2), (10, 6), (50, 7)):
                driver.create_input_topic("in").pipe_input("a", {"v": value}, timestamp)
        rows = driver.create_output_topic("out").read_key_values_to_list()
        stored = list(driver.get_store("sessions").find_sessions("a"))
    merged, alone = Windowed("a", (0, 20)), Windowed("a", (50, 50))
    assert rows == [(merged, {"n": 3, "mean": 3.0}), (alone, {"n": 1, "mean": 7.0})]
    assert stored == [((0, 20), [3, [9, 3]]), ((50, 50), [1, [7, 1]])]


def suppressed_and_cogrouped(*, with_filter=False):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks")
    if with_filter:
        clicks = clicks.filter(lambda value: True)
    windows = SlidingWindows.of_time_difference_and_grace(10, 5)
    counts = clicks.group_by_key().windowed_by(windows).count()
    counts.suppress(Suppressed.until_window_closes()).to_stream().to("finals")
    clicks.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close()).count().to_stream().to("c")
    both = clicks.group_by_key().cogroup(lambda v, n: n + 1).cogroup(builder.stream("buys").group_by_key(), max)
    both.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).aggregate(
        int, lambda a, b: a + b, materialized=Materialized(value_serde=Int64Serde())
    ).to_stream().to("both")
    return builder.build()


def test_names_stay_and_are_described():
    topology = suppressed_and_cogrouped()
    assert set(suppressed_and_cogrouped(with_filter=True).stores) == set(topology.stores)
    text = topology.describe()
    for kind in ("KSTREAM-AGGREGATE", "KTABLE-SUPPRESS", "COGROUPKSTREAM-AGGREGATE"):
        assert f"Processor: {kind}-clicks" in text or f"Processor: {kind}-buys-clicks" in text, text
    assert any(name.endswith("-open") for name in topology.stores)
    assert "COGROUPKSTREAM" in topology.mermaid()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: SlidingWindows.of_time_difference_with_no_grace(-1), "time difference must not be negative: -1 ms"),
        (lambda: SlidingWindows.of_time_difference_and_grace(1, -1), "Grace must not be negative"),
        (lambda: SessionWindows.of_inactivity_gap_with_no_grace(timedelta(days=-1)), "must not be negative: -86400000"),
        (lambda: CalendarWindows.of("fortnight", "UTC"), "are day, week, month or year, not 'fortnight'"),
        (lambda: CalendarWindows.of("day", "Mars/Olympus"), "'Mars/Olympus' is not a time zone"),
        (lambda: UnlimitedWindows.start_on(-1), "before the epoch"),
        (lambda: Suppressed.until_time_limit(-1), "must not be negative"),
    ],
)
def test_impossible_settings(call, says):
    with pytest.raises(TopologyError, match=says):
        call()


def test_impossible_aggregations():
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    sliding = grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(10, 5))
    with pytest.raises(TopologyError, match="twice their time difference plus grace, 2 \\* 10 \\+ 5 ms"):
        sliding.count(materialized=Materialized(retention=24))
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(10, 5))
    with pytest.raises(TopologyError, match="their gap plus grace, 10 \\+ 5 ms"):
        sessions.count(materialized=Materialized(retention=14))
    with pytest.raises(TopologyError, match="an initializer, an aggregator and a merger"):
        sessions.aggregate(int, lambda v, n: n)
    with pytest.raises(TopologyError, match="never close"):
        grouped.windowed_by(UnlimitedWindows()).emit_strategy(EmitStrategy.on_window_close())
    with pytest.raises(TopologyError, match="grouped streams of one StreamsBuilder"):
        grouped.cogroup(lambda v, n: n).cogroup(StreamsBuilder().stream("in").group_by_key(), lambda v, n: n)
    again = builder.stream("again")
    with pytest.raises(TopologyError, match=r"the grouped stream of '.*' twice"):
        again.group_by_key().cogroup(lambda v, n: n).cogroup(again.group_by_key(), lambda v, n: n)
    numbers = builder.stream("numbers").group_by_key()
    longs = builder.stream("longs", Consumed(key_serde=Int64Serde())).group_by_key()
    with pytest.raises(TopologyError, match="Read both with the same key serde"):
        numbers.cogroup(lambda v, n: n).cogroup(longs, lambda v, n: n).aggregate(int)


@dataclass(frozen=True)
class Hours(Windows):
    """The sizes may be fields of a dataclass."""

    size_ms: int
    grace_ms: int

    def starts(self, timestamp):
        return [timestamp // self.size_ms * self.size_ms]

    def end_of(self, start):
        return start + self.size_ms


def test_sizes_of_own_windows_may_be_fields():
    grouped = StreamsBuilder().stream("in").group_by_key()
    assert grouped.windowed_by(Hours(HOUR, 0)).count().store_name


def test_own_windows_must_say_their_size_and_grace():
    class Endless(Windows):
        def starts(self, timestamp):
            return [0]

        def end_of(self, start):
            return 1

    grouped = StreamsBuilder().stream("in").group_by_key()
    with pytest.raises(TopologyError, match=r"Endless has no size_ms and no grace_ms: "):
        grouped.windowed_by(Endless())


@pytest.mark.parametrize("wrong", [5, None, "1h", Hours, JoinWindows.of_time_difference_with_no_grace(5)])
def test_what_are_no_windows_is_refused(wrong):
    with pytest.raises(TopologyError, match="windowed_by takes TimeWindows, SlidingWindows"):
        StreamsBuilder().stream("in").group_by_key().windowed_by(wrong)
