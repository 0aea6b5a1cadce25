"""`FsspecFolder`: snapshots in an object store, or on any other file system that the library fsspec knows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any


class FsspecFolder:
    """A folder of a file system of fsspec. See `SnapshotLocation` for the methods.

    Whether a half-written file can be seen depends on the file system; checksums find such a file out.

    Args:
        system: An `fsspec.AbstractFileSystem`.
        root: Path of the folder in it.
        shown: The location for messages, without secrets.
    """

    def __init__(self, system: Any, root: str, shown: str) -> None:
        self._system = system
        self._root = root.rstrip("/")
        self._shown = shown

    def __str__(self) -> str:
        return self._shown

    def names(self, folder: str) -> list[str]:
        # Listings are cached by some file systems, while other hosts write.
        self._system.invalidate_cache()
        try:
            found = self._system.ls(self._at(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)

    def size(self, path: str) -> int | None:
        try:
            return int(self._system.info(self._at(path))["size"])
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        return bytes(self._system.cat_file(self._at(path)))

    def write(self, path: str, data: bytes) -> None:
        self._make_parent(path)
        self._system.pipe_file(self._at(path), data)

    def put(self, source: Path, path: str) -> None:
        self._make_parent(path)
        self._system.put_file(str(source), self._at(path))

    def get(self, path: str, target: Path) -> None:
        self._system.get_file(self._at(path), str(target))

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._system.rm_file(self._at(path))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _make_parent(self, path: str) -> None:
        self._system.makedirs(self._at(path).rsplit("/", 1)[0], exist_ok=True)
