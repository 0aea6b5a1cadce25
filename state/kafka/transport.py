"""`ProducerTransport` sends records; `OrdinaryTransport` does so through the ordinary client.

`TransactionalProducer` implements the rules (order of calls, failures); a transport only moves bytes. Invariants: a
transport raises named errors, remembers the first delivery failure until it is raised, and never retries a transaction
call.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from state.columns import BinaryColumn, binary_column
from state.errors import ProduceError
from state.headers import Header, decode_headers, encode_headers, name_bytes
from state.kafka.config import ClientConfig, consumer_config
from state.kafka.error_mapping import failure_of, record_error, transaction_error

LAST_WORD_S = 0.1
"""The shortest timeout of `init_transactions` if waiting for the cluster took all the time: enough to report the cause."""


@dataclass(frozen=True)
class SendColumns:
    """Records of one topic, to be sent in this order.

    Negative timestamps are refused, as by Kafka's own producer.

    Attributes:
        partitions: int32[n], -1 = chosen by the partitioner.
        keys: binary[n] or None = no keys.
        values: binary[n], null = tombstone.
        timestamps: int64[n], milliseconds since the epoch, >= 0.
        headers: binary[n] of encoded header lists or None = no headers.
        partition: The partition that all were sent to by number; its last offset is recorded (`ProducerTransport.delivered`).
    """

    topic: str
    partitions: npt.NDArray[np.int32]
    keys: BinaryColumn | None
    values: BinaryColumn
    timestamps: npt.NDArray[np.int64]
    headers: BinaryColumn | None
    partition: int | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    @classmethod
    def of_columns(
        cls,
        topic: str,
        partitions: npt.NDArray[np.int32] | int,
        keys: BinaryColumn | None,
        values: BinaryColumn | pa.NullArray,
        timestamps: npt.NDArray[np.int64],
        headers: BinaryColumn | None,
    ) -> SendColumns:
        """Convert the columns to the forms above."""
        count = len(timestamps)
        for name, column in (("keys", keys), ("values", values), ("headers", headers)):
            if column is not None and len(column) != count:
                raise ValueError(f"records for {topic!r}: {len(column)} {name} for {count} timestamps")
        named = None
        if isinstance(partitions, int):
            named = partitions if partitions >= 0 else None
            partitions = np.full(count, partitions, np.int32)
        if len(partitions) != count:
            raise ValueError(f"records for {topic!r}: {len(partitions)} partitions for {count} timestamps")
        times = np.ascontiguousarray(timestamps, np.int64)
        if count and times.min() < 0:
            row = int(times.argmin())
            raise ValueError(f"record {row} for {topic!r} has timestamp {times[row]}: Kafka takes none below 0")
        return cls(
            topic,
            np.ascontiguousarray(partitions, np.int32),
            None if keys is None else _binary(keys),
            _binary(values),
            times,
            None if headers is None else _binary(headers),
            named,
        )

    @classmethod
    def of_record(
        cls,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header] | None,
    ) -> SendColumns:
        """One record as columns of length 1; arguments as in `TransactionalProducer.send`."""
        return cls.of_columns(
            topic,
            -1 if partition is None else partition,
            binary_column([key]),
            binary_column([value]),
            np.array([timestamp_ms], np.int64),
            binary_column([encode_headers(headers)]) if headers else None,
        )


def _binary(column: BinaryColumn | pa.NullArray) -> BinaryColumn:
    """Strings and all-null columns as binary columns."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    return column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())


class ProducerTransport(Protocol):
    """One client instance that produces."""

    def init_transactions(self, timeout_s: float) -> None:
        """Get a producer id and epoch, which fences older producers of the transactional id."""

    def begin(self) -> None: ...

    def send(self, columns: SendColumns, timeout_s: float) -> None:
        """Queue records; waits for room in the queue for at most `timeout_s` without any progress."""

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group_id: str, timeout_s: float) -> None:
        """Add offsets of a consumer group to the transaction."""

    def flush(self, timeout_s: float) -> int:
        """Wait for acknowledgements; returns the number of records without one."""

    def delivered(self, topic: str, partition: int) -> int | None:
        """Offset of the last acknowledged record of a partition to which records were sent by number; None = unknown."""

    def raise_delivery_failure(self) -> None:
        """Raise the named error of the first record that could not be delivered, if any."""

    def commit(self, timeout_s: float) -> None: ...

    def close(self) -> None:
        """Drop queued records and release the client."""


_WAIT_FOR_ROOM_S = 0.02
# librdkafka treats timestamp 0 as "now", which would make results differ from run to run. This client offers no way around that
# (`time_zero` is the bulk client's), so it writes the next possible timestamp.
_EARLIEST_MS = 1
_NOWHERE = -1


