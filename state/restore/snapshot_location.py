"""`SnapshotLocation`: where snapshots are kept, a folder or any file system of the library fsspec."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from state.errors import SnapshotError
from state.tables.files import PART, link_or_copy, make_private, part_of


class FsspecFolder:
    """A folder of a file system of fsspec, with the methods of `SnapshotLocation`.

    Whether a half-written file can be seen depends on the file system; checksums detect such a file.
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


class LocalFolder:
    """A folder, on this host or mounted from elsewhere, with the methods of `SnapshotLocation`.

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


class SnapshotLocation(Protocol):
    """A folder somewhere. Paths are relative to it, with `/` between their parts; missing folders are created."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none if it does not exist."""

    def size(self, path: str) -> int | None:
        """A file's size in bytes; None if there is no such file."""

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes) -> None: ...

    def put(self, source: Path, path: str) -> None:
        """Stores a file of this host, which never changes again."""

    def get(self, path: str, target: Path) -> None:
        """Fetches a file to a path on this host, where it must never be changed."""

    def remove(self, path: str) -> None: ...


def open_location(name: str) -> SnapshotLocation:
    """The location of this name; nothing is read or written yet."""
    scheme, found, rest = name.partition("://")
    if not found or scheme == "file":
        return LocalFolder(Path(rest if found else name).absolute())
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise SnapshotError(
            f"snapshot_dir is the URL {_shown(name)}, which needs the library fsspec: pip install "
            f"'streams-on-spark[snapshots]', on the driver and on every executor. A folder needs no library"
        ) from error
    try:
        system, root = url_to_fs(name)
    except (ImportError, ValueError) as error:
        raise SnapshotError(f"snapshot_dir is {_shown(name)}, which fsspec cannot open: {error}") from error
    return FsspecFolder(system, root, _shown(name))


def _shown(name: str) -> str:
    """The URL without a user and password."""
    parts = urlsplit(name)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
