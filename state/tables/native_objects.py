"""Compiled functions that turn RocksDB's rows into Python objects: one value, or a run of rows of a scan.

Operators that work record by record read single rows. A function that returns the object itself, called through ctypes with the
GIL held, takes half the time of one that fills buffers. Where RocksDB fails, the address of the error's text is in the block and
`ReadError` is raised; a closed database, at address 0, fails in the same way. An iterator is destroyed as soon as its last row
was read.
"""

from __future__ import annotations

import ctypes

import numpy as np

from state.columns import compare
from state.numba_functions import cfunc, types
from state.numba_kernels import allocating_kernel, as_pointer, call, carray

# A block has the addresses of these functions, in this order, followed by the words below.
ROCKS = (
    "get_pinned",
    "pinnableslice_value",
    "pinnableslice_destroy",
    "create_iterator",
    "iter_destroy",
    "iter_seek",
    "iter_seek_for_prev",
    "iter_seek_to_last",
    "iter_valid",
    "iter_next",
    "iter_prev",
    "iter_key",
    "iter_value",
    "iter_get_error",
)
PYTHON = (
    "PyBytes_FromStringAndSize",
    "PyLong_FromLongLong",
    "PyList_New",
    "PyList_Append",
    "PyTuple_New",
    "PyTuple_SetItem",
    "Py_IncRef",
    "Py_DecRef",
    "PyErr_SetNone",
)
_GET, _PINNED, _UNPIN, _OPEN, _CLOSE, _SEEK, _SEEK_BEFORE, _SEEK_LAST = range(8)
_VALID, _NEXT, _PREV, _KEY, _VALUE, _STATUS = range(8, 14)
_BYTES, _NUMBER, _LIST, _APPEND, _TUPLE, _SET, _REFER, _RELEASE, _RAISE = range(14, 23)
MEMCMP, NONE, EXCEPTION, DATABASE, READ_OPTIONS, ERROR, _SIZE, WORDS = range(23, 31)

NO_BOUND = -1
"""Size of an upper end that does not exist."""
# Rows that the first and every later call of a scan reads: most scans are short.
_FIRST_ROWS = 32
LATER_ROWS = 1024

_word = types.int64


class ReadError(Exception):
    """RocksDB has failed, or the database is closed."""


@allocating_kernel
def ask(block: int, function: int, first: int, second: int) -> int:
    """Call one of the block's functions with two arguments (additional arguments do no harm)."""
    result: int = call(carray(as_pointer(block), WORDS, np.int64)[function], (first, second))
    return result


@allocating_kernel
def fail(block: int) -> int:
    """Raise `ReadError`; to be returned."""
    ask(block, _RAISE, carray(as_pointer(block), WORDS, np.int64)[EXCEPTION], 0)
    return 0


@allocating_kernel
def new_bytes(block: int, function: int, handle: int) -> int:
    """A new `bytes` of the data that a function like `rocksdb_iter_key` returns for a handle."""
    words = carray(as_pointer(block), WORDS, np.int64)
    address = call(words[function], (handle, block + 8 * _SIZE))
    return ask(block, _BYTES, address, words[_SIZE])


@allocating_kernel
def value_of(block: int, key: int, size: int) -> int:
    words = carray(as_pointer(block), WORDS, np.int64)
    if words[DATABASE] == 0:
        return fail(block)
    pinned = call(words[_GET], (words[DATABASE], words[READ_OPTIONS], key, size, block + 8 * ERROR))
    if pinned == 0:
        if words[ERROR] != 0:
            return fail(block)
        ask(block, _REFER, words[NONE], 0)
        none: int = words[NONE]
        return none
    value = new_bytes(block, _PINNED, pinned)
    ask(block, _UNPIN, pinned, 0)
    return value


@allocating_kernel
def open_at(block: int, lower: int, lower_size: int, upper: int, upper_size: int, reverse: int) -> int:
    """A new iterator at the first row of a scan."""
    words = carray(as_pointer(block), WORDS, np.int64)
    iterator = ask(block, _OPEN, words[DATABASE], words[READ_OPTIONS])
    if reverse == 0:
        call(words[_SEEK], (iterator, lower, lower_size))
    elif upper_size == NO_BOUND:
        call(words[_SEEK_LAST], (iterator,))
    else:
        call(words[_SEEK_BEFORE], (iterator, upper, upper_size))
        if valid(block, iterator) and against(block, iterator, upper, upper_size) == 0:
            call(words[_PREV], (iterator,))
    return iterator


