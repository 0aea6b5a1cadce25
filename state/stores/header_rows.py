"""Columns of local values that begin with headers: `length(4) ∥ encoded headers ∥ value`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, binary_column, joined, sliced
from state.stores.buffer_values import LENGTH
from state.stores.unmatched_lists import NO_HEADERS, split_row


def without_headers(values: BinaryColumn) -> tuple[BinaryColumn, list[bytes | None] | None]:
    """Splits rows into their values, null for a deleted row, and their headers; None: no row has headers."""
    begins = pc.binary_slice(values, 0, LENGTH.size)
    if pc.all(pc.equal(begins, pa.scalar(NO_HEADERS, begins.type))).as_py() is not False:
        return sliced(values, LENGTH.size), None
    # Rows with headers are split one by one, because headers differ in length.
    split = [(b"", None) if row is None else split_row(row) for row in values.to_pylist()]
    return binary_column([value for _, value in split]), [own or None for own, _ in split]


def headers_in_front(values: BinaryColumn, headers: Sequence[bytes | None] | None) -> BinaryColumn:
    """The local values for values and their headers; null for null."""
    if headers is None or not any(headers):
        return joined(pa.scalar(NO_HEADERS, pa.binary()), values)
    rows = zip(headers, values.to_pylist(), strict=True)
    return binary_column(
        [None if value is None else LENGTH.pack(len(own or b"")) + (own or b"") + value for own, value in rows]
    )
