"""Folders that only their owner can access: local state and checkpoints hold users' data."""

from __future__ import annotations

from pathlib import Path

MODE = 0o700


def make_private(folder: Path) -> None:
    """Creates a folder and its missing parents, each with mode 0700; existing folders stay unchanged.

    (`Path.mkdir(parents=True)` applies the mode to the last folder only, and `umask` would affect the whole process.)
    """
    missing = [folder, *folder.parents]
    for one in reversed(missing[: next(index for index, one in enumerate(missing) if one.exists())]):
        one.mkdir(MODE, exist_ok=True)
