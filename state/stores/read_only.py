"""Reads a task's database while its owner may be writing it, without touching any of the owner's files.

The files are linked (not copied) into a private folder, where the database is opened read-only. No lock is taken, nothing
is written beside the owner's files (the client library writes a settings file at every opening), and all files stay open
from then on: a file that the owner deletes meanwhile remains readable. If the owner deletes a file between the reading of the
file list and the linking of the files, both are repeated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from state.errors import StateError
from state.stores.position import read_stores
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore
from state.tables.rocks_reader import open_linked


@contextmanager
def read_task_store(directory: Path, specs: Sequence[StoreSpec]) -> Iterator[TaskStore]:
    """Opens a task's stores as of now, for reading.

    Raises:
        StateError: There is no database, or it cannot be read.
    """
    source = directory / "db"
    if not (source / "CURRENT").exists():
        raise StateError(
            f"there is no store in {directory}; look at its changelog instead (--from-changelog), or check the state_dir"
        )
    with tempfile.TemporaryDirectory(prefix="streams-state-") as scratch:
        table = open_linked(source, Path(scratch) / "db")
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
