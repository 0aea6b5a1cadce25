"""`Copies`: takes over a copy of a task's database, if less of the changelog remains to be read with it than without it.

A copy is a snapshot, or the copy of a replica on this host. Whether its rows may be used is decided as for local state
(`plan_restore`): its origin must fit, its offsets must still be within the logs, and it must not be so old that it may have missed
tombstones. Invariants: a copy that fails in any way is skipped, so in the worst case its transfer is wasted; it is opened once, in
a separate folder, before it replaces the local database.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from state.errors import RestoreError, SnapshotError
from state.restore.plan import CHUNK_RECORDS, Action, LogRange, RestoreTarget, StorePlan, plan_restore
from state.restore.snapshots import Snapshot, TaskSnapshots
from state.stores.position import StoreOrigin, read_meta
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore
from state.tables.files import MODE, make_private
from state.tables.open_tables import DiskTable, open_table
from state.tables.rocks_common import RocksSettings

_log = logging.getLogger(__name__)
DATABASE = "db"
_INCOMING, _REPLACED = "copy.part", "db.replaced"


class StateCopy(Protocol):
    """A copy of a task's database in some place."""

    @property
    def offsets(self) -> Mapping[str, int]:
        """Store -> next changelog offset."""

    @property
    def origins(self) -> Mapping[str, StoreOrigin]: ...

    def fetch(self, into: Path) -> None:
        """Creates the database's files in a folder, which exists and is empty. Any error means that the copy cannot be used."""


CopySource = Callable[[], Iterable[StateCopy]]
"""Finds the copies that a task has now. `str(copy)` is shown to people."""


class Copies:
    """The copies of one task.

    Args:
        sources: Where to look for copies. If copies are equally good, the first source's copy is used.
        folder: The task's folder of local state.
        settings: The settings with which the database is opened.
    """

    def __init__(self, sources: Sequence[CopySource], folder: Path, settings: RocksSettings) -> None:
        self._sources = sources
        self._folder = folder
        self._settings = settings

    def take_over(
        self,
        store: TaskStore,
        target: RestoreTarget,
        logs: Mapping[str, LogRange],
        plans: Sequence[StorePlan],
        now_ms: int,
    ) -> str:
        """Replaces the stores' database by the best copy, if that is better than the database. Returns the copy's description."""
        specs = [spec for spec in store.specs.values() if spec.persistent]
        present = _to_read(specs, plans)
        if not _worth_looking(specs, plans) or not (self._folder / DATABASE).is_dir():
            return ""
        for _, copy in sorted(self._usable(specs, target, logs, present, now_ms), key=lambda found: found[0]):
            try:
                self._fetch(copy)
            except Exception as error:
                _log.warning("%s is not used: %s", copy, error)
                shutil.rmtree(self._folder / _INCOMING, ignore_errors=True)
                continue
            store.replace_table(self._exchange)
            for spec in specs:
                if not spec.logged:
                    # No changelog brings it from the copy's step to the current one, so it begins empty, as without a copy.
                    store.reset(spec.name)
            return str(copy)
        return ""

    def _usable(
        self,
        specs: Sequence[StoreSpec],
        target: RestoreTarget,
        logs: Mapping[str, LogRange],
        present: int,
        now_ms: int,
    ) -> list[tuple[int, StateCopy]]:
        """The copies that are better than the current database, each with the number of offsets that remain to be read with it."""
        found = []
        for source in self._sources:
            try:
                copies = list(source())
            except Exception as error:
                _log.warning("cannot look for copies of the state in %s: %s", self._folder, error)
                continue
            for copy in copies:
                with suppress(RestoreError):
                    plans = plan_restore(specs, copy.origins, copy.offsets, target, logs, now_ms=now_ms)
                    remaining = _to_read(specs, plans)
                    if remaining < present:
                        found.append((remaining, copy))
        return found

    def _fetch(self, copy: StateCopy) -> None:
        """Fetches a copy, and checks that it can be opened and holds the step that it claims."""
        incoming = self._folder / _INCOMING
        shutil.rmtree(incoming, ignore_errors=True)
        make_private(incoming)
        copy.fetch(incoming)
        table = open_table(incoming, self._settings)
        try:
            meta = read_meta(table)
        finally:
            table.close()
        # A replica may have moved on since it was looked at.
        if any(meta.offsets.get(name, -1) < offset for name, offset in copy.offsets.items()):
            raise SnapshotError(f"its database is at the offsets {meta.offsets}, but should be at {dict(copy.offsets)}")

    def _exchange(self, close: Callable[[], None]) -> DiskTable:
        """Closes the current database and opens the fetched one in its place."""
        database, replaced = self._folder / DATABASE, self._folder / _REPLACED
        shutil.rmtree(replaced, ignore_errors=True)
        # The current database is moved while its lock is held, so that whatever closing it does happens elsewhere. Renaming onto
        # the database of another attempt, which may open one here in this moment, fails, and so does the attempt.
        database.rename(replaced)
        close()
        (self._folder / _INCOMING).rename(database)
        shutil.rmtree(replaced, ignore_errors=True)
        return open_table(database, self._settings)


