"""Aggregates of declared fields in sessions, over the columns of a whole step.

There are two ways to the same results, writes and counts: `process` handles a single record, and `process_columns` all records of
a step at once: one scan of the store for each key, one pass over the rows to merge sessions, one for each aggregate. Whatever
cannot be done at once (a value in the store that cannot be read, a sum that JSON cannot hold) makes the whole step go record by
record, so that errors concern the same records as ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.columns import BinaryColumn
from streams.model.windows import SessionWindows
from streams.operators.aggregate.columns.accumulators import FieldAccumulators
from streams.operators.aggregate.columns.by_record import (
    PickedFields,
    RowKeys,
    concerns_records,
    fail,
    process_one_by_one,
)
from streams.operators.aggregate.columns.column_rows import ColumnRows, stream_times
from streams.operators.aggregate.columns.key_order import by_key
from streams.operators.aggregate.columns.session_rows import (
    FAILED,
    GONE,
    LATE,
    NEVER,
    MergedSessions,
    StoredSessions,
    merge_sessions,
)
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.session_aggregate import SessionAggregate
from streams.operators.columnar import ColumnarBatch, KeyColumn, OneByOne
from streams.operators.result_columns import Changes, WindowedKeys

Int64s = npt.NDArray[np.int64]


class _Step(NamedTuple):
    """What a step changes, and has not changed yet.

    Attributes:
        keys: The bytes of the keys that have rows.
        objects: These keys.
        merged: Their sessions.
        before: The accumulators of the stored sessions, which come first.
        accumulators: The accumulators of all sessions after the step.
        written: int64[w], the sessions to write, in the order of their first writes.
        values: binary[w], null for those to delete.
    """

    keys: list[bytes]
    objects: list[Any]
    merged: MergedSessions
    before: list[Any]
    accumulators: FieldAccumulators
    written: Int64s
    values: BinaryColumn

    def key_column(self, sessions: Int64s) -> BinaryColumn:
        """The bytes of the keys of some sessions."""
        return pa.array(self.keys, pa.binary()).take(pa.array(self.merged.keys[sessions]))


class SessionColumnAggregate(SessionAggregate):
    """Aggregates fields of JSON values per key and session; see `SessionAggregate`.

    Args:
        store: Name of a session store of JSON values.
        windows: Gap and grace.
        fields: The aggregates.
        caching: See `WindowedAggregation`. Only an operator with caching gets columns.
        send_old: See `WindowedAggregation`.
        asked_for_retention: See `SessionAggregate`.
    """

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        fields: FieldAggregates,
        caching: bool = True,
        send_old: bool = False,
        asked_for_retention: bool = False,
    ) -> None:
        functions = AggregationFunctions(fields.add, fields.initial, fields.merge, fields.result)
        super().__init__(store, windows, functions, None, caching, send_old, asked_for_retention)
        self._fields = fields
        self._step: _Step | None = None

    def process_columns(self, rows: ColumnRows) -> None:
        """Merge all records of the step into sessions, in their order."""
        row_keys = RowKeys(rows, self.store.codec.read_key)
        taken = row_keys.readable
        self.ctx.drop_many(row_keys.missing, "null_key")
        row_keys.fail(self.ctx)
        if not taken.any():
            return
        times = stream_times(rows, taken, self._time.now)
        picked = PickedFields(self._fields, rows, taken)
        try:
            step = self._merged(rows, row_keys, times - self.windows.wait_ms, picked)
        except Exception as error:
            if not concerns_records(error):
                raise
            process_one_by_one(self, picked, row_keys, rows, np.flatnonzero(taken))
            return
        self._time.observe(int(times[-1]))
        self._write(step)
        self.ctx.drop_many(int((step.merged.statuses == LATE).sum()), "late")
        for row in np.flatnonzero(step.merged.statuses == FAILED).tolist():
            fail(self.ctx, rows, row, picked.errors[row])

    def _merged(self, rows: ColumnRows, row_keys: RowKeys, close_times: Int64s, picked: PickedFields) -> _Step:
        """The changes of the step, which are not made yet.

        Raises:
            Exception: They cannot be computed at once.
        """
        order = by_key(rows.key_codes, picked.taken, len(rows.keys))
        codes = order.codes.tolist()
        keys, objects = [rows.keys[code] for code in codes], [row_keys.objects[code] for code in codes]
        times, gap = rows.timestamps[order.rows], self.windows.gap_ms
        earliest, latest = (of.reduceat(times, order.bounds[:-1]) for of in (np.minimum, np.maximum))
        found = self.store.find_columns(pa.array(keys, pa.binary()), earliest - gap, latest + gap)
        bounds = np.searchsorted(found.requests, np.arange(len(keys) + 1))
        stored = StoredSessions(found.starts, found.ends, bounds)
        merged = merge_sessions(order, stored, rows.timestamps, close_times, picked.failing, gap)
        if merged.made.any() and merged.ends[merged.made].min() < self.store.earliest_end:
            raise OneByOne  # the store does not take all sessions, so later records do not meet them
        before = [self.store.codec.read_value(value) for value in found.values.to_pylist()]
        accumulators = FieldAccumulators(self._fields, picked.columns, before, merged.slot_count)
        accumulators.apply(merged.op_rows, merged.op_slots)
        accumulators.check()
        written = np.flatnonzero(merged.written != NEVER)
        written = written[np.argsort(merged.written[written])]
        values = accumulators.written(merged.slots[written], self.store.codec)
        step = _Step(keys, objects, merged, before, accumulators, written, values)
        self.store.codec.check_all(step.key_column(written), values)
        return step

    def _write(self, step: _Step) -> None:
        """Write the sessions, and hold their updates until the end of the step."""
        merged, at = step.merged, step.written
        self.store.put_columns(step.key_column(at), merged.starts[at], merged.ends[at], step.values)
        self._retention.add_many(merged.starts[merged.made], merged.ends[merged.made])
        self._step = step

    def _flush_pending(self) -> None:
        """Emit each session's last value, in order of time."""
        super()._flush_pending()
        if self._step is not None:
            step, self._step = self._step, None
            self.ctx.forward_batch(self._results(step))

    def _results(self, step: _Step) -> ColumnarBatch:
        """The updates, in order of time, then by arrival."""
        merged, stored = step.merged, len(step.before)
        held = step.written
        held = held[(merged.slots[held] != GONE) | (held < stored)]
        held = held[np.lexsort((merged.updated[held], merged.ends[held]))]
        old = None
        if self.send_old:
            view = self._fields.result
            old = [view(step.before[session]) if session < stored else None for session in held.tolist()]
        inner = KeyColumn(merged.keys[held].astype(np.int32), step.objects)
        return ColumnarBatch(
            WindowedKeys(inner, merged.starts[held], merged.ends[held]),
            Changes(step.accumulators.values(merged.slots[held]), old),
            merged.ends[held],
            np.arange(len(held)),
        )
