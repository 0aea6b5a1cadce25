"""`SnapshotTaker`: takes a task's snapshot after a step, if one is due, and never fails the step.

The step itself pays for RocksDB's checkpoint alone: a folder with further names of the table files, and copies of some
kilobytes. A thread of the process then reads new files for their checksums and stores them. A task that is still storing its last
snapshot takes no new one, so a slow location delays the next snapshot, but never a step. Invariant: the database holds a step only
after Kafka has committed it, so no snapshot is newer than the last commit.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import IO

from state.commit.decide import TaskIdentity
from state.restore.snapshot_location import open_location
from state.restore.snapshots import Ledger, Snapshot, SnapshotSettings, TaskSnapshots
from state.stores.task_store import StorePosition, TaskStore

_log = logging.getLogger(__name__)
CHECKPOINT = "snapshot.part"
"""The name of a folder next to the database that exists while a snapshot is being stored."""
_LOCK = "snapshot.lock"


class SnapshotTaker:
    """Takes the snapshots of one task.

    Args:
        settings: The location, the intervals, and the number of snapshots to keep.
        folder: The task's folder of local state.
        ledgers: Task folder -> this process's notes about the task's snapshots; retained from step to step.
        reach: Called with the name of each crash point.
    """

    def __init__(
        self,
        settings: SnapshotSettings,
        identity: TaskIdentity,
        folder: Path,
        ledgers: dict[Path, Ledger],
        reach: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._reach = reach
        self._settings = settings
        self._identity = identity
        self._folder = folder
        self._ledgers = ledgers

    def take_if_due(self, store: TaskStore, now_ms: int) -> Future[Snapshot | None] | None:
        """Takes a snapshot of the stores, without pending writes, if one is due."""
        position = store.position
        if position is None or not self._due(position.version, now_ms):
            return None
        try:
            return self._take_snapshot(store, position, now_ms)
        except Exception as error:
            # Not even an error of an unknown kind may fail a step that is committed.
            _log.warning("%s: no snapshot was taken: %s", self._identity, error)
            return None

    def _due(self, version: int, now_ms: int) -> bool:
        last = self._ledgers.get(self._folder)
        if last is None:
            last = self._ledgers[self._folder] = Ledger.read(self._folder)
        steps = self._settings.steps
        # A lower step than that of the last snapshot is one of another life of the application.
        if not last.version or version < last.version or now_ms - last.taken_ms >= self._settings.interval_ms:
            return True
        return steps is not None and version - last.version >= steps

    def _take_snapshot(self, store: TaskStore, position: StorePosition, now_ms: int) -> Future[Snapshot | None] | None:
        lock = _locked(self._folder / _LOCK)
        if lock is None:
            return None
        try:
            ledger = self._ledgers[self._folder]
            ledger.version, ledger.taken_ms = position.version, now_ms
            checkpoint = self._folder / CHECKPOINT
            shutil.rmtree(checkpoint, ignore_errors=True)
            if not store.checkpoint(checkpoint):
                lock.close()
                return None
            self._reach("snapshot_taken")
            snapshot = self._describe(store, position, now_ms)
            return _thread(os.getpid()).submit(self._store, snapshot, checkpoint, ledger, lock)
        except BaseException:
            lock.close()
            raise

    def _describe(self, store: TaskStore, position: StorePosition, now_ms: int) -> Snapshot:
        one = self._identity
        on_disk = {name for name, spec in store.specs.items() if spec.persistent}
        return Snapshot(
            one.application_id,
            one.sub_topology,
            one.task,
            one.tasks,
            one.topology_hash,
            position.query_id,
            position.version,
            position.written_ms,
            now_ms,
            {name: offset for name, offset in position.changelog_offsets.items() if name in on_disk},
            {name: origin for name, origin in store.origins.items() if name in on_disk},
        )

    def _store(self, snapshot: Snapshot, checkpoint: Path, ledger: Ledger, lock: IO[str]) -> Snapshot | None:
        settings = self._settings
        try:
            place = snapshots_of(settings.location, self._identity)
            stored = place.publish(snapshot, checkpoint, ledger, self._reach)
            self._reach("snapshot_stored")
            place.collect(settings.keep, settings.grace_ms, snapshot.taken_ms)
            ledger.write(self._folder)
            return stored
        except Exception as error:
            _log.warning("%s: the snapshot of step %s was not stored: %s", self._identity, snapshot.version, error)
            return None
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
            lock.close()


def snapshots_of(location: str, task: TaskIdentity) -> TaskSnapshots:
    """The snapshots of a task in a location."""
    return TaskSnapshots(open_location(location), task.application_id, task.sub_topology, task.task)


def _locked(path: Path) -> IO[str] | None:
    """The lock file, locked until it is closed or the process ends; None if a process has it."""
    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


@lru_cache(maxsize=1)
def _thread(_process: int) -> ThreadPoolExecutor:
    """The thread of this process that stores snapshots, one after the other."""
    return ThreadPoolExecutor(1, thread_name_prefix="snapshots")
