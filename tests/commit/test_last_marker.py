"""The last marker of a task is found wherever its log ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from state.columns import RecordColumns
from state.commit.marker import read_last_marker
from state.kafka.topics import TopicPartition

COMMITS = ("app-in-commits", 0)


class Log:
    """A log of markers at every second offset, for each is followed by the control record of its transaction."""

    def __init__(self, markers: int) -> None:
        self.markers = markers

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 2 * self.markers)

    def begin_offset(self, partition: TopicPartition) -> int:
        return 0

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        offsets = [offset for offset in range(0, end, 2) if offset >= start]
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