def _to_read(specs: Sequence[StoreSpec], plans: Sequence[StorePlan]) -> int:
    return sum(plan.end - plan.start for plan in _of(specs, plans))


def _worth_looking(specs: Sequence[StoreSpec], plans: Sequence[StorePlan]) -> bool:
    """Whether there is enough to read to make looking for copies worthwhile. Finding and fetching a copy takes time, too."""
    from_start = any(plan.action is Action.FROM_START for plan in _of(specs, plans))
    return _to_read(specs, plans) > (0 if from_start else CHUNK_RECORDS)


def _of(specs: Sequence[StoreSpec], plans: Sequence[StorePlan]) -> list[StorePlan]:
    names = {spec.name for spec in specs}
    return [plan for plan in plans if plan.store in names]


# --- What a replica on this host keeps, as a copy that a restore can take over.
#
# A replica has its databases open only while it brings them forward, so a task can have a checkpoint of one at any time: on the
# same disk that costs names instead of copies, and the replica stays what it is.


@dataclass(frozen=True)
class ReplicaCopy:
    """The copy of a task that a replica keeps."""

    folder: Path
    settings: RocksSettings
    offsets: Mapping[str, int]
    origins: Mapping[str, StoreOrigin]

    def __str__(self) -> str:
        return f"the replica in {self.folder}"

    def fetch(self, into: Path) -> None:
        table = open_table(self.folder / DATABASE, self.settings)
        try:
            # RocksDB makes the folder itself, and lets other users in.
            into.rmdir()
            table.checkpoint(into)
            into.chmod(MODE)
        finally:
            table.close()


def replica_copies(folder: Path, settings: RocksSettings) -> Iterator[ReplicaCopy]:
    """The replica's copy of a task, if there is one on this host.

    Raises:
        StateLockedError: The replica is bringing it forward, and does not finish soon.
    """
    if (folder / DATABASE / "CURRENT").exists():
        table = open_table(folder / DATABASE, settings)
        try:
            meta = read_meta(table)
        finally:
            table.close()
        yield ReplicaCopy(folder, settings, meta.offsets, meta.origins)


@dataclass(frozen=True)
class SnapshotCopy:
    """One snapshot of a task."""

    place: TaskSnapshots
    snapshot: Snapshot

    def __str__(self) -> str:
        return f"the snapshot of step {self.snapshot.version} in {self.place}"

    @property
    def offsets(self) -> Mapping[str, int]:
        return self.snapshot.offsets

    @property
    def origins(self) -> Mapping[str, StoreOrigin]:
        return self.snapshot.origins

    def fetch(self, into: Path) -> None:
        self.place.fetch(self.snapshot, into)
