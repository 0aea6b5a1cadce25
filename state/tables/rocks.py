"""`RocksTable`: the ordered table of a task on disk, one RocksDB for all of the task's stores.

Invariants: no write-ahead log; each write is one batch, or one ingested file, so after a SIGKILL the database holds all of a write
or nothing of it. A durable write is followed by a flush; after a SIGKILL, the others since may be missing, the last ones first.
A live RocksDB iterator keeps the lock even after the database is closed, so the table tracks its scans and ends them first. An
iterator that meets a damaged block merely becomes invalid, so its status is checked at every end; otherwise rows would vanish
silently.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rocksdict

from state.errors import StateError
from state.tables.files import make_private
from state.tables.rocks_common import (
    DEFAULT_SETTINGS,
    SCRATCH,
    RocksSettings,
    closed_during_scan,
    closed_error,
    database_options,
    named_error,
    open_when_released,
    write_options,
)
from state.tables.table import (
    ROW_COUNT,
    Columns,
    KeyRange,
    NoWrites,
    OrderedTable,
    RangeSize,
    Row,
    RowByRow,
    RowChange,
    estimated,
    rows_of,
)


class RocksTable(RowByRow):
    """An ordered table in a folder.

    Args:
        path: The folder; created if missing, with access for its owner alone.
        settings: Memory and lock timeout; equal settings share one cache in this process.
        read_only: Open without the lock, for reading; any write is an error.

    Raises:
        StateLockedError: Another process has the database open and does not release it in time.
        StateCorruptedError: The database is damaged; delete the folder and restore.
    """

    def __init__(self, path: Path | str, settings: RocksSettings = DEFAULT_SETTINGS, read_only: bool = False) -> None:
        self.path = Path(path)
        self.location = str(path)
        self._options = database_options(settings)
        self._write_options = write_options()
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._snapshots: weakref.WeakSet[_Snapshot] = weakref.WeakSet()
        make_private(self.path)
        self._db: Any = self._open(settings.lock_timeout_s, read_only)

    def _open(self, lock_timeout_s: float, read_only: bool) -> Any:
        access = rocksdict.AccessType.read_only() if read_only else rocksdict.AccessType.read_write()

        def attempt() -> Any:
            return rocksdict.Rdict(self.location, self._options, access_type=access)

        return open_when_released(self.location, lock_timeout_s, attempt)

    def get(self, key: bytes) -> bytes | None:
        # A context manager would take longer than the look-up of a cached row.
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._error(error) from error
        return value

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._named():
            values: list[bytes | None] = self._db.get(list(keys))
        return values

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        with self._named():
            cursor = self._db.iter()
            if not reverse:
                cursor.seek(lower)
            elif upper is None:
                cursor.seek_to_last()
            else:
                cursor.seek_for_prev(upper)
                if cursor.valid() and cursor.key() == upper:
                    cursor.prev()
        scan = _Scan(self, cursor, lower, upper, reverse)
        self._scans.add(scan)
        return scan

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for lower, upper in delete_ranges:
            batch.delete_range(lower, upper)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        with self._named():
            self._db.write(batch, self._write_options)
        if halfway is not None:
            halfway()
        if durable:
            with self._named():
                self._db.flush()

    def write_sorted(self, parts: Iterable[Columns], halfway: Callable[[], None] | None = None) -> None:
        part = self.path / "ingest.part"
        # RocksDB takes a file over by a second name for it: after a kill before the first name is removed, writing to that name
        # would overwrite the database's own file.
        part.unlink(missing_ok=True)
        try:
            with self._named():
                writer = rocksdict.SstFileWriter(self._options)
                writer.open(str(part))
                count = 0
                for count, (key, value) in enumerate(rows_of(parts), 1):  # noqa: B007
                    if value is None:
                        del writer[key]
                    else:
                        writer[key] = value
                if count:
                    writer.finish()
                    options = rocksdict.IngestExternalFileOptions()
                    options.set_move_files(True)
                    if halfway is not None:
                        halfway()
                    self._db.ingest_external_file([str(part)], options)
        finally:
            part.unlink(missing_ok=True)

    def checkpoint(self, folder: Path) -> None:
        with self._named():
            rocksdict.Checkpoint(self._db).create_checkpoint(str(folder))

    def sizes(self, ranges: Sequence[KeyRange]) -> list[RangeSize]:
        return estimated(ranges, self.scan_part, lambda: self._bytes_on_disk(ranges), self._row_count)

    def _row_count(self) -> int:
        return int(self._db.property_int_value(ROW_COUNT) or 0)

    def _bytes_on_disk(self, ranges: Sequence[KeyRange]) -> list[int]:
        """The bytes of files, each file divided equally among the ranges that it has keys in."""
        sizes = [0] * len(ranges)
        for file in self._db.live_files():
            first, last = bytes(file["start_key"]), bytes(file["end_key"])
            within = [at for at, (lower, upper) in enumerate(ranges) if first < upper and lower <= last]
            for at in within:
                sizes[at] += file["size"] // len(within)
        return sizes

    def snapshot(self) -> OrderedTable:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=self.path.parent))
        self.checkpoint(folder / "db")
        made = _Snapshot(folder, self.location)
        self._snapshots.add(made)
        return made

    def close(self) -> None:
        for snapshot in list(self._snapshots):
            snapshot.close()
        for scan in list(self._scans):
            scan.end()
        if self._db is not None:
            self._db.close()
            self._db = None

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turns RocksDB's errors into the engine's own."""
        try:
            yield
        except StateError:
            raise
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> StateError:
        return closed_error(self.location) if self._db is None else named_error(self.location, str(error))


class _Snapshot(NoWrites, RocksTable):
    """A table as of a moment, through links to its files, because iterators of rocksdict's own snapshots also show later rows."""

    def __init__(self, folder: Path, location: str) -> None:
        super().__init__(folder / "db", read_only=True)
        self.location = location
        self._folder = folder

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Scan:
    """Rows of a range, one after the other. RocksDB's iterator is dropped as early as possible."""

    __slots__ = ("__weakref__", "_advance", "_cursor", "_ended", "_lower", "_reverse", "_table", "_upper")

    def __init__(self, table: RocksTable, cursor: Any, lower: bytes, upper: bytes | None, reverse: bool) -> None:
        self._table = table
        self._cursor = cursor
        self._advance = cursor.prev if reverse else cursor.next
        self._lower = lower
        self._upper = upper
        self._reverse = reverse
        self._ended = False

    def __iter__(self) -> _Scan:
        return self

    def __next__(self) -> Row:
        cursor = self._cursor
        if cursor is None:
            if self._ended:
                raise closed_during_scan(self._table.location)
            raise StopIteration
        if not cursor.valid():
            self._finish(cursor)
            raise StopIteration
        key: bytes = cursor.key()
        if (key < self._lower) if self._reverse else (self._upper is not None and key >= self._upper):
            self._cursor = self._advance = None
            raise StopIteration
        value: bytes = cursor.value()
        self._advance()
        return key, value

    def _finish(self, cursor: Any) -> None:
        self._cursor = self._advance = None
        with self._table._named():
            cursor.status()

    def end(self) -> None:
        """Releases the iterator; further reads raise an error."""
        if self._cursor is not None:
            self._cursor = self._advance = None
            self._ended = True
