"""Columns of the rows of `unmatched_lists`, and their form in the changelog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, binary_column, cell_sizes, joined, sliced
from state.headers import decode_headers, encode_headers
from state.stores.header_rows import headers_in_front, without_headers
from state.stores.unmatched_lists import (
    HEADERS,
    LENGTH,
    LENGTHS_FOLLOW,
    LIST_HEAD,
    NO_HEADERS,
    are_headers_of,
    is_list_of,
    records_in,
    with_headers,
)

Int64s = npt.NDArray[np.int64]

_FIELDS = [("kind", "u1"), ("count", ">i4"), ("size", ">i4"), ("side", "u1")]
_LOGGED_ONE = np.dtype(_FIELDS)
"""The number of bytes before the value in a list with one record."""
_ONE = np.dtype([("headers", ">i4"), *_FIELDS])
"""The number of bytes before the value, in a local value with one record and no headers."""
_ONE_BEGINS = NO_HEADERS + LIST_HEAD.pack(LENGTHS_FOLLOW, 1)


class UnmatchedRecords(NamedTuple):
    """The records in rows.

    Attributes:
        rows: The row of each record, rising.
        values: Their values.
        headers: Their encoded headers; None: no record has any.
    """

    rows: Int64s
    values: BinaryColumn
    headers: list[bytes | None] | None


def rows_of_one(sides: Int64s, headers: Sequence[bytes | None] | None, values: BinaryColumn) -> BinaryColumn:
    """Local values of rows with one record each. The record has these encoded headers and this value."""
    heads = np.zeros(len(sides), _ONE)
    heads["kind"], heads["count"], heads["side"] = LENGTHS_FOLLOW, 1, sides
    heads["size"] = cell_sizes(values) + 1
    data = [None, pa.py_buffer(heads)]
    rows = joined(
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(_ONE.itemsize), len(heads), data).cast(pa.binary()), values
    )
    if headers is None or not any(headers):
        return rows
    cells = zip(headers, rows.to_pylist(), strict=True)
    return binary_column([with_headers([one], row[LENGTH.size :]) for one, row in cells])


def records_of(rows: BinaryColumn) -> UnmatchedRecords:
    """The records in local values, none of them null."""
    begins = pc.binary_slice(rows, 0, len(_ONE_BEGINS))
    if pc.all(pc.equal(begins, pa.scalar(_ONE_BEGINS, begins.type))).as_py() is not False:
        return UnmatchedRecords(np.arange(len(rows)), sliced(rows, _ONE.itemsize), None)
    found = [(at, *record) for at, row in enumerate(rows.to_pylist()) for record in records_in(row)]
    places, _, values, headers = zip(*found, strict=True)
    return UnmatchedRecords(np.array(places), binary_column(values), list(headers) if any(headers) else None)


def wrong_lists(sides: Int64s, values: BinaryColumn, headers: Sequence[bytes | None] | None) -> npt.NDArray[np.bool_]:
    """bool[n]: which changelog values are not lists of values of their side, or do not fit their headers. No value is null."""
    sizes = cell_sizes(values)
    wrong = sizes < _LOGGED_ONE.itemsize
    at = np.flatnonzero(~wrong)
    fronts = pc.binary_slice(values.take(pa.array(at)), 0, _LOGGED_ONE.itemsize)
    heads = np.frombuffer(b"".join(fronts.to_pylist()), _LOGGED_ONE)
    one = (heads["kind"] == LENGTHS_FOLLOW) & (heads["count"] == 1)
    fits = (heads["size"] == sizes[at] - LIST_HEAD.size - LENGTH.size) & (heads["side"] == sides[at])
    wrong[at[one]] = ~fits[one]
    for row in at[~one].tolist():
        wrong[row] = not is_list_of(int(sides[row]), values[row].as_py())
    for row, cells in enumerate(headers or ()):
        if cells and not wrong[row]:
            wrong[row] = not are_headers_of(values[row].as_py(), cells)
    return wrong


# --- Between local rows and records of the changelog.


def logged_columns(values: BinaryColumn) -> tuple[BinaryColumn, pa.BinaryArray | None]:
    """The values of records of the changelog for local values, and their headers; null for a row that was deleted."""
    logged, headers = without_headers(values)
    if headers is None:
        return logged, None
    return logged, pa.array([encode_headers([(HEADERS, own)]) if own else None for own in headers], pa.binary())


def local_values(values: BinaryColumn, headers: pa.BinaryArray | None) -> BinaryColumn:
    """The local values for records of the changelog."""
    return headers_in_front(values, header_cells(headers))


def header_cells(headers: pa.BinaryArray | None) -> list[bytes | None] | None:
    """The headers of unmatched records, from the headers of changelog records; None: no record has any."""
    if headers is None or headers.null_count == len(headers):
        return None
    found = [dict(decode_headers(cell)).get(HEADERS) for cell in headers.to_pylist()]
    return found if any(found) else None
