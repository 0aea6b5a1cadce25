"""`OrderedTable`: the database interface of the byte stores. Keys are sorted by unsigned bytes; every write is atomic.

Invariants: `write` and `write_sorted` are all or nothing, and survive a kill of the process right afterwards. Only one
process at a time has a table open. A table is read while a step runs, and written only after the step's commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sortedcontainers import SortedDict

from state.columns import binary_column
from state.errors import StateError
from state.sorting import inverse, is_identity, sorted_rows

Row = tuple[bytes, bytes]
RowChange = tuple[bytes, "bytes | None"]
"""Key and new value; None deletes."""
Columns = tuple[pa.BinaryArray, pa.BinaryArray]
"""Keys (none null) and new values; null deletes."""
KeyRange = tuple[bytes, bytes]
"""[lower, upper)."""


class RangeRows(NamedTuple):
    """Rows of several key ranges, columns of equal length, ordered by range and then by key.

    Attributes:
        ranges: int32[n], index of the range that a row was found for.
        keys: binary[n], none null.
        values: binary[n], none null.
    """

    ranges: npt.NDArray[np.int32]
    keys: pa.BinaryArray
    values: pa.BinaryArray


class OrderedTable(Protocol):
    """An ordered map of bytes."""

    @property
    def location(self) -> str:
        """The table's location, for messages."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, in their order."""

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """Rows with lower <= key < upper in key order or reverse order, as of now."""

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        """Applies changes atomically, the ranges first.

        A write survives a kill of the process if it is `durable`, or once a later write is. After a kill, the table is as it was
        after one of its writes.
        """

    def write_columns(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        """Does the same as `write` for changes as columns, in any order, with each key at most once; a null value deletes."""

    def write_sorted(self, parts: Iterable[Columns], halfway: Callable[[], None] | None = None) -> None: ...

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The values of a column of keys (none null), null where a key has none. Sorted keys are the fastest."""

    def scan_ranges(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        """Rows of the ranges lower <= key < upper, as of now. Ranges sorted by their lower ends are the fastest."""

    def scan_part(self, lower: bytes, upper: bytes, rows: int, size: int) -> Columns:
        """The first rows of a range: at most `rows` of them, with about `size` bytes of keys or values at most."""

    def snapshot(self) -> OrderedTable:
        """The current rows, for reading only. Later writes do not change them. Close it when you no longer need it."""

    def close(self) -> None:
        """Releases all resources. Scans that are still open fail once the rows they have read ahead are used up."""


@runtime_checkable
class CheckpointedTable(Protocol):
    """A table on disk that can make a second set of its files."""

    def checkpoint(self, folder: Path) -> None:
        """Makes a database of the committed rows as of now: table files get a second name, all other files are copied."""


# --- Estimates of how many rows and bytes key ranges have, for metrics of stores: cheap, never exact for large ranges.
#
# RocksDB knows about how many rows a whole database has, and about how many compressed bytes a range takes. The first rows of a
# range say how large its rows are. So a range with few rows is counted, and the large ones share the other rows by their bytes.

FIRST_ROWS = 1_000
ROW_COUNT = "rocksdb.estimate-num-keys"
"""RocksDB's property of the number of rows in a database."""
_FIRST_BYTES = 256 * 1024


class RangeSize(NamedTuple):
    """The estimated size of a key range: rows, and the bytes of their keys and values."""

    rows: int
    bytes: int


@runtime_checkable
class SizedTable(Protocol):
    """A table that can estimate the sizes of ranges."""

    def sizes(self, ranges: Sequence[KeyRange]) -> list[RangeSize]:
        """The estimated size of each range. Rows that were overwritten or deleted may count until a compaction."""


def estimated(
    ranges: Sequence[KeyRange],
    first: Callable[[bytes, bytes, int, int], Columns],
    weights: Callable[[], Sequence[int]],
    total_rows: Callable[[], int],
) -> list[RangeSize]:
    """The estimated sizes of ranges, from their first rows and their weights."""
    begun = [_measured(*first(*one, FIRST_ROWS, _FIRST_BYTES)) for one in ranges]
    large = [at for at, (size, ended) in enumerate(begun) if not ended]
    found = [size for size, _ in begun]
    if not large:
        return found
    rest = max(0, total_rows() - sum(size.rows for size, ended in begun if ended))
    all_weights = weights()
    shares = {at: max(1, all_weights[at]) * found[at].rows / max(1, found[at].bytes) for at in large}
    for at in large:
        rows = max(found[at].rows, round(rest * shares[at] / sum(shares.values())))
        found[at] = RangeSize(rows, rows * found[at].bytes // max(1, found[at].rows))
    return found


def _measured(keys: pa.BinaryArray, values: pa.BinaryArray) -> tuple[RangeSize, bool]:
    """The size of a range's first rows, and whether these are all of its rows."""
    sizes = [pc.sum(pc.binary_length(column)).as_py() or 0 for column in (keys, values)]
    ended = len(keys) < FIRST_ROWS and max(sizes) < _FIRST_BYTES // 2
    return RangeSize(len(keys), sum(sizes)), ended


# --- Bulk operations of the ordered tables on Arrow columns for tables without a faster way: `RowByRow`.
#
# Vectorised operators look up, scan and write whole columns of keys. A table that reaches its rows one at a time only (in memory,
# or through rocksdict) takes these operations from `RowByRow`, whose results define what every faster way must return.


class _Rows(Protocol):
    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]: ...

    def write(
        self,
        changes: Iterator[RowChange],
        delete_ranges: Sequence[KeyRange],
        halfway: Callable[[], None] | None,
        durable: bool = True,
    ) -> None: ...


class RowByRow:
    """The column operations of `OrderedTable` and `DiskTable`, made from operations on single rows."""

    def get_columns(self: _Rows, keys: pa.BinaryArray) -> pa.BinaryArray:
        return pa.array(self.multi_get(keys.to_pylist()), pa.binary())

    def scan_ranges(self: _Rows, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        return scan_each(self.scan, lowers, uppers)

    def scan_part(self: _Rows, lower: bytes, upper: bytes, rows: int, size: int) -> Columns:
        found: list[Row] = []
        for row in islice(self.scan(lower, upper), rows):
            found.append(row)
            size -= len(row[1])
            if size <= 0:
                break
        return columns_of(found)

    def write_columns(
        self: _Rows,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        self.write(rows_of([(keys, values)]), delete_ranges, halfway, durable)

    def write_sorted(self: _Rows, parts: Iterable[Columns], halfway: Callable[[], None] | None = None) -> None:
        self.write(rows_of(parts), (), halfway)


class NoWrites:
    """The operations of `OrderedTable` that a snapshot refuses."""

    location: str

    def write(self, *_: object) -> None:
        raise self._refused()

    write_columns = write_sorted = write

    def snapshot(self) -> OrderedTable:
        raise self._refused()

    def _refused(self) -> StateError:
        return StateError(
            f"a snapshot of the store in {self.location} can only be read (this is an error in the caller)"
        )


def rows_of(parts: Iterable[Columns]) -> Iterator[RowChange]:
    """The rows of the parts' columns, one by one."""
    for keys, values in parts:
        yield from zip(keys.to_pylist(), values.to_pylist(), strict=True)


def get_in_order(get: Callable[[pa.BinaryArray], pa.BinaryArray], keys: pa.BinaryArray) -> pa.BinaryArray:
    """The values of keys in any order, through a function that needs sorted keys, or is twice as fast with them."""
    order = sorted_rows(keys)
    return get(keys) if is_identity(order) else get(keys.take(pa.array(order))).take(pa.array(inverse(order)))


def scan_in_order(
    scan: Callable[[pa.BinaryArray, pa.BinaryArray], RangeRows], lowers: pa.BinaryArray, uppers: pa.BinaryArray
) -> RangeRows:
    """The rows of ranges in any order, through a function that needs them sorted by their lower ends."""
    order = sorted_rows(lowers)
    if is_identity(order):
        return scan(lowers, uppers)
    by_key = pa.array(order)
    found = scan(lowers.take(by_key), uppers.take(by_key))
    ranges = order[found.ranges]
    rows = np.argsort(ranges, kind="stable")
    taken = pa.array(rows)
    return RangeRows(ranges[rows].astype(np.int32), found.keys.take(taken), found.values.take(taken))


def columns_of(rows: Sequence[RowChange]) -> Columns:
    return binary_column([key for key, _ in rows]), binary_column([value for _, value in rows])


def scan_each(
    scan: Callable[[bytes, bytes], Iterator[Row]], lowers: pa.BinaryArray, uppers: pa.BinaryArray
) -> RangeRows:
    """Rows of the ranges lower <= key < upper, one scan a range."""
    ranges: list[int] = []
    rows: list[Row] = []
    for index, (lower, upper) in enumerate(zip(lowers.to_pylist(), uppers.to_pylist(), strict=True)):
        if lower < upper:
            rows.extend(scan(lower, upper))
            ranges.extend([index] * (len(rows) - len(ranges)))
    return RangeRows(np.array(ranges, np.int32), *columns_of(rows))


class MemoryTable(RowByRow):
    """A sorted dictionary behind the interface `OrderedTable`."""

    location = "memory"

    def __init__(self) -> None:
        self._rows: SortedDict = SortedDict()

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._rows.get(key)
        return value

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._rows.get(key) for key in keys]

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        rows = self._rows
        return iter([(key, rows[key]) for key in rows.irange(lower, upper, (True, False), reverse)])

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        if halfway is not None:
            halfway()
        rows = self._rows
        for lower, upper in delete_ranges:
            for key in list(rows.irange(lower, upper, (True, False))):
                del rows[key]
        for key, value in changes:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    def sizes(self, ranges: Sequence[KeyRange]) -> list[RangeSize]:
        return [self._size(*one) for one in ranges]

    def _size(self, lower: bytes, upper: bytes) -> RangeSize:
        rows = self._rows
        count = rows.bisect_left(upper) - rows.bisect_left(lower)
        first = list(islice(rows.irange(lower, upper, (True, False)), FIRST_ROWS))
        size = sum(len(key) + len(rows[key]) for key in first)
        return RangeSize(count, size * count // max(1, len(first)))

    def snapshot(self) -> MemoryTable:
        copied = MemoryTable()
        copied._rows = self._rows.copy()
        return copied

    def close(self) -> None:
        """Has no effect: the rows stay, and the table may be used again."""
