"""A task's snapshots in a location: their manifests, and this host's notes about them.

Below `<application>/<sub-topology>/<task>/`, `files/<sha256>` are the files of all snapshots, each stored once however many
snapshots have it, and `manifests/<time>-<step>.json` name the files of each snapshot. Invariants: a manifest is written when all
of its files are there, so a snapshot that was cut short does not exist; a file that no manifest names is deleted only after a
grace, because another host may be about to name it.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import orjson

from state.errors import SnapshotError
from state.restore.snapshot_location import SnapshotLocation
from state.stores.position import StoreOrigin

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Where snapshots are kept, how often they are taken, and how long they stay.

    Attributes:
        location: A folder, or a URL for fsspec; empty = no snapshots.
        interval_ms: Time between two snapshots of a task.
        steps: Steps between two snapshots of a task, whichever comes first; None = only the time counts.
        keep: The number of snapshots of a task that are kept.
        grace_ms: How long a file is kept after no snapshot names it any more.
    """

    location: str = ""
    interval_ms: int = 10 * 60_000
    steps: int | None = None
    keep: int = 3
    grace_ms: int = HOUR_MS


NO_SNAPSHOTS = SnapshotSettings()

FORMAT = 1
"""Fields may be added within a format."""
_SORTED = orjson.OPT_SORT_KEYS
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of the database.

    Attributes:
        name: Its name in the database's folder.
        size: Bytes.
        sha256: The SHA-256 of its content, which is also its name among the snapshots' files.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task's database as it was after a committed step.

    Attributes:
        task: Number of the task.
        tasks: How many there are.
        topology_hash: Structure of the sub-topology, for information.
        query_id: Id of the Spark query that made the step.
        version: Number of the step.
        written_ms: Batch time of the step.
        taken_ms: Wall clock at the time of the snapshot.
        offsets: Store -> next changelog offset.
        origins: Store -> origin of its rows.
        files: All files of the database.
    """

    application_id: str
    sub_topology: str
    task: int
    tasks: int
    topology_hash: str
    query_id: str
    version: int
    written_ms: int
    taken_ms: int
    offsets: Mapping[str, int]
    origins: Mapping[str, StoreOrigin]
    files: tuple[SnapshotFile, ...] = ()

    @property
    def name(self) -> str:
        """Name of its manifest; names sort by time."""
        return f"{self.taken_ms:015d}-{self.version}.json"

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        content = asdict(self)
        return orjson.dumps({"format": FORMAT, "sha256": _digest(content), "snapshot": content}, option=_SORTED)

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """Reads a manifest back."""
        try:
            found = orjson.loads(data)
            content = found["snapshot"]
            if found["format"] != FORMAT:
                raise SnapshotError(f"the manifest has format {found['format']}, this version knows {FORMAT}")
            if found["sha256"] != _digest(content):
                raise SnapshotError("the manifest's checksum is wrong: it is damaged")
            return cls._of(content)
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"the manifest is damaged or incomplete ({error})") from error

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Snapshot:
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in content.items() if name in known}
        values["origins"] = {name: StoreOrigin(**origin) for name, origin in content["origins"].items()}
        values["files"] = tuple(_checked(SnapshotFile(**file)) for file in content["files"])
        return cls(**values)


def _checked(file: SnapshotFile) -> SnapshotFile:
    """Checks a file's name, which must be a plain name: a manifest must not choose a path on the host that restores."""
    if not _FILE_NAME.fullmatch(file.name) or not _SHA256.fullmatch(file.sha256):
        raise SnapshotError(f"the manifest names {file.name!r} ({file.sha256!r}), which is not a file of a database")
    return file


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content, option=_SORTED)).hexdigest()


NAME = "snapshots.json"
_PART_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Ledger:
    """This host's notes about a task's snapshots: when the last one was taken, and the checksums of the database's files.

    Table files never change, so each one is read only once for its checksum. The ledger is next to the database, and is lost with
    it. Then the next snapshot is taken earlier, and every file is read again; nothing else happens.

    Attributes:
        version: Step of the last snapshot that was attempted, 0 = none.
        taken_ms: Wall clock of that attempt.
        checksums: File name -> (inode, time of the last change in ns, size, SHA-256).
    """

    version: int = 0
    taken_ms: int = 0
    checksums: dict[str, tuple[int, int, int, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """The ledger of a task's folder; an empty one if there is none that can be read."""
        try:
            found = orjson.loads((folder / NAME).read_bytes())
            checksums = {name: (int(i), int(at), int(size), str(sha)) for name, (i, at, size, sha) in found[2].items()}
            return cls(int(found[0]), int(found[1]), checksums)
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return cls()

    def write(self, folder: Path) -> None:
        part = folder / f"{NAME}.part"
        part.write_bytes(orjson.dumps((self.version, self.taken_ms, self.checksums)))
        part.replace(folder / NAME)

    def checksum(self, path: Path) -> tuple[int, str]:
        """Size and SHA-256 of a file, read only if the file is not known."""
        stat = path.stat()
        known = self.checksums.get(path.name)
        if known is not None and known[:3] == (stat.st_ino, stat.st_mtime_ns, stat.st_size):
            return stat.st_size, known[3]
        found = sha256_of(path)
        self.checksums[path.name] = (stat.st_ino, stat.st_mtime_ns, stat.st_size, found)
        return stat.st_size, found

    def keep(self, names: set[str]) -> None:
        self.checksums = {name: known for name, known in self.checksums.items() if name in names}


def forget(folder: Path, ledgers: dict[Path, Ledger]) -> None:
    """Forgets when a task's last snapshot was taken, so that the next one is due at once."""
    known = ledgers.get(folder) or Ledger.read(folder)
    if known.version:
        known.version = 0
        ledgers[folder] = known


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


_log = logging.getLogger(__name__)
_UNNAMED = "unnamed.json"
_TRANSFERS = 4


class TaskSnapshots:
    """The snapshots of one task in a location."""

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
        """Reads the manifest with this name.

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
        """Stores a database as a snapshot: first the files that are missing there, last the manifest."""
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
        """Fetches the files of a snapshot into an existing folder and verifies each."""

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
        """Deletes all but the newest snapshots, and files that no snapshot has named for the time of grace."""
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
        """Deletes unnamed files. The time since when a file is unnamed is noted, because not all file systems have such times."""
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
