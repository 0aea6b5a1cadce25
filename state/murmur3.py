"""MurmurHash3 of 128 bits (x64) of columns: the hash by which Kafka Streams identifies left rows of foreign-key joins.

Invariant: the compiled kernel gives the bytes that Kafka Streams (`internals.Murmur3`, seed 104729) writes. A test compares it with
hashes that Kafka Streams wrote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from state.columns import BinaryCells, BinaryColumn
from state.numba_kernels import allocating_kernel, as_pointer, carray, kernel

SEED = 104_729
"""Kafka Streams' default."""
_BYTES = 16


def murmur3(cells: BinaryColumn | pa.NullArray) -> list[bytes | None]:
    """The hash of each cell, in 16 bytes; None for null."""
    columns = BinaryCells(cells)  # keeps the buffers alive
    if columns.addresses == (0, 0, 0):
        return [None] * len(cells)
    found = np.zeros((len(cells), 2), np.uint64)
    hash_cells(*columns.addresses, SEED, found)
    data = found.astype(">u8").tobytes()
    return [
        data[at * _BYTES : (at + 1) * _BYTES] if valid else None
        for at, valid in enumerate(cells.is_valid().to_pylist())
    ]


@allocating_kernel
def hash_cells(ends: int, data: int, valid: int, seed: int, found: Any) -> None:
    """Puts the hash of each valid cell into two numbers. The addresses are as in `BinaryCells`."""
    bounds = carray(as_pointer(ends), found.shape[0] + 1, np.int64)
    for row in range(found.shape[0]):
        if valid == 0 or carray(as_pointer(valid + row), 1, np.uint8)[0] != 0:
            size = bounds[row + 1] - bounds[row]
            _hash(carray(as_pointer(data + bounds[row]), size, np.uint8), size, seed, found[row])


@kernel
def _hash(cell: Any, size: int, seed: int, found: Any) -> None:
    first, second = np.uint64(seed), np.uint64(seed)
    whole = size // 16 * 16
    for at in range(0, whole, 16):
        first ^= _mixed_first(_little_endian(cell, at, at + 8))
        first = (_rotated(first, 27) + second) * np.uint64(5) + np.uint64(0x52DCE729)
        second ^= _mixed_second(_little_endian(cell, at + 8, at + 16))
        second = (_rotated(second, 31) + first) * np.uint64(5) + np.uint64(0x38495AB5)
    if size > whole + 8:
        second ^= _mixed_second(_little_endian(cell, whole + 8, size))
    if size > whole:
        first ^= _mixed_first(_little_endian(cell, whole, min(size, whole + 8)))
    first, second = first ^ np.uint64(size), second ^ np.uint64(size)
    first += second
    second += first
    first, second = _final(first), _final(second)
    first += second
    found[0], found[1] = first, second + first


@kernel
def _little_endian(cell: Any, start: int, end: int) -> Any:
    number = np.uint64(0)
    for at in range(end - 1, start - 1, -1):
        number = number << np.uint64(8) | np.uint64(cell[at])
    return number


@kernel
def _rotated(number: Any, bits: int) -> Any:
    return number << np.uint64(bits) | number >> np.uint64(64 - bits)


@kernel
def _mixed_first(number: Any) -> Any:
    return _rotated(number * np.uint64(0x87C37B91114253D5), 31) * np.uint64(0x4CF5AD432745937F)


@kernel
def _mixed_second(number: Any) -> Any:
    return _rotated(number * np.uint64(0x4CF5AD432745937F), 33) * np.uint64(0x87C37B91114253D5)


@kernel
def _final(number: Any) -> Any:
    number = (number ^ number >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD)
    number = (number ^ number >> np.uint64(33)) * np.uint64(0xC4CEB9FE1A85EC53)
    return number ^ number >> np.uint64(33)
