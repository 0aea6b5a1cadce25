"""`RowReader`: single values and scans of a native table as Python objects."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np

from state.column_kernels import MEMCMP
from state.errors import StateError
from state.tables.native import objects
from state.tables.native.library import Library, RocksError, python_addresses
from state.tables.rocks_errors import closed_during_scan, closed_error, named_error
from state.tables.table import Row


class RowReader:
    """Reads an open database row by row.

    Args:
        library: RocksDB's functions.
        database: The database.
        read_options: RocksDB's read options.
        location: The folder, for messages.
    """

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
        """See `OrderedTable`."""
        try:
            value: bytes | None = objects.get_value(self._at, key, len(key))
        except objects.ReadError as error:
            raise self._error() from error
        return value

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool) -> Iterator[Row]:
        """See `OrderedTable`."""
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
    """Rows of a range: those read already, then what the iterator gives."""

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
        """Releases the iterator; reading on is an error."""
        self._release()
        self._ended = True

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        iterator, self._iterator = self._iterator, 0
        if iterator:
            self._reader.destroy(iterator)
