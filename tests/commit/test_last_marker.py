"""The last marker of a task is found wherever its log ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from state.columns import RecordColumns
from state.commit.marker import FIRST_SPAN, read_last_marker
from state.kafka.topics import TopicPartition

COMMITS = ("app-in-commits", 0)


class Log:
    """A log of markers at every second offset, for each is followed by the control record of its transaction.

    Attributes:
        behind: The number of further control records at its end.
        ranges: What was read of it.
    """

    def __init__(self, markers: int, behind: int = 0) -> None:
        self.markers, self.behind = markers, behind
        self.ranges: list[tuple[int, int]] = []

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 2 * self.markers + self.behind)

    def begin_offset(self, partition: TopicPartition) -> int:
        return 0

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        self.ranges.append((start, end))
        offsets = [offset for offset in range(0, min(end, 2 * self.markers), 2) if offset >= start]
        if offsets:
            numbers = np.array(offsets, np.int64)
            texts = pa.array([str(offset).encode() for offset in offsets], pa.binary())
            yield RecordColumns(topic, partition, numbers, numbers, texts, texts, None)


@pytest.mark.parametrize("known", [None, 0, 2, 4])
def test_it_is_read_from_the_known_one_on(known: int | None) -> None:
    last = read_last_marker(Log(3), COMMITS, known)
    assert last is not None
    assert (last.data, last.offset) == (b"4", 4)


def test_a_log_that_has_lost_the_known_one_is_read_from_its_begin() -> None:
    """An unclean election cuts a log short: the error must name the version where it ends now."""
    last = read_last_marker(Log(2), COMMITS, known=6)
    assert last is not None
    assert last.offset == 2


def test_an_empty_log_has_none() -> None:
    assert read_last_marker(Log(0), COMMITS) is None
    assert read_last_marker(Log(0), COMMITS, known=6) is None


def test_a_long_log_is_read_at_its_end_only() -> None:
    """Compaction keeps the control records of old steps for a while: a live task writes ten a second."""
    log = Log(10_000)
    last = read_last_marker(log, COMMITS)
    assert last is not None
    assert last.offset == 19_998
    assert log.ranges == [(20_000 - FIRST_SPAN, 20_000)]


@pytest.mark.parametrize("behind", [FIRST_SPAN, 16 * FIRST_SPAN, 100_000])
def test_behind_control_records_more_and_more_is_read_but_nothing_twice(behind: int) -> None:
    log = Log(3, behind)
    last = read_last_marker(log, COMMITS)
    assert last is not None
    assert last.offset == 4
    assert len(log.ranges) <= 4
    assert all(before == end for (before, _), (_, end) in zip(log.ranges, log.ranges[1:], strict=False))
    assert read_last_marker(Log(0, behind), COMMITS) is None
