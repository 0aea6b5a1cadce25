"""`Ledger`: what this host knows of a task's snapshots: when the last one was taken, and the checksums of the database's files.

Table files never change, so each is read for its checksum once. The ledger is beside the database and dies with it; without it
a snapshot is taken sooner and every file is read again, nothing else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import orjson

NAME = "snapshots.json"
_PART_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Ledger:
    """See the module.

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
