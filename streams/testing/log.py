"""Topics in memory: what stands in for Kafka under the test driver.

Invariant: records are bytes, as in Kafka, so serdes, partitioning and tombstones behave as in production.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from state.kafka.columns import RecordColumns
from state.kafka.headers import decode_headers, encode_headers
from state.kafka.partitioner import partition_for_key
from streams.operators.record import Headers
from streams.runtime.collector import SendBatch


class LogRecord(NamedTuple):
    """One record of a topic-partition; `produced` by the topology, or piped in by the test."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    produced: bool = False


class MemoryLog:
    """All topics.

    Args:
        partitions: Number of partitions by topic; others have one.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = dict(partitions)
        self._records: dict[tuple[str, int], list[LogRecord]] = {}

    def partitions(self, topic: str) -> int:
        """Number of partitions."""
        return self._partitions.get(topic, 1)

    @property
    def topics(self) -> set[str]:
        """The topics that were named, or that have records."""
        return {*self._partitions, *(topic for topic, _ in self._records)}

    def set_partitions(self, topic: str, partitions: int) -> None:
        """Set it, unless it was given."""
        self._partitions.setdefault(topic, partitions)

    def append(self, topic: str, record: LogRecord, partition: int | None = None) -> None:
        """Write one record; without a partition its key decides, a null key goes to partition 0."""
        if partition is None:
            partition = max(0, partition_for_key(record.key, self.partitions(topic)))
        self._records.setdefault((topic, partition), []).append(record)

    def send(self, batch: SendBatch) -> None:
        """Write what a step sends."""
        keys = batch.keys.to_pylist()
        hashed = keys if batch.partition_keys is None else batch.partition_keys.to_pylist()
        headers = [None] * len(keys) if batch.headers is None else batch.headers.to_pylist()
        chosen = [-1] * len(keys) if batch.partitions is None else batch.partitions.tolist()
        columns = zip(keys, batch.values.to_pylist(), batch.timestamps.tolist(), headers, hashed, chosen, strict=True)
        for key, value, timestamp, cell, hash_key, asked in columns:
            hashed_to = max(0, partition_for_key(hash_key, self.partitions(batch.topic)))
            partition = asked if asked >= 0 else hashed_to
            self.append(batch.topic, LogRecord(key, value, timestamp, tuple(decode_headers(cell)), True), partition)

    def end(self, topic: str, partition: int) -> int:
        """The next offset."""
        return len(self._records.get((topic, partition), ()))

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> list[LogRecord]:
        """Records from an offset on, up to another one or all."""
        return self._records.get((topic, partition), [])[start:end]

    def columns(self, topic: str, partition: int, start: int, end: int | None = None) -> RecordColumns | None:
        """The same as a reader gets them; None if there are none."""
        records = self.read(topic, partition, start, end)
        if not records:
            return None
        headers = None
        if any(record.headers for record in records):
            cells = [encode_headers(record.headers) if record.headers else None for record in records]
            headers = pa.array(cells, pa.binary())
        return RecordColumns(
            topic,
            partition,
            np.arange(start, start + len(records), dtype=np.int64),
            np.array([record.timestamp for record in records], np.int64),
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            headers,
        )
