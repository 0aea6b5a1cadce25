"""Binary columns taken apart and put together: parts of cells, big-endian numbers in cells, cells joined row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.column_kernels import BYTES, COUNTERS, DATA, MEMCMP, NULLS, ROWS, ColumnBuffers, add_cell, byte_at, cell
from state.kafka.columns import BinaryCells, BinaryColumn
from state.numba_kernels import as_pointer, carray, kernel
from state.tables import block_kernels

Int64s = npt.NDArray[np.int64]


def constant(data: bytes) -> pa.BinaryScalar:
    """A constant for a module: `pa.scalar` would import pandas, which takes half a second of each start."""
    bounds = np.array([0, len(data)], np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])[0]


NOTHING = constant(b"")


def packed(numbers: Int64s) -> pa.BinaryArray:
    """Each number as 8 bytes, big endian."""
    bounds = np.arange(len(numbers) + 1, dtype=np.int32) * 8
    data = numbers.astype(">i8").tobytes()
    return pa.BinaryArray.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def joined(*parts: Any) -> pa.BinaryArray:
    """Columns (or constants) joined row by row; null where any part is null."""
    return pc.binary_join_element_wise(*parts, NOTHING)


def numbers_at(column: pa.BinaryArray, place: int) -> Int64s:
    """The 8-byte number in each cell that begins at `place`, counted from the end if negative; the cells must be long enough."""
    cells = BinaryCells(column)
    numbers: Int64s = _numbers_at(np.array([cells.addresses], np.int64), len(column), place)
    return numbers


def sliced(column: pa.BinaryArray, front: int, back: int = 0) -> pa.BinaryArray:
    """The cells without their first and last bytes, of which each must have that many; null where the column is null."""
    cells, buffers = BinaryCells(column), ColumnBuffers(len(column), _bytes(column))
    counters = np.zeros(COUNTERS, np.int64)
    table = np.array([(*cells.addresses, 0), buffers.addresses], np.int64)
    _slice_cells(table[:1], len(column), front, back, table[1:], counters)
    return buffers.array(len(column), int(counters[BYTES]), int(counters[NULLS]))


def replaced(column: BinaryColumn, rows: Int64s, cells: BinaryColumn) -> BinaryColumn:
    """The column with other cells in some rows, which rise; with 64-bit offsets where these are or may be needed."""
    if any(pa.types.is_large_binary(one.type) for one in (column, cells)) or column.nbytes + cells.nbytes >= 2**31:
        column, cells = column.cast(pa.large_binary()), cells.cast(pa.large_binary())
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), cells)


def prefix_ends(column: pa.BinaryArray) -> pa.BinaryArray:
    """For each cell the smallest bytes above all that start with it; no cell may be all 0xff."""
    cells, buffers = BinaryCells(column), ColumnBuffers(len(column), _bytes(column))
    counters = np.zeros(COUNTERS, np.int64)
    table = np.array([(*cells.addresses, 0), buffers.addresses], np.int64)
    _end_cells(table[:1], len(column), table[1:], counters)
    return buffers.array(len(column), int(counters[BYTES]), 0)


def sorted_rows(column: pa.BinaryArray) -> Int64s:
    """The order of the rows by the bytes of their cells, none null; rows of equal cells stay in their order."""
    cells = BinaryCells(column)
    order: Int64s = block_kernels.sort_rows(cells.addresses, len(column), MEMCMP)
    return order


def is_identity(order: Int64s) -> bool:
    """Whether an order leaves every row in its place."""
    return bool((order == np.arange(len(order))).all())


def inverse(order: Int64s) -> Int64s:
    """For each row its place in an order."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


def last_of_each(column: pa.BinaryArray) -> Int64s:
    """The last row of each distinct cell, in the order of the cells."""
    cells = BinaryCells(column)
    order = block_kernels.sort_rows(cells.addresses, len(column), MEMCMP)
    rows: Int64s = block_kernels.distinct(cells.addresses, order, MEMCMP)[0]
    return rows


def numbered(column: pa.BinaryArray, order: Int64s) -> tuple[Int64s, Int64s]:
    """For each row the number of its cell among the distinct ones, in their order, and how many equal cells are in front of it."""
    cells = BinaryCells(column)
    numbers, repeats = block_kernels.numbered(cells.addresses, order, MEMCMP)
    return numbers, repeats


def _bytes(column: pa.BinaryArray) -> int:
    if not len(column):
        return 0
    ends = np.frombuffer(column.buffers()[1], np.int32)
    return int(ends[column.offset + len(column)] - ends[column.offset])


@kernel
def _numbers_at(columns: Any, count: int, place: int) -> Any:
    numbers = np.empty(count, np.int64)
    where = np.zeros(2, np.int64)
    for row in range(count):
        cell(columns, 0, row, where)
        start = where[0] + place if place >= 0 else where[0] + where[1] + place
        number = np.int64(0)
        for index in range(8):
            number = number << 8 | byte_at(start + index)
        numbers[row] = number
    return numbers


@kernel
def _slice_cells(columns: Any, count: int, front: int, back: int, target: Any, counters: Any) -> None:
    where = np.zeros(2, np.int64)
    for row in range(count):
        cell(columns, 0, row, where)
        if where[0] == 0:
            add_cell(target, counters, 0, 0, 0)
        else:
            add_cell(target, counters, 0, where[0] + front, where[1] - front - back)
        counters[ROWS] += 1


@kernel
def _end_cells(columns: Any, count: int, target: Any, counters: Any) -> None:
    where = np.zeros(2, np.int64)
    for row in range(count):
        cell(columns, 0, row, where)
        size = where[1]
        while byte_at(where[0] + size - 1) == 0xFF:
            size -= 1
        add_cell(target, counters, 0, where[0], size)
        counters[ROWS] += 1
        last = target[0, DATA] + counters[BYTES] - 1
        carray(as_pointer(last), 1, np.uint8)[0] += 1
