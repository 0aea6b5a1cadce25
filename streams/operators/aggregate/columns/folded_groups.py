"""The groups of a step, folded with built-in aggregates: from the stored rows to those to write and the updates to forward.

Nothing is decoded or encoded row by row, except the accumulators of the stored rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.columns import BinaryColumn
from streams.model.record import HeldRecord
from streams.operators.aggregate.columns.accumulators import FieldAccumulators
from streams.operators.aggregate.columns.column_rows import ColumnRows, FieldColumn
from streams.operators.aggregate.columns.group_rows import Groups
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.columnar import ColumnarBatch, HeldRows, KeyColumn, OneByOne
from streams.operators.result_columns import Changes, WindowedKeys
from streams.operators.stores.codec import Codec, timestamps_of

Int64s = npt.NDArray[np.int64]


class FoldedGroups(NamedTuple):
    """The groups after a step, in order of time, then of their first rows.

    Attributes:
        keys: binary[G], the keys' bytes.
        starts: int64[G], the windows' starts, ms; -1 without windows.
        values: binary[G], the local values.
        timestamps: int64[G], ms.
        results: The updates to forward.
    """

    keys: BinaryColumn
    starts: Int64s
    values: BinaryColumn
    timestamps: Int64s
    results: ColumnarBatch


class Folding(NamedTuple):
    """What folds groups.

    Attributes:
        fields: The aggregates; all are built in.
        codec: That of the store.
        stored: Local values of groups (keys' bytes, starts of windows), null where there is none.
        size_ms: The size of the windows; None: no windows.
        send_old: Whether updates have the old value.
    """

    fields: FieldAggregates
    codec: Codec
    stored: Callable[[BinaryColumn, Int64s], BinaryColumn]
    size_ms: int | None
    send_old: bool

    def fold(self, rows: ColumnRows, columns: Sequence[FieldColumn | None], at: Int64s, groups: Groups) -> FoldedGroups:
        """Fold the rows of a step; changes nothing.

        Args:
            rows: All records.
            columns: What each aggregate reads of them.
            at: int64[m], the rows of the groups.
            groups: The groups.

        Raises:
            Exception: They cannot be folded at once.
        """
        keys = pa.array(rows.keys, pa.binary()).take(pa.array(groups.codes))
        stored = self.stored(keys, groups.starts)
        known = stored.is_valid().to_numpy(zero_copy_only=False)
        # Slots with known accumulators come first.
        slots = np.empty(len(known), np.int64)
        slots[np.argsort(~known, kind="stable")] = np.arange(len(known))
        before = self.codec.old_values(stored.filter(pa.array(known)))
        accumulators = FieldAccumulators(self.fields, columns, before, len(known))
        accumulators.apply(at, slots[groups.of_rows])
        accumulators.check()
        timestamps = np.full(len(known), -1, np.int64)
        timestamps[known] = timestamps_of(stored.filter(pa.array(known)))
        np.maximum.at(timestamps, groups.of_rows, rows.timestamps[at])
        order = np.argsort(timestamps, kind="stable")
        last_rows = np.zeros(len(known), np.int64)
        last_rows[groups.of_rows] = at  # the last assignment to an index wins
        old = None
        if self.send_old:
            old = [self.fields.result(before[slot]) if slot < len(before) else None for slot in slots[order].tolist()]
        changes = Changes(accumulators.values(slots[order]), old)
        keys, timestamps = keys.take(pa.array(order)), timestamps[order]
        values = self.codec.timestamped_column(keys, accumulators.written(slots[order], self.codec), timestamps)
        headers = None if rows.headers is None else [rows.headers[row] for row in last_rows[order].tolist()]
        results = ColumnarBatch(self._keys(rows, groups, order), changes, timestamps, np.arange(len(order)), headers)
        held = HeldRows(lambda row: _held(keys, results, row), np.arange(len(order)))
        return FoldedGroups(keys, groups.starts[order], values, timestamps, replace(results, held=held))

    def _keys(self, rows: ColumnRows, groups: Groups, order: Int64s) -> KeyColumn:
        codes = groups.codes[order].astype(np.int32)
        objects: list[Any] = [None] * len(rows.keys)
        for code in np.unique(codes).tolist():
            objects[code] = self.codec.read_key(rows.keys[code])
            if objects[code] is None:
                raise OneByOne  # JSON's null, which is no key
        inner = KeyColumn(codes, objects)
        if self.size_ms is None:
            return inner
        starts = groups.starts[order]
        return WindowedKeys(inner, starts, starts + self.size_ms)


def _held(keys: BinaryColumn, results: ColumnarBatch, row: int) -> HeldRecord:
    """The record that errors name for a result, which no single record caused: its key."""
    return HeldRecord(keys[row].as_py(), None, int(results.timestamps[row]), results.headers_of(row))
