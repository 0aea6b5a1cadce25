"""Folders that only their owner may look into: local state and checkpoints hold rows of users' data."""

from __future__ import annotations

from pathlib import Path

MODE = 0o700


def make_private(folder: Path) -> None:
    """Makes a folder and those above it that are missing, each of mode 0700; what is there stays as it is.

    (`Path.mkdir(parents=True)` gives the mode to the last one only, and `umask` is left alone: it is the whole process's.)
    """
    missing = [folder, *folder.parents]
    for one in reversed(missing[: next(index for index, one in enumerate(missing) if one.exists())]):
        one.mkdir(MODE, exist_ok=True)
