"""How rows go through Spark's shuffle: their columns, and the integer group key of each task.

The data source declares the columns to Spark, and the readers deliver them as Arrow. Both use this one list, because order
and types must agree. The file imports nothing heavy, because Spark starts three short-lived Python processes for each query just
to inspect the source.

Spark sends a group to `pmod(murmur3(key, seed 42), partitions)`. Task numbers themselves would collide, so the key of a task is the
smallest integer that hashes to the partition with the task's number.
"""

from __future__ import annotations

from functools import lru_cache

COLUMNS = (
    ("task_key", "INT"),
    ("batch", "STRING"),
    ("topic", "STRING"),
    ("partition", "INT"),
    ("first", "BIGINT"),
    ("last", "BIGINT"),
    ("topic_id", "STRING"),
    ("counters", "STRING"),
    ("partition_time", "STRING"),
    ("global_topics", "STRING"),
    ("payload", "BINARY"),
    ("backlog", "BOOLEAN"),
    ("routing", "STRING"),
    ("event_time", "STRING"),
)
"""Name and Spark type of each column: the task's key, and the fields of `streams.engine.step.read.TaskRow`."""

SPARK_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
_MASK = 0xFFFFFFFF


def spark_hash(value: int) -> int:
    """Spark's Murmur3_x86_32 of one 32-bit integer with the seed 42, as a signed integer; `SELECT hash(1)` is -559580957."""
    k = _rotate((value * 0xCC9E2D51) & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(42 ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & _MASK


@lru_cache(maxsize=64)
def shuffle_keys(tasks: int) -> tuple[int, ...]:
    """The group key of each task: `spark_hash(shuffle_keys(n)[t]) % n == t`."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < tasks:
        found.setdefault(spark_hash(candidate) % tasks, candidate)
        candidate += 1
    return tuple(found[task] for task in range(tasks))
