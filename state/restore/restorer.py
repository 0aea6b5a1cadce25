"""Brings a task's stores to a committed step by reading their changelogs.

A restore ends where the step's records end: by position, never by counting records (control records and compaction leave
gaps). Invariants: rows of another query or another topic leave nothing behind; the step's number is written last, so that
`TaskStore.position` does not claim it before; no changelog is reported as damaged before a restore into an empty store has
failed as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from state.changelog import changelog_topic
from state.columns import RecordColumns
from state.commit.marker import MarkerLog
from state.errors import RestoreError
from state.restore.copies import Copies
from state.restore.plan import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    Action,
    LogRange,
    RestoreTarget,
    StepProof,
    StorePlan,
    UnprovenError,
    check_changelog_id,
    plan_restore,
    provable,
)
from state.stores.changelog_records import ChangelogBatch
from state.stores.position import StoreOrigin, StorePosition
from state.stores.row_formats import check_format
from state.stores.spec import StoreSpec
from state.stores.task_store import RestoredPart, TaskStore


class RestoreListener(Protocol):
    """Gets notified of the progress of restores (Kafka Streams: `StateRestoreListener`)."""

    def on_start(self, store: str, task: int, offsets: int) -> None:
        """Called before a store is read."""

    def on_batch(self, store: str, task: int, records: int, bytes_: int, remaining: int) -> None:
        """Called after some changelog records were loaded."""


class RestoreEndedError(Exception):
    """Raised when a restore ends early because nobody waits for it any more. The next one continues where it was.

    Attributes:
        done: What was taken over until then, which the next one finds as its own; None: nothing.
    """

    done: RestoreReport | None = None


class UnlessOver:
    """A listener that ends restores which nobody waits for any more.

    Args:
        is_over: Whether nobody does.
        listener: Notified otherwise.
    """

    def __init__(self, is_over: Callable[[], bool], listener: RestoreListener | None) -> None:
        self._is_over = is_over
        self._listener = listener

    def on_start(self, store: str, task: int, offsets: int) -> None:
        self._check()
        if self._listener is not None:
            self._listener.on_start(store, task, offsets)

    def on_batch(self, store: str, task: int, records: int, bytes_: int, remaining: int) -> None:
        if self._listener is not None:
            self._listener.on_batch(store, task, records, bytes_, remaining)
        self._check()

    def _check(self) -> None:
        if self._is_over():
            raise RestoreEndedError


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The restore of one store.

    Attributes:
        store: Its name.
        action: What was read: nothing, the tail, or everything from the start.
        reason: Why.
        records: Changelog records read.
        rows: Rows written; superseded and expired records are left out.
        bytes: Bytes of the keys and values read.
        seconds: Wall-clock time.
    """

    store: str
    action: Action
    reason: str
    records: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The restore of one task.

    Attributes:
        task: Number of the task.
        copy: The copy that the restore began with, a snapshot or a replica's; empty = none.
    """

    task: int
    stores: tuple[StoreReport, ...]
    copy: str = ""

    @property
    def records(self) -> int:
        return sum(store.records for store in self.stores)

    @property
    def bytes(self) -> int:
        return sum(store.bytes for store in self.stores)

    @property
    def seconds(self) -> float:
        return sum(store.seconds for store in self.stores)


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
    def next_offset(self) -> int:
        """The offset where reading continues."""
        return int(self.parts[-1].offsets[-1]) + 1

    def _headers(self) -> pa.BinaryArray | None:
        """The headers of all records, which only the changelogs of versioned stores have."""
        if all(part.headers is None for part in self.parts):
            return None
        nothing = (pa.nulls(len(part), pa.binary()) if part.headers is None else part.headers for part in self.parts)
        return pa.concat_arrays(list(nothing))

    def part(self) -> RestoredPart:
        return RestoredPart(
            ChangelogBatch(
                pa.concat_arrays([part.keys for part in self.parts]),
                pa.concat_arrays([part.values for part in self.parts]),
                np.concatenate([part.timestamps for part in self.parts]),
                self._headers(),
            ),
            np.concatenate([part.offsets for part in self.parts]),
        )


class Loading:
    """Carries out the plans of one restore.

    What is read waits in memory up to a bound. So a short tail, which is what a crash leaves, is verified against the marker's
    digest and written with the step's number in one atomic write. More than that is written in between, each time with the
    offset after it, so that a restore that is killed resumes where it was; and so is each store that is read from its start.
    Within a write the last value of a key wins, and expired rows are left out.
    """

    def __init__(
        self,
        reader: Restorer,
        store: TaskStore,
        target: RestoreTarget,
        logs: Mapping[str, LogRange],
        now_ms: int,
        reach: Reach,
        durable: bool,
    ) -> None:
        self._durable = durable
        self._reader = reader
        self._store = store
        self._target = target
        self._logs = logs
        self._now_ms = now_ms
        self._reach = reach
        self._waiting: dict[str, tuple[StorePlan, Chunk]] = {}
        self._done: dict[str, StoreReport] = {}
        self._writes = 0

    def run(self, plans: Sequence[StorePlan]) -> tuple[StoreReport, ...]:
        """Executes the plans, verifies them where possible, and declares the stores to be at the step."""
        proof = None
        if provable(plans, self._store.specs, self._target, self._logs, self._now_ms):
            proof = StepProof(self._target)
        self._done = {plan.store: StoreReport(plan.store, plan.action, plan.reason) for plan in plans}
        for plan in plans:
            if plan.action is not Action.NOTHING:
                started = time.perf_counter()
                self._read(plan, proof)
                self._count(plan.store, seconds=time.perf_counter() - started)
        try:
            if proof is not None:
                proof.check()
        except UnprovenError:
            # The restored rows may be wrong, and the next attempt would trust them.
            for plan in plans:
                self._store.reset(plan.store)
            raise
        self._reach("restore_read")
        self._finish(plans)
        return tuple(self._done.values())

    def _read(self, plan: StorePlan, proof: StepProof | None) -> None:
        self._reader.started(plan)
        if plan.action is Action.FROM_START:
            self._store.reset(plan.store)
        chunk = Chunk()
        self._waiting[plan.store] = plan, chunk
        for columns in self._reader.read(plan) if plan.start < plan.end else ():
            chunk.add(columns)
            if proof is not None:
                proof.add(plan.store, columns)
            if self._is_much():
                self._write_waiting(chunk.next_offset)
                chunk = Chunk()
                self._waiting[plan.store] = plan, chunk
        if plan.action is Action.FROM_START:
            self._write_waiting(plan.end)

    def _is_much(self) -> bool:
        chunks = [chunk for _, chunk in self._waiting.values()]
        return (
            sum(chunk.records for chunk in chunks) >= CHUNK_RECORDS
            or sum(chunk.bytes for chunk in chunks) >= CHUNK_BYTES
        )

    def _write_waiting(self, next_offset: int) -> None:
        """Writes what waits; the store that is being read is at this offset then, and those before it at their ends."""
        (last, _) = list(self._waiting.values())[-1]
        for plan, chunk in self._waiting.values():
            at = next_offset if plan is last else plan.end
            if chunk.parts:
                self._write(plan, chunk, at)
            self._reader.progressed(plan, chunk, at)
        self._waiting = {}

    def _write(self, plan: StorePlan, chunk: Chunk, next_offset: int) -> None:
        self._expire(plan.store)
        origin = self._store.origins.get(plan.store)
        if origin is None:
            log = self._logs.get(plan.store, LogRange(0, 0))
            origin = StoreOrigin(self._target.query_id, log.topic_id, self._now_ms)
        part = self._part(plan, chunk)
        rows = self._store.restore(
            plan.store,
            part.records.keys,
            part.records.values,
            part.records.timestamps,
            headers=part.records.headers,
            offsets=part.offsets,
            next_offset=next_offset,
            origin=origin,
        )
        self._count(plan.store, chunk, rows)
        self._writes += 1
        if self._writes == 1:
            self._reach("restore_halfway")

    def _finish(self, plans: Sequence[StorePlan]) -> None:
        """Writes the rest together with the step's number: a crash leaves all of it or nothing."""
        started, target = time.perf_counter(), self._target
        parts = {name: self._part(plan, chunk) for name, (plan, chunk) in self._waiting.items() if chunk.parts}
        for name in self._store.specs:
            self._expire(name)
        ends = {plan.store: plan.end for plan in plans if self._store.specs[plan.store].logged}
        ids = {name: log.topic_id for name, log in self._logs.items()}
        position = StorePosition(target.query_id, target.version, ends, target.written_ms, ids)
        rows = self._store.restored(position, parts, self._durable)
        for name, (plan, chunk) in self._waiting.items():
            self._count(name, chunk, rows.get(name, 0), (time.perf_counter() - started) / len(self._waiting))
            self._reader.progressed(plan, chunk, plan.end)

    def _expire(self, store: str) -> None:
        if store in self._target.expired_before:
            self._store.expire(store, self._target.expired_before[store])

    def _count(self, store: str, chunk: Chunk | None = None, rows: int = 0, seconds: float = 0.0) -> None:
        done, chunk = self._done[store], chunk or Chunk()
        self._done[store] = replace(
            done,
            records=done.records + chunk.records,
            rows=done.rows + rows,
            bytes=done.bytes + chunk.bytes,
            seconds=done.seconds + seconds,
        )

    def _part(self, plan: StorePlan, chunk: Chunk) -> RestoredPart:
        """The records of a chunk; each is in the format of the store."""
        part = chunk.part()
        self._reader.check(self._store.specs[plan.store], part)
        return part


