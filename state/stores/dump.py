"""Reads whole stores, even of a running task, for `streams state` and to compare two stores byte for byte."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from state.errors import StateError
from state.stores.byte_stores import BOUNDED, VALUE
from state.stores.codec import split_session_key, split_timestamped, split_window_key
from state.stores.position import read_stores
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.open_tables import open_linked


class DumpRow(NamedTuple):
    """One row of a store.

    Attributes:
        key: Key bytes.
        window_start: Start of the window or session, ms; None in other kinds.
        window_end: Last timestamp of a session, ms; None in other kinds (a window's end follows from its definition).
        timestamp: Of the value, ms, in timestamped and versioned kinds.
        value: Bare value; None = a deletion in the history of a versioned store.
    """

    key: bytes
    window_start: int | None
    window_end: int | None
    timestamp: int | None
    value: bytes | None


def dump(store: TaskStore, name: str) -> Iterator[DumpRow]:
    """The committed rows of a store in the order of their local keys."""
    kind = store.specs[name].kind
    for key, value in store.rows(name):
        yield _row(kind, key, value)


def state_digest(store: TaskStore, name: str) -> str:
    """32 hex digits over all committed rows; equal digests mean stores that are equal byte for byte.

    The store's id in its table and the width of its segments are not included, only Kafka Streams' key bytes and local
    values.
    """
    digest = hashlib.blake2b(digest_size=16)
    for key, value in sorted(store.rows(name)) if store.specs[name].kind.segmented else store.rows(name):
        digest.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
    return digest.hexdigest()


def _row(kind: StoreKind, key: bytes, value: bytes) -> DumpRow:
    timestamp: int | None = None
    bare: bytes | None = value
    if kind.timestamped:
        bare, timestamp = split_timestamped(value)
    if kind.windowed:
        bare_key, start, _ = split_window_key(key)
        return DumpRow(bare_key, start, None, timestamp, bare)
    if kind is StoreKind.SESSION:
        bare_key, end, start = split_session_key(key)
        return DumpRow(bare_key, start, end, None, value)
    if kind is StoreKind.VERSIONED:
        version = int.from_bytes(key[-8:], "big")
        return DumpRow(key[:-8], None, None, version, value[1:] if value[:1] in (VALUE, BOUNDED) else None)
    return DumpRow(key, None, None, timestamp, bare)


# --- Reads a task's database while its owner may be writing it, without touching any of the owner's files.
#
# The files are linked (not copied) into a private folder, where the database is opened read-only. No lock is taken, nothing
# is written next to the owner's files (the client library writes a settings file at every opening), and all files stay open
# from then on: a file that the owner deletes later remains readable. If the owner deletes a file after the file list was read and
# before the file is linked, both are repeated.


@contextmanager
def read_task_store(directory: Path, specs: Sequence[StoreSpec]) -> Iterator[TaskStore]:
    """Opens a task's stores as of now, for reading."""
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
