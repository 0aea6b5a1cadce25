"""A step's records as a join stores them: their bytes, the results and drops of some of them, and whether joiners change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from state.kafka.columns import binary_column
from streams.model.windows import JoinWindows
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, OneByOne
from streams.operators.join.columns.partners import Pairs
from streams.operators.join.columns.records import Bools, JoinRecords, StoreKeys, read_by, runs
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.codec import Codec

FARTHEST_MS = 2**60
"""Windows up to this length, about 36 million years, leave room for sums of 64 bits."""


def check_lengths(windows: JoinWindows) -> None:
    """Leave windows of any length to the one-by-one way."""
    if max(abs(windows.before_ms), abs(windows.after_ms), windows.grace_ms) > FARTHEST_MS:
        raise OneByOne("the windows are too long for sums of 64 bits")


class StoredStep:
    """One step.

    Args:
        codecs: The codecs of the stores by node.
        records: The records.
        time: int64[n], stream time at each record.
        is_open: Which records are processed.
        stored: Which records are stored.
        keeps_values: Whether the joiner is known to leave its arguments as they are.
    """

    def __init__(
        self,
        codecs: Sequence[Codec],
        records: JoinRecords,
        time: Int64s,
        is_open: Bools,
        stored: Bools,
        keeps_values: bool,
    ) -> None:
        self.codecs, self.records, self.time, self.is_open = codecs, records, time, is_open
        self.batch, self.timestamps = records.batch, records.batch.timestamps
        self.stored, self._keeps_values = stored, keeps_values
        self._cells = self._written(stored)
        self.column = binary_column(self._cells)

    def values_from(self, pairs: Pairs, stores: Int64s) -> list[Any]:
        """The partner's value of each pair, as its store would give it."""
        cells = self._cells
        found = zip(pairs.partners.tolist(), pairs.stored_cells, strict=True)
        return read_by(stores, self.codecs, [cells[partner] if cell is None else cell for partner, cell in found])

    def of_rows(self, rows: Int64s, values: list[Any], timestamps: Int64s) -> ColumnarBatch:
        """Results of these rows, with their keys and headers."""
        batch, headers = self.batch, self.batch.headers
        return replace(
            batch,
            keys=batch.keys.take(rows),
            values=values,
            timestamps=timestamps,
            order=batch.order[rows],
            headers=None if headers is None else [headers[row] for row in rows.tolist()],
        )

    def _written(self, chosen: Bools) -> list[bytes | None]:
        """The bytes of some records' values in their stores; None for the others."""
        cells: list[bytes | None] = [None] * len(chosen)
        alike = all(codec.writes_as(self.codecs[0]) for codec in self.codecs)
        for node, codec in enumerate(self.codecs):
            rows = np.flatnonzero(chosen & (alike | (self.records.nodes == node))).tolist()
            written = codec.cells([self.batch.values[row] for row in rows])
            for row, cell in zip(rows, written, strict=True):
                if cell is None:
                    raise OneByOne("a value that is written as null is not stored")
                cells[row] = cell
            if alike:
                break
        return cells

    def check_unchanged(self, rows: Int64s) -> None:
        """Leave joiners that change their arguments to the one-by-one way, where each result is written before the next joiner."""
        if self._keeps_values:
            return
        joined = np.zeros(len(self.records), np.bool_)
        joined[rows] = True
        joined &= self.stored
        written, before = self._written(joined), self._cells
        if any(written[row] != before[row] for row in np.flatnonzero(joined).tolist()):
            raise OneByOne("the joiner changes its arguments")

    def rows_of(self, chosen: Bools, node: int, keys: StoreKeys) -> tuple[pa.BinaryArray, Int64s, pa.BinaryArray]:
        """The rows to put into the store of a node for some records: keys, times, values."""
        rows = np.flatnonzero(chosen)
        values = self.column.take(pa.array(rows))
        key_cells = keys.cells.take(pa.array(keys.codes[rows]))
        self.codecs[node].check_all(key_cells, values)
        return key_cells, self.timestamps[rows], values

    def drops(self, dropped: Bools, sides: Int64s) -> Iterator[tuple[Int64s, str]]:
        """Records that are dropped, in order, in runs of one side and reason."""
        rows = np.flatnonzero(dropped)
        # As in `StreamStreamJoin`: a record without a key is one without a value only if it has a key.
        reasons = np.where(self.records.complete[rows], 0, np.where(self.batch.keys.codes[rows] == NULL_KEY, 1, 2))
        for start, end in runs(reasons, sides[rows]):
            yield rows[start:end], ("late", "null_key", "null_value")[reasons[start]]


def forward_in_one(ctxs: Sequence[OperatorContext], results: ColumnarBatch, nodes: Int64s) -> None:
    """Forward the results of all nodes of a join in one order, as the last node's; each node counts its own.

    Args:
        ctxs: The contexts of the nodes, which have the same children.
        results: The results.
        nodes: The index of each result's node.
    """
    if not len(results):
        return
    counts = np.bincount(nodes, minlength=len(ctxs)).tolist()
    for ctx, count in zip(ctxs[:-1], counts[:-1], strict=True):
        ctx.count_forwarded(count)
    ctxs[-1].count_forwarded(counts[-1] - len(results))
    ctxs[-1].forward_batch(results)
