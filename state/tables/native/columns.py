"""`ColumnReader`: look-ups and range scans of a native table by whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.column_kernels import BYTES, COUNTERS, FULL, MEMCMP, NEEDED, NULLS, ROWS, ColumnBuffers
from state.kafka.columns import BinaryCells
from state.tables.columns import get_in_order, scan_in_order
from state.tables.native import kernels
from state.tables.native.library import Library
from state.tables.table import Columns, RangeRows

# First guesses: bytes of a key or value, rows of a range.
_CELL_BYTES = 64
_RANGE_ROWS = 2


class ColumnReader:
    """Reads an open database by columns.

    Args:
        library: RocksDB's functions.
        database: The database.
        read_options: RocksDB's read options.
    """

    def __init__(self, library: Library, database: int, read_options: int) -> None:
        self._library = library
        self._database = database
        self._options = read_options
        self._functions = kernel_functions(library)
        self._family = library.get_default_column_family_handle(database)

    def close(self) -> None:
        """Releases what belongs to the database, which can be closed afterwards."""
        family, self._family = self._family, None
        if family:
            self._library.column_family_handle_destroy(family)

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """See `OrderedTable`."""
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
        """See `OrderedTable`."""
        return scan_in_order(self._scan_sorted, lowers, uppers)

    def _scan_sorted(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        iterator = self._library.create_iterator(self._database, self._options)
        try:
            return self._scan_ranges(iterator, BinaryCells(lowers), BinaryCells(uppers), len(lowers))
        finally:
            self._library.iter_destroy(iterator)

    def scan_part(self, lower: bytes, upper: bytes, rows: int, size: int) -> Columns:
        """See `DiskTable`."""
        lowers, uppers = (BinaryCells(pa.array([end], pa.binary())) for end in (lower, upper))
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
    """The addresses that the kernels get."""
    return np.array([*(library.address(name) for name in kernels.FUNCTIONS), MEMCMP], np.int64)