class OrdinaryTransport:
    """Producer on confluent-kafka's Python API.

    Args:
        config: The user's client properties.
        properties: Librdkafka properties (`producer_config`).
        transactional_id: The producer's transactional id, for error messages.
    """

    def __init__(self, config: ClientConfig, properties: Mapping[str, str], transactional_id: str) -> None:
        self._id = transactional_id
        self._config = config
        self._failure: ProduceError | None = None
        self._delivered: dict[tuple[str, int], int] = {}
        # confluent-kafka handles this property itself and expects a bool.
        own = {"delivery.report.only.error": False, "on_delivery": self._on_delivery}
        self._producer: Producer | None = Producer({**properties, **own})

    @property
    def _client(self) -> Producer:
        assert self._producer is not None, "the transport was closed"
        return self._producer

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            if (message.topic(), message.partition()) in self._delivered:
                self._delivered[message.topic(), message.partition()] = message.offset()
        elif self._failure is None:
            key, value = message.key(), message.value()
            size = len(key or b"") + len(value or b"")
            self._failure = record_error(
                self._id,
                message.topic(),
                message.partition(),
                key=key,
                size=size,
                offset=message.offset() if message.offset() is not None else -1,
                failure=failure_of(error),
            )

    def delivered(self, topic: str, partition: int) -> int | None:
        offset = self._delivered.get((topic, partition), _NOWHERE)
        return offset if offset >= 0 else None

    def raise_delivery_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def init_transactions(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        # See BulkTransport: speeds up the first connection.
        with contextlib.suppress(KafkaException):
            self._client.list_topics(timeout=timeout_s)
        try:
            self._client.init_transactions(max(deadline - time.monotonic(), LAST_WORD_S))
        except KafkaException as exception:
            raise transaction_error(self._id, "init_transactions", failure_of(exception.args[0])) from exception

    def begin(self) -> None:
        try:
            self._client.begin_transaction()
        except KafkaException as exception:
            raise transaction_error(self._id, "begin", failure_of(exception.args[0])) from exception

    def send(self, columns: SendColumns, timeout_s: float) -> None:
        if columns.partition is not None:
            self._delivered.setdefault((columns.topic, columns.partition), _NOWHERE)
        keys = repeat(None) if columns.keys is None else columns.keys.to_pylist()
        headers = repeat(None) if columns.headers is None else columns.headers.to_pylist()
        times = np.maximum(columns.timestamps, _EARLIEST_MS).tolist()
        rows = zip(
            keys, columns.values.to_pylist(), columns.partitions.tolist(), times, headers, strict=False,
        )  # fmt: skip
        for key, value, partition, timestamp, cell in rows:
            self._send_row(columns.topic, key, value, partition, timestamp, cell, timeout_s)
        self._serve(0)
        self.raise_delivery_failure()

    def _serve(self, wait_s: float) -> None:
        """Take delivery reports, and errors that end the client."""
        self._serving("send", self._client.poll, wait_s)

    def _serving(self, what: str, call: Callable[[float], object], timeout_s: float) -> Any:
        """The result of a call that serves callbacks, in which confluent-kafka raises errors that end the client.

        Sometimes it raises a `KafkaError`, which is not an exception. Only a bare `except` catches it, and nothing may be raised
        within that block, because Python would use the object as the context of the new exception, and crash.
        """
        try:
            return call(timeout_s)
        except (KafkaException, SystemError) as exception:
            raise self._fatal_error(what, exception) from exception
        except:  # noqa: E722
            raised: object = sys.exc_info()[1]
            if not isinstance(raised, KafkaError):
                raise
        raise transaction_error(self._id, what, failure_of(raised))

    def _fatal_error(self, what: str, exception: BaseException) -> BaseException:
        """The named error of an exception that was raised while serving callbacks.

        confluent-kafka raises fatal errors there. If a delivery report came in the same call, Python turns the error into a
        SystemError, with or without the original as its cause. A call that is never valid within a transaction then reveals the
        reason, because a fatal error takes precedence over the wrong state.
        """
        behind = exception.__cause__ or exception.__context__
        for candidate in (exception, behind):
            if isinstance(candidate, KafkaException):
                return transaction_error(self._id, what, failure_of(candidate.args[0]))
        try:
            self._client.begin_transaction()
        except KafkaException as reason:
            return transaction_error(self._id, what, failure_of(reason.args[0]))
        return exception

    def _send_row(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, timestamp: int, cell: bytes | None,
        timeout_s: float,
    ) -> None:  # fmt: skip
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._client.produce(
                    topic, value, key, partition, timestamp=timestamp, headers=self._headers(topic, key, cell)
                )
            except BufferError:
                self._serve(_WAIT_FOR_ROOM_S)
                self.raise_delivery_failure()
                if time.monotonic() > deadline:
                    raise ProduceError(
                        f"the queue of transactional id {self._id!r} was full for {timeout_s:g} s: check that the brokers are up",
                        topic=topic, partition=partition, key=key,
                    ) from None  # fmt: skip
            except KafkaException as exception:
                size = len(key or b"") + len(value or b"")
                raise record_error(
                    self._id, topic, partition, key=key, size=size, offset=-1, failure=failure_of(exception.args[0])
                ) from exception
            else:
                return

    def _headers(self, topic: str, key: bytes | None, cell: bytes | None) -> list[Header] | None:
        """The headers in this client's form. A name that is not UTF-8 is refused, because it would crash the process."""
        headers = decode_headers(cell)
        for name, _ in headers:
            if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
                raise ProduceError(
                    f"the record with key {key!r} for {topic} has a header whose name {name_bytes(name)!r} is not UTF-8, which "
                    f"this client cannot write: set bulk_io to true, or give the header another name",
                    topic=topic,
                    key=key,
                )
        return headers or None

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group_id: str, timeout_s: float) -> None:
        # confluent-kafka provides group metadata only through a consumer; this one never joins the group.
        consumer = Consumer(consumer_config({**self._config, "group.id": group_id}))
        try:
            positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
            self._client.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), timeout_s)
        except KafkaException as exception:
            raise transaction_error(self._id, "send_offsets", failure_of(exception.args[0])) from exception
        finally:
            consumer.close()

    def flush(self, timeout_s: float) -> int:
        return int(self._serving("flush", self._client.flush, timeout_s))

    def commit(self, timeout_s: float) -> None:
        try:
            self._client.commit_transaction(timeout_s)
        except KafkaException as exception:
            raise transaction_error(self._id, "commit", failure_of(exception.args[0])) from exception

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge(blocking=False)
            self._producer = None
