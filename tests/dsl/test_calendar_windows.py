"""Days, weeks, months and years of any zone: they cover all time without overlap, and their stores keep them until they end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import CalendarWindows, EmitStrategy, Materialized, StreamsBuilder, Windows, agg
from streams.errors import TopologyError
from streams.operators.aggregate.column_rows import assign_to_calendar
from streams.testing import TopologyTestDriver
from tests.budget import up_to

HOUR = 3_600_000
ODD_ZONES = (
    "Africa/Casablanca",
    "America/Goose_Bay",  # back at 00:01 until 2011
    "America/Havana",  # midnight twice
    "America/Moncton",  # back at 00:01 until 2006
    "America/Sao_Paulo",  # without midnight
    "America/Scoresbysund",
    "America/St_Johns",  # back at 00:01, once by two hours
    "Antarctica/Casey",
    "Antarctica/Rothera",
    "Antarctica/Troll",  # two hours every year
    "Antarctica/Vostok",  # a day of 31 hours
    "Asia/Beirut",
    "Asia/Chita",
    "Asia/Magadan",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Europe/Dublin",  # negative summer time
    "Pacific/Apia",  # without a day
    "Pacific/Kwajalein",
    "UTC",
)
UNTIL_S = 2_240_000_000
"""The year 2040: rules of today are repeated from 2038 on."""
AROUND_S = (
    *(sign * seconds for seconds in (86_400, 7_201, 7_200, 3_601, 3_600, 1_800, 61, 60, 59, 1) for sign in (-1, 1)),
    0,
)


@cache
def changes(zone: str) -> list[int]:
    """The seconds at which the zone's clocks change, since 1970."""
    rules, found, step = ZoneInfo(zone), [], 5 * 86_400

    def offset(second: int) -> timedelta | None:
        return datetime.fromtimestamp(second, rules).utcoffset()

    for end in range(step, UNTIL_S, step):
        if offset(end) != offset(end - step):
            same, other = end - step, end
            while other - same > 1:
                middle = (same + other) // 2
                same, other = (middle, other) if offset(middle) == offset(end - step) else (same, middle)
            found.append(other)
    return found


UNITS = ("day", "week", "month", "year")


@given(st.sampled_from(ODD_ZONES), st.sampled_from(UNITS), st.sampled_from([0, HOUR, 40 * 24 * HOUR]), st.data())
@up_to(200)
def test_the_records_of_a_step_find_their_windows_together(zone, unit, grace, data) -> None:
    """As each would alone, also around changes of clocks; a time that no calendar has is an error of its own."""
    windows, found = CalendarWindows.of(unit, zone, grace), changes(zone) or [0]
    around = st.builds(
        lambda change, apart: max(0, (change + apart) * 1000), st.sampled_from(found), st.sampled_from(AROUND_S)
    )
    beyond = st.sampled_from([253_402_300_799_999, 10**15, 2**62])
    times = data.draw(st.lists(around | st.integers(0, 2**41) | beyond, max_size=12))
    now = data.draw(st.sampled_from([-1, *times]))
    pairs, late, failed, last = [], [], {}, now
    for row, time in enumerate(times):
        last = max(last, time)
        try:
            (start,) = windows.starts(time)
        except (ValueError, OverflowError) as error:
            failed[row] = repr(error)
            continue
        if windows.end_of(start) > last - grace:
            pairs.append((row, start))
        else:
            late.append(row)
    assigned = assign_to_calendar(np.array(times, np.int64), windows, now)
    assert list(zip(assigned.rows.tolist(), assigned.starts.tolist(), strict=True)) == pairs
    assert (assigned.late.tolist(), assigned.stream_time) == (late, last)
    assert {row: repr(error) for row, error in assigned.failed.items()} == failed


def wrong_around(windows: CalendarWindows, change: int) -> list[tuple[int, int, int]]:
    """Times around a change whose window does not contain them, or whose neighbours leave a gap."""
    found = []
    for second in AROUND_S:
        time = max(0, (change + second) * 1000)
        (start,) = windows.starts(time)
        end = windows.end_of(start)
        whole = list(windows.starts(start)) == list(windows.starts(end - 1)) == [start]
        if not (
            start <= time < end and whole and list(windows.starts(end)) == [end] and end - start <= windows.size_ms
        ):
            found.append((start, time, end))
    return found


