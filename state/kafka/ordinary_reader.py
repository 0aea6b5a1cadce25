"""`OrdinaryReader`: the range reader of columns on confluent-kafka's Python API, without librdkafka's C API."""

from __future__ import annotations

from itertools import starmap

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from state.columns import RecordColumns, cells_of
from state.errors import KafkaClientError
from state.headers import Header, encode_headers
from state.kafka.message_reader import ClientReader


class OrdinaryReader(ClientReader[RecordColumns]):
    """Reads records as columns; the arguments are those of `open_range_reader`."""

    def _of(self, run: list[Message]) -> RecordColumns:
        return RecordColumns(
            self.topic,
            self.partition,
            np.fromiter(map(Message.offset, run), np.int64, len(run)),
            np.fromiter(starmap(_milliseconds, map(Message.timestamp, run)), np.int64, len(run)),
            cells_of(list(map(Message.key, run))),
            cells_of(list(map(Message.value, run))),
            _header_column(run),
        )


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
