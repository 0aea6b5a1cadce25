"""`TaskStateManager`: opens a task's local stores for a step and brings them to the last commit marker.

A damaged store is deleted and opened again: the marker then leads to a full restore. Damage that is noticed only while a
step runs fails that step and deletes the folder, so that the next attempt restores.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from state.changelog import Noted, changelog_topic, due, trim_notes, trim_targets
from state.commit.decide import TaskIdentity
from state.commit.marker import CommitMarker
from state.errors import StateCorruptedError, StateError
from state.kafka.admin import delete_if_possible
from state.kafka.topics import RecordDeleter, TopicPartition
from state.restore.copies import Copies, CopySource, SnapshotCopy, StateCopy, replica_copies
from state.restore.directory import StateDirectory, TaskDirectory
from state.restore.plan import Action, RestoreTarget
from state.restore.restorer import ChangelogSource, Reach, RestoreListener, Restorer, RestoreReport, nowhere
from state.restore.snapshots import NO_SNAPSHOTS, Ledger, Snapshot, SnapshotSettings, forget
from state.restore.taking import SnapshotTaker, snapshots_of
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore, open_task_store
from state.tables.buffer import DEFAULT_SPILL_BYTES
from state.tables.files import make_private
from state.tables.rocks_common import DEFAULT_SETTINGS, RocksSettings
from state.tables.table import MemoryTable, RangeSize

_log = logging.getLogger(__name__)
DAMAGED = "the local database was damaged"
"""The beginning of the reason of a restore after damage that was noticed when the database was opened."""
_NO_COPIES = "restore-from-changelog"
"""Name of an empty file in a task's folder: the next restore takes no copy."""

MEASURED_EVERY_S = 15.0
"""How often a process measures the size of a task's stores: Prometheus asks about as often, and measuring takes a millisecond."""

