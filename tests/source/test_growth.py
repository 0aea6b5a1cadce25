"""Micro-batches begin small under a backlog, and grow to what the time they take allows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from state.kafka.consumers import SampledRecord
from streams.source.backlog import FACTOR, FIRST_RECORDS, LONGEST, WANTED_MS, Backlog, BatchGrowth

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
    """With 32 tasks on two cores a micro-batch took 3 s whatever was in it; it stayed small, and read 13 600 records/s for ever."""
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
