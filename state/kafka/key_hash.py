"""The partition of a key, in plain Python, by each hash function that Kafka producers use. `partitioner` does the same for columns.

For up to about a thousand keys, this takes less time than importing the libraries for columns.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from state.kafka.placement import FUNCTIONS, Placement

NO_KEY = -1
SEED = 0x9747B28C
FACTOR = 0x5BD1E995
MASK = 0xFFFFFFFF
SIGN = 1 << 31
FNV_BASIS = 0x811C9DC5
FNV_PRIME = 0x01000193


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2 of a key, as Java's signed int (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    h = (SEED ^ len(key)) & MASK
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * FACTOR & MASK
        k = (k ^ k >> 24) * FACTOR & MASK
        h = h * FACTOR & MASK ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * FACTOR & MASK
    h = (h ^ h >> 13) * FACTOR & MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def fnv1a(key: bytes) -> int:
    """FNV-1a of 32 bits, as an unsigned number (Go's `hash/fnv.New32a`)."""
    h = FNV_BASIS
    for byte in key:
        h = (h ^ byte) * FNV_PRIME & MASK
    return h


def _positive(key: bytes, placement: Placement) -> int:
    if placement is Placement.CRC32:
        return zlib.crc32(key)
    if placement is Placement.FNV1A:
        # Sarama takes the remainder of the signed number, and then its absolute value.
        h = fnv1a(key)
        return h if h < SIGN else (MASK + 1) - h
    return murmur2(key) & 0x7FFFFFFF


def partition_for_key(key: bytes | None, partitions: int, placement: Placement = Placement.MURMUR2) -> int:
    """Partition of one key; -1 for a null key, and if the placement does not depend on the key."""
    if key is None or placement is Placement.PARTITION:
        return NO_KEY
    return _positive(key, placement) % partitions


def functions_of_keys(
    keys: Iterable[bytes | None], partition: int, partitions: int, functions: Iterable[Placement] = FUNCTIONS
) -> tuple[Placement, ...]:
    """The functions that put all of these keys into the partition that they are in.

    Null keys are ignored. So are empty keys, which librdkafka's default partitioner treats as null.
    """
    said = [key for key in keys if key]
    return tuple(
        function
        for function in functions
        if all(partition_for_key(key, partitions, function) == partition for key in said)
    )
