"""`open_table`: a table on disk through rocksdict, or through RocksDB's C API where that is asked for and can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa

from state.tables.native.library import native_available
from state.tables.rocks_options import DEFAULT_SETTINGS, RocksSettings
from state.tables.table import CheckpointedTable, Columns, OrderedTable


class DiskTable(OrderedTable, CheckpointedTable, Protocol):
    """A table in a folder."""

    def scan_part(self, lower: bytes, upper: bytes, rows: int, size: int) -> Columns:
        """The first rows of a range: some of them, no more than `rows`, with keys or values of about `size` bytes at most."""

    def write_unsafe(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        """A write of columns that a crash may lose, for scratch tables."""


def open_table(path: Path, settings: RocksSettings = DEFAULT_SETTINGS, read_only: bool = False) -> DiskTable:
    """The table in a folder. Both kinds write the same files, so a table may be opened by one kind after the other.

    Raises:
        StateLockedError: Another process has the database open and does not release it in time.
        StateCorruptedError: The database is damaged; delete the folder and restore.
    """
    # Only the kind that is used is imported, because each brings a RocksDB of its own into memory.
    if native_available():
        from state.tables.native.table import NativeTable

        return NativeTable(path, settings, read_only)
    from state.tables.rocks import RocksTable

    return RocksTable(path, settings, read_only)
