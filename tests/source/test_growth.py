"""Micro-batches begin small under a backlog, and grow to what the time they take allows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from state.kafka.sampler import SampledRecord
from streams.source.backlog import Backlog
from streams.source.growth import FACTOR, FIRST_RECORDS, LONGEST_MS, WANTED_MS, BatchGrowth

WAITING = 10_000_000
PLACE = ("t", 0)


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
    clock = Clock()
    growth = BatchGrowth(clock)
    assert [after(growth, clock, 100 * LONGEST_MS) for _ in range(3)][-1] == FIRST_RECORDS


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