def _data_bytes(column: Any) -> int:
    """Bytes of all values of a binary array."""
    if not len(column):
        return 0
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    bounds = np.frombuffer(column.buffers()[1], dtype=width)
    return int(bounds[column.offset + len(column)] - bounds[column.offset])


class ChangelogSource(MarkerLog, Protocol):
    """The source of changelogs; `state.commit.live.LiveKafka` is the real one."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]: ...

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Kafka's ids of topics, where known; an id changes when a topic is deleted and created again."""

    def delete_retention_ms(self, topic: str) -> int:
        """How long a topic keeps tombstones."""


class Restorer:
    """Restores the stores of one task.

    Args:
        source: Kafka.
        application_id: Prefix of the changelogs' names.
        task: Number of the task; also the partition.
        listener: Notified of the progress.
        copies: Copies of the stores, which a restore may begin with instead of reading a whole changelog; default: none.
    """

    def __init__(
        self,
        source: ChangelogSource,
        application_id: str,
        task: int,
        listener: RestoreListener | None = None,
        copies: Copies | None = None,
    ) -> None:
        self._copies = copies
        self._source = source
        self._application_id = application_id
        self._task = task
        self._listener = listener

    def restore_to(
        self, store: TaskStore, target: RestoreTarget | None, now_ms: int, reach: Reach = nowhere, fresh: bool = False
    ) -> RestoreReport:
        """Brings all stores to a step; costs nothing if they are at that step already.

        Args:
            store: The stores.
            target: The step; None = nothing was ever committed.
            now_ms: The wall clock.
            reach: Called at crash points.
            fresh: Whether Kafka has just given the step. Then it is not asked where the changelogs end, reading waits for the
                records, and a short tail is not made durable.

        Raises:
            RestoreError: A changelog lacks what the step's marker promises.
            KafkaClientError: Reading failed; another call resumes where this one stopped.
        """
        if target is None:
            store.reset()
            return RestoreReport(self._task, ())
        ids = self._topic_ids(store)
        for name, found in ids.items():
            check_changelog_id(name, found, target)
        if _is_there(store, target, ids):
            return RestoreReport(self._task, ())
        logs = self._logs(store, ids, target.changelog_ends if fresh else {})
        plans = plan_restore(store.specs.values(), store.origins, store.offsets, target, logs, now_ms=now_ms)
        copy = "" if self._copies is None else self._copies.take_over(store, target, logs, plans, now_ms)
        if copy:
            plans = plan_restore(store.specs.values(), store.origins, store.offsets, target, logs, now_ms=now_ms)
        restore = Loading(self, store, target, logs, now_ms, reach, durable=not fresh)
        try:
            return RestoreReport(self._task, restore.run(plans), copy)
        except RestoreEndedError as ended:
            ended.done = RestoreReport(self._task, (), copy)
            raise
        except UnprovenError as error:
            # Local state itself may be wrong, e.g. its offsets. Only a restore into an empty store proves a fault of the topics.
            if all(plan.action is Action.FROM_START for plan in plans):
                raise _accusation(error) from error
        plans = plan_restore(store.specs.values(), {}, {}, target, logs, now_ms=now_ms)
        try:
            return RestoreReport(self._task, restore.run(plans))
        except UnprovenError as error:
            raise _accusation(error) from error

    def topic(self, store: str) -> str:
        """The name of a store's changelog."""
        return changelog_topic(self._application_id, store)

    def check(self, spec: StoreSpec, part: RestoredPart) -> None:
        """Refuses records that are not in the format of the store. Raises `ForeignRowError`."""
        check_format(spec, part.records, part.offsets, self.topic(spec.name), self._task)

    def read(self, plan: StorePlan) -> Iterator[RecordColumns]:
        return self._source.read(self.topic(plan.store), self._task, plan.start, plan.end)

    def started(self, plan: StorePlan) -> None:
        """Notifies the listener of the start."""
        if self._listener is not None:
            self._listener.on_start(plan.store, self._task, plan.end - plan.start)

    def progressed(self, plan: StorePlan, chunk: Chunk, next_offset: int) -> None:
        """Notifies the listener of the progress."""
        if self._listener is not None:
            self._listener.on_batch(plan.store, self._task, chunk.records, chunk.bytes, plan.end - next_offset)

    def _topic_ids(self, store: TaskStore) -> dict[str, str]:
        """Store -> Kafka's id of its changelog topic, where it exists."""
        topics = {name: self.topic(name) for name in store.logged_stores}
        found = self._source.topic_ids(list(topics.values())) if topics else {}
        return {name: found[topic] for name, topic in topics.items() if topic in found}

    def _logs(self, store: TaskStore, ids: Mapping[str, str], known: Mapping[str, int]) -> dict[str, LogRange]:
        places = {name: (self.topic(name), self._task) for name in store.logged_stores}
        unknown = [place for name, place in places.items() if name not in known]
        ends = self._source.end_offsets(unknown) if unknown else {}
        return {
            name: LogRange(
                self._source.begin_offset(place),
                known[name] if name in known else ends[place],
                ids.get(name, ""),
                self._source.delete_retention_ms(place[0]),
            )
            for name, place in places.items()
        }


def _accusation(error: UnprovenError) -> RestoreError:
    return RestoreError(
        f"{error}, in a local state that was emptied before: someone else writes to the changelogs of this application, or "
        f"records of them were deleted. Find out who (the rights on these topics, a second application with this id), and "
        f"restore the changelogs from a backup. Nothing was written to Kafka, and the local state is empty again"
    )


def _is_there(store: TaskStore, target: RestoreTarget, ids: Mapping[str, str]) -> bool:
    position, origins = store.position, store.origins
    if position is None or (position.query_id, position.version) != (target.query_id, target.version):
        return False
    for name in store.logged_stores:
        origin = origins.get(name)
        if origin is None or origin.query_id != target.query_id:
            return False
        if origin.topic_id and ids.get(name, origin.topic_id) != origin.topic_id:
            return False
        if position.changelog_offsets.get(name) != target.changelog_ends.get(name):
            return False
    return True
