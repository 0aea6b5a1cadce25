"""The partitions that a live task reads: the records that have arrived, and which of them come next.

The order of records is Kafka Streams' (`PartitionGroup`): within a partition by offset, and between partitions the one comes next
whose first record has the smallest event time. A record waits for the records before it in its partition, so its place is the
largest time up to it. These running maxima put all records in one order, whatever way they arrive, and each step takes the first
ones in it. While the brokers have further records of a partition (KIP-695), its next one has at least the largest time so far. So a
step takes only records that come before all that may still arrive.

Example: partition 0 has the times 5, 3, 9 and partition 1 has 4, 8. The places are 5, 5, 9 and 4, 8. The next step takes 4, 5, 3,
8; the 9 waits, because partition 1 may still bring another 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

import numpy as np
import numpy.typing as npt

from state.columns import RecordColumns
from state.kafka.topics import TopicPartition
from streams.engine.graph.rows import NOW
from streams.engine.live.arrived import Arrived, resolved
from streams.engine.source.topics import due_before_ms
from streams.errors import RecordFailedError
from streams.model.record import NO_TIME

MOST_RECORDS = 50_000
"""The most records of a partition that wait, and the most records of a step, because a step is one transaction and is held in
memory."""
FEW_RECORDS = 1_000
"""Newly arrived records are merged with waiting ones up to this number, because each arrival looks at all pieces."""
FIRST_RECORDS = 100
"""The most records of a task's first step, when it is not yet known how long its functions take."""
GROWTH = 8
"""The largest growth from one step to the next, as a factor of the records, if the last step took little time."""
STEP_S = 1.0
"""How long the steps of a slot may take together, s.

Until they end, it does not notice a stop and commits none of their records.
"""
LEAST_STEP_S = 0.1
"""How long a step may take if many tasks share a slot, s. Much shorter ones would cost more than their records."""
SILENT_S = 10.0
"""How long a client may return nothing although records exist, s. Then it is replaced."""
UNHEARD_S = 1.0
"""How long a partition without a record may hold others up before the brokers are asked whether it has any, s."""

Int64s = npt.NDArray[np.int64]


class Reader(Protocol):
    """The part of `state.kafka.range_reader.RangeReader` that a live task needs."""

    @property
    def at_end(self) -> bool: ...
    @property
    def position(self) -> int: ...
    def poll(self, max_records: int) -> list[RecordColumns]:
        """Returns at most that many records, in the order of their offsets. The next call continues after them."""

    def wake(self, file: int) -> bool: ...
    def reopen(self) -> None: ...
    def close(self) -> None: ...


OpenReader = Callable[[str, int, int], Reader]
"""Topic, partition, first offset -> a reader."""

Read = Callable[[RecordColumns], "tuple[Arrived | None, RecordFailedError | None]"]
"""Makes rows of records. Returns them, and the error of the first record that stops the task, which comes after them."""


