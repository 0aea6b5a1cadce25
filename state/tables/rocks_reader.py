"""Looks into a task's database while its owner may be writing it, without touching a single file of it.

The files are linked (not copied) into a folder of our own, where the database is opened read-only. So no lock is
taken, nothing is written beside the owner's files (the client library writes a settings file at every opening), and all
files are held open from then on: what the owner deletes meanwhile stays readable. The owner may delete a file between
the moment we read the list of files and the moment we open them: then we look again.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rocksdict

from state.errors import StateCorruptedError, StateError
from state.stores.position import read_stores
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore
from state.tables.rocks import RocksTable
from state.tables.rocks_options import RocksSettings

# -1: all files are opened at once, and stay open.
_SETTINGS = RocksSettings(block_cache_bytes=32 * 1024 * 1024, write_buffer_bytes=1024 * 1024, max_open_files=-1)
_ATTEMPTS = 20
_PAUSE_S = 0.1


class RocksReader(RocksTable):
    """A table opened for reading only; any write is an error."""

    def _open(self, lock_timeout_s: float) -> Any:
        try:
            return rocksdict.Rdict(self.location, self._options, access_type=rocksdict.AccessType.read_only())
        except Exception as error:
            raise self._named(error, opening=True) from error


@contextmanager
def read_task_store(directory: Path, specs: Sequence[StoreSpec]) -> Iterator[TaskStore]:
    """Opens a task's stores as they are at this moment, for reading.

    Args:
        directory: the task's folder.
        specs: the stores; those that do not lie in the database (not persistent, or new) are left out of `specs` of
            what is given.

    Raises:
        StateError: there is no database, or it cannot be read.
    """
    source = directory / "db"
    if not (source / "CURRENT").exists():
        raise StateError(
            f"there is no store in {directory}; look at its changelog instead (--from-changelog), or check the state_dir"
        )
    with tempfile.TemporaryDirectory(prefix="streams-state-") as scratch:
        table = _open_linked(source, Path(scratch) / "db")
        try:
            known = read_stores(table)
            there = [
                spec
                for spec in specs
                if spec.persistent
                and (entry := known.get(spec.name)) is not None
                and (entry.kind, entry.segment_ms)
                == (spec.kind.value, spec.segment_width_ms if spec.kind.segmented else 0)
            ]
            yield TaskStore(table, there)
        finally:
            table.close()


def _open_linked(source: Path, folder: Path) -> RocksReader:
    for attempt in range(1, _ATTEMPTS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _link(source, folder)
            return RocksReader(folder, _SETTINGS)
        except (OSError, StateError) as error:
            if attempt == _ATTEMPTS:
                raise StateCorruptedError(str(source), str(error)) from error
        time.sleep(_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _link(source: Path, folder: Path) -> None:
    """Copies the list of files, then links the files: in this order the list names no file that is not there yet."""
    folder.mkdir()
    for path in [source / "CURRENT", *source.glob("MANIFEST-*")]:
        shutil.copy(path, folder / path.name)
    for path in source.glob("*.sst"):
        (folder / path.name).symlink_to(path)
