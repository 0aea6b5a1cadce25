"""RocksDB's C API, from the shared library in the rocksdbjni jar that pyspark ships.

The library exports all of RocksDB's public C functions, and compiled kernels call them on Arrow buffers for a fraction of what a
Python object per row costs. No JVM takes part. Invariants: the library is unpacked once per machine, and appears under its name
only as a whole; where it is switched off (`STREAMS_ROCKSDB_NATIVE=0`), or pyspark, the jar, the library or a function is missing,
`native_available()` is False and rocksdict does the work. Loading starts no thread, so it may happen before a fork.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_double, c_int, c_size_t, c_ubyte, c_uint64, c_void_p
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from state.errors import StateError
from state.machine_code import CLibrary, Signatures, address_of, cache_folder
from state.tables.rocks_common import BLOCKS, TUNING, RocksSettings

SWITCH_VARIABLE = "STREAMS_ROCKSDB_NATIVE"

_P, _S, _FLAG = c_void_p, c_size_t, c_ubyte
_SIGNATURES: Signatures = {
    "free": (None, (_P,)),
    "open": (_P, (_P, c_char_p, _P)),
    "open_for_read_only": (_P, (_P, c_char_p, _FLAG, _P)),
    "close": (None, (_P,)),
    "get_pinned": (_P, (_P, _P, c_char_p, _S, _P)),
    "get_default_column_family_handle": (_P, (_P,)),
    "column_family_handle_destroy": (None, (_P,)),
    "batched_multi_get_cf": (None, (_P, _P, _P, _S, _P, _P, _P, _P, _FLAG)),
    "pinnableslice_value": (_P, (_P, _P)),
    "pinnableslice_destroy": (None, (_P,)),
    "write": (None, (_P, _P, _P, _P)),
    "flush": (None, (_P, _P, _P)),
    "writebatch_create_from": (_P, (_P, _S)),
    "writebatch_destroy": (None, (_P,)),
    "property_int": (c_int, (_P, c_char_p, _P)),
    "approximate_sizes": (None, (_P, c_int, _P, _P, _P, _P, _P, _P)),
    "checkpoint_object_create": (_P, (_P, _P)),
    "checkpoint_create": (None, (_P, c_char_p, c_uint64, _P)),
    "checkpoint_object_destroy": (None, (_P,)),
    "create_iterator": (_P, (_P, _P)),
    "iter_destroy": (None, (_P,)),
    "iter_get_error": (None, (_P, _P)),
    "iter_seek": (None, (_P, c_char_p, _S)),
    "iter_seek_for_prev": (None, (_P, c_char_p, _S)),
    "iter_seek_to_last": (None, (_P,)),
    "iter_valid": (_FLAG, (_P,)),
    "iter_next": (None, (_P,)),
    "iter_prev": (None, (_P,)),
    "iter_key": (_P, (_P, _P)),
    "iter_value": (_P, (_P, _P)),
    "sstfilewriter_create": (_P, (_P, _P)),
    "sstfilewriter_open": (None, (_P, c_char_p, _P)),
    "sstfilewriter_put": (None, (_P, _P, _S, _P, _S, _P)),
    "sstfilewriter_delete": (None, (_P, _P, _S, _P)),
    "sstfilewriter_finish": (None, (_P, _P)),
    "sstfilewriter_destroy": (None, (_P,)),
    "ingest_external_file": (None, (_P, _P, _S, _P, _P)),
    "ingestexternalfileoptions_create": (_P, ()),
    "ingestexternalfileoptions_set_move_files": (None, (_P, _FLAG)),
    "envoptions_create": (_P, ()),
    "readoptions_create": (_P, ()),
    "readoptions_set_snapshot": (None, (_P, _P)),
    "readoptions_destroy": (None, (_P,)),
    "create_snapshot": (_P, (_P,)),
    "release_snapshot": (None, (_P, _P)),
    "writeoptions_create": (_P, ()),
    "writeoptions_disable_WAL": (None, (_P, c_int)),
    "flushoptions_create": (_P, ()),
    "cache_create_lru": (_P, (_S,)),
    "write_buffer_manager_create_with_cache": (_P, (_S, _P, _FLAG)),
    "filterpolicy_create_bloom_full": (_P, (c_double,)),
    "block_based_options_create": (_P, ()),
    "block_based_options_set_block_cache": (None, (_P, _P)),
    "block_based_options_set_filter_policy": (None, (_P, _P)),
    "block_based_options_set_cache_index_and_filter_blocks": (None, (_P, _FLAG)),
    "block_based_options_set_pin_l0_filter_and_index_blocks_in_cache": (None, (_P, _FLAG)),
    "block_based_options_set_partition_filters": (None, (_P, _FLAG)),
    "block_based_options_set_pin_top_level_index_and_filter": (None, (_P, _FLAG)),
    "block_based_options_set_index_type": (None, (_P, c_int)),
    "block_based_options_set_format_version": (None, (_P, c_int)),
    "options_create": (_P, ()),
    "options_set_block_based_table_factory": (None, (_P, _P)),
    "options_set_write_buffer_manager": (None, (_P, _P)),
    "options_set_create_if_missing": (None, (_P, _FLAG)),
    "options_set_write_buffer_size": (None, (_P, _S)),
    "options_set_compression": (None, (_P, c_int)),
    "options_set_compaction_style": (None, (_P, c_int)),
    "options_set_level0_file_num_compaction_trigger": (None, (_P, c_int)),
    "options_set_level0_slowdown_writes_trigger": (None, (_P, c_int)),
    "options_set_level0_stop_writes_trigger": (None, (_P, c_int)),
    "options_set_max_background_jobs": (None, (_P, c_int)),
    "options_set_max_open_files": (None, (_P, c_int)),
    "options_set_max_file_opening_threads": (None, (_P, c_int)),
    "options_set_skip_stats_update_on_db_open": (None, (_P, _FLAG)),
    "options_set_stats_dump_period_sec": (None, (_P, c_int)),
    "options_set_stats_persist_period_sec": (None, (_P, c_int)),
    "options_set_keep_log_file_num": (None, (_P, _S)),
    "options_set_max_log_file_size": (None, (_P, _S)),
    "options_set_manifest_preallocation_size": (None, (_P, _S)),
}


class RocksError(Exception):
    """The text of an error that RocksDB has returned."""


class Library(CLibrary):
    """RocksDB's functions, named without their `rocksdb_` prefix.

    Raises:
        OSError: It cannot be loaded.
        AttributeError: The library lacks a function.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rocksdb_", _SIGNATURES)

    def checked(self, name: str, *arguments: object) -> int:
        """Calls a function whose last parameter receives an error's text; returns its pointer, 0 for none.

        Raises:
            RocksError: The function has returned an error.
        """
        error = c_uint64()
        result = getattr(self, name)(*arguments, ctypes.addressof(error))
        self.raise_if(error.value)
        return int(result or 0)

    def raise_if(self, error: int) -> None:
        """Raises the error whose text is at this address (0 = no error) and frees the text."""
        if error:
            text = ctypes.string_at(error).decode(errors="replace")
            self.free(error)
            raise RocksError(text)


