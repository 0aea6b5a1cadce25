"""`NativeTable`: the ordered table of a task on disk, through RocksDB's C API.

Files, invariants and errors are those of `RocksTable`, the reference: no write-ahead log; each write is one batch followed by a
flush, or one ingested file; iterators are tracked and ended before the database is closed; an iterator's status is checked at
every end. Compiled kernels carry whole columns of rows between Arrow buffers and RocksDB.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from state.tables.columns import columns_of
from state.tables.native.columns import ColumnReader
from state.tables.native.library import RocksError, library
from state.tables.native.options import handles
from state.tables.native.rows import RowReader
from state.tables.native.writes import Writer
from state.tables.private_folder import make_private
from state.tables.rocks_errors import closed_error, named_error, open_when_released
from state.tables.rocks_options import DEFAULT_SETTINGS, RocksSettings
from state.tables.sizes import ROW_COUNT, RangeSize, estimated
from state.tables.table import Columns, KeyRange, RangeRows, Row, RowChange


class NativeTable:
    """An ordered table in a folder; see `RocksTable`."""

    def __init__(self, path: Path | str, settings: RocksSettings = DEFAULT_SETTINGS, read_only: bool = False) -> None:
        self.path = Path(path)
        self.location = str(path)
        self._library = library()
        self._handles = handles(settings)
        make_private(self.path)
        self._database = self._open(settings.lock_timeout_s, read_only)
        self._rows = RowReader(self._library, self._database, self._handles.read, self.location)
        self._columns = ColumnReader(self._library, self._database, self._handles.read)
        self._writer = Writer(self._library, self._database, self._handles)

    def _open(self, lock_timeout_s: float, read_only: bool) -> int:
        place = (self._handles.database, os.fsencode(self.path))
        arguments = ("open_for_read_only", *place, False) if read_only else ("open", *place)
        return open_when_released(self.location, lock_timeout_s, lambda: self._library.checked(*arguments))

    def get(self, key: bytes) -> bytes | None:
        """See `OrderedTable`."""
        return self._rows.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `OrderedTable`."""
        values: list[bytes | None] = self.get_columns(pa.array(keys, pa.binary())).to_pylist()
        return values

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """See `OrderedTable`. A snapshot: later writes are not seen."""
        return self._rows.scan(lower, upper, reverse)

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """See `OrderedTable`."""
        with self._named():
            return self._columns.get_columns(keys)

    def scan_ranges(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        """See `OrderedTable`."""
        with self._named():
            return self._columns.scan_ranges(lowers, uppers)

    def scan_part(self, lower: bytes, upper: bytes, rows: int, size: int) -> Columns:
        """See `DiskTable`."""
        with self._named():
            return self._columns.scan_part(lower, upper, rows, size)

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
    ) -> None:
        """See `OrderedTable`."""
        self.write_columns(*columns_of(list(changes)), delete_ranges, halfway)

    def write_columns(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
    ) -> None:
        """See `OrderedTable`."""
        with self._named():
            self._writer.write_batch(keys, values, delete_ranges)
            if halfway is not None:
                halfway()
            self._writer.flush()

    def write_unsafe(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        """A write of columns that a crash may lose, for scratch tables."""
        with self._named():
            self._writer.write_batch(keys, values, ())

    def write_sorted(self, parts: Iterable[Columns], halfway: Callable[[], None] | None = None) -> None:
        """See `OrderedTable`. Writes one sorted file, which RocksDB ingests."""
        part = self.path / "ingest.part"
        # A kill in the middle of an ingestion leaves a second name of the database's own file: it must not be written to.
        part.unlink(missing_ok=True)
        try:
            with self._named():
                if self._writer.write_file(part, parts):
                    if halfway is not None:
                        halfway()
                    self._writer.ingest(part)
        finally:
            part.unlink(missing_ok=True)

    def checkpoint(self, folder: Path) -> None:
        """See `CheckpointedTable`."""
        with self._named():
            maker = self._library.checked("checkpoint_object_create", self._database)
            try:
                self._library.checked("checkpoint_create", maker, os.fsencode(folder), 0)
            finally:
                self._library.checkpoint_object_destroy(maker)

    def sizes(self, ranges: Sequence[KeyRange]) -> list[RangeSize]:
        """See `SizedTable`."""
        with self._named():
            return estimated(ranges, self.scan_part, lambda: self._bytes_on_disk(ranges), self._row_count)

    def _row_count(self) -> int:
        found = ctypes.c_uint64()
        self._library.property_int(self._database, ROW_COUNT.encode(), ctypes.addressof(found))
        return found.value

    def _bytes_on_disk(self, ranges: Sequence[KeyRange]) -> list[int]:
        count = len(ranges)
        sizes = (ctypes.c_uint64 * count)()
        ends: list[Any] = []
        for side in zip(*ranges, strict=True):
            ends += [(ctypes.c_char_p * count)(*side), (ctypes.c_size_t * count)(*map(len, side))]
        self._library.checked("approximate_sizes", self._database, count, *ends, sizes)
        return list(sizes)

    def close(self) -> None:
        """See `OrderedTable`. May be called twice."""
        self._rows.close()
        self._columns.close()
        if self._database:
            self._library.close(self._database)
            self._database = 0

    @contextmanager
    def _named(self) -> Iterator[None]:
        """The engine's own error for one of RocksDB's."""
        if not self._database:
            raise closed_error(self.location)
        try:
            yield
        except RocksError as error:
            raise named_error(self.location, str(error)) from error
