"""RocksDB's options, made once per process: one block cache and one bound on memtables for all tasks in it.

Kafka Streams gives every store, segment and partition its own cache and memtables (up to ~98 MiB each). Here the sum is
bounded, however many tasks a process runs. Nothing in this module may run before a fork, because RocksDB's threads do
not survive it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class RocksSettings:
    """Memory and lock timeout of the RocksDB instances in this process.

    Attributes:
        block_cache_bytes: Blocks, indexes and filters of all tasks together; memtables are charged to the cache too.
        write_buffer_bytes: Memtables of all tasks together.
        bloom_bits: Bits per key of the Bloom filters (10 = about 1 % false positives).
        max_open_files: File handles per task.
        lock_timeout_s: How long to wait for a store that another process has open.
    """

    block_cache_bytes: int = 128 * 1024 * 1024
    write_buffer_bytes: int = 64 * 1024 * 1024
    bloom_bits: int = 10
    max_open_files: int = 256
    lock_timeout_s: float = 5.0


DEFAULT_SETTINGS = RocksSettings()

BLOCKS: Mapping[str, int | bool] = {
    # Every RocksDB since 6.6 reads it, so rocksdict and the library of pyspark's jar read each other's files.
    "format_version": 5,
    # Indexes and filters grow with the state, so they share the cache's memory; in parts of 4 KiB, each read when it is needed.
    # A filter in one piece has a bit for each key of its file: once it no longer fits into a shard of the cache (half a megabyte
    # of a small one), each look-up would read all of it again.
    "cache_index_and_filter_blocks": True,
    "partition_filters": True,
    "pin_top_level_index_and_filter": True,
    "pin_l0_filter_and_index_blocks_in_cache": True,
}
"""Options of table files by the names of RocksDB's C API, for rocksdict and the C API alike."""

TUNING: Mapping[str, int | bool] = {
    "create_if_missing": True,
    # Every step ends in a flush, so small sorted runs arrive fast: runs of similar size are merged rather than whole levels.
    # Merging at 8 files instead of 4 saves a third of a large step's writing, and costs a join more in look-ups and scans.
    "level0_file_num_compaction_trigger": 4,
    "level0_slowdown_writes_trigger": 40,
    "level0_stop_writes_trigger": 80,
    "max_background_jobs": 2,
    # Cheap opening: no statistics, no scan of the files, few and small log files, and no 16 threads that open a file each.
    "max_file_opening_threads": 1,
    "skip_stats_update_on_db_open": True,
    "stats_dump_period_sec": 0,
    "stats_persist_period_sec": 0,
    "keep_log_file_num": 2,
    "max_log_file_size": 1024 * 1024,
    "manifest_preallocation_size": 64 * 1024,
}
"""Options of a task's database by the names of RocksDB's C API, for rocksdict and the C API alike."""

_RUST_NAMES = {
    "create_if_missing": "create_if_missing",
    "level0_file_num_compaction_trigger": "set_level_zero_file_num_compaction_trigger",
    "level0_slowdown_writes_trigger": "set_level_zero_slowdown_writes_trigger",
    "level0_stop_writes_trigger": "set_level_zero_stop_writes_trigger",
}


def rocks_settings(cache_bytes: int) -> RocksSettings:
    """Settings for a block cache of the given size, half of which memtables may take."""
    return RocksSettings(block_cache_bytes=cache_bytes, write_buffer_bytes=cache_bytes // 2)


def database_options(settings: RocksSettings) -> Any:
    """The `rocksdict.Options` of a task's database; the same object for every database of this process."""
    # The lock timeout is not part of the key, so that callers with different timeouts share the memory.
    return _database_options(replace(settings, lock_timeout_s=0.0), os.getpid())


def write_options() -> Any:
    """Write options without a log: the changelog in Kafka is the log."""
    return _write_options(os.getpid())


@lru_cache(maxsize=8)
def _database_options(settings: RocksSettings, _process: int) -> Any:
    import rocksdict

    cache = rocksdict.Cache(settings.block_cache_bytes)
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(settings.bloom_bits, False)
    blocks.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    for name, value in BLOCKS.items():
        getattr(blocks, f"set_{name}")(value)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(
        rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(settings.write_buffer_bytes, False, cache)
    )
    options.set_write_buffer_size(settings.write_buffer_bytes)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    options.set_max_open_files(settings.max_open_files)
    for name, value in TUNING.items():
        getattr(options, _RUST_NAMES.get(name, f"set_{name}"))(value)
    return options


@lru_cache(maxsize=2)
def _write_options(_process: int) -> Any:
    import rocksdict

    options = rocksdict.WriteOptions()
    options.disable_wal = True
    return options
