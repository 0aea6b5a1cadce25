"""`Snapshot`: what one snapshot holds, as its manifest says. A manifest is written last and has its own checksum."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from state.errors import SnapshotError
from state.stores.position import StoreOrigin

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
        sha256: Of its content; also its name among the snapshots' files.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task's database as it was after a committed step.

    Attributes:
        application_id: The application.
        sub_topology: The sub-topology.
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
        """Reads a manifest back.

        Raises:
            SnapshotError: It is damaged, incomplete or of another format.
        """
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
    """The file, whose names may only be names: whoever can write a manifest must not choose a path on the host that restores.

    Raises:
        SnapshotError: The manifest names a path.
    """
    if not _FILE_NAME.fullmatch(file.name) or not _SHA256.fullmatch(file.sha256):
        raise SnapshotError(f"the manifest names {file.name!r} ({file.sha256!r}), which is not a file of a database")
    return file


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content, option=_SORTED)).hexdigest()