@allocating_kernel
def valid(block: int, iterator: int) -> bool:
    """Whether the iterator is at a row."""
    return (ask(block, _VALID, iterator, 0) & 0xFF) != 0


@allocating_kernel
def against(block: int, iterator: int, key: int, size: int) -> int:
    """Compares the iterator's key with a key."""
    words = carray(as_pointer(block), WORDS, np.int64)
    own = call(words[_KEY], (iterator, block + 8 * _SIZE))
    return compare(words[MEMCMP], own, words[_SIZE], key, size)


@allocating_kernel
def in_range(block: int, iterator: int, bound: int, bound_size: int, reverse: int) -> bool:
    """Whether the iterator is at a row of the scan, whose last end is `bound`."""
    if not valid(block, iterator):
        return False
    if bound_size == NO_BOUND:
        return True
    order = against(block, iterator, bound, bound_size)
    return order >= 0 if reverse != 0 else order < 0


@allocating_kernel
def rows_of(block: int, iterator: int, bound: int, bound_size: int, reverse: int, limit: int) -> int:
    rows = ask(block, _LIST, 0, 0)
    count = 0
    while in_range(block, iterator, bound, bound_size, reverse):
        if count == limit:
            return pair(block, rows, ask(block, _NUMBER, iterator, 0))
        row = pair(block, new_bytes(block, _KEY, iterator), new_bytes(block, _VALUE, iterator))
        ask(block, _APPEND, rows, row)
        ask(block, _RELEASE, row, 0)
        ask(block, _PREV if reverse != 0 else _NEXT, iterator, 0)
        count += 1
    if not valid(block, iterator):
        ask(block, _STATUS, iterator, block + 8 * ERROR)
    ask(block, _CLOSE, iterator, 0)
    if carray(as_pointer(block), WORDS, np.int64)[ERROR] != 0:
        ask(block, _RELEASE, rows, 0)
        return fail(block)
    return pair(block, rows, ask(block, _NUMBER, 0, 0))


@allocating_kernel
def pair(block: int, first: int, second: int) -> int:
    """A new tuple, which takes over the references."""
    words = carray(as_pointer(block), WORDS, np.int64)
    result = ask(block, _TUPLE, 2, 0)
    call(words[_SET], (result, np.int64(0), first))
    call(words[_SET], (result, np.int64(1), second))
    return result


@cfunc(_word(_word, _word, _word), cache=True)  # type: ignore[untyped-decorator]
def _get_value(block: int, key: int, size: int) -> int:
    return value_of(block, key, size)


@cfunc(_word(_word, _word, _word, _word, _word, _word), cache=True)  # type: ignore[untyped-decorator]
def _start_scan(block: int, lower: int, lower_size: int, upper: int, upper_size: int, reverse: int) -> int:
    if carray(as_pointer(block), WORDS, np.int64)[DATABASE] == 0:
        return fail(block)
    iterator = open_at(block, lower, lower_size, upper, upper_size, reverse)
    if reverse != 0:
        return rows_of(block, iterator, lower, lower_size, reverse, _FIRST_ROWS)
    return rows_of(block, iterator, upper, upper_size, reverse, _FIRST_ROWS)


@cfunc(_word(_word, _word, _word, _word, _word), cache=True)  # type: ignore[untyped-decorator]
def _read_rows(block: int, iterator: int, bound: int, bound_size: int, reverse: int) -> int:
    return rows_of(block, iterator, bound, bound_size, reverse, LATER_ROWS)


_Size = ctypes.c_ssize_t
get_value = ctypes.PYFUNCTYPE(ctypes.py_object, _Size, ctypes.c_char_p, _Size)(_get_value.address)
"""(block, key, its size) -> the value, None if there is none."""
start_scan = ctypes.PYFUNCTYPE(
    ctypes.py_object, _Size, ctypes.c_char_p, _Size, ctypes.c_char_p, _Size, _Size
)(_start_scan.address)  # fmt: skip
"""(block, lower end, its size, upper end, its size or `NO_BOUND`, reverse) -> (first rows, iterator); iterator 0 = no more rows."""
read_rows = ctypes.PYFUNCTYPE(
    ctypes.py_object, _Size, _Size, ctypes.c_char_p, _Size, _Size
)(_read_rows.address)  # fmt: skip
"""(block, iterator, last end of the scan, its size, reverse) -> (further rows, iterator); iterator 0 = no more rows."""
