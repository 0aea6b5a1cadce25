"""`OrdinaryReader`: ranges read with `confluent_kafka.Consumer`.

The fallback where the bulk reader cannot be used, and the reference for its tests. Columns are made by
`list(map(Message.value, messages))`: no Python bytecode per record, about 2 us per record.
"""

from __future__ import annotations

from itertools import starmap

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, Message, TopicPartition

from state.errors import KafkaClientError
from state.kafka.columns import RecordColumns
from state.kafka.config import DEFAULT_PREFETCH_BYTES, ClientConfig, consumer_config
from state.kafka.error_mapping import failure_of, read_error
from state.kafka.headers import Header, encode_headers
from state.kafka.range_reader import Head, RangeReader


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
            pa.array(list(map(Message.key, run)), pa.binary()),
            pa.array(list(map(Message.value, run)), pa.binary()),
            _header_column(run),
        )

    def _head(self) -> Head | None:
        if self._next == len(self._messages):
            return None
        message = self._messages[self._next]
        error = message.error()
        return Head(message.offset() or 0, None if error is None else failure_of(error))

    def _drop_head(self) -> None:
        self._next += 1

    def _client_position(self) -> int:
        (position,) = self._consumer.position([TopicPartition(self.topic, self.partition)])
        return int(position.offset)

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
