"""`Loading`: carries out the plans of one restore.

There are two ways. A short tail, which is what a crash leaves, is collected, verified against the marker's digest and then
written with the step's number in one atomic write. Everything else is written in chunks of bounded size, each together with
the offset after it, so that a restore that is killed resumes where it was. Within a write the last value of a key wins, and
expired rows are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from state.kafka.columns import RecordColumns
from state.restore.listener import StoreReport
from state.restore.plan import Action, LogRange, RestoreTarget, StorePlan
from state.restore.proof import StepProof, UnprovenError, provable
from state.stores.changelog_records import ChangelogBatch
from state.stores.position import StoreOrigin, StorePosition
from state.stores.task_store import RestoredPart, TaskStore

CHUNK_RECORDS = 500_000
CHUNK_BYTES = 64 * 1024 * 1024

Reach = Callable[[str], None]
"""Called with the name of each crash point."""


def nowhere(_point: str) -> None:
    """A `Reach` for callers without crash points."""


@dataclass(slots=True)
class Chunk:
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
        """Whether the chunk should be written."""
        return self.records >= CHUNK_RECORDS or self.bytes >= CHUNK_BYTES

    @property
    def next_offset(self) -> int:
        """The offset where reading continues."""
        return int(self.parts[-1].offsets[-1]) + 1

    def part(self) -> RestoredPart:
        return RestoredPart(
            ChangelogBatch(
                pa.concat_arrays([part.keys for part in self.parts]),
                pa.concat_arrays([part.values for part in self.parts]),
                np.concatenate([part.timestamps for part in self.parts]),
            ),
            np.concatenate([part.offsets for part in self.parts]),
        )


class PlanReader(Protocol):
    """The part of `state.restore.restorer.Restorer` that this module needs."""

    def read(self, plan: StorePlan) -> Iterator[RecordColumns]: ...

    def started(self, plan: StorePlan) -> None:
        """Notifies the listener of the start."""

    def progressed(self, plan: StorePlan, chunk: Chunk, next_offset: int) -> None:
        """Notifies the listener of the progress."""


class Loading:
    """One restore in progress: of these stores, to this step."""

    def __init__(
        self,
        reader: PlanReader,
        store: TaskStore,
        target: RestoreTarget,
        logs: Mapping[str, LogRange],
        now_ms: int,
        reach: Reach,
    ) -> None:
        self._reader = reader
        self._store = store
        self._target = target
        self._logs = logs
        self._now_ms = now_ms
        self._reach = reach
        self._chunks = 0

    def run(self, plans: Sequence[StorePlan]) -> tuple[StoreReport, ...]:
        """Executes the plans, verifies them where possible, and declares the stores to be at the step."""
        proof = None
        if provable(plans, self._store.specs, self._target, self._logs, self._now_ms):
            proof = StepProof(self._target)
        tails = self._collect(plans, proof)
        if tails is not None:
            return self._write_at_once(plans, tails, proof)
        proof = None if proof is None else StepProof(self._target)
        started = [self._restore(plan, proof) for plan in plans]
        try:
            self._finish(plans, {}, proof)
        except UnprovenError:
            # The restored rows may be wrong, and the next attempt would trust them.
            for plan in plans:
                self._store.reset(plan.store)
            raise
        return tuple(started)

    def _collect(self, plans: Sequence[StorePlan], proof: StepProof | None) -> dict[str, Chunk] | None:
        """All records to be read, if they are only a tail and fit into one write."""
        if any(plan.action is Action.FROM_START for plan in plans):
            return None
        if sum(plan.end - plan.start for plan in plans) > CHUNK_RECORDS:
            return None
        tails: dict[str, Chunk] = {}
        for plan in plans:
            if plan.action is Action.NOTHING:
                continue
            self._reader.started(plan)
            chunk = tails[plan.store] = Chunk()
            for columns in self._reader.read(plan):
                chunk.add(columns)
                if proof is not None:
                    proof.add(plan.store, columns)
                if sum(each.bytes for each in tails.values()) > CHUNK_BYTES:
                    return None
        return tails

    def _write_at_once(
        self, plans: Sequence[StorePlan], tails: Mapping[str, Chunk], proof: StepProof | None
    ) -> tuple[StoreReport, ...]:
        """Writes a tail together with the step's number: a crash leaves all of it or nothing."""
        started = time.perf_counter()
        rows = self._finish(plans, {name: chunk.part() for name, chunk in tails.items() if chunk.parts}, proof)
        seconds = time.perf_counter() - started
        reports = []
        for plan in plans:
            chunk = tails.get(plan.store, Chunk())
            if plan.store in tails:
                self._reader.progressed(plan, chunk, plan.end)
            reports.append(
                StoreReport(
                    plan.store, plan.action, plan.reason, chunk.records, rows.get(plan.store, 0), chunk.bytes, seconds
                )
            )
        return tuple(reports)

    def _finish(
        self, plans: Sequence[StorePlan], parts: Mapping[str, RestoredPart], proof: StepProof | None
    ) -> dict[str, int]:
        if proof is not None:
            proof.check()
        self._reach("restore_read")
        target = self._target
        for name, before_ms in target.expired_before.items():
            if name in self._store.specs:
                self._store.expire(name, before_ms)
        ends = {plan.store: plan.end for plan in plans if self._store.specs[plan.store].logged}
        ids = {name: log.topic_id for name, log in self._logs.items()}
        return self._store.restored(StorePosition(target.query_id, target.version, ends, target.written_ms, ids), parts)

    def _restore(self, plan: StorePlan, proof: StepProof | None) -> StoreReport:
        """Restores one store chunk by chunk; a crash leaves some of the chunks."""
        if plan.action is Action.NOTHING:
            return StoreReport(plan.store, plan.action, plan.reason)
        started = time.perf_counter()
        self._reader.started(plan)
        origin = self._store.origins.get(plan.store)
        if plan.action is Action.FROM_START or origin is None:
            self._store.reset(plan.store)
            log = self._logs.get(plan.store, LogRange(0, 0))
            origin = StoreOrigin(self._target.query_id, log.topic_id, self._now_ms)
        if plan.store in self._target.expired_before:
            self._store.expire(plan.store, self._target.expired_before[plan.store])
        records = rows = size = 0
        chunk = Chunk()
        for columns in self._reader.read(plan) if plan.start < plan.end else ():
            chunk.add(columns)
            if proof is not None:
                proof.add(plan.store, columns)
            if chunk.full:
                rows += self._write(plan, chunk, chunk.next_offset, origin)
                records, size = records + chunk.records, size + chunk.bytes
                chunk = Chunk()
        rows += self._write(plan, chunk, plan.end, origin)
        records, size = records + chunk.records, size + chunk.bytes
        seconds = time.perf_counter() - started
        return StoreReport(plan.store, plan.action, plan.reason, records, rows, size, seconds)

    def _write(self, plan: StorePlan, chunk: Chunk, next_offset: int, origin: StoreOrigin) -> int:
        rows = 0
        if chunk.parts:
            part = chunk.part()
            rows = self._store.restore(
                plan.store,
                part.records.keys,
                part.records.values,
                part.records.timestamps,
                offsets=part.offsets,
                next_offset=next_offset,
                origin=origin,
            )
            self._chunks += 1
            if self._chunks == 1:
                self._reach("restore_halfway")
        self._reader.progressed(plan, chunk, next_offset)
        return rows


def _data_bytes(column: Any) -> int:
    """Bytes of all values of a binary array."""
    if not len(column):
        return 0
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    bounds = np.frombuffer(column.buffers()[1], dtype=width)
    return int(bounds[column.offset + len(column)] - bounds[column.offset])
