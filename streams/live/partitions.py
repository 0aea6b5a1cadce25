"""The partitions that a live task reads: what has arrived, and which of it is next.

The order of records is Kafka Streams': by offset within a partition, and between partitions the smallest timestamp first. A step
takes what has arrived, but of no partition more than can be put in order: as long as the brokers have further records of another
partition (KIP-695), only records that are older than the newest one known there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

import numpy as np

from state.columns import RecordColumns
from state.kafka.topics import TopicPartition

MOST_RECORDS = 50_000
"""Records of a partition that a step takes at most: a step is a transaction, and in memory."""
SILENT_S = 10.0
"""How long a client may give nothing of records that exist before it is replaced."""


class Reader(Protocol):
    """The part of `state.kafka.range_reader.RangeReader` that a live task needs."""

    @property
    def at_end(self) -> bool: ...
    @property
    def position(self) -> int: ...
    def poll(self, max_records: int) -> list[RecordColumns]: ...
    def wake(self, file: int) -> bool: ...
    def reopen(self) -> None: ...
    def close(self) -> None: ...


OpenReader = Callable[[str, int, int], Reader]
"""Topic, partition, first offset."""


class Ending:
    """A reader that ends before an offset, as if its partition did: what comes later is for another run.

    Args:
        reader: The reader.
        end: The offset.
    """

    def __init__(self, reader: Reader, end: int) -> None:
        self._reader = reader
        self._end = end

    @property
    def position(self) -> int:
        return min(self._reader.position, self._end)

    @property
    def at_end(self) -> bool:
        """See `Reader`."""
        return self._has_ended or self._reader.at_end

    @property
    def _has_ended(self) -> bool:
        return self._reader.position >= self._end

    def poll(self, max_records: int) -> list[RecordColumns]:
        """See `Reader`."""
        if self._has_ended:
            return []
        return [part for columns in self._reader.poll(max_records) if len(part := self._before_end(columns))]

    def _before_end(self, columns: RecordColumns) -> RecordColumns:
        return columns.part(0, int(np.searchsorted(columns.offsets, self._end)))

    def wake(self, file: int) -> bool:
        """See `Reader`."""
        return self._reader.wake(file)

    def reopen(self) -> None:
        """See `Reader`; records behind the end are not missed."""
        if not self._has_ended:
            self._reader.reopen()

    def close(self) -> None:
        """See `Reader`."""
        self._reader.close()


@dataclass
class OwnPartition:
    """A partition that a task reads.

    Attributes:
        waiting: Records that have arrived and wait for their place in the order.
        committed: The next offset behind the records of committed steps.
        noted: The position that the consumer group has; None: unknown.
        delay_ms: Of a retry topic: how long after a record was written it is processed.
        heard: When records last arrived, or none were missing (monotonic clock, s).
    """

    topic: str
    number: int
    reader: Reader
    committed: int
    heard: float
    waiting: list[RecordColumns] = field(default_factory=list)
    noted: int | None = None
    delay_ms: int | None = None

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.number

    @property
    def count(self) -> int:
        return sum(map(len, self.waiting))

    @property
    def next_ms(self) -> int:
        """The time of the next record, where some wait."""
        return int(self.waiting[0].timestamps[0])

    @property
    def newest_ms(self) -> int:
        return max(int(columns.timestamps.max()) for columns in self.waiting)

    def take(self, before_ms: int | None) -> list[RecordColumns]:
        """The waiting records that come before the first one at or past a time; all of them without one."""
        if before_ms is None:
            taken, self.waiting = self.waiting, []
            return taken
        taken = []
        while self.waiting:
            columns = self.waiting[0]
            late = np.flatnonzero(columns.timestamps >= before_ms)
            cut = int(late[0]) if len(late) else len(columns)
            if cut:
                taken.append(columns.part(0, cut))
            if cut < len(columns):
                self.waiting[0] = columns.part(cut, len(columns))
                break
            del self.waiting[0]
        return taken

    @property
    def read_to(self) -> int:
        """The next offset behind all records that were taken."""
        return int(self.waiting[0].offsets[0]) if self.waiting else self.reader.position


class OwnPartitions:
    """The partitions of one task, in the order in which they were added."""

    def __init__(self) -> None:
        self._all: list[OwnPartition] = []

    def __iter__(self) -> Iterator[OwnPartition]:
        return iter(self._all)

    def add(self, one: OwnPartition) -> None:
        self._all.append(one)

    @property
    def _aligned(self) -> list[OwnPartition]:
        """All but retry topics, whose records wait for nothing but their time."""
        return [one for one in self._all if one.delay_ms is None]

    @property
    def waits_for_others(self) -> bool:
        """Whether records may wait for another partition's, or for control records there, which wake nobody."""
        aligned = self._aligned
        return len(aligned) > 1 and not all(one.reader.at_end for one in aligned)

    @property
    def next_ms(self) -> int | None:
        """The time of the next record; None: none waits."""
        return min((one.next_ms for one in self._aligned if one.waiting), default=None)

    @property
    def are_known(self) -> bool:
        """Whether each partition has a record that waits, or is at its end."""
        return all(one.waiting or one.reader.at_end for one in self._aligned)

    @property
    def are_empty(self) -> bool:
        """Whether nothing waits, and all partitions are at their ends."""
        return all(one.reader.at_end and not one.waiting for one in self._aligned)

    def poll(self, now: float) -> None:
        """Takes in what has arrived."""
        for one in self._all:
            room = MOST_RECORDS - one.count
            if room > 0 and (arrived := one.reader.poll(room)):
                one.waiting += arrived
                one.heard = now

    def take(self, now_ms: int, before_ms: float = inf) -> list[list[RecordColumns]]:
        """The records of each partition whose place in the order is certain, and those of retry topics that are due.

        Args:
            now_ms: The time of the step.
            before_ms: How far the task may go in a backlog: to the first record at or past this time.
        """
        aligned = self._aligned
        unknown = before_ms == -inf or (len(aligned) > 1 and not self.are_known)
        # Of these, more is on its way, and it may come before everything that does not come before the newest of what is here.
        newest = {one.topic: one.newest_ms for one in aligned if one.waiting and not one.reader.at_end}
        taken = []
        for one in self._all:
            # At equal times, the first topic's records come first.
            bounds = [time + (one.topic < topic) for topic, time in newest.items() if topic != one.topic]
            bounds += [int(before_ms)] if -inf < before_ms < inf else []
            if one.delay_ms is not None:
                taken.append(one.take(now_ms - one.delay_ms + 1))
            else:
                taken.append([] if unknown else one.take(min(bounds) if bounds else None))
        return taken

    def has_unread(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether records are known that were not taken, so that the task is not idle. What is retried waits for its time."""
        return any(
            one.waiting or not one.reader.at_end or ends.get(one.place, 0) > one.reader.position
            for one in self._aligned
        )

    def replace_silent(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Replaces clients that hear nothing of records that exist."""
        for one in self._all:
            if ends[one.place] <= one.reader.position or one.waiting:
                one.heard = now
            elif now - one.heard >= SILENT_S:
                one.reader.reopen()
                one.heard = now
