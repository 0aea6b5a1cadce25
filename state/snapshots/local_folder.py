"""`LocalFolder`: snapshots in a folder; on the disk of the stores, a file costs one more name instead of a copy."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from state.tables.linked_files import PART, link_or_copy, part_of
from state.tables.private_folder import make_private


class LocalFolder:
    """A folder, on this host or mounted from elsewhere. See `SnapshotLocation` for the methods.

    Args:
        root: The folder; created when something is first written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.root / folder) if not entry.name.endswith(PART))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        try:
            return (self.root / path).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        target = self.root / path
        make_private(target.parent)
        part = part_of(target)
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        _sync_folder(target.parent)

    def put(self, source: Path, path: str) -> None:
        target = self.root / path
        make_private(target.parent)
        link_or_copy(source, target)
        _sync_folder(target.parent)

    def get(self, path: str, target: Path) -> None:
        link_or_copy(self.root / path, target)

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Makes new names in a folder survive a power failure, where the file system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
