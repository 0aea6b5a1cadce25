"""The ordered table of a task through RocksDB's C API: `NativeTable`, and how it reads and writes columns and single rows."""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import (
    BYTES,
    COUNTERS,
    FEW_ROWS,
    FULL,
    MEMCMP,
    NEEDED,
    NULLS,
    ROWS,
    BinaryCells,
    ColumnBuffers,
    address_of,
    binary_column,
)
from state.errors import StateError
from state.tables import native_kernels as kernels
from state.tables import native_objects as objects
from state.tables.files import make_private
from state.tables.native_library import Handles, Library, RocksError, handles, library, python_addresses
from state.tables.rocks_common import (
    DEFAULT_SETTINGS,
    RocksSettings,
    closed_during_scan,
    closed_error,
    named_error,
    open_when_released,
)
from state.tables.table import (
    ROW_COUNT,
    Columns,
    KeyRange,
    NoWrites,
    OrderedTable,
    RangeRows,
    RangeSize,
    Row,
    RowChange,
    columns_of,
    estimated,
    get_in_order,
    scan_in_order,
)

# First guesses: bytes of a key or value, rows of a range.
_CELL_BYTES = 256
_RANGE_ROWS = 2


class DatabaseColumns:
    """Reads an open database by columns."""

    def __init__(self, library: Library, database: int, read_options: int) -> None:
        self._library = library
        self._database = database
        self._options = read_options
        self._functions = kernel_functions(library)
        self._family = library.get_default_column_family_handle(database)

    def close(self) -> None:
        """Releases all that belongs to the database, which can be closed afterwards."""
        family, self._family = self._family, None
        if family:
            self._library.column_family_handle_destroy(family)

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return get_in_order(self._get_sorted, keys)

    def _get_sorted(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        count = len(keys)
        cells, counters, error = BinaryCells(keys), np.zeros(COUNTERS, np.int64), np.zeros(1, np.int64)
        addresses = np.array([cells.addresses], np.int64)
        values = ColumnBuffers(count, count * _CELL_BYTES)
        while True:
            table = np.array([values.addresses], np.int64)
            kernels.get_cells(
                self._database, self._family, self._options, self._functions, addresses, count, table, counters, error
            )
            self._library.raise_if(int(error[0]))
            if counters[FULL] < 0:
                return values.array(count, int(counters[BYTES]), int(counters[NULLS]))
            values.enlarge(count, 2 * (int(counters[BYTES]) + int(counters[NEEDED])))

    def scan_ranges(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        return scan_in_order(self._scan_sorted, lowers, uppers)

    def _scan_sorted(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        iterator = self._library.create_iterator(self._database, self._options)
        try:
            return self._scan_ranges(iterator, BinaryCells(lowers), BinaryCells(uppers), len(lowers))
        finally:
            self._library.iter_destroy(iterator)

    def scan_part(self, lower: bytes, upper: bytes, rows: int, size: int) -> Columns:
        lowers, uppers = (BinaryCells(binary_column([end])) for end in (lower, upper))
        bounds = np.array([lowers.addresses, uppers.addresses], np.int64)
        iterator = self._library.create_iterator(self._database, self._options)
        try:
            while True:
                counters, error = np.zeros(COUNTERS, np.int64), np.zeros(1, np.int64)
                columns = [ColumnBuffers(rows, size) for _ in range(2)]
                table = np.array([column.addresses for column in columns], np.int64)
                kernels.scan_part(iterator, self._functions, bounds, rows, table, counters, error)
                self._library.raise_if(int(error[0]))
                if counters[ROWS] or counters[FULL] < 0:
                    break
                # The first row alone is larger.
                size = int(counters[NEEDED])
        finally:
            self._library.iter_destroy(iterator)
        found = int(counters[ROWS])
        keys, values = (column.array(found, int(counters[BYTES + i]), 0) for i, column in enumerate(columns))
        return keys, values

    def _scan_ranges(self, iterator: int, lowers: BinaryCells, uppers: BinaryCells, count: int) -> RangeRows:
        bounds = np.array([lowers.addresses, uppers.addresses], np.int64)
        counters, error = np.zeros(COUNTERS, np.int64), np.zeros(1, np.int64)
        state = np.zeros(kernels.SCAN_STATE + 1, np.int64)
        state[kernels.SCAN_STATE] = count
        slots = count * _RANGE_ROWS + 1
        ranges: npt.NDArray[np.int32] = np.empty(slots, np.int32)
        columns = [ColumnBuffers(slots, slots * _CELL_BYTES) for _ in range(2)]
        while True:
            table = np.array([column.addresses for column in columns], np.int64)
            kernels.scan_ranges(iterator, self._functions, bounds, ranges, table, counters, state, error)
            self._library.raise_if(int(error[0]))
            if counters[FULL] < 0:
                break
            if counters[FULL] == kernels.SLOTS:
                slots *= 2
                ranges = np.concatenate([ranges, np.empty(slots - len(ranges), np.int32)])
            for which, column in enumerate(columns):
                # Not by the bytes used: a range that does not fit is taken back, and begun again.
                room = 2 * (column.capacity + int(counters[NEEDED])) if counters[FULL] == which else 0
                column.enlarge(slots, room)
        rows = int(counters[ROWS])
        keys, values = (column.array(rows, int(counters[BYTES + i]), 0) for i, column in enumerate(columns))
        return RangeRows(ranges[:rows], keys, values)


def kernel_functions(library: Library) -> npt.NDArray[np.int64]:
    """The addresses of RocksDB's functions, as the kernels take them."""
    return np.array([*(library.address(name) for name in kernels.FUNCTIONS), MEMCMP], np.int64)


class RowReader:
    """Reads an open database row by row."""

    def __init__(self, library: Library, database: int, read_options: int, location: str) -> None:
        self._library = library
        self._location = location
        self._block = np.zeros(objects.WORDS, np.int64)
        functions = [*(library.address(name) for name in objects.ROCKS), *python_addresses(objects.PYTHON)]
        self._block[: len(functions)] = functions
        self._block[objects.MEMCMP], self._block[objects.NONE] = MEMCMP, id(None)
        self._block[objects.EXCEPTION] = id(objects.ReadError)
        self._block[objects.DATABASE], self._block[objects.READ_OPTIONS] = database, read_options
        self._at = self._block.ctypes.data
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = objects.get_value(self._at, key, len(key))
        except objects.ReadError as error:
            raise self._error() from error
        return value

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool) -> Iterator[Row]:
        size = objects.NO_BOUND if upper is None else len(upper)
        try:
            rows, iterator = objects.start_scan(self._at, lower, len(lower), upper, size, reverse)
        except objects.ReadError as error:
            raise self._error() from error
        if not iterator:
            return iter(rows)
        scan = _Scan(self, rows, iterator, lower if reverse else upper, reverse)
        self._scans.add(scan)
        return scan

    def more(self, iterator: int, bound: bytes | None, reverse: bool) -> tuple[list[Row], int]:
        """Further rows of a scan up to `bound`, and the iterator, 0 at the end."""
        size = objects.NO_BOUND if bound is None else len(bound)
        try:
            rows, iterator = objects.read_rows(self._at, iterator, bound, size, reverse)
        except objects.ReadError as error:
            raise self._error() from error
        return rows, iterator

    def destroy(self, iterator: int) -> None:
        """Releases an iterator that was not read to its end."""
        self._library.iter_destroy(iterator)

    def closed_during_scan(self) -> StateError:
        """The error for reading on after `close`."""
        return closed_during_scan(self._location)

    def close(self) -> None:
        """Ends the scans that are still open; the database can be closed afterwards."""
        for scan in list(self._scans):
            scan.end()
        self._block[objects.DATABASE] = 0

    def _error(self) -> StateError:
        if self._block[objects.DATABASE] == 0:
            return closed_error(self._location)
        address = int(self._block[objects.ERROR])
        self._block[objects.ERROR] = 0
        try:
            self._library.raise_if(address)
        except RocksError as error:
            return named_error(self._location, str(error))
        raise AssertionError("RocksDB gave neither a result nor an error")


class _Scan:
    """The rows of a range: first the rows read already, then the rows of the iterator."""

    __slots__ = ("__weakref__", "_bound", "_ended", "_iterator", "_reader", "_reverse", "_rows")

    def __init__(self, reader: RowReader, rows: list[Row], iterator: int, bound: bytes | None, reverse: bool) -> None:
        self._reader = reader
        self._rows = iter(rows)
        self._iterator = iterator
        self._bound = bound
        self._reverse = reverse
        self._ended = False

    def __iter__(self) -> _Scan:
        return self

    def __next__(self) -> Row:
        if self._ended:
            raise self._reader.closed_during_scan()
        row = next(self._rows, None)
        if row is None:
            if not self._iterator:
                raise StopIteration
            iterator, self._iterator = self._iterator, 0
            rows, self._iterator = self._reader.more(iterator, self._bound, self._reverse)
            self._rows = iter(rows)
            row = next(self._rows)
        return row

    def end(self) -> None:
        """Releases the iterator; further reads raise an error."""
        self._release()
        self._ended = True

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        iterator, self._iterator = self._iterator, 0
        if iterator:
            self._reader.destroy(iterator)


_RANGE_DELETION = b"\x0f"
_HEADER = struct.Struct("<QI")


class Writer:
    """Writes to an open database."""

    def __init__(self, library: Library, database: int, handles: Handles) -> None:
        self._library = library
        self._database = database
        self._handles = handles
        self._functions = kernel_functions(library)

    def write_batch(self, keys: pa.BinaryArray, values: pa.BinaryArray, delete_ranges: Sequence[KeyRange]) -> None:
        """Applies changes atomically, the ranges first; without a flush they do not survive a kill."""
        table, _cells = _addresses(keys, values)
        ranges = b"".join(_RANGE_DELETION + _sized(lower) + _sized(upper) for lower, upper in delete_ranges)
        head = _HEADER.pack(0, len(keys) + len(delete_ranges)) + ranges
        batch = np.empty(len(head) + kernels.batch_bytes(table, len(keys)), np.uint8)
        batch[: len(head)] = np.frombuffer(head, np.uint8)
        at = address_of(batch)
        kernels.fill_batch(table, len(keys), at + len(head))
        handle = self._library.writebatch_create_from(at, len(batch))
        try:
            self._library.checked("write", self._database, self._handles.write, handle)
        finally:
            self._library.writebatch_destroy(handle)

    def flush(self) -> None:
        """Makes written rows survive a kill."""
        self._library.checked("flush", self._database, self._handles.flush)

    def write_file(self, path: Path, parts: Iterable[Columns]) -> bool:
        """Makes a table file of keys, strictly rising over all parts, and values; False = there were no rows."""
        writer = self._library.sstfilewriter_create(self._handles.environment, self._handles.database)
        error = np.zeros(1, np.int64)
        rows = 0
        try:
            self._library.checked("sstfilewriter_open", writer, os.fsencode(path))
            for keys, values in parts:
                table, _cells = _addresses(keys, values)
                kernels.fill_file(writer, self._functions, table, len(keys), error)
                self._library.raise_if(int(error[0]))
                rows += len(keys)
            if rows:
                self._library.checked("sstfilewriter_finish", writer)
        finally:
            self._library.sstfilewriter_destroy(writer)
        return rows > 0

    def ingest(self, path: Path) -> None:
        """Moves a table file into the database: atomic, and survives a kill."""
        name = np.frombuffer(os.fsencode(path) + b"\x00", np.uint8)
        names = np.array([name.ctypes.data], np.int64)
        self._library.checked("ingest_external_file", self._database, names.ctypes.data, 1, self._handles.ingest)


def _addresses(keys: pa.BinaryArray, values: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], tuple[BinaryCells, ...]]:
    """The kernels' table of both columns, and the objects that keep its addresses valid."""
    cells = (BinaryCells(keys), BinaryCells(values))
    return np.array([each.addresses for each in cells], np.int64), cells


def _sized(data: bytes) -> bytes:
    """Bytes, preceded by their length as a varint."""
    size, length = bytearray(), len(data)
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes(size) + data


class _Reads:
    """Reads of an open database, as of now or as of a snapshot.

    Args:
        database: RocksDB's database.
        read_options: RocksDB's options, which may have a snapshot.
    """

    def __init__(self, library: Library, database: int, read_options: int, location: str) -> None:
        self.location = location
        self._library = library
        self._database = database
        self._rows = RowReader(library, database, read_options, location)
        self._columns = DatabaseColumns(library, database, read_options)

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if len(keys) <= FEW_ROWS:
            return list(map(self._rows.get, keys))
        values: list[bytes | None] = self.get_columns(pa.array(keys, pa.binary())).to_pylist()
        return values

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        return self._rows.scan(lower, upper, reverse)

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        with self._named():
            return self._columns.get_columns(keys)

    def scan_ranges(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        with self._named():
            return self._columns.scan_ranges(lowers, uppers)

    def scan_part(self, lower: bytes, upper: bytes, rows: int, size: int) -> Columns:
        with self._named():
            return self._columns.scan_part(lower, upper, rows, size)

    def close(self) -> None:
        self._rows.close()
        self._columns.close()
        self._database = 0

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turns RocksDB's errors into the engine's own."""
        if not self._database:
            raise closed_error(self.location)
        try:
            yield
        except RocksError as error:
            raise named_error(self.location, str(error)) from error


class _Snapshot(NoWrites, _Reads):
    """A table as of a moment. RocksDB keeps the rows of that moment until `close`."""

    def __init__(self, library: Library, database: int, location: str) -> None:
        self._snapshot = library.create_snapshot(database)
        self._options = library.readoptions_create()
        library.readoptions_set_snapshot(self._options, self._snapshot)
        super().__init__(library, database, self._options, location)

    def close(self) -> None:
        database = self._database
        if database:
            super().close()
            self._library.readoptions_destroy(self._options)
            self._library.release_snapshot(database, self._snapshot)


class NativeTable(_Reads):
    """The ordered table of a task on disk, through RocksDB's C API.

    Files, invariants and errors are as for `RocksTable`, the reference: no write-ahead log; each write is one batch, followed
    by a flush if it is durable, or one ingested file; iterators are tracked and ended before the database is closed; an iterator's
    status is checked at every end. Compiled kernels carry whole columns of rows between Arrow buffers and RocksDB.
    """

    def __init__(self, path: Path | str, settings: RocksSettings = DEFAULT_SETTINGS, read_only: bool = False) -> None:
        self.path = Path(path)
        found, self._handles = library(), handles(settings)
        make_private(self.path)
        place = (self._handles.database, os.fsencode(self.path))
        arguments = ("open_for_read_only", *place, False) if read_only else ("open", *place)
        database = open_when_released(str(path), settings.lock_timeout_s, lambda: found.checked(*arguments))
        super().__init__(found, database, self._handles.read, str(path))
        self._writer = Writer(found, database, self._handles)
        self._snapshots: weakref.WeakSet[_Snapshot] = weakref.WeakSet()

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        self.write_columns(*columns_of(list(changes)), delete_ranges, halfway, durable)

    def write_columns(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        with self._named():
            self._writer.write_batch(keys, values, delete_ranges)
            if halfway is not None:
                halfway()
            if durable:
                self._writer.flush()

    def write_sorted(self, parts: Iterable[Columns], halfway: Callable[[], None] | None = None) -> None:
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
        with self._named():
            maker = self._library.checked("checkpoint_object_create", self._database)
            try:
                self._library.checked("checkpoint_create", maker, os.fsencode(folder), 0)
            finally:
                self._library.checkpoint_object_destroy(maker)

    def sizes(self, ranges: Sequence[KeyRange]) -> list[RangeSize]:
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

    def snapshot(self) -> OrderedTable:
        with self._named():
            made = _Snapshot(self._library, self._database, self.location)
        self._snapshots.add(made)
        return made

    def close(self) -> None:
        for snapshot in list(self._snapshots):
            snapshot.close()
        database = self._database
        super().close()
        if database:
            self._library.close(database)
