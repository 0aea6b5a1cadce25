"""`RangeReader`: reads exact offset ranges of one topic-partition.

Ranges are read by position and never by count: control records, aborted transactions and compaction leave gaps in the
offsets, so a range of n offsets holds anything from 0 to n records. A range [position, end) is done when the next record is
at or beyond `end`, when the client has passed `end` over control records, or at the end of the partition. Invariants:
records come out in offset order, each once, none at or beyond `end`; prefetched records beyond `end` stay for the next
`read`; after an error the reader is `failed` and must be closed.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterator, Sized
from typing import Generic, NamedTuple, Protocol, TypeVar

from state.errors import ClientFailure, KafkaClientError, OffsetsLostError, ReadTimeoutError
from state.kafka.error_mapping import OFFSETS_LOST, PARTITION_EOF, REFUSED, TRANSIENT, read_error

# Control records never wake a waiting call, they only move the position. The first waits are short, because a range usually
# ends with the control record of a transaction, and a step must not wait for it.
_FIRST_WAIT_MS = 1
_LONGEST_WAIT_MS = 50
_WATERMARK_TIMEOUT_S = 10.0
_NO_END = 2**62
# How long a client may say nothing of records that exist before it is replaced by a new one; three times as long for the next one,
# because a large record on a slow network says nothing either. librdkafka (2.10 to 2.16) forgets the brokers that an answer about
# the cluster does not name; where it names none, as for a moment when the only broker has missed its heartbeats, the client has
# nobody left to ask and never fetches again (librdkafka's issue 5301).
_SILENT_S = 10.0


class FetchedHead(NamedTuple):
    """The first entry of the fetched queue: a record (`failure` None) or an event of the partition."""

    offset: int
    failure: ClientFailure | None


class Run(Sized, Protocol):
    """Records of one topic-partition in the order of their offsets, at least one: as records, or as objects."""

    @property
    def last_offset(self) -> int: ...

    @property
    def last_value(self) -> bytes | None: ...

    def key_list(self) -> list[bytes | None]: ...

    def cells(self) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of each record."""


R = TypeVar("R", bound=Run)


