"""Looks into a task's database while its owner may be writing it, without touching a single file of it.

The files are linked (not copied) into a folder of our own, where the database is opened read-only. So no lock is
taken, nothing is written beside the owner's files (the client library writes a settings file at every opening), and all
files are held open from then on: what the owner deletes meanwhile stays readable. The owner may delete a file between
the moment we read the list of files and the moment we open them: then we look again.
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
    """Opens a task's stores as they are at this moment, for reading.

    Args:
        directory: The task's folder.
        specs: The stores; those that do not lie in the database (not persistent, or new) are left out of `specs` of
            what is given.

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
