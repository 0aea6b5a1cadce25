"""`Block`: written rows as columns, sorted by reference, and the operations on columns that the write buffer needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.column_kernels import MEMCMP
from state.kafka.columns import BinaryCells
from state.tables import block_kernels
from state.tables.binary_columns import NOTHING, Int64s, joined, numbers_at, packed, sliced
from state.tables.table import RangeRows, RowChange

# Rows that become Python objects at a time.
_PART_ROWS = 1_000


class EntryColumns(NamedTuple):
    """Writes of a step, columns of equal length.

    Attributes:
        keys: Binary, none null.
        values: Binary, null = deleted.
        timestamps: int64, for the changelog, ms.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    timestamps: Int64s


class Block:
    """The last write of every key, in the order of the first writes. Never changed.

    Args:
        columns: Keys occur once.
        order: The rows in key order.

    Attributes:
        columns: The rows.
        order: The rows in key order.
    """

    def __init__(self, columns: EntryColumns, order: Int64s) -> None:
        self.columns = columns
        self.order = order
        self._cells = BinaryCells(columns.keys)

    @classmethod
    def of_writes(cls, columns: EntryColumns) -> Block:
        """The block of writes in their order, where keys may occur several times."""
        cells = BinaryCells(columns.keys)
        return cls._of_ordered(columns, cells, block_kernels.sort_rows(cells.addresses, len(columns.keys), MEMCMP))

    @classmethod
    def _of_ordered(cls, columns: EntryColumns, cells: BinaryCells, order: Int64s) -> Block:
        lasts, firsts = block_kernels.distinct(cells.addresses, order, MEMCMP)
        if len(lasts) == len(order):
            return cls(columns, order)
        # The place of each key among the first writes, and the row of its last write there.
        is_first = np.zeros(len(order), np.bool_)
        is_first[firsts] = True
        places = (np.cumsum(is_first) - 1)[firsts]
        rows = np.empty_like(places)
        rows[places] = lasts
        taken = pa.array(rows)
        kept = EntryColumns(columns.keys.take(taken), columns.values.take(taken), columns.timestamps[rows])
        return cls(kept, places)

    def followed_by(self, newer: Block) -> Block:
        """This block with the writes of a newer one."""
        both = EntryColumns(
            pa.concat_arrays([self.columns.keys, newer.columns.keys]),
            pa.concat_arrays([self.columns.values, newer.columns.values]),
            np.concatenate([self.columns.timestamps, newer.columns.timestamps]),
        )
        cells = BinaryCells(both.keys)
        order = block_kernels.merge_orders(cells.addresses, self.order, newer.order + len(self), MEMCMP)
        return self._of_ordered(both, cells, order)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def nbytes(self) -> int:
        keys, values, timestamps = self.columns
        # The kernels' ends of the keys are as many as the timestamps.
        return int(keys.nbytes + values.nbytes + 2 * timestamps.nbytes + self.order.nbytes)

    def sorted(self) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        return self.sorted_by(self.columns.values)

    def sorted_by(self, values: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Keys in key order, with other values that are given in the order of the rows."""
        order = pa.array(self.order)
        return self.columns.keys.take(order), values.take(order)

    def find(self, keys: pa.BinaryArray) -> Int64s:
        """The row of each key, -1 where it was not written."""
        asked = BinaryCells(keys)
        found: Int64s = block_kernels.find_rows(self._cells.addresses, self.order, asked.addresses, len(keys), MEMCMP)
        return found

    def rows_in(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> tuple[Int64s, Int64s]:
        """The rows with lower <= key < upper of each range: number of the range, row."""
        begins, ends = (self._rows_below(bounds) for bounds in (lowers, uppers))
        ranges, places = block_kernels.expand(begins, ends)
        return ranges, self.order[places]

    def _rows_below(self, bounds: pa.BinaryArray) -> Int64s:
        asked = BinaryCells(bounds)
        found: Int64s = block_kernels.lower_bounds(
            self._cells.addresses, self.order, asked.addresses, len(bounds), MEMCMP
        )
        return found

    def changes_in(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        ranges, rows = self.rows_in(lowers, uppers)
        taken = pa.array(rows)
        return RangeRows(ranges.astype(np.int32), self.columns.keys.take(taken), self.columns.values.take(taken))

    def changes_between(self, lower: bytes, upper: bytes, reverse: bool) -> Iterator[RowChange] | None:
        """The rows of one range as Python objects, None if there are none."""
        _, rows = self.rows_in(pa.array([lower], pa.binary()), pa.array([upper], pa.binary()))
        if not len(rows):
            return None
        return self._rows(rows[::-1] if reverse else rows)

    def _rows(self, rows: Int64s) -> Iterator[RowChange]:
        for first in range(0, len(rows), _PART_ROWS):
            taken = pa.array(np.ascontiguousarray(rows[first : first + _PART_ROWS]))
            keys, values = self.columns.keys.take(taken), self.columns.values.take(taken)
            yield from zip(keys.to_pylist(), values.to_pylist(), strict=True)


def overlay_columns(newer: RangeRows, older: RangeRows) -> RangeRows:
    """The rows of both; where both have a key of a range, the newer row hides the older one. Nulls (deleted) are rows, too."""
    if not len(newer.ranges) or not len(older.ranges):
        return newer if len(newer.ranges) else older
    ours, theirs = BinaryCells(newer.keys), BinaryCells(older.keys)
    rows = block_kernels.overlay_rows(ours.addresses, newer.ranges, theirs.addresses, older.ranges, MEMCMP)
    taken = pa.array(rows)
    return RangeRows(
        np.concatenate([newer.ranges, older.ranges])[rows],
        pa.concat_arrays([newer.keys, older.keys]).take(taken),
        pa.concat_arrays([newer.values, older.values]).take(taken),
    )


def without_deleted(rows: RangeRows) -> RangeRows:
    if not rows.values.null_count:
        return rows
    kept = rows.values.is_valid()
    return RangeRows(rows.ranges[kept.to_numpy(zero_copy_only=False)], rows.keys.filter(kept), rows.values.filter(kept))


def encode_entries(columns: EntryColumns) -> pa.BinaryArray:
    """Timestamp(8), and for a value 0x01 ∥ value: how a scratch database stores writes."""
    marked = joined(pa.scalar(b"\x01", pa.binary()), columns.values)
    return joined(packed(columns.timestamps), pc.fill_null(marked, NOTHING))


def decode_values(encoded: pa.BinaryArray) -> pa.BinaryArray:
    """The values of encoded entries, null = deleted."""
    written = pc.greater(pc.binary_length(encoded), 8)
    return sliced(pc.if_else(written, encoded, pa.scalar(None, pa.binary())), 9)


def decode_timestamps(encoded: pa.BinaryArray) -> Int64s:
    """The timestamps of encoded entries, ms."""
    return numbers_at(encoded, 0)


def decode_value(encoded: bytes) -> bytes | None:
    """The value of one encoded entry, None = deleted."""
    return None if len(encoded) == 8 else encoded[9:]
