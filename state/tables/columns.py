"""Bulk operations of the ordered tables on Arrow columns for tables without a faster way: `RowByRow`.

Vectorised operators look up, scan and write whole columns of keys. A table that reaches its rows one at a time only (in memory,
or through rocksdict) takes these operations from `RowByRow`, whose results define what every faster way must return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa

from state.tables.binary_columns import inverse, is_identity, sorted_rows
from state.tables.table import Columns, KeyRange, RangeRows, Row, RowChange


class _Rows(Protocol):
    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]: ...

    def write(
        self, changes: Iterator[RowChange], delete_ranges: Sequence[KeyRange], halfway: Callable[[], None] | None
    ) -> None: ...


class RowByRow:
    """The operations of `OrderedTable` and `DiskTable` on columns, made of those on single rows."""

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
    ) -> None:
        self.write(rows_of([(keys, values)]), delete_ranges, halfway)

    def write_sorted(self: _Rows, parts: Iterable[Columns], halfway: Callable[[], None] | None = None) -> None:
        self.write(rows_of(parts), (), halfway)


def rows_of(parts: Iterable[Columns]) -> Iterator[RowChange]:
    """The rows of columns, one by one."""
    for keys, values in parts:
        yield from zip(keys.to_pylist(), values.to_pylist(), strict=True)


def get_in_order(get: Callable[[pa.BinaryArray], pa.BinaryArray], keys: pa.BinaryArray) -> pa.BinaryArray:
    """The values of keys in any order, by a way that needs them sorted, or is twice as fast then."""
    order = sorted_rows(keys)
    return get(keys) if is_identity(order) else get(keys.take(pa.array(order))).take(pa.array(inverse(order)))


def scan_in_order(
    scan: Callable[[pa.BinaryArray, pa.BinaryArray], RangeRows], lowers: pa.BinaryArray, uppers: pa.BinaryArray
) -> RangeRows:
    """The rows of ranges in any order, by a way that wants them sorted by their lower ends."""
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
    return pa.array([key for key, _ in rows], pa.binary()), pa.array([value for _, value in rows], pa.binary())


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
