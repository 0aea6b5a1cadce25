"""Compiles (or loads from the disk cache) every kernel of this package before it is needed, by a small step in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state.tables.binary_columns import numbered, numbers_at, prefix_ends, sliced, sorted_rows
from state.tables.buffer import WriteBuffer
from state.tables.buffer_memory import BufferMemory
from state.tables.memory import MemoryTable
from state.tables.native.library import native_available


def warm_up() -> None:
    """Runs every kernel once; no database is opened, so that a process may fork afterwards."""
    # Enough rows for every way of sorting, some of them with equal keys.
    keys = pa.array([number.to_bytes(9, "big") for number in (*range(1000, 0, -1), 7, 7)], pa.binary())
    table = MemoryTable()
    table.write_columns(keys[:1], keys[:1])
    buffer = WriteBuffer(table, BufferMemory(), b"\x00")
    for _ in range(2):
        buffer.put_columns(keys, keys, np.zeros(len(keys), np.int64))
    buffer.get_columns(keys[:2])
    buffer.scan_ranges(keys[1:3], prefix_ends(keys[:2]))
    numbered(keys, sorted_rows(keys))
    numbers_at(sliced(keys, 1), 0)
    if native_available():
        from state.tables.native.warm_up import warm_up as warm_up_native

        warm_up_native()
