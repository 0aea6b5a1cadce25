"""Collects the records to send in a step, topic by topic, as columns for one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, binary_column, encode_headers, one_column
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
        headers: binary[n], see `state.columns`; None = no record has any.
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
        self._topics: dict[str, list[_Rows | SendBatch]] = {}

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
        parts = self._topics.get(topic)
        if parts is None:
            parts = self._topics[topic] = []
        if not parts or type(parts[-1]) is not _Rows:
            parts.append(_Rows())
        rows = parts[-1]
        assert isinstance(rows, _Rows)
        rows.keys.append(key)
        rows.values.append(value)
        rows.timestamps.append(timestamp)
        rows.headers.append(headers)
        rows.partitions.append(partition)
        rows.partition_keys.append(key if partition_key is None else partition_key)
        rows.windowed |= partition_key is not None
        rows.partitioned |= partition != DEFAULT_PARTITION
        rows.with_headers |= bool(headers)

    def add_batch(self, batch: SendBatch) -> None:
        """Append records that are columns already."""
        self._topics.setdefault(batch.topic, []).append(batch)

    def batches(self) -> list[SendBatch]:
        """One batch per topic, in order of first use."""
        return [
            _concatenated([part if isinstance(part, SendBatch) else self._batch(topic, part) for part in parts])
            for topic, parts in self._topics.items()
        ]

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


def _concatenated(parts: list[SendBatch]) -> SendBatch:
    """One batch of several for the same topic."""
    if len(parts) == 1:
        return parts[0]
    partition_keys = partitions = headers = None
    if any(part.partition_keys is not None for part in parts):
        partition_keys = one_column(
            [part.keys if part.partition_keys is None else part.partition_keys for part in parts]
        )
    if any(part.partitions is not None for part in parts):
        by_hash = [np.full(len(part.timestamps), DEFAULT_PARTITION, np.int32) for part in parts]
        chosen = [
            default if part.partitions is None else part.partitions
            for part, default in zip(parts, by_hash, strict=True)
        ]
        partitions = np.concatenate(chosen)
    if any(part.headers is not None for part in parts):
        none = [pa.nulls(len(part.timestamps), pa.binary()) for part in parts]
        headers = one_column(
            [empty if part.headers is None else part.headers for part, empty in zip(parts, none, strict=True)]
        )
    return SendBatch(
        parts[0].topic,
        one_column([part.keys for part in parts]),
        one_column([part.values for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        partition_keys,
        partitions,
        headers,
    )
