"""A step's records as a join stores them: their bytes, the results and drops of some of them, and whether joiners change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from state.kafka.columns import BinaryColumn, one_column
from state.tables.binary_columns import is_identity
from streams.model.windows import JoinWindows
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, OneByOne
from streams.operators.encoded_values import take_values
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
        self.column = self._written(stored)

    def cells_of(self, pairs: Pairs) -> tuple[BinaryColumn, Int64s]:
        """The bytes of the step's values and of those from the stores, and for each pair the place of the partner's."""
        places = np.where(pairs.partners >= 0, pairs.partners, len(self.records) - 1 - pairs.partners)
        return one_column([self.column, pairs.stored]), places

    def values_from(self, pairs: Pairs, stores: Int64s) -> list[Any]:
        """The partner's value of each pair, as its store would give it."""
        cells, places = self.cells_of(pairs)
        return read_by(stores, self.codecs, cells.take(pa.array(places)).to_pylist())

    def of_rows(self, rows: Int64s, values: Sequence[Any], timestamps: Int64s) -> ColumnarBatch:
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

    def _written(self, chosen: Bools) -> BinaryColumn:
        """The bytes of some records' values in their stores; null for the others."""
        written, places = list[BinaryColumn](), np.full(len(chosen), -1, np.int64)
        alike = all(codec.writes_as(self.codecs[0]) for codec in self.codecs)
        for node, codec in enumerate(self.codecs[:1] if alike else self.codecs):
            rows = np.flatnonzero(chosen & (alike | (self.records.nodes == node)))
            places[rows] = sum(map(len, written)) + np.arange(len(rows))
            values = self.batch.values
            written.append(codec.values(values if len(rows) == len(chosen) else take_values(values, rows)))
            if written[-1].null_count:
                raise OneByOne("a value that is written as null is not stored")
        cells = one_column(written)
        return cells if is_identity(places) else cells.take(pa.array(places, mask=places < 0))

    def check_unchanged(self, rows: Int64s) -> None:
        """Leave joiners that change their arguments to the one-by-one way, where each result is written before the next joiner."""
        if self._keeps_values:
            return
        joined = np.zeros(len(self.records), np.bool_)
        joined[rows] = True
        joined &= self.stored
        at = pa.array(np.flatnonzero(joined))
        if not self._written(joined).take(at).equals(self.column.take(at)):
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
