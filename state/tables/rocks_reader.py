"""A RocksDB database opened for reading while a task may have it open for writing, through links to its files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from state.errors import StateCorruptedError, StateError
from state.tables.linked_files import link_or_copy
from state.tables.open import DiskTable, open_table
from state.tables.private_folder import make_private
from state.tables.rocks_options import RocksSettings

# -1: all files are opened at once and stay open.
_SETTINGS = RocksSettings(block_cache_bytes=32 * 1024 * 1024, write_buffer_bytes=1024 * 1024, max_open_files=-1)
_Result = TypeVar("_Result")
_ATTEMPTS = 20
_PAUSE_S = 0.1


def open_linked(source: Path, folder: Path) -> DiskTable:
    """Opens a database as of now.

    Raises:
        StateCorruptedError: The files are inconsistent, even after several attempts.
    """

    def attempt() -> DiskTable:
        _link(source, folder, lambda file, link: link.symlink_to(file))
        return open_table(folder, _SETTINGS, read_only=True)

    return _repeated(source, folder, attempt)


def copy_linked(source: Path, folder: Path) -> None:
    """Makes a database of its own from one that a task may have open: it may be written to, and outlives the other one.

    Raises:
        StateCorruptedError: The files are inconsistent, even after several attempts.
    """

    def attempt() -> None:
        _link(source, folder, link_or_copy)
        open_table(folder, _SETTINGS).close()

    _repeated(source, folder, attempt)


def _repeated(source: Path, folder: Path, attempt: Callable[[], _Result]) -> _Result:
    """What an attempt on an empty folder gives, repeated while files vanish under it."""
    for number in range(1, _ATTEMPTS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return attempt()
        except (OSError, StateError) as error:
            if number == _ATTEMPTS:
                raise StateCorruptedError(str(source), str(error)) from error
        time.sleep(_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _link(source: Path, folder: Path, link: Callable[[Path, Path], None]) -> None:
    """Copies the list of files, then links the files: in this order the list names only files that are linked."""
    make_private(folder)
    for path in [source / "CURRENT", *source.glob("MANIFEST-*")]:
        shutil.copy(path, folder / path.name)
    for path in source.glob("*.sst"):
        link(path, folder / path.name)