class Ending:
    """A reader that ends before an offset as if the partition ended there. Later records are for another run.

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
        return self._has_ended or self._reader.at_end

    @property
    def _has_ended(self) -> bool:
        return self._reader.position >= self._end

    def poll(self, max_records: int) -> list[RecordColumns]:
        if self._has_ended:
            return []
        return [part for columns in self._reader.poll(max_records) if len(part := self._before_end(columns))]

    def _before_end(self, columns: RecordColumns) -> RecordColumns:
        return columns.part(0, int(np.searchsorted(columns.offsets, self._end)))

    def wake(self, file: int) -> bool:
        return self._reader.wake(file)

    def reopen(self) -> None:
        """Reopens the reader, unless it is at the end: records after that are not missed."""
        if not self._has_ended:
            self._reader.reopen()

    def close(self) -> None:
        self._reader.close()


@dataclass
class OwnPartition:
    """A partition that a task reads.

    Attributes:
        waiting: Records that have arrived and wait for their place in the order.
        committed: The next offset after the records of committed steps.
        noted: The position that the consumer group has; None: unknown.
        delay_ms: In a retry topic, how long after a record was written it is processed.
        heard: When records last arrived, or none were missing (monotonic clock, s).
        polled: Whether its client was asked for records since the last check. While a task is paused, it is not.
        complete: When records last arrived, or the client knew of no others (monotonic clock, s).
        newest_ms: The largest event time of all records taken so far; `NO_TIME`: unknown.
        failure: The error of the record after all waiting ones, which stops the task; then nothing more is read.
        failed_at: The offset of that record.
        mean_bytes: The mean size of the records that arrived last.
        ended_at: The position at which the brokers said that no record can be read yet. The client may know of more records, of an
            open transaction.
    """

    topic: str
    number: int
    reader: Reader
    committed: int
    heard: float
    complete: float = 0.0
    waiting: list[Arrived] = field(default_factory=list)
    noted: int | None = None
    delay_ms: int | None = None
    polled: bool = False
    newest_ms: int = NO_TIME
    failure: RecordFailedError | None = None
    failed_at: int = -1
    mean_bytes: int = 1
    ended_at: int = -1

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.number

    @property
    def count(self) -> int:
        return sum(map(len, self.waiting))

    @property
    def size(self) -> int:
        """The bytes of the waiting records."""
        return sum(one.size for one in self.waiting)

    @property
    def expects_more(self) -> bool:
        """Whether further records are known to follow the waiting ones. They may come before records of other partitions."""
        read = self.reader.at_end or self.reader.position == self.ended_at
        return self.failure is not None or not read

    @property
    def read_to(self) -> int:
        """The next offset after all records that were taken or rejected."""
        if self.waiting:
            return self.waiting[0].first
        return self.reader.position if self.failure is None else self.failed_at

    def poll(self, most: int, most_bytes: int, read: Read) -> bool:
        """Reads the records that have arrived, as long as there is room, but at least one record if none is waiting.

        Returns whether any has arrived.
        """
        if self.failure is not None:
            return False
        room = min(most, MOST_RECORDS - self.count)
        room = min(room, (most_bytes - self.size) // self.mean_bytes)
        if not self.waiting:
            room = max(1, room)
        arrived = self.reader.poll(room) if room > 0 else []
        for columns in arrived:
            if self.failure is None:
                rows, self.failure = read(columns)
                if rows is not None:
                    self._add(rows)
                if self.failure is not None:
                    self.failed_at = self._offset_of(self.failure)
        return bool(arrived)

    def _add(self, rows: Arrived) -> None:
        self.mean_bytes = max(1, rows.size // max(1, len(rows)))
        if self.waiting and len(self.waiting[-1]) + len(rows) <= FEW_RECORDS:
            self.waiting[-1] = self.waiting[-1].joined(rows)
        else:
            self.waiting.append(rows)

    @staticmethod
    def _offset_of(failure: RecordFailedError) -> int:
        assert failure.offset is not None, "see Arrivals.read"
        return failure.offset

    def next_ms(self, now_ms: int) -> int | None:
        """The time of the next record; None if none waits."""
        first = next((int(one.order[0]) for one in self.waiting if len(one)), None)
        return now_ms if first == NOW else first

    def order(self, now_ms: int) -> Int64s:
        """The places of the waiting records in the order: the running maxima of their times."""
        parts = [one.order for one in self.waiting]
        if not parts:
            return np.empty(0, np.int64)
        places = resolved(parts[0] if len(parts) == 1 else np.concatenate(parts), now_ms)
        if self.delay_ms is not None:
            # A record dated by a clock that was ahead, and has been set right since, must not wait longer than twice its delay.
            places = np.where(places > now_ms + self.delay_ms, now_ms - self.delay_ms, places)
        order: Int64s = np.maximum.accumulate(places)
        return order

    def take(self, count: int, order: Int64s) -> list[Arrived]:
        """Removes and returns the first waiting records, with their places in the order.

        Rejected ones between and after them go, too.
        """
        taken = []
        while self.waiting and len(self.waiting[0]) <= count:
            taken.append(self.waiting.pop(0))
            count -= len(taken[-1])
        if count:
            before, self.waiting[0] = self.waiting[0].cut(count)
            taken.append(before)
        self.newest_ms = max([self.newest_ms, *(one.newest_ms for one in taken)])
        if self.delay_ms is not None:
            return taken
        placed, end = [], 0
        for one in taken:
            begin, end = end, end + len(one)
            placed.append(one.placed(order[begin:end]))
        return placed


class OwnPartitions:
    """The partitions of one task, in the order in which they were added."""

    def __init__(self) -> None:
        self._all: list[OwnPartition] = []
        self._aligned: list[OwnPartition] = []
        """All partitions in the order of their topics, which decides at equal times, without retry topics, whose records wait only
        for their time."""

    def __iter__(self) -> Iterator[OwnPartition]:
        return iter(self._all)

    def add(self, one: OwnPartition) -> None:
        self._all.append(one)
        self._aligned = sorted((one for one in self._all if one.delay_ms is None), key=lambda one: one.place)

    @property
    def waits_for_others(self) -> bool:
        """Whether records may wait for another partition's records, or for control records there, which do not wake the slot."""
        aligned = self._aligned
        return len(aligned) > 1 and any(one.expects_more for one in aligned)

    def next_ms(self, now_ms: int) -> int | None:
        """The time of the next record; None if none waits."""
        return min((time_ms for one in self._aligned if (time_ms := one.next_ms(now_ms)) is not None), default=None)

    @property
    def are_known(self) -> bool:
        """Whether each partition has a waiting record or is at its end."""
        return all(not one.expects_more or one.count for one in self._aligned)

    @property
    def are_empty(self) -> bool:
        """Whether no record waits and all partitions are at their ends."""
        return not any(one.waiting or one.expects_more for one in self._aligned)

    def poll(self, now: float, most: int, most_bytes: int, read: Read) -> None:
        """Reads what has arrived, up to a number of records and bytes for each partition.

        Raises:
            RecordFailedError: A record stops the task, and all records before it are processed.
        """
        for one in self._all:
            one.polled = True
            if one.failure is not None and not one.waiting:
                raise one.failure
            if one.poll(most, most_bytes, read):
                one.heard = one.complete = now
            elif not one.expects_more:
                one.complete = now

    def take(self, now_ms: int, most: int, before_ms: float = inf) -> list[list[Arrived]]:
        """Removes and returns the next records of each partition: those whose place is certain, and of retry topics those due.

        Args:
            now_ms: The time of the step.
            most: The most records of all partitions together, and the most of each retry topic.
            before_ms: How far the task may go in a backlog: up to the first record at or after this time.
        """
        orders = {one.place: one.order(now_ms) for one in self._all}
        counts = self._certain(orders, most, before_ms)
        for one in self._all:
            if one.delay_ms is not None:
                due = np.searchsorted(orders[one.place], due_before_ms(now_ms, one.delay_ms))
                counts[one.place] = min(most, int(due))
        return [one.take(counts[one.place], orders[one.place]) for one in self._all]

    def _certain(
        self, orders: Mapping[TopicPartition, Int64s], most: int, before_ms: float
    ) -> dict[TopicPartition, int]:
        """The number of records of each partition that come next, whatever else arrives."""
        aligned = self._aligned
        counts = []
        for rank, one in enumerate(aligned):
            order = orders[one.place]
            count = len(order) if before_ms == inf else int(np.searchsorted(order, before_ms))
            for other, partition in enumerate(aligned):
                if other != rank and partition.expects_more:
                    # At equal times, the records of the first partition come first.
                    others, side = orders[partition.place], "right" if rank < other else "left"
                    count = min(count, int(np.searchsorted(order, others[-1], side)) if len(others) else 0)  # type: ignore[call-overload]
            counts.append(count)
        if sum(counts) > most:
            ranks = np.repeat(np.arange(len(counts)), counts)
            times = np.concatenate([orders[one.place][:count] for one, count in zip(aligned, counts, strict=True)])
            first = np.lexsort((ranks, times))[:most]
            counts = np.bincount(ranks[first], minlength=len(counts)).tolist()
        return {one.place: count for one, count in zip(aligned, counts, strict=True)}

    def has_unread(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether known records were not taken, so that the task is not idle.

        Retry topics do not count, because their records must wait.
        """
        return any(
            one.waiting or one.expects_more or ends.get(one.place, 0) > one.reader.position for one in self._aligned
        )

    def hold_up(self, now: float) -> bool:
        """Whether a partition makes others wait for records that do not come."""
        aligned = self._aligned
        silent = (one.expects_more and not one.waiting and now - one.complete >= UNHEARD_S for one in aligned)
        return len(aligned) > 1 and any(silent)

    def note_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Notes which partitions have been read up to the end that the brokers report.

        Records after this end belong to open transactions. Other partitions do not wait for them.
        """
        for one in self._all:
            if ends.get(one.place) == one.reader.position:
                one.ended_at = one.reader.position

    def replace_silent(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Replaces clients that receive nothing although records exist."""
        for one in self._all:
            if ends[one.place] <= one.reader.position or one.waiting:
                one.heard = now
            elif one.polled and now - one.heard >= SILENT_S:
                one.reader.reopen()
                one.heard = now
            one.polled = False


class Pace:
    """Decides how many records a step may have, by the time that the steps before it took.

    Args:
        tasks: How many tasks share the slot, one after the other.
    """

    def __init__(self, tasks: int) -> None:
        self._aim_s = max(LEAST_STEP_S, STEP_S / tasks)
        self._last_s = inf
        self.most = FIRST_RECORDS

    def note(self, records: int, seconds: float) -> None:
        """Takes in how long the reading and processing of a step's records took.

        A step may have waited for a processor. So it makes the next ones smaller only if the step before took too long, too, or if
        it took longer than a slot may: smaller steps cost more for each record, and more records would wait.
        """
        if not records:
            return
        lately_s, self._last_s = self._last_s, seconds
        if seconds > self._aim_s:
            if lately_s > self._aim_s or seconds > STEP_S:
                self.most = max(1, min(self.most, int(records * self._aim_s / seconds)))
        elif records >= self.most:
            growth = min(float(GROWTH), self._aim_s / max(seconds, 1e-6))
            self.most = min(MOST_RECORDS, int(self.most * growth) + 1)
