"""The common part of both ways to RocksDB: options, errors, and the request to close a database that another process keeps open.

Kafka Streams gives every store, segment and partition its own cache and memtables (up to ~98 MiB each). Here one block cache and
one bound on memtables serve all tasks of a process. No options may be made before a fork, because RocksDB's threads do not
survive it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from state.errors import StateCorruptedError, StateError, StateLockedError


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


SCRATCH = "spill-"
"""The beginning of the names of folders next to a database that are useless once their process has ended."""


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


# --- The socket by which a process is asked to close a database that it keeps open (`state.tables.open_tables`).
#
# Its name is in Linux's abstract namespace, so nothing lies in the folder, which can be copied at any time, and the name ends with
# its process. It consists of the folder's device and inode: a process that knows the folder by another path finds it too.

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group of the other end (`SO_PEERCRED`)."""


def request_release(path: Path) -> None:
    """Asks the process that keeps a database open, if any, to close it. Returns at once."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.connect(_name(path))


def listening_socket(path: Path) -> socket.socket | None:
    """A socket for requests to close the database of a folder; None where that is not possible."""
    if sys.platform != "linux":
        return None
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_name(path))
        listener.listen(8)
        listener.setblocking(False)
    except OSError:
        listener.close()
        return None
    return listener


def accepted(listener: socket.socket) -> bool:
    """Accepts a request, and returns whether it counts: any user can connect, but only the same user and root may ask."""
    try:
        with listener.accept()[0] as asking:
            credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return False
    return _CREDENTIALS.unpack(credentials)[1] in (0, os.getuid())


def _name(path: Path) -> bytes:
    found = path.stat()
    return b"\0streams-on-spark/%x/%x" % (found.st_dev, found.st_ino)


_Opened = TypeVar("_Opened")
# A process that only keeps a database open closes it within milliseconds; a process in a step finishes the step first.
_FIRST_RETRY_S, _LAST_RETRY_S = 0.002, 0.05
# The text of RocksDB's lock error, and of no other: a path or "block checksum mismatch" contains "lock" too.
_LOCKED = ("While lock file", "lock hold by current process")


def open_when_released(location: str, lock_timeout_s: float, attempt: Callable[[], _Opened]) -> _Opened:
    """Returns what `attempt` opens. The attempt is repeated while another process has the database open.

    Raises:
        StateLockedError: The database was not released in time.
        StateCorruptedError: The database is damaged.
    """
    deadline = time.monotonic() + lock_timeout_s
    retry_s = _FIRST_RETRY_S
    while True:
        try:
            return attempt()
        except Exception as error:
            text = str(error)
            if not _in_use(location, text):
                raise named_error(location, text, opening=True) from error
            if time.monotonic() >= deadline:
                raise StateLockedError(location, lock_timeout_s, text) from error
        # Each time, because a process listens only from the end of its first use on.
        request_release(Path(location))
        time.sleep(retry_s)
        retry_s = min(2 * retry_s, _LAST_RETRY_S)


def _in_use(location: str, text: str) -> bool:
    """Whether another process has the database open, or has had it open during the attempt.

    RocksDB renames and deletes its log files (`LOG`, `LOG.old.…`) before it takes the lock, and when it closes. So a process that
    opens it may look for a log file that a closing process has just deleted. This is not damage: the state is in other files.
    """
    return any(words in text for words in _LOCKED) or ("No such file" in text and f"{location}/LOG" in text)


def named_error(location: str, text: str, opening: bool = False) -> StateError:
    """The error for this text of RocksDB."""
    if "Corruption" in text or (opening and "No such file" in text):
        return StateCorruptedError(location, text)
    return StateError(
        f"the store in {location} could not be {'opened' if opening else 'used'}: {text}; check the disk's "
        f"free space and the folder's permissions"
    )


def closed_error(location: str) -> StateError:
    """The error for a use of a table after it was closed."""
    return StateError(f"the store in {location} is closed; open it again (this is an error in the caller)")


def closed_during_scan(location: str) -> StateError:
    """The error for reading on in a scan after the table was closed."""
    return StateError(f"the store in {location} was closed while a scan of it was still being read")
