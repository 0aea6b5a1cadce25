"""`SnapshotLocation`: the few operations that snapshots need of a file system, and `open_location`, which opens one by name."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from state.errors import SnapshotError
from state.snapshots.fsspec_folder import FsspecFolder
from state.snapshots.local_folder import LocalFolder


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
    """The location of this name; nothing is read or written yet.

    Raises:
        SnapshotError: fsspec, or its part for this kind of URL, is not installed.
    """
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
