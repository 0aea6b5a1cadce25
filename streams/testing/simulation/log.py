"""The log of one topic-partition: records, control records, open transactions, and the part that readers may see."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from state.columns import RecordColumns
from state.errors import OffsetsLostError, ReadTimeoutError


class Span:
    """The records of one transaction in one partition, from the first record to the control record.

    Attributes:
        first: The offset of the first record.
        decided: The coordinator's decision; None while the transaction is open.
        committed: The decision as readers see it; None until the control record is written.
    """

    __slots__ = ("committed", "decided", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self.decided: bool | None = None
        self.committed: bool | None = None


class Entry(NamedTuple):
    """One place of a log.

    Attributes:
        key: The record's key.
        value: The record's value; None: tombstone.
        timestamp: Milliseconds since the epoch.
        headers: Encoded headers (`state.columns`); None: no headers.
        span: The transaction that wrote the record; None: a producer without transactions.
        control: Whether this is a control record, which readers never receive.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: bytes | None = None
    span: Span | None = None
    control: bool = False

    @property
    def readable(self) -> bool:
        """Whether `read_committed` readers receive the record."""
        return not self.control and (self.span is None or self.span.committed is True)


class PartitionLog:
    """One partition.

    Attributes:
        begin: The first offset that the log still has.
        end: The next offset (the high watermark; there are no replicas).
        entries: The entries in the order of offsets; compaction leaves gaps.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.begin = 0
        self.end = 0
        self.entries: list[Entry] = []
        self._open: list[Span] = []

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: bytes | None = None,
        span: Span | None = None,
    ) -> int:
        """Writes one record and returns its offset."""
        offset = self.end
        self.entries.append(Entry(offset, key, value, timestamp, headers, span))
        self.end += 1
        return offset

    def open_span(self) -> Span:
        """Begins the part of a transaction in this partition."""
        span = Span(self.end)
        self._open.append(span)
        return span

    def close_span(self, span: Span, timestamp: int) -> None:
        """Writes the control record of a decided transaction, which takes an offset and has the broker's time."""
        span.committed = span.decided
        self._open.remove(span)
        self.entries.append(Entry(self.end, None, None, timestamp, None, span, control=True))
        self.end += 1

    @property
    def stable_end(self) -> int:
        """The last stable offset: where the oldest open transaction begins, or the end."""
        return self._open[0].first if self._open else self.end

    def between(self, start: int, end: int) -> Sequence[Entry]:
        """The entries [start, end), including control records and aborted records."""
        # A log nearly always has no gaps yet, and an offset's index is its distance from the first.
        if self.entries and self.entries[-1].offset - self.entries[0].offset == len(self.entries) - 1:
            first = self.entries[0].offset
            return self.entries[max(0, start - first) : max(0, end - first)]
        offsets = [entry.offset for entry in self.entries]
        return self.entries[bisect_left(offsets, start) : bisect_left(offsets, end)]

    def readable(self, start: int = 0, end: int | None = None) -> list[Entry]:
        """The records of [start, end) that a `read_committed` reader receives."""
        stable = self.stable_end
        last = stable if end is None else min(end, stable)
        return [entry for entry in self.between(max(start, self.begin), last) if entry.readable]

    def read(self, start: int, end: int) -> RecordColumns | None:
        """The records of [start, end) that a reader receives, as columns, or None; ends by position, like the real reader."""
        if start >= end:
            return None
        if not self.begin <= start <= self.end:
            raise OffsetsLostError(self.topic, self.partition, start, earliest=self.begin, latest=self.end)
        if end > self.stable_end:
            raise ReadTimeoutError(self.topic, self.partition, self.stable_end, end, seconds=0)
        return as_columns(self.topic, self.partition, self.readable(start, end))

    def cut(self, before: int) -> None:
        """Deletes records below an offset (DeleteRecords, retention)."""
        if before > self.begin:
            self.entries = list(self.between(before, self.end))
            self.begin = before

    def compact(self, tombstones: bool = False) -> None:
        """Retains the last committed record of each key below the last stable offset; removes control and aborted records.

        Args:
            tombstones: Whether to remove all tombstones, too, as if `delete.retention.ms` had passed.
        """
        stable = self.stable_end
        last = {entry.key: entry.offset for entry in self.entries if entry.offset < stable and entry.readable}
        self.entries = [
            entry
            for entry in self.entries
            if entry.offset >= stable
            or (entry.readable and last[entry.key] == entry.offset and not (tombstones and entry.value is None))
        ]


def as_columns(topic: str, partition: int, entries: Sequence[Entry]) -> RecordColumns | None:
    """The records as columns, like a reader returns them."""
    if not entries:
        return None
    offsets, keys, values, timestamps, headers, _, _ = zip(*entries, strict=True)
    return RecordColumns(
        topic,
        partition,
        np.array(offsets, np.int64),
        np.array(timestamps, np.int64),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers, pa.binary()) if any(cell is not None for cell in headers) else None,
    )
