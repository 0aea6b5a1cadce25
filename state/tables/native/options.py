"""RocksDB's options through its C API: the counterpart of `state.tables.rocks_options`, whose values it uses."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from state.tables.native.library import library
from state.tables.rocks_options import BLOCKS, TUNING, RocksSettings

# Values of RocksDB's enumerations.
_LZ4, _UNIVERSAL, _TWO_LEVEL_INDEX_SEARCH = 4, 1, 2


class Handles(NamedTuple):
    """Addresses of RocksDB's option objects, which live as long as the process.

    Attributes:
        database: `rocksdb_options_t`.
        read: `rocksdb_readoptions_t`.
        write: `rocksdb_writeoptions_t`, without a write-ahead log: the changelog in Kafka is the log.
        flush: `rocksdb_flushoptions_t`, which waits for the end of the flush.
        ingest: `rocksdb_ingestexternalfileoptions_t`, which moves the file rather than copy it.
        environment: `rocksdb_envoptions_t`.
    """

    database: int
    read: int
    write: int
    flush: int
    ingest: int
    environment: int


def handles(settings: RocksSettings) -> Handles:
    """The options of a task's database; the same objects for every database of this process."""
    # The lock timeout is not part of the key, so that callers with different timeouts share the memory.
    return _handles(replace(settings, lock_timeout_s=0.0), os.getpid())


@lru_cache(maxsize=8)
def _handles(settings: RocksSettings, _process: int) -> Handles:
    rocks = library()
    cache = rocks.cache_create_lru(settings.block_cache_bytes)
    blocks = rocks.block_based_options_create()
    rocks.block_based_options_set_block_cache(blocks, cache)
    rocks.block_based_options_set_filter_policy(blocks, rocks.filterpolicy_create_bloom_full(settings.bloom_bits))
    rocks.block_based_options_set_index_type(blocks, _TWO_LEVEL_INDEX_SEARCH)
    for name, value in BLOCKS.items():
        getattr(rocks, f"block_based_options_set_{name}")(blocks, value)
    database = rocks.options_create()
    rocks.options_set_block_based_table_factory(database, blocks)
    manager = rocks.write_buffer_manager_create_with_cache(settings.write_buffer_bytes, cache, False)
    rocks.options_set_write_buffer_manager(database, manager)
    rocks.options_set_write_buffer_size(database, settings.write_buffer_bytes)
    rocks.options_set_max_open_files(database, settings.max_open_files)
    rocks.options_set_compression(database, _LZ4)
    rocks.options_set_compaction_style(database, _UNIVERSAL)
    for name, value in TUNING.items():
        getattr(rocks, f"options_set_{name}")(database, value)
    write = rocks.writeoptions_create()
    rocks.writeoptions_disable_WAL(write, True)
    ingest = rocks.ingestexternalfileoptions_create()
    rocks.ingestexternalfileoptions_set_move_files(ingest, True)
    return Handles(
        database, rocks.readoptions_create(), write, rocks.flushoptions_create(), ingest, rocks.envoptions_create()
    )
