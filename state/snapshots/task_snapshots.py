"""`TaskSnapshots`: the snapshots of one task in a location.

Below `<application>/<sub-topology>/<task>/`, `files/<sha256>` are the files of all snapshots, each stored once however many
snapshots have it, and `manifests/<time>-<step>.json` name the files of each snapshot. Invariants: a manifest is written when all
of its files are there, so a snapshot that was cut short does not exist; a file that no manifest names is deleted only after a
grace, because another host may be just about to name it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import orjson

from state.errors import SnapshotError
from state.snapshots.ledger import Ledger, sha256_of
from state.snapshots.location import SnapshotLocation
from state.snapshots.manifest import Snapshot, SnapshotFile

_log = logging.getLogger(__name__)
_UNNAMED = "unnamed.json"
_TRANSFERS = 4


class TaskSnapshots:
    """See the module.

    Args:
        location: Where the snapshots of all tasks are.
        application_id: The application.
        sub_topology: The sub-topology.
        task: Number of the task.
    """

    def __init__(self, location: SnapshotLocation, application_id: str, sub_topology: str, task: int) -> None:
        self._location = location
        self._root = f"{application_id}/{sub_topology}/{task}"

    def __str__(self) -> str:
        return f"{self._location}/{self._root}"

    def names(self) -> list[str]:
        """Names of all manifests, the newest first."""
        found = self._location.names(f"{self._root}/manifests")
        return sorted((name for name in found if name.endswith(".json")), reverse=True)

    def read(self, name: str) -> Snapshot:
        """What a manifest says.

        Raises:
            SnapshotError: The manifest is damaged.
        """
        return Snapshot.from_bytes(self._location.read(f"{self._root}/manifests/{name}"))

    def readable(self) -> Iterator[Snapshot]:
        """The snapshots whose manifests are whole, the newest first."""
        for name in self.names():
            try:
                yield self.read(name)
            except SnapshotError as error:
                _log.warning("snapshot %s of %s is left out: %s", name, self, error)

    def publish(
        self, snapshot: Snapshot, folder: Path, ledger: Ledger, reach: Callable[[str], None] = lambda point: None
    ) -> Snapshot:
        """Stores a database as a snapshot: first the files that are not there yet, last the manifest."""
        files: list[SnapshotFile] = []
        paths = sorted(folder.iterdir())
        for path in paths:
            if len(files) == len(paths) // 2:
                reach("snapshot_half_stored")
            size, sha256 = ledger.checksum(path)
            files.append(SnapshotFile(path.name, size, sha256))
            if self._location.size(self._file(sha256)) != size:
                self._location.put(path, self._file(sha256))
        complete = replace(snapshot, files=tuple(files))
        self._location.write(f"{self._root}/manifests/{complete.name}", complete.to_bytes())
        ledger.keep({file.name for file in files})
        return complete

    def fetch(self, snapshot: Snapshot, into: Path) -> None:
        """Fetches the files of a snapshot into an existing folder and verifies each.

        Raises:
            SnapshotError: A file is missing or damaged.
        """

        def one(file: SnapshotFile) -> None:
            target = into / file.name
            try:
                self._location.get(self._file(file.sha256), target)
            except FileNotFoundError as error:
                raise SnapshotError(f"file {file.name} of snapshot {snapshot.name} of {self} is missing") from error
            if target.stat().st_size != file.size or sha256_of(target) != file.sha256:
                raise SnapshotError(
                    f"file {file.name} ({file.sha256}) of snapshot {snapshot.name} of {self} is damaged"
                )

        with ThreadPoolExecutor(_TRANSFERS, thread_name_prefix="snapshot") as pool:
            list(pool.map(one, snapshot.files))

    def collect(self, keep: int, grace_ms: int, now_ms: int) -> None:
        """Deletes all but the newest snapshots, and the files that no snapshot has named for the time of grace."""
        kept: list[Snapshot] = []
        for name in self.names():
            try:
                found = self.read(name)
            except SnapshotError:
                if len(kept) < keep:
                    # Perhaps only half-written so far, by another host.
                    continue
            else:
                if len(kept) < keep:
                    kept.append(found)
                    continue
            self._location.remove(f"{self._root}/manifests/{name}")
        self._collect_files({file.sha256 for snapshot in kept for file in snapshot.files}, grace_ms, now_ms)

    def _collect_files(self, named: set[str], grace_ms: int, now_ms: int) -> None:
        """Deletes unnamed files. Since when each is unnamed is noted, because not all file systems know such times."""
        noted = self._noted()
        unnamed = {name: noted.get(name, now_ms) for name in self._location.names(f"{self._root}/files")}
        unnamed = {name: since for name, since in unnamed.items() if name not in named}
        for name in [name for name, since in unnamed.items() if since <= now_ms - grace_ms]:
            self._location.remove(self._file(name))
            del unnamed[name]
        if unnamed != noted:
            self._location.write(self._unnamed(), orjson.dumps(unnamed))

    def _noted(self) -> dict[str, int]:
        if self._location.size(self._unnamed()) is None:
            return {}
        try:
            return {str(name): int(since) for name, since in orjson.loads(self._location.read(self._unnamed())).items()}
        except (ValueError, AttributeError, TypeError):
            return {}

    def _unnamed(self) -> str:
        return f"{self._root}/{_UNNAMED}"

    def _file(self, sha256: str) -> str:
        return f"{self._root}/files/{sha256}"
