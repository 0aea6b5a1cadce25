"""Files below an application's checkpoint folder, on any storage; paths are relative to the folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from state.tables.private_folder import make_private, write_private


class CheckpointFiles(Protocol):
    """The file operations on a checkpoint: `LocalFiles`, or Hadoop's through `streams.spark.checkpoint_files`."""

    def names(self, folder: str) -> list[str]: ...
    def read(self, path: str) -> bytes | None: ...
    def write(self, path: str, data: bytes) -> None: ...
    def move(self, path: str, to: str) -> None: ...
    def delete(self, folder: str) -> None: ...


def is_local(checkpoint_dir: str) -> bool:
    """Whether the path of a checkpoint folder is on this machine's disk."""
    return "://" not in checkpoint_dir or checkpoint_dir.startswith("file:")


class LocalFiles:
    """Files on this machine's disk.

    Args:
        checkpoint_dir: The application's checkpoint.
    """

    def __init__(self, checkpoint_dir: str) -> None:
        self._root = Path(checkpoint_dir.removeprefix("file:"))

    def names(self, folder: str) -> list[str]:
        """Sorted names of a folder's entries; none if the folder does not exist."""
        try:
            return sorted(entry.name for entry in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None if the file does not exist."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """Writes a file atomically: after a crash it is complete or unchanged."""
        file = self._root / path
        _make_parent(file)
        write_private(file, data)
        _checksum(file).unlink(missing_ok=True)

    def move(self, path: str, to: str) -> None:
        """Renames a file or a folder; the new path must not exist."""
        old, new = self._root / path, self._root / to
        _make_parent(new)
        # A checksum that stays behind would be compared with the next file of that name.
        if _checksum(old).exists():
            _checksum(old).rename(_checksum(new))
        old.rename(new)

    def delete(self, folder: str) -> None:
        """Deletes the files of a folder, and the folder."""
        for name in self.names(folder):
            (self._root / folder / name).unlink()
        if (self._root / folder).exists():
            (self._root / folder).rmdir()


def _make_parent(file: Path) -> None:
    """Creates the folder of a file; Spark's own folders, which are within the application's private one, stay as they are."""
    if not file.parent.exists():
        make_private(file.parent)


def move_aside(files: CheckpointFiles, folder: str) -> str:
    """Renames the checkpoint of a sub-topology that gets a new one; returns the new name, which begins with the old one."""
    at = aside = f"{folder}~replaced-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    number = 1
    while files.names(aside):
        # Another one was moved aside within this second.
        number += 1
        aside = f"{at}-{number}"
    files.move(folder, aside)
    return aside


def _checksum(file: Path) -> Path:
    """The checksum file that Hadoop's local file system writes beside each file."""
    return file.with_name(f".{file.name}.crc")
