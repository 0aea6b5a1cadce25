"""Admission: bounded, progressing, aligned in time by the records that wait, whatever lies before or between them."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.kafka.consumers import RECORDS, SampledRecord
from streams.engine.source.backlog import FACTOR, FIRST_RECORDS, LONGEST, WANTED_MS, Backlog, BatchGrowth, admit
from streams.engine.source.sampling import AHEAD_MS, BacklogSamples

TP = tuple[str, int]
CONTROL = None
"""A control record in a log of timestamps."""
YEAR_2200 = 7_258_118_400_000
NOW = 1_700_000_000_000


class Log:
    """Timestamps of each partition, by offset."""

    def __init__(self, times: Mapping[TP, list[int | None]] | Mapping[TP, list[int]], size: int = 100) -> None:
        self.times = times
        self.size = size
        self.asked = 0
        self.samples = BacklogSamples(self.read)

    def end(self) -> dict[TP, int]:
        return {tp: len(times) for tp, times in self.times.items()}

    def read(self, at: Mapping[TP, int], end: Mapping[TP, int]) -> dict[TP, list[SampledRecord]]:
        self.asked += 1
        found: dict[TP, list[SampledRecord]] = {}
        for tp, first in at.items():
            places = ((n, self.times[tp][n]) for n in range(first, end[tp]))
            records = (SampledRecord(n, time, self.size) for n, time in places if time is not CONTROL)
            found[tp] = list(islice(records, RECORDS))
        return found

    def admit(self, start: dict[TP, int], limit: int) -> dict[TP, int]:
        self.samples.begin(start)
        return admit(start, self.end(), limit, self.samples, NOW + AHEAD_MS)

    def newest(self, upto: dict[TP, int], start: dict[TP, int]) -> list[int]:
        """The largest believable timestamp that was read of each partition, by its end."""
        return [
            max(t for t in times[start[tp] : upto[tp]] if t is not CONTROL and t < YEAR_2200)
            for tp, times in self.times.items()
        ]


logs = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 500)), max_size=60), min_size=1, max_size=4).map(
    lambda parts: Log({("t", i): times for i, times in enumerate(parts)})
)


@given(logs, st.integers(1, 80))
@example(Log({("t", i): times for i, times in enumerate([[0], [0], [0, 0, 0, 0]])}), 3)
def test_batches_are_bounded_and_reach_the_end(log: Log, limit: int) -> None:
    at: dict[TP, int] = dict.fromkeys(log.times, 0)
    while at != log.end():
        chosen = log.admit(at, limit)
        assert all(at[tp] <= chosen[tp] <= log.end()[tp] for tp in at)
        left = sum(log.end()[tp] - at[tp] for tp in at)
        assert sum(chosen[tp] - at[tp] for tp in at) == min(limit, left)
        at = chosen


def test_a_small_partition_does_not_run_ahead_of_a_large_one() -> None:
    large = [ms for ms in range(0, 1000) for _ in range(10)]
    log = Log({("t", 0): large, ("t", 1): list(range(0, 1000, 10))})
    chosen = log.admit({("t", 0): 0, ("t", 1): 0}, 1000)
    assert abs(large[chosen["t", 0] - 1] - 10 * (chosen["t", 1] - 1)) <= 10
    assert sum(chosen.values()) == 1000
    assert log.asked <= 4


def test_all_is_taken_when_it_fits() -> None:
    log = Log({("t", 0): [1, 2, 3], ("t", 1): []})
    assert log.admit({("t", 0): 1, ("t", 1): 0}, 2) == {("t", 0): 3, ("t", 1): 0}
    assert log.asked == 0


def test_sorted_logs_are_cut_at_one_time() -> None:
    log = Log({("t", p): sorted((p * 7 + i * 13) % 997 for i in range(500)) for p in range(3)})
    chosen = log.admit(dict.fromkeys(log.times, 0), 300)
    cut = max(log.times[tp][n - 1] or 0 for tp, n in chosen.items() if n)
    for tp, n in chosen.items():
        assert abs(n - bisect.bisect_left(log.times[tp], cut)) <= 300 // 16


def in_step(log: Log, start: dict[TP, int], limit: int, apart_ms: int) -> None:
    """Reads to the end; after each micro-batch all partitions that still have a backlog are as far in time."""
    at = start
    while at != log.end():
        at = log.admit(at, limit)
        if all(at[tp] < end for tp, end in log.end().items()):
            times = log.newest(at, start)
            assert max(times) - min(times) <= apart_ms, at


def test_a_record_dated_far_ahead_that_was_read_long_ago_holds_nothing_back() -> None:
    log = Log({("t", 0): [YEAR_2200, *range(2000)], ("t", 1): list(range(2000))})
    in_step(log, {("t", 0): 1, ("t", 1): 0}, 200, 20)


def test_records_dated_far_ahead_hold_nothing_back_either() -> None:
    dated = [*range(500), *([YEAR_2200] * 300), *range(500, 1000)]
    in_step(Log({("t", 0): dated, ("t", 1): list(range(1000))}), {("t", 0): 0, ("t", 1): 0}, 100, 200)


def test_one_record_dated_ahead_within_a_day_hides_nothing() -> None:
    dated = [*range(50), NOW, *range(50, 1000)]
    log = Log({("t", 0): dated, ("t", 1): list(range(1000))})
    at = log.admit({("t", 0): 0, ("t", 1): 0}, 400)
    assert abs(at["t", 0] - at["t", 1]) <= 25


def test_control_records_are_no_times() -> None:
    written = [time for begun in range(0, 2000, 10) for time in (*range(begun, begun + 10), CONTROL)]
    in_step(Log({("t", 0): written, ("t", 1): list(range(2000))}), {("t", 0): 0, ("t", 1): 0}, 200, 25)
    in_step(Log({("t", 0): written, ("t", 1): list(range(2000))}), {("t", 0): 1100, ("t", 1): 1000}, 200, 25)


def test_uneven_logs_stay_together() -> None:
    quiet_then_busy = [*range(0, 100_000, 100), *range(100_000, 104_000)]
    busy_then_quiet = [*range(4_000), *range(4_000, 104_000, 100)]
    log = Log({("t", 0): quiet_then_busy, ("t", 1): busy_then_quiet})
    in_step(log, {("t", 0): 0, ("t", 1): 0}, 400, 2 * 400 // 16 * 100)


def test_logs_whose_rates_change_stay_together_though_some_records_are_late() -> None:
    """The rate of one falls, that of the other grows; one record in twenty is late by a hundredth of what a micro-batch covers."""
    even = range(40_000)
    falls = [n * n // 40_000 for n in even]
    grows = [int((n * 40_000) ** 0.5) for n in even]
    times = {
        ("t", number): [time - 200 * (n % 20 == 7) for n, time in enumerate(one)]
        for number, one in enumerate((falls, grows))
    }
    in_step(Log(times), {("t", 0): 0, ("t", 1): 0}, 30_000, 150)


def test_little_is_read_for_a_micro_batch() -> None:
    log = Log({("t", p): [n * (p + 1) for n in range(20_000)] for p in range(4)})
    at, batches = dict.fromkeys(log.times, 0), 0
    while at != log.end():
        at, batches = log.admit(at, 1_000), batches + 1
    assert batches == 80
    assert log.asked <= 3 * batches


def test_sizes_are_looked_at_again_once_much_is_waiting() -> None:
    log = Log({("t", 0): list(range(100_000)), ("t", 1): list(range(100_000))})
    rests: list[None] = []
    backlog = Backlog(
        log.read, max_records=50_000, max_bytes=10_000_000, now_ms=lambda: NOW, rest=lambda: rests.append(None)
    )
    start: dict[TP, int] = {("t", 0): 0, ("t", 1): 0}
    few = {tp: at + 1_000 for tp, at in start.items()}
    assert backlog.admit(start, few) == few
    asked = log.asked
    assert rests == []
    for _ in range(10):
        start, few = few, {tp: at + 1_000 for tp, at in few.items()}
        assert backlog.admit(start, few) == few
    # An application that keeps up looks at nothing.
    assert log.asked == asked
    assert len(rests) == 10
    log.size = 5_000
    chosen = backlog.admit(few, log.end())
    assert sum(chosen[tp] - few[tp] for tp in few) == 2_000
    # Where the ends are larger than the beginnings, they count.
    log.size = 100
    fresh = Backlog(
        lambda at, end: {tp: [SampledRecord(n, n, 100 if n < 500 else 5_000)] for tp, n in at.items()},
        max_records=50_000,
        max_bytes=10_000_000,
        now_ms=lambda: NOW,
    )
    chosen = fresh.admit({("t", 0): 0, ("t", 1): 0}, log.end())
    assert sum(chosen.values()) == 2_000


# --- Micro-batches begin small under a backlog, and grow to what the time they take allows.

WAITING = 10_000_000
PLACE = ("t", 0)
LONGEST_MS = LONGEST * WANTED_MS


@dataclass
class Clock:
    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms


def after(growth: BatchGrowth, clock: Clock, took_ms: int) -> int:
    """The limit after one more full micro-batch."""
    growth.planned(is_full=True)
    clock.now_ms += took_ms
    growth.next()
    return growth.records


def sizes_of(fixed_ms: int, us_a_record: int, micro_batches: int = 12, interval_ms: int = 0) -> list[int]:
    """The sizes of micro-batches that take a fixed time, and some for each record."""
    clock = Clock()
    growth = BatchGrowth(clock, interval_ms)
    sizes = [growth.records]
    for _ in range(micro_batches):
        took_ms = fixed_ms + sizes[-1] * us_a_record // 1_000
        sizes.append(after(growth, clock, max(interval_ms, took_ms)))
    return sizes


def test_a_backlog_is_read_in_growing_micro_batches_up_to_the_limits() -> None:
    def read(at: dict, end: dict) -> dict:
        return {tp: [SampledRecord(place, place, 100)] for tp, place in at.items()}

    backlog = Backlog(read, max_records=300_000, max_bytes=2**30, now_ms=Clock())
    start, sizes = 0, []
    for _ in range(4):
        end = backlog.admit({PLACE: start}, {PLACE: WAITING})[PLACE]
        sizes.append(end - start)
        start = end
    assert sizes == [FIRST_RECORDS, FIRST_RECORDS * FACTOR, FIRST_RECORDS * FACTOR**2, 300_000]


def test_the_first_micro_batch_may_take_long_since_workers_start_with_it() -> None:
    clock = Clock()
    growth = BatchGrowth(clock)
    assert after(growth, clock, 10 * LONGEST_MS) == FIRST_RECORDS * FACTOR


@pytest.mark.parametrize(
    ("took_ms", "times"),
    [(WANTED_MS // 100, FACTOR), (WANTED_MS // 2, 2), (WANTED_MS, 1), (LONGEST_MS, 1), (2 * LONGEST_MS, 1 / 6)],
)
def test_a_later_micro_batch_grows_or_shrinks_with_the_time_it_takes(took_ms: int, times: float) -> None:
    clock = Clock()
    growth = BatchGrowth(clock)
    before = [after(growth, clock, 1) for _ in range(3)][-1]
    assert after(growth, clock, took_ms) == pytest.approx(before * times, rel=0.001)


def test_no_micro_batch_shrinks_below_the_first_one() -> None:
    assert sizes_of(fixed_ms=0, us_a_record=100_000)[-1] == FIRST_RECORDS


def test_a_trigger_interval_is_no_sign_of_slowness() -> None:
    clock = Clock()
    growth = BatchGrowth(clock, interval_ms=60_000)
    before = after(growth, clock, 60_000)
    assert after(growth, clock, 60_100) > before


def test_time_without_a_backlog_does_not_count() -> None:
    clock = Clock()
    growth = BatchGrowth(clock)
    before = after(growth, clock, 1)
    growth.planned(is_full=False)
    clock.now_ms += 100 * LONGEST_MS
    growth.next()
    assert growth.records == before


@pytest.mark.parametrize("fixed_ms", [WANTED_MS, LONGEST_MS - 500, LONGEST_MS + 500, 20 * LONGEST_MS])
@pytest.mark.parametrize("interval_ms", [0, 1_000])
def test_what_every_micro_batch_takes_is_no_reason_to_stay_small(fixed_ms: int, interval_ms: int) -> None:
    """With 32 tasks on two cores a micro-batch took 3 s whatever was in it; it stayed small, and read 13 600 records/s forever."""
    size = sizes_of(fixed_ms, us_a_record=10, interval_ms=interval_ms)[-1]
    assert size * 10 / 1_000 >= 0.9 * fixed_ms


def test_a_slow_function_of_the_user_is_told_from_fixed_costs_and_keeps_micro_batches_small() -> None:
    sizes = sizes_of(fixed_ms=100, us_a_record=500)
    assert max(sizes[5:]) * 500 / 1_000 <= LONGEST_MS


def test_one_slow_micro_batch_is_outlived() -> None:
    """As when the machine stood still for a minute."""
    clock = Clock()
    growth = BatchGrowth(clock)
    for _ in range(6):
        after(growth, clock, 300 + growth.records // 500)
    before = growth.records
    after(growth, clock, 60_000)
    sizes = [after(growth, clock, 300 + growth.records // 500) for _ in range(6)]
    assert before / 2 < sizes[-1] < before * 2