def python_addresses(names: Sequence[str]) -> list[int]:
    """Addresses of functions of Python's own C API."""
    return [address_of(getattr(ctypes.pythonapi, name)) for name in names]


def _names() -> tuple[str, ...]:
    """The jar's names of the library for this machine: for glibc, then for musl."""
    machines = {"x86_64": "linux64", "aarch64": "linux-aarch64"}
    name = machines.get(platform.machine()) if platform.system() == "Linux" else None
    return () if name is None else (f"librocksdbjni-{name}.so", f"librocksdbjni-{name}-musl.so")


def _jars() -> Iterator[Path]:
    """The rocksdbjni jars of pyspark and of Spark's own installation."""
    spec = find_spec("pyspark")
    folders = [Path(place) / "jars" for place in (spec.submodule_search_locations or ()) if spec] if spec else []
    if home := os.environ.get("SPARK_HOME"):
        folders.append(Path(home) / "jars")
    for folder in folders:
        yield from sorted(folder.glob("rocksdbjni-*.jar"))


def unpack(jar: Path, name: str, folder: Path) -> Path:
    """The library of this name in the jar, as a file in the folder; unpacked unless it is there."""
    with zipfile.ZipFile(jar) as archive:
        entry = archive.getinfo(name)
        target = folder / f"{jar.stem}-{entry.CRC:08x}-{name}"
        if target.exists() and target.stat().st_size == entry.file_size:
            return target
        # Written next to its place and renamed, because other processes may look for it at the same time.
        descriptor, part = tempfile.mkstemp(prefix=f"{name}.", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(archive.read(entry))
            os.replace(part, target)
        finally:
            Path(part).unlink(missing_ok=True)
    return target


@functools.lru_cache(maxsize=1)
def find_library() -> Library | None:
    """The library of pyspark's jar; None if it cannot be used."""
    for jar in _jars():
        for name in _names():
            try:
                return Library(unpack(jar, name, cache_folder()))
            except (OSError, KeyError, AttributeError, zipfile.BadZipFile):
                continue
    return None


def library() -> Library:
    """The library; only valid if `native_available()`."""
    found = find_library()
    if found is None:
        raise StateError(
            "RocksDB's library was not found in pyspark's rocksdbjni jar; open the store with `RocksTable` instead"
        )
    return found


def native_available() -> bool:
    """Whether tables use RocksDB's C API: where the library is found, unless the environment has `STREAMS_ROCKSDB_NATIVE=0`."""
    return os.environ.get(SWITCH_VARIABLE) != "0" and find_library() is not None


# --- RocksDB's options through its C API: the counterpart of `state.tables.rocks_common`, whose values it uses.

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
