"""Finds the last commit marker of a task, the only authority on what the task has done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from state.columns import RecordColumns
from state.commit.marker import MarkerCopy
from state.kafka.topics import TopicPartition


class MarkerLog(Protocol):
    """The part of `state.commit.live.LiveKafka` that this module needs."""

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]: ...
    def begin_offset(self, partition: TopicPartition) -> int: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]: ...


def end_behind(offset: int) -> int:
    """Where the commits partition ends behind a committed marker: only the control record of its transaction is between."""
    return offset + 2


def read_last_marker(
    log: MarkerLog, commits: TopicPartition, known: int | None = None, end: int | None = None
) -> MarkerCopy | None:
    """The newest marker up to the last stable offset; None on an empty partition."""
    if end is None:
        end = log.end_offsets([commits])[commits]
    start = log.begin_offset(commits) if known is None or known >= end else known
    last: MarkerCopy | None = None
    for columns in log.read(*commits, min(start, end), end):
        if len(columns.offsets):
            last = MarkerCopy(columns.values[len(columns.values) - 1].as_py(), int(columns.offsets[-1]))
    return last