OpenStore = Callable[[Path, Sequence[StoreSpec], int, RocksSettings, "MemoryTable | None"], TaskStore]
"""Folder, stores, bound of the write buffer, settings, table of the `persistent=False` stores."""


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The size of a task's stores.

    Attributes:
        disk_bytes: The bytes of the files in the task's folder.
        stores: Store -> estimated rows and bytes.
    """

    disk_bytes: int
    stores: Mapping[str, RangeSize]


@dataclass(eq=False)
class WorkerMemory:
    """The data that a worker process retains from one step to the next.

    Attributes:
        volatile: Stores with `persistent=False`, by task folder.
        trimmed: The offsets up to which changelogs were trimmed, so that a trim is not repeated at every step.
        ledgers: Task folder -> notes about the task's snapshots.
        compared: The argument `compared` of `state.commit.step.CommitStep`.
        measured: When the size of a task's stores was measured (monotonic clock, seconds), by task folder.
    """

    volatile: dict[Path, MemoryTable] = field(default_factory=dict)
    trimmed: dict[TopicPartition, int] = field(default_factory=dict)
    ledgers: dict[Path, Ledger] = field(default_factory=dict)
    compared: dict[tuple[str, TopicPartition], str] = field(default_factory=dict)
    measured: dict[Path, float] = field(default_factory=dict)


# Keyed by process, because a fork copies them.
_memories: dict[int, WorkerMemory] = {}


def worker_memory() -> WorkerMemory:
    """The retained data of this process; a forked process has its own."""
    return _memories.setdefault(os.getpid(), WorkerMemory())


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class StoreSource(ChangelogSource, RecordDeleter, Protocol):
    """Kafka, for reading and trimming changelogs."""


class TaskStateManager:
    """The local stores of one task.

    Args:
        source: Kafka.
        specs: Its stores.
        state_dir: Root of local state.
        spill_bytes: Bound of a step's write buffer.
        listener: Notified of the progress of restores.
        memory: The data that is retained from step to step; default: this process's.
        lock_timeout_s: How long to wait for a store that another attempt has open: as long as a transaction may be, because
            an abandoned attempt may live that long.
        clock_ms: The wall clock, which determines how old a local store is; the batch time may have been logged long ago.
        open_store: Opens the stores of a folder.
        trim_delay_ms: How long changelog records are kept after they are no longer needed.
        settings: RocksDB's memory; the lock timeout in it is not used.
        snapshots: Where snapshots are taken to and restored from; default: none.
        replica_dir: Root of the copies that replicas on this host keep; default: there are none.
    """

    def __init__(
        self,
        source: StoreSource,
        identity: TaskIdentity,
        specs: Sequence[StoreSpec],
        state_dir: Path | str,
        spill_bytes: int = DEFAULT_SPILL_BYTES,
        *,
        listener: RestoreListener | None = None,
        memory: WorkerMemory | None = None,
        lock_timeout_s: float = DEFAULT_SETTINGS.lock_timeout_s,
        clock_ms: Callable[[], int] = _wall_clock_ms,
        open_store: OpenStore = open_task_store,
        trim_delay_ms: int = 0,
        settings: RocksSettings = DEFAULT_SETTINGS,
        snapshots: SnapshotSettings = NO_SNAPSHOTS,
        replica_dir: Path | None = None,
    ) -> None:
        self._settings = settings
        self._memory = memory or worker_memory()
        self._trim_delay_ms = trim_delay_ms
        self._notes: Noted = {}
        self._source = source
        self._identity = identity
        self._specs = specs
        self._spill_bytes = spill_bytes
        self._lock_timeout_s = lock_timeout_s
        self._clock_ms = clock_ms
        self._open_store = open_store
        self.directory: TaskDirectory = StateDirectory(state_dir).task(
            identity.application_id, identity.sub_topology, identity.task
        )
        self.directory.check_owners()
        self._snapshots = snapshots
        self._replica_dir = replica_dir
        self._copies = Copies(self._copy_sources(), self.directory.path, settings)
        self._listener = listener
        self._damage = ""
        self.report: RestoreReport | None = None
        self.publishing: Future[Snapshot | None] | None = None
        self.size: TaskSize | None = None

    @property
    def logged_stores(self) -> list[str]:
        """Names of the stores that have a changelog."""
        return [spec.name for spec in self._specs if spec.logged]

    @contextmanager
    def open(self, patient: bool = True) -> Iterator[TaskStore]:
        """Opens the stores within the context, and closes them at its end in any case.

        Raises:
            StateLockedError: Another process has the stores open and does not release them.
            StateError: The disk fails.
        """
        quick = DEFAULT_SETTINGS.lock_timeout_s
        wait_s = self._lock_timeout_s if patient else min(self._lock_timeout_s, quick)
        with self._disk():
            try:
                store = self._open(wait_s)
            except StateCorruptedError as error:
                self._damage = f"{DAMAGED}: {error.detail}"
                _log.warning("%s: %s; it is restored from its changelogs", self._identity, self._damage)
                self.directory.wipe()
                store = self._open(wait_s)
        try:
            yield store
        except StateCorruptedError:
            store.close(failed=True)
            with self._disk():
                self._wipe_with_distrust()
            raise
        except BaseException:
            store.close(failed=True)
            raise
        self.size = self._measured(store)
        store.close()

    def restore_to(
        self, store: TaskStore, marker: CommitMarker | None, reach: Reach = nowhere, fresh: bool = False
    ) -> None:
        """Brings the stores to a marker and sets `report`; None = nothing was ever committed. `fresh` is as for `Restorer`."""
        target = None
        if marker is not None:
            self._notes = trim_notes(marker.operator_state)
            target = target_of(marker)
        distrusted = self.directory.path / _NO_COPIES
        copies = None if distrusted.exists() else self._copies
        restorer = Restorer(self._source, self._identity.application_id, self._identity.task, self._listener, copies)
        self.report = restorer.restore_to(store, target, self._clock_ms(), reach, fresh)
        if self._damage:
            stores = (
                replace(one, reason=self._damage) if one.action is Action.FROM_START else one
                for one in self.report.stores
            )
            self.report = replace(self.report, stores=tuple(stores))
        if copies is None:
            distrusted.unlink(missing_ok=True)
        on_disk = {spec.name for spec in self._specs if spec.persistent}
        if not self.report.copy and any(
            done.action is Action.FROM_START and done.store in on_disk for done in self.report.stores
        ):
            # To avoid reading that much again, the end of the step takes a snapshot, whenever the last one was taken.
            forget(self.directory.path, self._memory.ledgers)
        if self.report.copy:
            _log.info(
                "%s: taken over: %s; then read %d changelog records",
                self._identity,
                self.report.copy,
                self.report.records,
            )

    def committed(self, store: TaskStore, marker: CommitMarker) -> None:
        """Notes that the open stores hold a further step."""
        self._notes = trim_notes(marker.operator_state)
        self.size = self._measured(store) or self.size
        # As in a step after the one that has restored: its stores may decide what is trimmed.
        self.report = None

    def snapshot(self, store: TaskStore, reach: Reach = nowhere) -> None:
        """Takes a snapshot of the stores if one is due. `publishing` is the last snapshot that was begun. Raises no errors."""
        if self._snapshots.location:
            taker = SnapshotTaker(self._snapshots, self._identity, self.directory.path, self._memory.ledgers, reach)
            self.publishing = taker.take_if_due(store, self._clock_ms()) or self.publishing

    def to_trim(self, store: TaskStore) -> Mapping[TopicPartition, int]:
        """The offsets below which changelog records can be deleted: for the whole delay, no live segment has needed them.

        They are valid for the step that the stores hold.
        """
        needed = due(self._notes, store.trim_offsets, self._clock_ms(), self._trim_delay_ms)
        needed = {name: offset for name, offset in needed.items() if may_trim(name, self.report)}
        one = self._identity
        return trim_targets(self._specs, needed, one.application_id, one.task, self._memory.trimmed)

    def trim(self, store: TaskStore, targets: Mapping[TopicPartition, int]) -> None:
        """Deletes the changelog records below the targets, if the changelogs are the topics that the stores come from."""
        ids = {changelog_topic(self._identity.application_id, name): at.topic_id for name, at in store.origins.items()}
        if delete_if_possible(self._source, targets, {topic: ids.get(topic, "") for topic, _ in targets}):
            self._memory.trimmed.update(targets)

    def _measured(self, store: TaskStore) -> TaskSize | None:
        """The size of the stores, if this process has not measured it for a while. An error here does not fail the step."""
        now, path = time.monotonic(), self.directory.path
        if now - self._memory.measured.get(path, -MEASURED_EVERY_S) < MEASURED_EVERY_S:
            return None
        self._memory.measured[path] = now
        try:
            return TaskSize(self.directory.size_bytes, store.sizes())
        except (StateError, OSError) as error:
            _log.info("%s: the size of its stores is not known: %s", self._identity, error)
            return None

    def _wipe_with_distrust(self) -> None:
        """Deletes stores that were found damaged while they were read. The next restore uses no copy, which may be damaged, too."""
        self.directory.wipe()
        if self._copy_sources():
            make_private(self.directory.path)
            (self.directory.path / _NO_COPIES).touch()

    def _copy_sources(self) -> list[CopySource]:
        snapshots = [self._snapshot_copies] if self._snapshots.location else []
        return snapshots if self._replica_dir is None else [self._replica_copies, *snapshots]

    def _replica_copies(self) -> Iterable[StateCopy]:
        assert self._replica_dir is not None
        one = self._identity
        folder = StateDirectory(self._replica_dir).task(one.application_id, one.sub_topology, one.task).path
        return replica_copies(folder, self._settings)

    def _snapshot_copies(self) -> Iterable[StateCopy]:
        place = snapshots_of(self._snapshots.location, self._identity)
        return (SnapshotCopy(place, one) for one in place.readable() if one.tasks == self._identity.tasks)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Raises a named error for a failure of the disk, because the system's errors have neither a cause nor a remedy."""
        try:
            yield
        except OSError as error:
            raise StateError(
                f"the local state of {self._identity} cannot be used at {self.directory.path}: {error.strerror or error}. "
                "Repair the disk or choose another folder (state_dir), then start again: what is missing is restored from the "
                "changelogs"
            ) from error

    def _open(self, wait_s: float) -> TaskStore:
        settings = replace(self._settings, lock_timeout_s=wait_s)
        return self._open_store(self.directory.path, self._specs, self._spill_bytes, settings, self._volatile())

    def _volatile(self) -> MemoryTable | None:
        if all(spec.persistent for spec in self._specs):
            return None
        return self._memory.volatile.setdefault(self.directory.path, MemoryTable())


def target_of(marker: CommitMarker) -> RestoreTarget:
    """The restore target that a marker describes."""
    return RestoreTarget(
        query_id=marker.state_of,
        version=marker.version,
        changelog_ends=marker.changelog_ends,
        written_ms=marker.now_ms,
        expired_before=marker.expired_before,
        changelog_records=marker.counts.get("changelog"),
        changelog_hash=marker.changelog_hash,
        changelog_begins=marker.changelog_begins,
        changelog_ids=marker.changelog_ids,
    )


def may_trim(store: str, report: RestoreReport | None) -> bool:
    """Whether the local store may decide which changelog records are still needed.

    A store that was just made from the changelog may not: if it lacks rows, the changelog is the only copy of them.
    """
    stores = () if report is None else report.stores
    return all(done.store != store or done.action is not Action.FROM_START for done in stores)
