"""Small ranges of a micro-batch share a reader, large ones do not."""

from __future__ import annotations

from streams.microbatch.partitions import (
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
