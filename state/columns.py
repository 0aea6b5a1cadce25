"""Records and bytes as Arrow columns: runs of records, header lists as cells, and access for compiled kernels.

Columns are used because a Python object for each record costs more than reading and processing the record.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct, pack
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.numba_kernels import allocating_kernel, as_pointer, call, carray, copy_bytes, kernel

BinaryColumn: TypeAlias = "pa.BinaryArray | pa.LargeBinaryArray"
"""Bytes or null for each row."""


@dataclass(frozen=True)
class RecordColumns:
    """A run of n >= 1 records of one topic-partition, in offset order.

    Attributes:
        offsets: int64[n], strictly rising, with gaps where Kafka has control records or compacted records.
        timestamps: int64[n], milliseconds since the epoch; -1 where a record has none.
        keys: binary[n], null = the record has no key.
        values: binary[n], null = tombstone.
        headers: binary[n] of encoded header lists (`encode_headers`), null = none; None = no record has any.
    """

    topic: str
    partition: int
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.BinaryArray | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def last_offset(self) -> int:
        return int(self.offsets[-1])

    @property
    def last_value(self) -> bytes | None:
        value: bytes | None = self.values[len(self.values) - 1].as_py()
        return value

    def key_list(self) -> list[bytes | None]:
        keys: list[bytes | None] = self.keys.to_pylist()
        return keys

    def cells(self) -> list[tuple[bytes | None, bytes | None]]:
        """The key and value of each record."""
        return list(zip(self.keys.to_pylist(), self.values.to_pylist(), strict=True))

    def take(self, rows: npt.NDArray[np.int64]) -> RecordColumns:
        """The records at these rows."""
        at = pa.array(rows)
        headers = None if self.headers is None else self.headers.take(at)
        numbers = (self.offsets[rows], self.timestamps[rows])
        return RecordColumns(self.topic, self.partition, *numbers, self.keys.take(at), self.values.take(at), headers)

    def part(self, first: int, last: int) -> RecordColumns:
        """The records [first, last) by their number, as a view."""
        headers = None if self.headers is None else self.headers[first:last]
        numbers = (self.offsets[first:last], self.timestamps[first:last])
        return RecordColumns(
            self.topic, self.partition, *numbers, self.keys[first:last], self.values[first:last], headers
        )


FEW_ROWS = 8
"""Up to this many rows, working on objects one by one costs less than the calls for a column."""
FEW_CELLS = 100
"""Up to this many cells, cutting and joining `bytes` costs less than compiled code, whose calls cost the same for any number."""


_BINARY = pa.binary()


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """Makes a column of these values. From 2 GiB on it has 64-bit offsets, where Arrow would otherwise split it into chunks."""
    if len(values) <= FEW_CELLS and (found := _few_cells(values)) is not None:
        return found
    return one_piece(pa.array(values, _BINARY))


def _few_cells(values: Sequence[bytes | None]) -> pa.BinaryArray | None:
    """Makes a column of a few values faster than Arrow's own function does; None if that one is needed."""
    nulls = values.count(None)
    cells = [cell or b"" for cell in values] if nulls else values
    try:
        data, ends = b"".join(cells), [0, *accumulate(map(len, cells))]  # type: ignore[arg-type]
    except TypeError:
        return None  # a serde has returned something other than bytes
    if ends[-1] != len(data) or ends[-1] >= 2**31:
        return None
    valid = None
    if nulls:
        bits = sum(1 << row for row, cell in enumerate(values) if cell is not None)
        valid = pa.py_buffer(bits.to_bytes((len(values) + 7) // 8, "little"))
    buffers = [valid, pa.py_buffer(pack(f"{len(ends)}i", *ends)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(_BINARY, len(values), buffers, nulls)


def column_of(cells: Sequence[bytes], rows: npt.NDArray[Any]) -> BinaryColumn:
    """The column of the cells at these rows."""
    if len(rows) <= FEW_CELLS:
        return binary_column([cells[row] for row in rows.tolist()])
    return binary_column(cells).take(number_column(rows))


def cells_of(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Makes a column of these cells, of at most 2 GiB. `pa.array` would import pandas, to check whether it was given pandas."""
    sizes = np.fromiter((len(value) if value else 0 for value in values), np.int64, len(values))
    bounds = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    is_valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    valid = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    data = b"".join(filter(None, values))
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [valid, pa.py_buffer(bounds), pa.py_buffer(data)])


def one_piece(column: pa.BinaryArray | pa.ChunkedArray) -> BinaryColumn:
    """The column as a single array, whether Arrow returned one array or several chunks."""
    return column.cast(pa.large_binary()).combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def one_column(columns: Sequence[BinaryColumn]) -> BinaryColumn:
    """Joins columns, one after the other. The result has 64-bit offsets if one of them has, or if their sum needs them."""
    if any(pa.types.is_large_binary(column.type) for column in columns) or sum(one.nbytes for one in columns) >= 2**31:
        columns = [column.cast(pa.large_binary()) for column in columns]
    return pa.concat_arrays(columns)


_NARROW, _WIDE = np.dtype(np.int32), np.dtype(np.int64)
_NO_BYTES = np.zeros(1, np.uint8)


_NUMBERS = {_NARROW: pa.int32(), _WIDE: pa.int64(), np.dtype(np.float64): pa.float64()}


def number_column(numbers: npt.NDArray[Any]) -> pa.Array:
    """Makes a column of int32, int64 or float64 numbers without a copy, in a quarter of the time of `pa.array`."""
    numbers = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(_NUMBERS[numbers.dtype], len(numbers), [None, pa.py_buffer(numbers)])


def cell_bounds(column: BinaryColumn) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    """The position in the column's data where each of the n >= 1 cells begins, and where the last one ends, [n + 1]; a view."""
    width = _WIDE if isinstance(column, pa.LargeBinaryArray) else _NARROW
    bounds: npt.NDArray[Any] = np.frombuffer(
        column.buffers()[1], width, len(column) + 1, column.offset * width.itemsize
    )
    return bounds


def data_and_bounds(column: BinaryColumn) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
    """The bytes of all cells, uint8, and the positions where each begins and the last one ends, uint64[n + 1], for kernels.

    Positions are unsigned: for signed ones numba checks for negative indices at every byte. The bytes are always read-only,
    because that is part of the type, and numba compiles a kernel for each type.
    """
    data = column.buffers()[2]
    cells = np.frombuffer(data if data and data.size else b"\0", np.uint8)
    cells.flags.writeable = False
    if not len(column):
        return cells, np.zeros(1, np.uint64)
    return cells, cell_bounds(column).astype(np.uint64)


def cell_sizes(column: BinaryColumn, null: int = 0) -> npt.NDArray[np.int64]:
    """The size of each cell, bytes, and `null` for null. For few rows, Arrow's own function alone costs more than all of this."""
    if not len(column):
        return np.empty(0, np.int64)
    bounds = cell_bounds(column)
    sizes = (bounds[1:] - bounds[:-1]).astype(np.int64)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = null
    return sizes


class BinaryCells:
    """Addresses of an Arrow binary column's buffers, for compiled kernels. It holds references to the buffers.

    Args:
        column: The column; None = all null.

    Attributes:
        addresses: The addresses of the ends (int64[n + 1], relative to the data), of the data, and of the validity (uint8[n],
            0 = null; address 0 = no nulls). All 0 = every cell is null.
    """

    def __init__(self, column: BinaryColumn | pa.NullArray | None) -> None:
        self.addresses = (0, 0, 0)
        if column is None or (nulls := column.null_count) == (count := len(column)):
            return
        # The buffers belong to the column.
        self._column = column
        _, bounds, data = column.buffers()
        offset, width = column.offset, _WIDE if isinstance(column, pa.LargeBinaryArray) else _NARROW
        self._ends = np.frombuffer(bounds, width, count + 1, offset * width.itemsize)
        if width is _NARROW:
            self._ends = self._ends.astype(_WIDE)
        # There is an address even if there are no bytes at all, because for librdkafka address 0 means null, not empty.
        start = data.address if data is not None and data.size else address_of(_NO_BYTES)
        validity = 0
        if nulls:
            self._valid = np.ascontiguousarray(column.is_valid(), np.uint8)
            validity = address_of(self._valid)
        self.addresses = (address_of(self._ends), start, validity)


def valid_rows(column: pa.Array) -> npt.NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def dictionary_of(column: BinaryColumn) -> pa.DictionaryArray:
    """Encodes the column as a dictionary: each distinct cell once, and a code for each row."""
    if len(column) > FEW_CELLS or column.null_count:
        return column.dictionary_encode()
    cells = column.to_pylist()
    numbers = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
    codes = np.array(list(map(numbers.__getitem__, cells)), np.int32)
    return pa.DictionaryArray.from_arrays(number_column(codes), binary_column(list(numbers)))


def codes_in(keys: pa.DictionaryArray, null: int) -> npt.NDArray[np.int32]:
    """The code of each row, and `null` for null."""
    codes = keys.indices if not keys.indices.null_count else keys.indices.fill_null(null)
    found: npt.NDArray[np.int32] = codes.to_numpy()
    return found


def rows_where(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The rows at which a mask is true, as by `np.flatnonzero`, which makes eight times as many calls."""
    return mask.nonzero()[0]


def address_of(array: npt.NDArray[Any]) -> int:
    """The address of an array's data. `ndarray.ctypes` makes several objects to find it."""
    address: int = array.__array_interface__["data"][0]
    return address


# --- Arrow binary columns in compiled kernels: reading their cells, and appending cells to buffers that grow.
#
# A kernel gets columns as tables of addresses and not as arrays, because numba counts references for each use of an array in a
# tuple. Kernels append until a buffer is full and note what is missing; the caller enlarges the buffer and calls again.

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
        return (address_of(self._ends), address_of(self._data), address_of(self._valid), len(self._data))

    @property
    def capacity(self) -> int:
        return len(self._data)

    def enlarge(self, slots: int, capacity: int) -> None:
        """Makes room for more. What was appended so far stays."""
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
    """Whether `size` more bytes fit into the column. If not, `counters` notes the column and the size."""
    if counters[BYTES + which] + size <= columns[which, CAPACITY]:
        return True
    counters[FULL] = which
    counters[NEEDED] = size
    return False


@allocating_kernel
def add_cell(columns: Any, counters: Any, which: int, source: int, size: int) -> None:
    """Appends one cell; a null pointer is a null."""
    if source != 0:
        copy_bytes(columns[which, DATA] + counters[BYTES + which], source, size)
        count_cell(columns, counters, which, size, True)
    else:
        count_cell(columns, counters, which, 0, False)


@allocating_kernel
def count_cell(columns: Any, counters: Any, which: int, size: int, is_valid: bool) -> None:
    """Notes the end and the validity of a cell whose bytes are already copied."""
    row = counters[ROWS]
    counters[BYTES + which] += size
    carray(as_pointer(columns[which, ENDS] + 4 * (row + 1)), 1, np.int32)[0] = counters[BYTES + which]
    if is_valid:
        carray(as_pointer(columns[which, VALID] + (row >> 3)), 1, np.uint8)[0] |= 1 << (row & 7)
    else:
        counters[NULLS + which] += 1


@allocating_kernel
def cell(columns: Any, which: int, row: int, out: Any) -> None:
    """Puts into out[0:2] the address and size of one cell; 0, 0 = null. An empty cell has an address, since it is not null.

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


@allocating_kernel
def byte_at(address: int) -> int:
    byte: int = carray(as_pointer(address), 1, np.uint8)[0]
    return byte


@kernel
def compare(memcmp: int, left: int, left_size: int, right: int, right_size: int) -> int:
    """Returns a number below, equal to or above 0 if the left bytes are below, equal to or above the right ones."""
    order = np.int64(np.int32(call(memcmp, (left, right, min(left_size, right_size)))))
    return order if order != 0 else left_size - right_size


# --- Binary columns taken apart and put together: parts of cells, big-endian numbers in cells, cells joined row by row.

Int64s = npt.NDArray[np.int64]


def constant(data: bytes) -> pa.BinaryScalar:
    """Makes a constant for a module. `pa.scalar` would import pandas, which takes half a second at each start."""
    bounds = np.array([0, len(data)], np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])[0]


NOTHING = constant(b"")


def packed(numbers: Int64s) -> pa.BinaryArray:
    """A column with each number as 8 bytes, big endian."""
    bounds = np.arange(len(numbers) + 1, dtype=np.int32) * 8
    data = numbers.astype(">i8").tobytes()
    return pa.BinaryArray.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def long_cells(*numbers: Int64s) -> Iterator[bytes]:
    """Yields the numbers of each row one after the other, each as 8 bytes, big endian."""
    return map(Struct(f">{len(numbers)}q").pack, *(column.tolist() for column in numbers))


def joined(*parts: Any) -> pa.BinaryArray:
    """Joins columns (or constants) row by row. A row is null if any part of it is."""
    return pc.binary_join_element_wise(*parts, NOTHING)


def numbers_at(column: pa.BinaryArray, place: int) -> Int64s:
    """The 8-byte number in each cell that begins at `place`, counted from the end if negative.

    Raises:
        ValueError: A cell is null or too short; the kernel would read memory outside the cell.
    """
    if len(column):
        _check_sizes(column, place + 8 if place >= 0 else -place, column.null_count)
    cells = BinaryCells(column)
    numbers: Int64s = _numbers_at(np.array([cells.addresses], np.int64), len(column), place)
    return numbers


def sliced(column: pa.BinaryArray, front: int, back: int = 0) -> pa.BinaryArray:
    """The cells without their first `front` and last `back` bytes. A null stays null.

    Raises:
        ValueError: A cell has fewer bytes than are left out; the kernel would write beyond its buffers.
    """
    if front + back:
        _check_sizes(column, front + back)
    if len(column) <= FEW_CELLS:
        cells = column.to_pylist()
        part = slice(front, -back or None)
        return binary_column([cell if cell is None else cell[part] for cell in cells])
    addresses, buffers = BinaryCells(column), ColumnBuffers(len(column), data_bytes(column))
    counters = np.zeros(COUNTERS, np.int64)
    table = np.array([(*addresses.addresses, 0), buffers.addresses], np.int64)
    _slice_cells(table[:1], len(column), front, back, table[1:], counters)
    return buffers.array(len(column), int(counters[BYTES]), int(counters[NULLS]))


def _check_sizes(column: pa.BinaryArray, needed: int, nulls: int = 0) -> None:
    shortest = 0 if nulls else pc.min(pc.binary_length(column)).as_py()
    if shortest is not None and shortest < needed:
        raise ValueError(
            f"a cell of {shortest} bytes where each needs {needed}: these rows are not in the format of their store"
        )


def replaced(column: BinaryColumn, rows: Int64s, cells: BinaryColumn) -> BinaryColumn:
    """The column with other cells in these rising rows. It has 64-bit offsets if one part has them, or if they may be needed."""
    if any(pa.types.is_large_binary(one.type) for one in (column, cells)) or column.nbytes + cells.nbytes >= 2**31:
        column, cells = column.cast(pa.large_binary()), cells.cast(pa.large_binary())
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), cells)


def prefix_ends(column: pa.BinaryArray) -> pa.BinaryArray:
    """For each cell, the smallest bytes that are above everything that starts with it. No cell may be all 0xff."""
    cells, buffers = BinaryCells(column), ColumnBuffers(len(column), data_bytes(column))
    counters = np.zeros(COUNTERS, np.int64)
    table = np.array([(*cells.addresses, 0), buffers.addresses], np.int64)
    _end_cells(table[:1], len(column), table[1:], counters)
    return buffers.array(len(column), int(counters[BYTES]), 0)


def data_bytes(column: pa.BinaryArray) -> int:
    if not len(column):
        return 0
    ends = np.frombuffer(column.buffers()[1], np.int32)
    return int(ends[column.offset + len(column)] - ends[column.offset])


@allocating_kernel
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


@allocating_kernel
def _slice_cells(columns: Any, count: int, front: int, back: int, target: Any, counters: Any) -> None:
    where = np.zeros(2, np.int64)
    for row in range(count):
        cell(columns, 0, row, where)
        if where[0] == 0:
            add_cell(target, counters, 0, 0, 0)
        else:
            add_cell(target, counters, 0, where[0] + front, where[1] - front - back)
        counters[ROWS] += 1


@allocating_kernel
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
