"""Arrow binary columns in compiled kernels: reading their cells, and appending cells to buffers that grow.

A kernel gets columns as tables of addresses and not as arrays, because numba counts references for each use of an array in a
tuple. Kernels append until a buffer is full and note what is missing; the caller enlarges the buffer and calls again.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa

from state.numba_kernels import as_pointer, call, carray, copy_bytes, kernel

# The counters of a kernel that appends to up to three columns, an int64 array: rows, bytes of the columns, nulls of the
# columns, and the column that had no room for the next row (-1 = none) with the bytes that the row needs there.
ROWS, BYTES, NULLS, FULL, NEEDED, COUNTERS = 0, 1, 4, 7, 8, 9
# One row of the table of columns to append to: addresses of the buffers, bytes of the data buffer.
ENDS, DATA, VALID, CAPACITY = range(4)

MEMCMP = ctypes.cast(ctypes.CDLL(None).memcmp, ctypes.c_void_p).value or 0
"""Address of C's `memcmp`."""


class ColumnBuffers:
    """Buffers of one Arrow binary column that kernels append to.

    Args:
        slots: Maximum number of cells.
        capacity: Maximum number of bytes; unused memory is never touched.
    """

    def __init__(self, slots: int, capacity: int) -> None:
        self._ends = np.zeros(slots + 1, np.int32)
        self._data = np.empty(capacity, np.uint8)
        self._valid = np.zeros((slots + 7) // 8, np.uint8)

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        """The column's row in a kernel's table: ends (int32), data, validity bitmap, capacity."""
        return (self._ends.ctypes.data, self._data.ctypes.data, self._valid.ctypes.data, len(self._data))

    @property
    def capacity(self) -> int:
        return len(self._data)

    def enlarge(self, slots: int, capacity: int) -> None:
        """Makes room for more; what was appended so far stays."""
        if slots >= len(self._ends):
            self._ends = _enlarged(self._ends, slots + 1)
            self._valid = _enlarged(self._valid, (slots + 7) // 8)
        if capacity > len(self._data):
            larger = np.empty(capacity, np.uint8)
            larger[: len(self._data)] = self._data
            self._data = larger

    def array(self, rows: int, used: int, nulls: int) -> pa.BinaryArray:
        """The first `rows` cells with `used` bytes, as an Arrow array."""
        bitmap = pa.py_buffer(self._valid[: (rows + 7) // 8]) if nulls else None
        buffers = [bitmap, pa.py_buffer(self._ends[: rows + 1]), pa.py_buffer(self._data[:used])]
        return pa.Array.from_buffers(pa.binary(), rows, buffers, int(nulls))


def _enlarged(array: Any, length: int) -> Any:
    larger = np.zeros(length, array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def has_room(columns: Any, counters: Any, which: int, size: int) -> bool:
    """Whether `size` more bytes fit into the column; otherwise the fact is noted in `counters`."""
    if counters[BYTES + which] + size <= columns[which, CAPACITY]:
        return True
    counters[FULL] = which
    counters[NEEDED] = size
    return False


@kernel
def add_cell(columns: Any, counters: Any, which: int, source: int, size: int) -> None:
    """Append one cell; a null pointer is a null."""
    if source != 0:
        copy_bytes(columns[which, DATA] + counters[BYTES + which], source, size)
        count_cell(columns, counters, which, size, True)
    else:
        count_cell(columns, counters, which, 0, False)


@kernel
def count_cell(columns: Any, counters: Any, which: int, size: int, is_valid: bool) -> None:
    """Note end and validity of a cell whose bytes are already copied."""
    row = counters[ROWS]
    counters[BYTES + which] += size
    carray(as_pointer(columns[which, ENDS] + 4 * (row + 1)), 1, np.int32)[0] = counters[BYTES + which]
    if is_valid:
        carray(as_pointer(columns[which, VALID] + (row >> 3)), 1, np.uint8)[0] |= 1 << (row & 7)
    else:
        counters[NULLS + which] += 1


@kernel
def cell(columns: Any, which: int, row: int, out: Any) -> None:
    """Put address and size of one cell into out[0:2]; 0, 0 = null. An empty cell has an address, since it is not null.

    A row of `columns` is `BinaryCells.addresses`.
    """
    out[0], out[1] = 0, 0
    if columns[which, ENDS] == 0:
        return
    valid = columns[which, VALID]
    if valid != 0 and carray(as_pointer(valid + row), 1, np.uint8)[0] == 0:
        return
    ends = carray(as_pointer(columns[which, ENDS] + 8 * row), 2, np.int64)
    out[0], out[1] = columns[which, DATA] + ends[0], ends[1] - ends[0]


@kernel
def byte_at(address: int) -> int:
    byte: int = carray(as_pointer(address), 1, np.uint8)[0]
    return byte


@kernel
def compare(memcmp: int, left: int, left_size: int, right: int, right_size: int) -> int:
    """Below, equal to or above 0 as the left bytes are below, equal to or above the right ones; `memcmp` is C's."""
    order = np.int64(np.int32(call(memcmp, (left, right, min(left_size, right_size)))))
    return order if order != 0 else left_size - right_size
