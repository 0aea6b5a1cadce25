"""Compiled kernels that call RocksDB: look-ups and scans into Arrow buffers, write batches and files from Arrow columns.

A kernel gets the addresses of RocksDB's functions in the order of `FUNCTIONS`. Kernels that append to buffers stop where the next
row does not fit, and continue there when they are called again. A RocksDB function that fails stores the address of an error's
text, which the caller frees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from state.columns import BYTES, DATA, ENDS, FULL, ROWS, add_cell, cell, compare, has_room
from state.numba_kernels import allocating_kernel, as_pointer, call, carray, copy_bytes, kernel

FUNCTIONS = (
    "batched_multi_get_cf",
    "free",
    "pinnableslice_value",
    "pinnableslice_destroy",
    "iter_valid",
    "iter_seek",
    "iter_next",
    "iter_key",
    "iter_value",
    "iter_get_error",
    "sstfilewriter_put",
    "sstfilewriter_delete",
)
_MULTI_GET, _FREE, _PINNED, _UNPIN, _VALID, _SEEK, _NEXT, _KEY, _VALUE, _STATUS, _FILE_PUT, _FILE_DELETE = range(
    len(FUNCTIONS)
)
MEMCMP = len(FUNCTIONS)
"""Place of C's `memcmp`, after RocksDB's functions."""

# Keys of one look-up: RocksDB shares the work on a filter and on a block among neighbours, and holds the blocks until all are read.
_BATCH = 128
# What a look-up gets and returns for each key: address and size of the key, the pinned value, the address of an error's text.
_KEY_AT, _KEY_SIZE, _PINNED_AT, _ERROR_AT, _BATCH_WORDS = range(5)
_IS_SORTED = 1
KEYS, VALUES = 0, 1
LOWER, UPPER = 0, 1
SLOTS = 2
"""The value of `counters[FULL]` if there are too many rows, not too many bytes."""
# The state of `scan_ranges` between calls: the next range; whether the cursor is positioned; and which of the ranges read so far
# reaches the farthest key: its number, and its first and last row in the buffers.
RANGE, PLACED, FAR, FAR_FIRST, FAR_LAST, SCAN_STATE = range(6)
# How many times the cursor moves forward by one row before it is repositioned.
_STEPS = 3
# First bytes of an entry in a write batch.
_DELETION, _PUT = 0, 1


@allocating_kernel
def get_cells(
    database: int,
    family: int,
    options: int,
    functions: Any,
    keys: Any,
    count: int,
    columns: Any,
    counters: Any,
    error: Any,
) -> None:
    """Append the values of sorted keys from row `counters[ROWS]` on; null where a key has none."""
    counters[FULL] = -1
    batch, scratch = np.zeros((_BATCH_WORDS, _BATCH), np.int64), np.zeros(2, np.int64)
    start, line = np.int64(batch.ctypes.data), 8 * _BATCH
    while counters[ROWS] < count and counters[FULL] < 0 and error[0] == 0:
        size = np.int64(min(_BATCH, count - counters[ROWS]))
        for i in range(size):
            cell(keys, 0, counters[ROWS] + i, scratch)
            batch[_KEY_AT, i], batch[_KEY_SIZE, i] = scratch[0], scratch[1]
        call(
            functions[_MULTI_GET],
            (
                database,
                options,
                family,
                size,
                start + line * _KEY_AT,
                start + line * _KEY_SIZE,
                start + line * _PINNED_AT,
                start + line * _ERROR_AT,
                np.int64(_IS_SORTED),
            ),
        )
        append_values(functions, batch, size, columns, counters, error)


@allocating_kernel
def append_values(functions: Any, batch: Any, size: int, columns: Any, counters: Any, error: Any) -> None:
    """Append the values that RocksDB has found, up to the first one without room or the first error, and release all of them."""
    scratch = np.zeros(1, np.int64)
    for i in range(size):
        pinned, failure, value = batch[_PINNED_AT, i], batch[_ERROR_AT, i], np.int64(0)
        if failure != 0:
            if error[0] == 0:
                error[0] = failure
            else:
                call(functions[_FREE], (failure,))
        scratch[0] = 0
        if pinned != 0:
            value = call(functions[_PINNED], (pinned, np.int64(scratch.ctypes.data)))
        if error[0] == 0 and counters[FULL] < 0 and has_room(columns, counters, 0, scratch[0]):
            add_cell(columns, counters, 0, value, scratch[0])
            counters[ROWS] += 1
        if pinned != 0:
            call(functions[_UNPIN], (pinned,))


@allocating_kernel
def scan_ranges(
    iterator: int, functions: Any, bounds: Any, ranges: Any, columns: Any, counters: Any, state: Any, error: Any
) -> None:
    """Append the rows of the ranges from `state[RANGE]` on, in one pass if the ranges are sorted by their lower ends.

    The next call starts again with a range that did not fit.
    """
    counters[FULL] = -1
    ends, scratch = np.zeros(4, np.int64), np.zeros(4, np.int64)
    low, high = ends[:2], ends[2:]
    while state[RANGE] < state[SCAN_STATE]:
        cell(bounds, LOWER, state[RANGE], low)
        cell(bounds, UPPER, state[RANGE], high)
        rows, key_bytes, value_bytes = counters[ROWS], counters[BYTES + KEYS], counters[BYTES + VALUES]
        if is_below(functions, low, high):
            fits = read_range(iterator, functions, bounds, low, high, columns, counters, len(ranges), state, scratch)
            if not fits:
                counters[ROWS], counters[BYTES + KEYS], counters[BYTES + VALUES] = rows, key_bytes, value_bytes
                state[PLACED] = 0
                return
            if not is_valid(functions, iterator) and failed(functions, iterator, error):
                return
        for row in range(rows, counters[ROWS]):
            ranges[row] = state[RANGE]
        state[RANGE] += 1


@allocating_kernel
def scan_part(iterator: int, functions: Any, bounds: Any, slots: int, columns: Any, counters: Any, error: Any) -> None:
    """Append the first rows of one range, as many as fit; the arguments are as for `scan_ranges`."""
    counters[FULL] = -1
    ends, state = np.zeros(8, np.int64), np.zeros(SCAN_STATE, np.int64)
    low, high = ends[:2], ends[2:4]
    cell(bounds, LOWER, 0, low)
    cell(bounds, UPPER, 0, high)
    if is_below(functions, low, high):
        read_range(iterator, functions, bounds, low, high, columns, counters, slots, state, ends[4:])
        if not is_valid(functions, iterator):
            failed(functions, iterator, error)


@allocating_kernel
def read_range(
    iterator: int, functions: Any, bounds: Any, low: Any, high: Any, columns: Any, counters: Any, slots: int,
    state: Any, scratch: Any,
) -> bool:  # fmt: skip
    """Append the rows with low <= key < high; False = they do not fit."""
    first = counters[ROWS]
    if state[PLACED] != 0:
        cell(bounds, LOWER, state[FAR], scratch)
    if state[PLACED] == 0 or is_below(functions, low, scratch[:2]):
        call(functions[_SEEK], (iterator, low[0], low[1]))
    else:
        # Rows that an earlier range has read are in the buffers, and the cursor is behind them.
        copied = copy_read(functions, low, high, columns, counters, slots, state, scratch)
        if copied <= 0:
            return bool(copied == 0)
        move_up_to(iterator, functions, low, scratch)
    while is_valid(functions, iterator):
        scratch[0] = call(functions[_KEY], (iterator, np.int64(scratch.ctypes.data) + 8))
        if not is_below(functions, scratch[:2], high):
            break
        scratch[2] = call(functions[_VALUE], (iterator, np.int64(scratch.ctypes.data) + 24))
        if not add_row(columns, counters, slots, scratch):
            return False
        call(functions[_NEXT], (iterator,))
    state[PLACED], state[FAR], state[FAR_FIRST], state[FAR_LAST] = 1, state[RANGE], first, counters[ROWS]
    return True


@allocating_kernel
def copy_read(
    functions: Any, low: Any, high: Any, columns: Any, counters: Any, slots: int, state: Any, scratch: Any
) -> int:
    """Append the rows of [low, high) that are in the buffers: 1 = continue reading; 0 = the range is complete; -1 = no room."""
    row = state[FAR_LAST]
    while row > state[FAR_FIRST]:
        buffered(columns, KEYS, row - 1, scratch)
        if is_below(functions, scratch[:2], low):
            break
        row -= 1
    while row < state[FAR_LAST]:
        buffered(columns, VALUES, row, scratch)
        scratch[2], scratch[3] = scratch[0], scratch[1]
        buffered(columns, KEYS, row, scratch)
        if not is_below(functions, scratch[:2], high):
            return 0
        if not add_row(columns, counters, slots, scratch):
            return -1
        row += 1
    return 1


@kernel
def move_up_to(iterator: int, functions: Any, low: Any, scratch: Any) -> None:
    """Move the cursor forward to the first row that is not below `low`."""
    for _ in range(_STEPS):
        if not is_valid(functions, iterator):
            return
        scratch[0] = call(functions[_KEY], (iterator, np.int64(scratch.ctypes.data) + 8))
        if not is_below(functions, scratch[:2], low):
            return
        call(functions[_NEXT], (iterator,))
    call(functions[_SEEK], (iterator, low[0], low[1]))


@allocating_kernel
def add_row(columns: Any, counters: Any, slots: int, row: Any) -> bool:
    """Append a key and its value, with addresses and sizes in row[0:4]; False = no room."""
    if counters[ROWS] >= slots:
        counters[FULL] = SLOTS
        return False
    if not (has_room(columns, counters, KEYS, row[1]) and has_room(columns, counters, VALUES, row[3])):
        return False
    add_cell(columns, counters, KEYS, row[0], row[1])
    add_cell(columns, counters, VALUES, row[2], row[3])
    counters[ROWS] += 1
    return True


@allocating_kernel
def buffered(columns: Any, which: int, row: int, out: Any) -> None:
    """Put into out[0:2] the address and size of a cell that was appended."""
    ends = carray(as_pointer(columns[which, ENDS] + 4 * row), 2, np.int32)
    out[0], out[1] = columns[which, DATA] + ends[0], ends[1] - ends[0]


@kernel
def is_below(functions: Any, left: Any, right: Any) -> bool:
    """Whether the left bytes (address, size) are below the right ones."""
    below: bool = compare(functions[MEMCMP], left[0], left[1], right[0], right[1]) < 0
    return below


@kernel
def is_valid(functions: Any, iterator: int) -> bool:
    """Whether the iterator is at a row."""
    valid: bool = (call(functions[_VALID], (iterator,)) & 0xFF) != 0
    return valid


@kernel
def failed(functions: Any, iterator: int, error: Any) -> bool:
    """Whether the iterator is at its end because of an error, whose text goes into error[0]."""
    call(functions[_STATUS], (iterator, np.int64(error.ctypes.data)))
    bad: bool = error[0] != 0
    return bad


@allocating_kernel
def batch_bytes(columns: Any, count: int) -> int:
    """Bytes of the entries of a write batch with these keys and values."""
    scratch = np.zeros(2, np.int64)
    size = 0
    for row in range(count):
        cell(columns, KEYS, row, scratch)
        size += 1 + varint_bytes(scratch[1]) + scratch[1]
        cell(columns, VALUES, row, scratch)
        if scratch[0] != 0:
            size += varint_bytes(scratch[1]) + scratch[1]
    return size


@allocating_kernel
def fill_batch(columns: Any, count: int, target: int) -> None:
    """Write the entries of a write batch, in RocksDB's own format: kind(1) ∥ key, for a put ∥ value, each after its length."""
    scratch = np.zeros(4, np.int64)
    for row in range(count):
        cell(columns, KEYS, row, scratch)
        cell(columns, VALUES, row, scratch[2:])
        carray(as_pointer(target), 1, np.uint8)[0] = _PUT if scratch[2] != 0 else _DELETION
        target = put_bytes(target + 1, scratch[0], scratch[1])
        if scratch[2] != 0:
            target = put_bytes(target, scratch[2], scratch[3])


@allocating_kernel
def put_bytes(target: int, source: int, size: int) -> int:
    """Write a length as a varint and the bytes; returns the address after them."""
    rest = size
    while rest >= 0x80:
        carray(as_pointer(target), 1, np.uint8)[0] = rest & 0x7F | 0x80
        rest >>= 7
        target += 1
    carray(as_pointer(target), 1, np.uint8)[0] = rest
    copy_bytes(target + 1, source, size)
    return target + 1 + size


@kernel
def varint_bytes(number: int) -> int:
    size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


@allocating_kernel
def fill_file(writer: int, functions: Any, columns: Any, count: int, error: Any) -> None:
    """Add rows in strictly rising key order to a table file; stops at the first error."""
    scratch = np.zeros(4, np.int64)
    at = np.int64(error.ctypes.data)
    for row in range(count):
        cell(columns, KEYS, row, scratch)
        cell(columns, VALUES, row, scratch[2:])
        if scratch[2] != 0:
            call(functions[_FILE_PUT], (writer, scratch[0], scratch[1], scratch[2], scratch[3], at))
        else:
            call(functions[_FILE_DELETE], (writer, scratch[0], scratch[1], at))
        if error[0] != 0:
            return
