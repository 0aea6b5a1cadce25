"""Estimates of how many rows and bytes key ranges of a table have, for figures about stores: cheap, never exact for large ranges.

RocksDB knows about how many rows a whole database has, and about how many compressed bytes a range takes. The first rows of a range
say how large its rows are. So a range with few rows is counted, and the large ones share the other rows by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from state.tables.table import Columns, KeyRange

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
    """The sizes of ranges."""
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
    """The size of a range's first rows, and whether these are all."""
    sizes = [pc.sum(pc.binary_length(column)).as_py() or 0 for column in (keys, values)]
    ended = len(keys) < FIRST_ROWS and max(sizes) < _FIRST_BYTES // 2
    return RangeSize(len(keys), sum(sizes)), ended
