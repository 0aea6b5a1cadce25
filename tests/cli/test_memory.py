"""The setting `memory_bytes`, from which the other sizes follow."""

from __future__ import annotations

from streams.config import StreamsConfig
from streams.engine.step.job import SMALLEST_CACHE, ProcessMemory

MIB = 2**20


def test_sizes_that_are_not_set_are_shares_of_the_memory() -> None:
    config = StreamsConfig(application_id="a", memory_bytes=400 * MIB)
    assert (config.max_bytes_per_trigger, config.spill_bytes) == (200 * MIB, 50 * MIB)
    config = StreamsConfig(application_id="a", memory_bytes=400 * MIB, max_bytes_per_trigger=7, spill_bytes=2048)
    assert (config.max_bytes_per_trigger, config.spill_bytes) == (7, 2048)


def test_the_processes_of_a_host_share_its_memory() -> None:
    for processes in (1, 2, 8):
        each = ProcessMemory.of(512 * MIB, processes)
        assert (each.prefetch_bytes + each.cache_bytes) * processes <= 512 * MIB // 2
    assert ProcessMemory.of(16 * MIB, 64).cache_bytes == SMALLEST_CACHE
