"""The shares of `memory_bytes` that each Python process of a host has for what it keeps between steps."""

from __future__ import annotations

from dataclasses import dataclass

PREFETCH = 4
"""A quarter of the memory is for prefetched records, over all processes."""
CACHE = 4
"""A quarter is for the stores' block caches, over all processes; their memtables are charged to the caches."""
SMALLEST_CACHE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """What one Python process may keep.

    Attributes:
        prefetch_bytes: Prefetched records of all partitions that the process reads.
        cache_bytes: Block cache of all stores that the process opens, with their memtables.
    """

    prefetch_bytes: int
    cache_bytes: int

    @classmethod
    def of(cls, memory_bytes: int, processes: int) -> ProcessMemory:
        """The share of one of several processes of a host."""
        share = memory_bytes // max(1, processes)
        return cls(share // PREFETCH, max(SMALLEST_CACHE, share // CACHE))
