"""Collects the records to send in a step, topic by topic, as columns for one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from state.kafka.columns import BinaryColumn, binary_column
from state.kafka.headers import encode_headers
from streams.model.record import Headers

DEFAULT_PARTITION = -1


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Records for one topic, in order.

    Attributes:
        topic: The topic.
        keys: binary[n], null = no key.
        values: binary[n], null = tombstone.
        timestamps: int64[n], milliseconds.
        partition_keys: binary[n], hashed in place of the keys where they differ (windowed keys are partitioned by their
            inner key); None = the keys.
        partitions: int32[n] chosen by a partitioner, -1 = by hash; None = all by hash.
        headers: binary[n], see `state.kafka.headers`; None = no record has any.
    """

    topic: str
    keys: BinaryColumn
    values: BinaryColumn
    timestamps: npt.NDArray[np.int64]
    partition_keys: BinaryColumn | None = None
    partitions: npt.NDArray[np.int32] | None = None
    headers: BinaryColumn | None = None


@dataclass(slots=True)
class _Rows:
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    partition_keys: list[bytes | None] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    windowed: bool = False
    partitioned: bool = False
    with_headers: bool = False


class Collector:
    """Records to send; `batches` converts them to columns."""

    def __init__(self) -> None:
        self._topics: dict[str, _Rows] = {}

    def add(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
        partition_key: bytes | None = None,
        partition: int = DEFAULT_PARTITION,
    ) -> None:
        """Append one record; `partition_key` only where it differs from the key."""
        rows = self._topics.get(topic)
        if rows is None:
            rows = self._topics[topic] = _Rows()
        rows.keys.append(key)
        rows.values.append(value)
        rows.timestamps.append(timestamp)
        rows.headers.append(headers)
        rows.partitions.append(partition)
        rows.partition_keys.append(key if partition_key is None else partition_key)
        rows.windowed |= partition_key is not None
        rows.partitioned |= partition != DEFAULT_PARTITION
        rows.with_headers |= bool(headers)

    def batches(self) -> list[SendBatch]:
        """One batch per topic, in order of first use."""
        return [self._batch(topic, rows) for topic, rows in self._topics.items()]

    def _batch(self, topic: str, rows: _Rows) -> SendBatch:
        headers = None
        if rows.with_headers:
            headers = binary_column([encode_headers(one) if one else None for one in rows.headers])
        return SendBatch(
            topic,
            binary_column(rows.keys),
            binary_column(rows.values),
            np.array(rows.timestamps, np.int64),
            binary_column(rows.partition_keys) if rows.windowed else None,
            np.array(rows.partitions, np.int32) if rows.partitioned else None,
            headers,
        )
