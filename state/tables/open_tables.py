"""Opens tables on disk: `open_table`; through links while a task has them open; and `OpenTables`, which keeps them open."""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from state.errors import StateCorruptedError, StateError
from state.tables.files import link_or_copy, make_private
from state.tables.native_library import native_available
from state.tables.rocks_common import DEFAULT_SETTINGS, RocksSettings, accepted, listening_socket
from state.tables.table import CheckpointedTable, OrderedTable


class DiskTable(OrderedTable, CheckpointedTable, Protocol):
    """A table in a folder."""


def open_table(
    path: Path, settings: RocksSettings = DEFAULT_SETTINGS, read_only: bool = False, compiled: bool = True
) -> DiskTable:
    """Opens the table in a folder. Both kinds write the same files, so one kind may open a table of the other.

    Args:
        path: The folder.
        settings: The settings of RocksDB.
        read_only: Whether it is only read.
        compiled: Whether to use the kind with compiled functions, which is faster but takes half a second to import.

    Raises:
        StateLockedError: Another process has the database open and does not release it in time.
        StateCorruptedError: The database is damaged; delete the folder and restore.
    """
    # Only the kind that is used is imported, because each brings a RocksDB of its own into memory.
    if compiled and native_available():
        from state.tables.native_table import NativeTable

        return NativeTable(path, settings, read_only)
    from state.tables.rocks import RocksTable

    return RocksTable(path, settings, read_only)


# --- A RocksDB database opened for reading while a task may have it open for writing, through links to its files.

# -1: all files are opened at once and stay open.
_SETTINGS = RocksSettings(block_cache_bytes=32 * 1024 * 1024, write_buffer_bytes=1024 * 1024, max_open_files=-1)
_Result = TypeVar("_Result")
_ATTEMPTS = 20
_PAUSE_S = 0.1


def open_linked(source: Path, folder: Path) -> DiskTable:
    """Opens a database as of now, through links to its files.

    Raises:
        StateCorruptedError: The files are inconsistent, even after several attempts.
    """

    def attempt() -> DiskTable:
        _link(source, folder, lambda file, link: link.symlink_to(file))
        # A command that prints some rows does not wait for compiled functions.
        return open_table(folder, _SETTINGS, read_only=True, compiled=False)

    return _repeated(source, folder, attempt)


def copy_linked(source: Path, folder: Path) -> None:
    """Makes a separate database from one that a task may have open. It may be written to, and outlives the other one.

    Raises:
        StateCorruptedError: The files are inconsistent, even after several attempts.
    """

    def attempt() -> None:
        _link(source, folder, link_or_copy)
        open_table(folder, _SETTINGS).close()

    _repeated(source, folder, attempt)


def _repeated(source: Path, folder: Path, attempt: Callable[[], _Result]) -> _Result:
    """The result of an attempt on an empty folder. The attempt is repeated while files vanish."""
    for number in range(1, _ATTEMPTS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return attempt()
        except (OSError, StateError) as error:
            if number == _ATTEMPTS:
                raise StateCorruptedError(str(source), str(error)) from error
        time.sleep(_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _link(source: Path, folder: Path, link: Callable[[Path, Path], None]) -> None:
    """Copies the list of files, then links the files: in this order the list names only files that are linked."""
    make_private(folder)
    for path in [source / "CURRENT", *source.glob("MANIFEST-*")]:
        shutil.copy(path, folder / path.name)
    for path in source.glob("*.sst"):
        link(path, folder / path.name)


IDLE_S = 30.0
"""Seconds after which an unused database is closed: a process that shares the disk but no sockets gets it then."""


@dataclass(eq=False)
class _Kept:
    table: OrderedTable
    listener: socket.socket
    files: tuple[int, int]
    used_at: float = 0.0
    in_use: bool = True
    wanted: bool = False


@dataclass(eq=False)
class OpenTables:
    """Databases that stay open between the steps of a process, until another process asks for them.

    Opening a database costs some milliseconds and begins with a cold cache, at every step of every task. Spark may run the next
    step of a task in another worker process, and only one process can have a database open. So a process that keeps a database
    open listens on a socket (`listening_socket`): a connection to it asks to close the database, which happens at once, or at
    the end of the running step. A process that ends releases its databases in any case.

    Attributes:
        open_table: Opens a database.
        idle_s: Seconds after which an unused database is closed.
    """

    open_table: Callable[[Path, RocksSettings], OrderedTable] = open_table
    idle_s: float = IDLE_S
    _kept: dict[Path, _Kept] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _selector: selectors.BaseSelector | None = None

    def take(self, path: Path, settings: RocksSettings) -> OrderedTable:
        """Returns the database of a folder, for one user at a time: the open one, or a newly opened one.

        Raises:
            StateLockedError: Another process, or another user in this one, does not release the database in time.
            StateCorruptedError: The database is damaged.
        """
        with self._lock:
            kept = self._kept.get(path)
            if kept is not None and not kept.in_use:
                if kept.files == _files(path):
                    kept.in_use = True
                    return kept.table
                # The folder was deleted, or replaced by another one: the open files no longer belong to it.
                self._close(path)
        return self.open_table(path, settings)

    def give_back(self, path: Path, table: OrderedTable) -> None:
        """Ends a use. The database stays open, unless another process has asked for it or sockets do not work here."""
        with self._lock:
            kept = self._kept.get(path)
            if kept is None or kept.table is not table:
                kept = self._listen(path, table)
            if kept is None:
                table.close()
                return
            kept.in_use, kept.used_at = False, time.monotonic()
            if kept.wanted:
                self._close(path)

    def close(self, path: Path, table: OrderedTable) -> None:
        """Closes a database after a failure, so that the next user opens it again."""
        with self._lock:
            kept = self._kept.get(path)
            if kept is not None and kept.table is table:
                self._close(path)
            else:
                table.close()

    def _listen(self, path: Path, table: OrderedTable) -> _Kept | None:
        files = _files(path)
        listener = listening_socket(path)
        if files is None or listener is None:
            return None
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            threading.Thread(target=self._serve, args=(self._selector,), name="kept-tables", daemon=True).start()
        kept = self._kept[path] = _Kept(table, listener, files)
        self._selector.register(listener, selectors.EVENT_READ, path)
        return kept

    def _serve(self, selector: selectors.BaseSelector) -> None:
        while True:
            # A database that is kept while this waits is found by the next call, after the idle time at the latest.
            for key, _ in selector.select(self.idle_s / 2):
                self._asked(key.data)
            self._close_idle()

    def _asked(self, path: Path) -> None:
        with self._lock:
            kept = self._kept.get(path)
            if kept is None or not accepted(kept.listener):
                return
            kept.wanted = True
            if not kept.in_use:
                self._close(path)

    def _close_idle(self) -> None:
        with self._lock:
            before = time.monotonic() - self.idle_s
            for path in [path for path, kept in self._kept.items() if not kept.in_use and kept.used_at < before]:
                self._close(path)

    def _close(self, path: Path) -> None:
        kept = self._kept.pop(path)
        assert self._selector is not None, "it was made before the first database was kept"
        self._selector.unregister(kept.listener)
        # Before the database, because its next owner listens under the same name.
        kept.listener.close()
        kept.table.close()


def _files(path: Path) -> tuple[int, int] | None:
    """The identity of a database's files; None if they are gone."""
    try:
        found = (path / "LOCK").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


_tables: dict[int, OpenTables] = {}


def open_tables() -> OpenTables:
    """The databases that this process keeps open. A forked process has its own."""
    return _tables.setdefault(os.getpid(), OpenTables())