class RangeReader(abc.ABC, Generic[R]):
    """Reads [position, end) ranges of one topic-partition, one after the other; not thread safe.

    Args:
        topic: Topic to read.
        partition: Partition to read.
        start: Offset of the first record that may be returned.
        timeout_s: Seconds without any progress after which a read fails.
    """

    def __init__(self, topic: str, partition: int, start: int, timeout_s: float) -> None:
        if start < 0:
            raise ValueError(f"{topic}-{partition}: a range starts at an offset >= 0, not at {start}")
        self.topic = topic
        self.partition = partition
        self._position = start
        self._timeout_s = timeout_s
        self._last_trouble: ClientFailure | None = None
        self._refusal: ClientFailure | None = None
        self._ended_at = -1
        """Where the client has found that no record can be read yet. Its end of the log lies behind open transactions."""
        self.failed = False
        self.closed = False
        self.at_end = False

    @property
    def position(self) -> int:
        """Offset where the next read continues: every record below it was returned, or does not exist."""
        return self._position

    def read(self, end: int, max_records: int = 100_000) -> Iterator[R]:
        """Read the records in [position, end).

        Raises:
            OffsetsLostError: `position` is not in the log (any more).
            TopicNotFoundError: The topic or partition does not exist.
            ReadTimeoutError: No progress for `timeout_s`.
            KafkaClientError: Any other failure, or a reader that failed or was closed before.
        """
        if self.closed or self.failed:
            raise KafkaClientError(f"{self.topic}-{self.partition}: reader is closed or failed; open a new one")
        if end < self._position:
            raise ValueError(f"{self.topic}-{self.partition}: range ends at {end}, before position {self._position}")
        try:
            yield from self._read(end, max_records)
        except KafkaClientError:
            self.failed = True
            raise

    def poll(self, max_records: int = 100_000) -> list[R]:
        """Take the records that have arrived, without waiting. Then `at_end` says whether the client knows of no others.

        Records of transactions that are still open do not count: it is unknown when, or whether, they come.

        Raises:
            OffsetsLostError: `position` is not in the log (any more).
            TopicNotFoundError: The topic or partition does not exist.
            KafkaClientError: Any other failure, or a reader that failed or was closed before.
        """
        if self.closed or self.failed:
            raise KafkaClientError(f"{self.topic}-{self.partition}: reader is closed or failed; open a new one")
        try:
            arrived = list(self._arrived(max_records))
            self.at_end = self._ended_at == self._position or 0 <= self._fetched_end() <= self._position
            return arrived
        except KafkaClientError:
            self.failed = True
            raise

    def wake(self, file: int) -> bool:
        """Makes the client write a byte to an open file whenever records arrive and none were waiting; returns whether it can.

        So call `poll` first, and wait only if it has returned fewer records than allowed.
        """
        return False

    def _arrived(self, max_records: int) -> Iterator[R]:
        left = max_records
        while left > 0:
            records = self._take_records(_NO_END, left)
            if records is not None:
                self._position = records.last_offset + 1
                left -= len(records)
                yield records
            elif (head := self._head()) is not None:
                self._serve_head(head, _NO_END)
            elif not self._fill(left, 0):
                self._position = max(self._position, self._client_position())
                if self._refusal is not None:
                    raise read_error(self.topic, self.partition, self._refusal)
                return

    def _read(self, end: int, max_records: int) -> Iterator[R]:
        heard = time.monotonic()
        silent_s = _SILENT_S
        wait_ms = _FIRST_WAIT_MS
        while self._position < end:
            before = self._position
            records = self._take_records(end, max_records)
            if records is not None:
                self._position = records.last_offset + 1
                yield records
            elif (head := self._head()) is not None:
                self._serve_head(head, end)
            elif not self._fill(max_records, wait_ms):
                self._position = max(self._position, min(self._client_position(), end))
                if self._refusal is not None:
                    raise read_error(self.topic, self.partition, self._refusal)
            if self._position > before:
                heard, silent_s = time.monotonic(), _SILENT_S
                wait_ms = _FIRST_WAIT_MS
            elif time.monotonic() > heard + self._timeout_s:
                raise ReadTimeoutError(
                    self.topic,
                    self.partition,
                    self._position,
                    end,
                    seconds=self._timeout_s,
                    failure=self._last_trouble,
                )
            elif time.monotonic() > heard + silent_s:
                self.reopen()
                silent_s *= 3
            else:
                wait_ms = min(wait_ms * 2, _LONGEST_WAIT_MS)

    def reopen(self) -> None:
        """Replace the client by a new one. If that fails, the reader is closed, and closing it again does nothing."""
        self.close()
        self._open()
        self.closed = False

    def _serve_head(self, head: FetchedHead, end: int) -> None:
        """Handle a head that `_take_records` left: a record at or beyond `end`, or an event."""
        if head.failure is None:
            self._position = end
            return
        self._drop_head()
        if head.failure.code == PARTITION_EOF:
            self._position = max(self._position, min(head.offset, end))
            self._ended_at = head.offset
        elif head.failure.code in TRANSIENT:
            self._last_trouble = head.failure
        elif head.failure.code in OFFSETS_LOST:
            earliest, latest = self._watermarks(_WATERMARK_TIMEOUT_S)
            raise OffsetsLostError(
                self.topic, self.partition, self._position, earliest=earliest, latest=latest, failure=head.failure
            )
        else:
            raise read_error(self.topic, self.partition, head.failure)

    def _on_client_error(self, failure: ClientFailure) -> None:
        """Handle an error of the client as a whole, which does not come through the queue; called while the queue is filled."""
        if self._refusal is None and failure.code in REFUSED:
            self._refusal = failure
        self._last_trouble = failure

    @abc.abstractmethod
    def _open(self) -> None:
        """Open a client at `position`, without waiting."""

    @abc.abstractmethod
    def _fill(self, max_records: int, wait_ms: int) -> bool:
        """Fetch what is available into the empty queue, else wait for something; False if nothing came."""

    @abc.abstractmethod
    def _take_records(self, end: int, max_records: int) -> R | None:
        """Take the records below `end` from the head of the queue; None if the head is not such a record."""

    @abc.abstractmethod
    def _head(self) -> FetchedHead | None:
        """The first entry of the queue; None if it is empty."""

    @abc.abstractmethod
    def _drop_head(self) -> None:
        """Remove the first entry of the queue."""

    @abc.abstractmethod
    def _client_position(self) -> int:
        """The client's own position, which moves over control records; only requested while the queue is empty."""

    @abc.abstractmethod
    def _fetched_end(self) -> int:
        """The end of the log when the client last fetched; negative before it has."""

    @abc.abstractmethod
    def _watermarks(self, timeout_s: float) -> tuple[int, int]:
        """First offset and end of the partition's log, requested from the broker."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Release the client and its fetched records."""

    def close(self) -> None:
        """Release the client and its prefetched records; may be called again."""
        if not self.closed:
            self.closed = True
            self._close()
