"""Kafka's default partitioner: `toPositive(murmur2(key)) % partitions`, over whole Arrow columns.

A record must land on the partition that Kafka's Java producer (`BuiltInPartitioner.partitionForKey`) would choose, and a
task must own the keys that a Kafka Streams task would own. Invariant: the compiled kernel and its counterpart in plain Python
agree on every key; tests compare them with each other and with the vectors of Kafka's own `UtilsTest`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryCells, BinaryColumn
from state.numba_kernels import as_pointer, carray, kernel

NO_KEY = -1
_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2 of a key, as Java's signed int (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    h = (_SEED ^ len(key)) & _MASK
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _FACTOR & _MASK
        k = (k ^ k >> 24) * _FACTOR & _MASK
        h = h * _FACTOR & _MASK ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _MASK
    h = (h ^ h >> 13) * _FACTOR & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for_key(key: bytes | None, partitions: int) -> int:
    """Partition of one key; -1 for a null key."""
    return NO_KEY if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_for_keys(keys: BinaryColumn | pa.NullArray, partitions: int) -> npt.NDArray[np.int32]:
    """Partition of each key."""
    if partitions <= 0:
        raise ValueError(f"a topic or task set has at least one partition, not {partitions}")
    found = np.full(len(keys), NO_KEY, np.int32)
    cells = BinaryCells(keys)
    if cells.addresses != (0, 0, 0):
        hash_cells(*cells.addresses, partitions, found)
    return found


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
    turns = ((turn + np.arange(len(found))) % partitions).astype(np.int32)
    return np.where(found < 0, turns, found)


@kernel
def hash_cells(ends_at: int, data_at: int, valid_at: int, partitions: int, found: Any) -> None:
    """Fill `found` with the partitions of the cells at these addresses (see `BinaryCells`); null cells stay."""
    ends = carray(as_pointer(ends_at), len(found) + 1, np.int64)
    data = carray(as_pointer(data_at), ends[len(found)], np.uint8)
    for row in range(len(found)):
        if valid_at != 0 and carray(as_pointer(valid_at + row), 1, np.uint8)[0] == 0:
            continue
        positive = hash_bytes(data, ends[row], ends[row + 1]) & np.uint64(0x7FFFFFFF)
        found[row] = np.int64(positive) % partitions


@kernel
def hash_bytes(data: Any, start: int, end: int) -> int:
    """murmur2 of data[start:end] as an unsigned number; the compiled counterpart of `murmur2`.

    The arithmetic is 64-bit, truncated to 32 bits after each product, because numba widens uint32 operands by itself.
    """
    factor, mask = np.uint64(_FACTOR), np.uint64(_MASK)
    h = np.uint64(_SEED) ^ np.uint64(end - start)
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
