"""Small ranges of a micro-batch share a reader, large ones do not."""

from __future__ import annotations

from streams.microbatch.read import (
    MOST_TOGETHER,
    SMALL_RECORDS,
    PlannedCall,
    PlannedPartition,
    PlannedRange,
    together,
)
from streams.source.offsets import OffsetRange


def planned(*sizes: int) -> list[PlannedPartition]:
    return [PlannedRange("batch", "id", OffsetRange("t", number, 7, 7 + size)) for number, size in enumerate(sizes)]


def sizes_of(groups: list[tuple[PlannedPartition, ...]]) -> list[list[int]]:
    return [[one.offsets.end - one.offsets.start for one in group if isinstance(one, PlannedRange)] for group in groups]


def test_small_ranges_share_a_reader() -> None:
    assert sizes_of(together(planned(10, 20, 30))) == [[10, 20, 30]]


def test_a_reader_has_no_more_than_what_is_small_in_total() -> None:
    half = SMALL_RECORDS // 2
    assert sizes_of(together(planned(half, half, 1, SMALL_RECORDS, half))) == [
        [half, half],
        [1],
        [SMALL_RECORDS],
        [half],
    ]


def test_a_large_range_has_a_reader_of_its_own() -> None:
    large = 10 * SMALL_RECORDS
    assert sizes_of(together(planned(large, 1, large))) == [[large], [1], [large]]


def test_a_reader_waits_for_few_brokers_only() -> None:
    assert [len(group) for group in together(planned(*[1] * (MOST_TOGETHER + 1)))] == [MOST_TOGETHER, 1]


def test_a_call_of_every_task_needs_no_reader_of_its_own() -> None:
    call = PlannedCall("batch")
    (group,) = together([*planned(5), call])
    assert group[-1] is call
    assert together([call]) == [(call,)]
    assert together([]) == []


def test_large_ranges_are_dealt_out_among_the_readers_that_work_at_once() -> None:
    a, b = 10 * SMALL_RECORDS, 11 * SMALL_RECORDS
    left, right = planned(a, a, a, a), planned(b, b, b, b)
    assert sizes_of(together([*left, *right], readers=2)) == [[a, a, b, b], [a, a, b, b]], (
        "each has half of either topic"
    )
    assert sizes_of(together(left, readers=4)) == [[a]] * 4


def test_uneven_ranges_are_taken_by_whoever_is_ready() -> None:
    large, small = 10 * SMALL_RECORDS, 2 * SMALL_RECORDS
    assert sizes_of(together(planned(large, small, large, small), readers=2)) == [[large], [small], [large], [small]]


def test_dealing_neither_loses_a_range_nor_reads_one_twice() -> None:
    ranges = planned(*[SMALL_RECORDS + number for number in range(12)])
    hands = together(ranges, readers=3)
    assert len(hands) == 3
    dealt = [one.offsets.partition for hand in hands for one in hand if isinstance(one, PlannedRange)]
    assert sorted(dealt) == list(range(12))
