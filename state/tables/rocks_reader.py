"""A RocksDB database opened for reading while a task may have it open for writing, through links to its files."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from state.errors import StateCorruptedError, StateError
from state.tables.open import DiskTable, open_table
from state.tables.rocks_options import RocksSettings

# -1: all files are opened at once and stay open.
_SETTINGS = RocksSettings(block_cache_bytes=32 * 1024 * 1024, write_buffer_bytes=1024 * 1024, max_open_files=-1)
_ATTEMPTS = 20
_PAUSE_S = 0.1


def open_linked(source: Path, folder: Path) -> DiskTable:
    """Opens a database as of now.

    Args:
        source: The database's folder.
        folder: Where the links to its files are created.

    Raises:
        StateCorruptedError: The files are inconsistent, even after several attempts.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _link(source, folder)
            return open_table(folder, _SETTINGS, read_only=True)
        except (OSError, StateError) as error:
            if attempt == _ATTEMPTS:
                raise StateCorruptedError(str(source), str(error)) from error
        time.sleep(_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _link(source: Path, folder: Path) -> None:
    """Copies the list of files, then links the files: in this order the list names only files that are linked."""
    folder.mkdir()
    for path in [source / "CURRENT", *source.glob("MANIFEST-*")]:
        shutil.copy(path, folder / path.name)
    for path in source.glob("*.sst"):
        (folder / path.name).symlink_to(path)
