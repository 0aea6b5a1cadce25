"""`RangeReader`: reads exact offset ranges of one topic-partition; and `OrdinaryReader`, its form on the ordinary client.

Ranges are read by position and never by count: control records, aborted transactions and compaction leave gaps in the
offsets, so a range of n offsets holds anything from 0 to n records. A range [position, end) is done when the next record is
at or beyond `end`, when the client has passed `end` over control records, or at the end of the partition. Invariants:
records come out in offset order, each once, none at or beyond `end`; prefetched records beyond `end` stay for the next
`read`; after an error the reader is `failed` and must be closed.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterator
from itertools import starmap
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, Message, TopicPartition

from state.columns import RecordColumns, cells_of
from state.errors import ClientFailure, KafkaClientError, OffsetsLostError, ReadTimeoutError
from state.headers import Header, encode_headers
from state.kafka.config import DEFAULT_PREFETCH_BYTES, ClientConfig, consumer_config
from state.kafka.error_mapping import OFFSETS_LOST, PARTITION_EOF, REFUSED, TRANSIENT, failure_of, read_error

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


class RangeReader(abc.ABC):
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

    def read(self, end: int, max_records: int = 100_000) -> Iterator[RecordColumns]:
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

    def poll(self, max_records: int = 100_000) -> list[RecordColumns]:
        """Take the records that have arrived, without waiting. Then `at_end` says whether the client knows of no others.

        Those of transactions that are still open are none: nobody can say when, or whether, they come.

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
        """Lets the client write a byte to an open file whenever records arrive and none were waiting; returns whether it can.

        So `poll` first, and wait only if it has returned fewer than it may.
        """
        return False

    def _arrived(self, max_records: int) -> Iterator[RecordColumns]:
        left = max_records
        while left > 0:
            columns = self._take(_NO_END, left)
            if columns is not None:
                self._position = int(columns.offsets[-1]) + 1
                left -= len(columns)
                yield columns
            elif (head := self._head()) is not None:
                self._serve_head(head, _NO_END)
            elif not self._fill(left, 0):
                self._position = max(self._position, self._client_position())
                if self._refusal is not None:
                    raise read_error(self.topic, self.partition, self._refusal)
                return

    def _read(self, end: int, max_records: int) -> Iterator[RecordColumns]:
        heard = time.monotonic()
        silent_s = _SILENT_S
        wait_ms = _FIRST_WAIT_MS
        while self._position < end:
            before = self._position
            columns = self._take(end, max_records)
            if columns is not None:
                self._position = int(columns.offsets[-1]) + 1
                yield columns
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
        """Replace the client by a new one; where that fails, the reader is closed, and closing it again does nothing."""
        self.close()
        self._open()
        self.closed = False

    def _serve_head(self, head: FetchedHead, end: int) -> None:
        """Handle a head that `_take` left: a record at or beyond `end`, or an event."""
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
    def _take(self, end: int, max_records: int) -> RecordColumns | None:
        """Take the records below `end` from the head of the queue; None if the head is not such a record."""

    @abc.abstractmethod
    def _head(self) -> FetchedHead | None:
        """The first entry of the queue; None if it is empty."""

    @abc.abstractmethod
    def _drop_head(self) -> None:
        """Remove the first entry of the queue."""

    @abc.abstractmethod
    def _client_position(self) -> int:
        """The client's own position (it passes control records); only asked while the queue is empty."""

    @abc.abstractmethod
    def _fetched_end(self) -> int:
        """The end of the log when the client last fetched; negative before it has."""

    @abc.abstractmethod
    def _watermarks(self, timeout_s: float) -> tuple[int, int]:
        """First offset and end of the partition's log, requested from the broker."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Release the client and what it has fetched."""

    def close(self) -> None:
        """Release the client and its prefetched records; may be called again."""
        if not self.closed:
            self.closed = True
            self._close()


class OrdinaryReader(RangeReader):
    """Range reader on confluent-kafka's Python API; see `open_range_reader` for the arguments."""

    def __init__(
        self,
        config: ClientConfig,
        topic: str,
        partition: int,
        start: int,
        *,
        timeout_s: float,
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
    ) -> None:
        super().__init__(topic, partition, start, timeout_s)
        self._messages: list[Message] = []
        self._next = 0
        self._properties = consumer_config(config, prefetch_bytes)
        self._open()

    def _open(self) -> None:
        on_error = {"error_cb": lambda error: self._on_client_error(failure_of(error))}
        self._consumer = Consumer({**self._properties, **on_error})
        self._consumer.assign([TopicPartition(self.topic, self.partition, self._position)])

    def _fill(self, max_records: int, wait_ms: int) -> bool:
        # `consume` waits for as many as requested: so wait for one, then take what has arrived.
        messages = self._consumer.consume(max_records, 0)
        if not messages:
            messages = self._consumer.consume(1, wait_ms / 1000)
            if messages and max_records > 1:
                messages += self._consumer.consume(max_records - 1, 0)
        self._messages, self._next = messages, 0
        return bool(messages)

    def _take(self, end: int, max_records: int) -> RecordColumns | None:
        messages = self._messages
        first = self._next
        last = first
        while last < len(messages) and last - first < max_records:
            message = messages[last]
            if message.error() is not None or message.offset() >= end:
                break
            last += 1
        if last == first:
            return None
        run = messages[first:last]
        self._next = last
        return RecordColumns(
            self.topic,
            self.partition,
            np.fromiter(map(Message.offset, run), np.int64, len(run)),
            np.fromiter(starmap(_milliseconds, map(Message.timestamp, run)), np.int64, len(run)),
            cells_of(list(map(Message.key, run))),
            cells_of(list(map(Message.value, run))),
            _header_column(run),
        )

    def _head(self) -> FetchedHead | None:
        if self._next == len(self._messages):
            return None
        message = self._messages[self._next]
        error = message.error()
        return FetchedHead(message.offset() or 0, None if error is None else failure_of(error))

    def _drop_head(self) -> None:
        self._next += 1

    def _client_position(self) -> int:
        (position,) = self._consumer.position([TopicPartition(self.topic, self.partition)])
        return int(position.offset)

    def _fetched_end(self) -> int:
        place = TopicPartition(self.topic, self.partition)
        found = self._consumer.get_watermark_offsets(place, cached=True)
        return -1 if found is None else int(found[1])

    def _watermarks(self, timeout_s: float) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self.topic, self.partition), timeout_s)
        except KafkaException as exception:
            raise read_error(self.topic, self.partition, failure_of(exception.args[0])) from exception
        return int(low), int(high)

    def _close(self) -> None:
        self._messages = []
        self._next = 0
        self._consumer.close()


def _milliseconds(kind: int, timestamp: int) -> int:
    return -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp


def _header_column(run: list[Message]) -> pa.BinaryArray | None:
    headers = [_headers(message) for message in run]
    if not any(headers):
        return None
    return pa.array([encode_headers(of_record) if of_record else None for of_record in headers], pa.binary())


def _headers(message: Message) -> list[Header] | None:
    try:
        # By `map`, because only such a call reports a failure of the client over headers at once. And only for the first message.
        headers: list[list[Header] | None] = list(map(Message.headers, (message,)))
    except (SystemError, UnicodeDecodeError) as error:
        raise KafkaClientError(
            f"the record at {message.topic()}-{message.partition()} offset {message.offset()} has a header whose name is not "
            f"UTF-8, which this client cannot read: set bulk_io to true"
        ) from error
    return headers[0]
