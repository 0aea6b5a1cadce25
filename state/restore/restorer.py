"""Brings a task's stores to a committed step by reading their changelogs.

Records are gathered into chunks of bounded size; within a chunk the last value of a key wins and expired rows are
left out; each chunk is one atomic write together with the offset behind it. So a restore that is killed goes on where
it was. It ends where the step's records end: by position, never by counting records (control records and compaction
leave gaps). Invariant: the step's number is written last; until then `TaskStore.position` does not claim it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from state.changelog.records import ChangelogBatch
from state.changelog.topics import changelog_topic
from state.commit.digest import changelog_digest
from state.errors import RestoreError
from state.kafka.columns import RecordColumns
from state.restore.listener import RestoreListener, RestoreReport, StoreReport
from state.restore.plan import Action, LogRange, RestoreTarget, StorePlan, plan_restore
from state.stores.position import StorePosition
from state.stores.task_store import TaskStore

CHUNK_RECORDS = 500_000
CHUNK_BYTES = 64 * 1024 * 1024
TopicPartition = tuple[str, int]


class ChangelogSource(Protocol):
    """Where changelogs are read; `state.commit.live.LiveKafka` is the real one."""

    def begin_offset(self, partition: TopicPartition) -> int:
        """First offset that the log has."""

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Last stable offsets."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        """Committed records [start, end)."""


@dataclass(slots=True)
class _Chunk:
    """Records waiting to be written, in offset order."""

    parts: list[RecordColumns] = field(default_factory=list)
    records: int = 0
    bytes: int = 0

    def add(self, columns: RecordColumns) -> None:
        self.parts.append(columns)
        self.records += len(columns)
        self.bytes += _data_bytes(columns.keys) + _data_bytes(columns.values)

    @property
    def full(self) -> bool:
        return self.records >= CHUNK_RECORDS or self.bytes >= CHUNK_BYTES

    @property
    def next_offset(self) -> int:
        return int(self.parts[-1].offsets[-1]) + 1


class Restorer:
    """Restores the stores of one task.

    Args:
        source: Kafka.
        application_id: prefix of the changelogs' names.
        task: number of the task; also the partition.
        listener: told of the progress.
    """

    def __init__(
        self, source: ChangelogSource, application_id: str, task: int, listener: RestoreListener | None = None
    ) -> None:
        self._source = source
        self._application_id = application_id
        self._task = task
        self._listener = listener

    def bring_to(self, store: TaskStore, target: RestoreTarget | None, now_ms: int) -> RestoreReport:
        """Brings all stores to a step; costs nothing if they are there already.

        Args:
            store: the task's stores, nothing pending.
            target: the step; None = nothing was ever committed, so everything local is foreign and goes.
            now_ms: batch time of the step that waits for this.

        Raises:
            RestoreError: a changelog does not hold what the step's marker promises.
            KafkaClientError: reading failed; call again, it goes on where it was.
        """
        if target is None:
            store.reset()
            return RestoreReport(self._task, ())
        if self._is_there(store, target):
            return RestoreReport(self._task, ())
        for name, before_ms in target.expired_before.items():
            if name in store.specs:
                store.expire(name, before_ms)
        plans = self._plan(store, target, now_ms)
        check = self._one_step_tail(store, plans, target)
        reports, read = [], {}
        for plan in plans:
            report, columns = self._restore(store, plan, keep=check)
            reports.append(report)
            if columns:
                read[plan.store] = columns
        if check:
            _verify(target, {name: _batch(columns) for name, columns in read.items()})
        ends = {plan.store: plan.end for plan in plans}
        store.restored(StorePosition(target.query_id, target.version, ends, target.written_ms))
        return RestoreReport(self._task, tuple(reports))

    @staticmethod
    def _is_there(store: TaskStore, target: RestoreTarget) -> bool:
        position = store.position
        return (
            position is not None
            and (position.query_id, position.version) == (target.query_id, target.version)
            and all(
                position.changelog_offsets.get(name) == target.changelog_ends.get(name) for name in store.logged_stores
            )
        )

    def _plan(self, store: TaskStore, target: RestoreTarget, now_ms: int) -> list[StorePlan]:
        places = {name: (changelog_topic(self._application_id, name), self._task) for name in store.logged_stores}
        ends = self._source.end_offsets(list(places.values())) if places else {}
        logs = {name: LogRange(self._source.begin_offset(place), ends[place]) for name, place in places.items()}
        return plan_restore(store.specs.values(), store.position, store.offsets, target, logs, now_ms=now_ms)

    @staticmethod
    def _one_step_tail(store: TaskStore, plans: Sequence[StorePlan], target: RestoreTarget) -> bool:
        """Whether exactly the records of the target's own step will be read, so that its hash can be checked."""
        position = store.position
        return (
            target.changelog_hash is not None
            and position is not None
            and position.version == target.version - 1
            and all(plan.action is not Action.FROM_START for plan in plans)
        )

    def _restore(self, store: TaskStore, plan: StorePlan, keep: bool) -> tuple[StoreReport, list[RecordColumns]]:
        if plan.action is Action.NOTHING:
            return StoreReport(plan.store, plan.action, plan.reason), []
        started = time.perf_counter()
        if self._listener is not None:
            self._listener.on_start(plan.store, self._task, plan.end - plan.start)
        if plan.action is Action.FROM_START:
            store.reset(plan.store)
        kept: list[RecordColumns] = []
        records = rows = size = 0
        chunk = _Chunk()
        topic = changelog_topic(self._application_id, plan.store)
        for columns in self._source.read(topic, self._task, plan.start, plan.end):
            chunk.add(columns)
            if keep:
                kept.append(columns)
            if chunk.full:
                rows += self._write(store, plan, chunk, chunk.next_offset)
                records, size = records + chunk.records, size + chunk.bytes
                chunk = _Chunk()
        rows += self._write(store, plan, chunk, plan.end)
        records, size = records + chunk.records, size + chunk.bytes
        seconds = time.perf_counter() - started
        return StoreReport(plan.store, plan.action, plan.reason, records, rows, size, seconds), kept

    def _write(self, store: TaskStore, plan: StorePlan, chunk: _Chunk, next_offset: int) -> int:
        rows = 0
        if chunk.parts:
            batch = _batch(chunk.parts)
            offsets = np.concatenate([part.offsets for part in chunk.parts])
            rows = store.restore(
                plan.store, batch.keys, batch.values, batch.timestamps, offsets=offsets, next_offset=next_offset
            )
        if self._listener is not None:
            self._listener.on_batch(plan.store, self._task, chunk.records, chunk.bytes, plan.end - next_offset)
        return rows


def _verify(target: RestoreTarget, read: dict[str, ChangelogBatch]) -> None:
    records = sum(len(batch) for batch in read.values())
    if target.changelog_records is not None and records != target.changelog_records:
        raise RestoreError(
            f"step {target.version} wrote {target.changelog_records} changelog records, {records} were found: someone "
            f"else writes to the changelogs of this application, or records were deleted; reset the application"
        )
    found = changelog_digest(read)
    if found != target.changelog_hash:
        raise RestoreError(
            f"the changelog records of step {target.version} have the digest {found}, the commit marker says "
            f"{target.changelog_hash}: someone else writes to the changelogs of this application; reset the application"
        )


def _batch(columns: Sequence[RecordColumns]) -> ChangelogBatch:
    return ChangelogBatch(
        pa.concat_arrays([part.keys for part in columns]),
        pa.concat_arrays([part.values for part in columns]),
        np.concatenate([part.timestamps for part in columns]),
    )


def _data_bytes(column: Any) -> int:
    """Bytes of all values of a binary array."""
    if not len(column):
        return 0
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    bounds = np.frombuffer(column.buffers()[1], dtype=width)
    return int(bounds[column.offset + len(column)] - bounds[column.offset])
