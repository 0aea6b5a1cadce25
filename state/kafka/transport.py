"""The shared part of both ways of producing: the interface, and the rows that it takes.

`TransactionalProducer` implements the rules (order of calls, failures); a transport only moves bytes. Invariants: a
transport raises named errors, remembers the first delivery failure until it is raised, and never retries a transaction
call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.columns import BinaryColumn
from state.kafka.headers import Header, encode_headers

LAST_WORD_S = 0.1
"""Minimum timeout of `init_transactions` after waiting for the cluster took all the time: enough to report the cause."""


@dataclass(frozen=True)
class SendColumns:
    """Records of one topic, to be sent in this order.

    Negative timestamps are refused, as by Kafka's own producer.

    Attributes:
        topic: The topic.
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
        """Convert the columns to the forms above.

        Raises:
            ValueError: Columns of different lengths, or a negative timestamp.
        """
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
            pa.array([key], pa.binary()),
            pa.array([value], pa.binary()),
            np.array([timestamp_ms], np.int64),
            pa.array([encode_headers(headers)], pa.binary()) if headers else None,
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
