"""The newest commit marker of a partition, read from the end of the log: before it there may be a day of commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from state.commit.last_marker import MarkerLog, TopicPartition, read_last_marker
from state.commit.marker import CommitMarker

_FIRST_LOOK = 16
_FURTHER = 32


def newest_marker(log: MarkerLog, commits: TopicPartition) -> CommitMarker | None:
    """The newest marker in a partition of a commits topic; None if the partition has none.

    Raises:
        MarkerFormatError: The newest record is not a marker.
    """
    begin, end = log.begin_offset(commits), log.end_offsets([commits])[commits]
    back = _FIRST_LOOK
    while begin < end:
        start = max(begin, end - back)
        found = read_last_marker(log, commits, start)
        if found is not None:
            return found.marker
        if start == begin:
            return None
        # This part of the log has only control records of transactions.
        back *= _FURTHER
    return None


def newest_markers(log: MarkerLog, topic: str, partitions: Iterable[int]) -> Iterator[CommitMarker]:
    """The newest markers of the tasks that have committed anything."""
    for partition in partitions:
        found = newest_marker(log, (topic, partition))
        if found is not None:
            yield found
