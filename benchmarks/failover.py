"""How long a task without local state waits for its stores: with its changelog alone, with a snapshot, with a replica's copy.

The changelog is generated in memory, so Kafka and the network take no part: a broker would add its time to every record that is
read, hence to the first way most of all. Snapshot, replica and state are on one disk.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from state.columns import RecordColumns
from state.commit.decide import TaskIdentity
from state.commit.marker import CommitMarker
from state.kafka.topics import TopicInfo, TopicPartition
from state.restore.directory import StateDirectory
from state.restore.snapshots import NO_SNAPSHOTS, SnapshotSettings
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.spec import StoreKind, StoreSpec

_PART = 200_000
_KEY_BYTES, _VALUE_BYTES = 16, 84
_NOISE = np.random.default_rng(1).integers(0, 256, (_PART, max(_KEY_BYTES, _VALUE_BYTES)), np.uint8)
_SPEC = StoreSpec("store", StoreKind.KEY_VALUE)
_TASK = TaskIdentity("failover", "sub", 0, 1, "query", "hash")


@dataclass(frozen=True)
class Failover:
    """One way to get the state: seconds until it is there, and how many changelog records were read."""

    way: str
    seconds: float
    records: int


class GeneratedChangelog:
    """A changelog partition with `rows` keys once each, and then a tail that writes some of them again."""

    def __init__(self, rows: int) -> None:
        self.rows = self.end = rows

    def begin_offset(self, partition: TopicPartition) -> int:
        return 0

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")

    def describe_topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo("id", 1) for name in names}

    def delete_retention_ms(self, topic: str) -> int:
        return 7 * 86_400_000

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Nothing is ever trimmed here."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        for first in range(start, end, _PART):
            offsets = np.arange(first, min(first + _PART, end), dtype=np.int64)
            # Multiplying by an odd number mixes all bits, so keys come in no order, and none twice.
            numbers = (offsets % self.rows).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            keys = _fixed(numbers.byteswap(), _KEY_BYTES)
            yield RecordColumns(topic, partition, offsets, offsets, keys, _fixed(offsets.byteswap(), _VALUE_BYTES))


def _fixed(numbers: np.ndarray, size: int) -> pa.BinaryArray:
    """Each number as the first eight of `size` bytes; the others are noise, which does not compress."""
    cells = _NOISE[: len(numbers), :size].copy()
    cells[:, :8] = numbers.view(np.uint8).reshape(-1, 8)
    bounds = np.arange(len(numbers) + 1, dtype=np.int32) * size
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(bounds), pa.py_buffer(cells.reshape(-1))]
    )


def failovers(rows: int, tail: int) -> Iterator[Failover]:
    """Measures the three ways, and what taking a snapshot costs the step."""
    log = GeneratedChangelog(rows)
    with tempfile.TemporaryDirectory(prefix="streams-failover-") as scratch:
        folder = Path(scratch)
        snapshots = SnapshotSettings(str(folder / "snapshots"))
        live = TaskStateManager(log, _TASK, [_SPEC], folder / "live", memory=WorkerMemory(), snapshots=snapshots)
        started = time.perf_counter()
        with live.open() as store:
            live.restore_to(store, _marker(log.end, 1))
            assert live.report is not None
            yield Failover("changelog", time.perf_counter() - started, live.report.records)
            replica = StateDirectory(folder / "replicas").task("failover", "sub", 0).path
            replica.mkdir(parents=True)
            store.checkpoint(replica / "db")
            started = time.perf_counter()
            live.snapshot(store)
            yield Failover("(taking a snapshot: the step waits)", time.perf_counter() - started, 0)
            assert live.publishing is not None
            live.publishing.result()
            yield Failover("(taking a snapshot: until it is stored)", time.perf_counter() - started, 0)
        log.end += tail
        for way, options in (
            ("snapshot", {"snapshots": snapshots}),
            ("replica", {"snapshots": NO_SNAPSHOTS, "replica_dir": folder / "replicas"}),
        ):
            started = time.perf_counter()
            host = TaskStateManager(log, _TASK, [_SPEC], folder / way, memory=WorkerMemory(), **options)  # type: ignore[arg-type]
            with host.open() as store:
                host.restore_to(store, _marker(log.end, 2))
            assert host.report is not None
            assert host.report.copy, f"the {way} was not used"
            yield Failover(way, time.perf_counter() - started, host.report.records)


def _marker(end: int, version: int) -> CommitMarker:
    return CommitMarker(
        query_id="query",
        task=0,
        tasks=1,
        topology_hash="hash",
        version=version,
        batch_id=version,
        batch="",
        ranges={},
        topic_ids={},
        stream_time=0,
        operator_state={},
        changelog_ends={"store": end},
        expired_before={},
        counts={},
        changelog_hash="",
        now_ms=time.time_ns() // 1_000_000,
        changelog_ids={"store": "id"},
    )
