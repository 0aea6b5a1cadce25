"""The partition of a key, over whole Arrow columns, by the functions of the producers that exist.

The records that this project writes land where Kafka's Java producer (`BuiltInPartitioner.partitionForKey`) would put them. The
tasks of a sub-topology own keys by the function that its topics were written with (`Placement`). Invariant: the compiled kernels
and their counterparts in plain Python agree on every key; tests compare them with each other, with the vectors of Kafka's own
`UtilsTest`, and with the partitions that librdkafka chooses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryCells, BinaryColumn, cell_bounds
from state.kafka.key_hash import FACTOR, FNV_BASIS, FNV_PRIME, MASK, NO_KEY, SEED, SIGN, functions_of_keys
from state.kafka.placement import FUNCTIONS, Placement
from state.numba_kernels import allocating_kernel, as_pointer, carray, kernel

_FEW = 1_000
"""Plain Python takes less time for this many keys than importing the libraries of columns, for which a start would wait."""
_CRC32, _FNV1A = 1, 2
"""The numbers of the functions in kernels: their indexes in `FUNCTIONS`."""


def _crc_tables() -> npt.NDArray[np.uint32]:
    """CRC-32 of each byte, and of each byte followed by one to three zero bytes, so that a kernel takes four bytes at a time."""
    tables = np.zeros((4, 256), np.uint32)
    of = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        of = (of >> np.uint32(1)) ^ np.where(of & np.uint32(1), np.uint32(0xEDB88320), np.uint32(0))
    tables[0] = of
    for n in range(1, 4):
        tables[n] = tables[0][tables[n - 1] & np.uint32(0xFF)] ^ (tables[n - 1] >> np.uint32(8))
    return tables.ravel()


_CRC_TABLES = _crc_tables()


def partition_for_keys(
    keys: BinaryColumn | pa.NullArray, partitions: int, placement: Placement = Placement.MURMUR2
) -> npt.NDArray[np.int32]:
    """Partition of each key, as `partition_for_key`."""
    if partitions <= 0:
        raise ValueError(f"a topic or task set has at least one partition, not {partitions}")
    found = np.full(len(keys), NO_KEY, np.int32)
    if placement is Placement.PARTITION:
        return found
    cells = BinaryCells(keys)
    if cells.addresses != (0, 0, 0):
        hash_cells(*cells.addresses, partitions, found, FUNCTIONS.index(placement))
    return found


def functions_of(
    keys: BinaryColumn | pa.NullArray,
    partition: int,
    partitions: int,
    functions: Iterable[Placement] = FUNCTIONS,
) -> tuple[Placement, ...]:
    """The functions that put all keys of a column into the partition that they are in, as `functions_of_keys` finds them."""
    if keys.null_count == len(keys):
        return tuple(functions)
    if len(keys) <= _FEW:
        return functions_of_keys(keys.to_pylist(), partition, partitions, functions)
    keyed = keys.filter(pa.array(np.diff(cell_bounds(keys)) > 0)).drop_null()
    return tuple(
        function for function in functions if (partition_for_keys(keyed, partitions, function) == partition).all()
    )


def choose_partitions(
    keys: BinaryColumn | pa.NullArray,
    partitions: int,
    partition_keys: BinaryColumn | None = None,
    chosen: npt.NDArray[np.int32] | None = None,
    turn: int = 0,
) -> npt.NDArray[np.int32]:
    """Partition of each record to be sent."""
    found = partition_for_keys(keys if partition_keys is None else partition_keys, partitions)
    if chosen is not None:
        found = np.where(chosen < 0, found, chosen)
    keyless = found < 0
    if not keyless.any():
        return found
    turns = ((turn + np.arange(len(found))) % partitions).astype(np.int32)
    return np.where(keyless, turns, found)


@allocating_kernel
def hash_cells(ends_at: int, data_at: int, valid_at: int, partitions: int, found: Any, function: int) -> None:
    """Fill `found` with the partitions of the cells at these addresses (see `BinaryCells`); null cells stay."""
    ends = carray(as_pointer(ends_at), len(found) + 1, np.int64)
    data = carray(as_pointer(data_at), ends[len(found)], np.uint8)
    for row in range(len(found)):
        if valid_at != 0 and carray(as_pointer(valid_at + row), 1, np.uint8)[0] == 0:
            continue
        if function == _CRC32:
            positive = crc32_bytes(data, ends[row], ends[row + 1])
        elif function == _FNV1A:
            positive = fnv1a_bytes(data, ends[row], ends[row + 1])
        else:
            positive = hash_bytes(data, ends[row], ends[row + 1]) & np.uint64(0x7FFFFFFF)
        found[row] = np.int64(positive) % partitions


@kernel
def crc32_bytes(data: Any, start: int, end: int) -> int:
    """CRC-32 of data[start:end]; the compiled counterpart of `zlib.crc32`."""
    low, h = np.uint64(0xFF), np.uint64(MASK)
    whole = start + ((end - start) & ~3)
    for at in range(start, whole, 4):
        h ^= word(data, at, 4)
        h = (
            np.uint64(_CRC_TABLES[np.int64(h & low) + 768])
            ^ np.uint64(_CRC_TABLES[np.int64((h >> np.uint64(8)) & low) + 512])
            ^ np.uint64(_CRC_TABLES[np.int64((h >> np.uint64(16)) & low) + 256])
            ^ np.uint64(_CRC_TABLES[np.int64(h >> np.uint64(24))])
        )
    for at in range(whole, end):
        h = np.uint64(_CRC_TABLES[np.int64((h ^ np.uint64(data[at])) & low)]) ^ (h >> np.uint64(8))
    inverted: int = h ^ np.uint64(MASK)
    return inverted


@kernel
def fnv1a_bytes(data: Any, start: int, end: int) -> int:
    """FNV-1a of data[start:end] without its sign, as Sarama takes it; the compiled counterpart of `fnv1a`."""
    prime, mask = np.uint64(FNV_PRIME), np.uint64(MASK)
    h = np.uint64(FNV_BASIS)
    for at in range(start, end):
        h = ((h ^ np.uint64(data[at])) * prime) & mask
    if h >= np.uint64(SIGN):
        h = (mask + np.uint64(1)) - h
    positive: int = h
    return positive


@kernel
def hash_bytes(data: Any, start: int, end: int) -> int:
    """murmur2 of data[start:end] as an unsigned number; the compiled counterpart of `murmur2`.

    The arithmetic is 64-bit, truncated to 32 bits after each product, because numba widens uint32 operands by itself.
    """
    factor, mask = np.uint64(FACTOR), np.uint64(MASK)
    h = np.uint64(SEED) ^ np.uint64(end - start)
    whole = start + ((end - start) & ~3)
    for at in range(start, whole, 4):
        k = (word(data, at, 4) * factor) & mask
        k = ((k ^ (k >> np.uint64(24))) * factor) & mask
        h = ((h * factor) & mask) ^ k
    if whole < end:
        h = ((h ^ word(data, whole, end - whole)) * factor) & mask
    h = ((h ^ (h >> np.uint64(13))) * factor) & mask
    mixed: int = h ^ (h >> np.uint64(15))
    return mixed


@kernel
def word(data: Any, at: int, size: int) -> int:
    """Up to four bytes as a little endian number."""
    value: int = np.uint64(0)
    for i in range(size):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value