def check_zone(zone: str) -> None:
    around = changes(zone)
    for unit in UNITS:
        windows = CalendarWindows.of(unit, zone)
        wrong = {change: rows for change in around if (rows := wrong_around(windows, change))}
        assert not wrong, (unit, zone, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ODD_ZONES)
def test_windows_cover_all_time(zone: str) -> None:
    check_zone(zone)


@pytest.mark.long
def test_windows_cover_all_time_in_every_zone() -> None:
    for zone in sorted(available_timezones()):
        check_zone(zone)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Antarctica/Vostok", (1994, 1, 31, 12), 31),
        ("Antarctica/Casey", (2020, 3, 8, 12), 27),
        ("Antarctica/Troll", (2028, 10, 29, 12), 26),
        ("Asia/Magadan", (2014, 10, 26, 12), 26),
        ("Europe/Berlin", (2026, 10, 25, 12), 25),
        ("Australia/Lord_Howe", (2026, 4, 5, 12), 24.5),
        ("America/Havana", (2024, 11, 3, 12), 25),
        ("America/Sao_Paulo", (2018, 11, 4, 12), 23),
    ],
)
@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_a_day_is_counted_to_its_end(zone: str, day: tuple[int, ...], hours: float, mode: str) -> None:
    windows = CalendarWindows.of("day", zone)
    noon = int(datetime(*day, tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    (start,) = windows.starts(noon)
    assert windows.end_of(start) - start == hours * HOUR
    builder = StreamsBuilder()
    days = builder.stream("in").group_by_key().windowed_by(windows)
    days.count(materialized=Materialized("days", caching=False)).to_stream().to("out")
    times = [*range(start, windows.end_of(start), HOUR), windows.end_of(start) - 1]
    with TopologyTestDriver(builder.build(), mode=mode, rocksdb=False) as driver:
        for time in times:
            driver.create_input_topic("in").pipe_input("a", 1, time)
        counts = driver.create_output_topic("out").read_values_to_list()
        assert counts == list(range(1, len(times) + 1))
        assert not driver.dropped("late")


@pytest.mark.parametrize("zone", ["America/St_Johns", "America/Goose_Bay", "America/Moncton"])
def test_records_in_order_are_never_late_where_clocks_go_back_across_midnight(zone: str) -> None:
    change = next(one for one in reversed(changes(zone)) if datetime.fromtimestamp(one, ZoneInfo(zone)).hour == 23)
    windows = CalendarWindows.of("day", zone)
    builder = StreamsBuilder()
    days = builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    days.count(materialized=Materialized("days")).to_stream().to("out")
    times = [
        (change + seconds) * 1000
        for seconds in (*range(-10_800, 0, 1_200), -30, -1, 0, 1, 30, *range(60, 10_800, 1_200))
    ]
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        for time in (*times, (change + 3 * 86_400) * 1000):
            driver.create_input_topic("in").pipe_input("a", 1, time)
        found = driver.create_output_topic("out").read_key_values_to_list()
        assert sum(count for _, count in found) == len(times)
        assert not driver.dropped("late")


@dataclass(frozen=True)
class Misfit(Windows):
    """Windows whose definition contradicts itself."""

    length: int
    size_ms: int
    shift: int = 0
    grace_ms: int = 0

    def starts(self, timestamp):
        return [timestamp // self.length * self.length + self.shift]

    def end_of(self, start):
        return start + self.length


@pytest.mark.parametrize(
    ("windows", "says"),
    [
        (Misfit(100, size_ms=10), r"from 0 to 100, which is longer than its size_ms, 10"),
        (Misfit(100, size_ms=100, shift=50), r"from 50 to 150, which does not contain the time 7"),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"n": agg.count()}])
def test_windows_of_ones_own_that_would_lose_rows_are_refused(windows, says, fields) -> None:
    builder = StreamsBuilder()
    group = builder.stream("in").group_by_key().windowed_by(windows)
    (group.aggregate(**fields) if fields else group.count()).to_stream().to("out")
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver, pytest.raises(TopologyError, match=says):
        driver.create_input_topic("in").pipe_input("a", {}, 7)


def test_a_date_that_a_zone_leaves_out_has_no_window() -> None:
    windows = CalendarWindows.of("day", "Pacific/Apia")
    skipped = int(datetime(2011, 12, 30, 10, tzinfo=timezone.utc).timestamp() * 1000)
    (before,), (after,) = windows.starts(skipped - 1), windows.starts(skipped)
    assert windows.end_of(before) == after == skipped
    assert windows.end_of(after) - after == 24 * HOUR
