"""Aggregates of declared fields in sessions, over the columns of a whole step.

There are two ways to the same results, writes and counts: `process` handles a single record, and `process_columns` all records of
a step at once: one scan of the store for each key, one pass over the rows to merge sessions, one for each aggregate. Whatever
cannot be done at once (a value in the store that cannot be read, a sum that JSON cannot hold) makes the whole step go record by
record, so that errors concern the same records as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.model.record import Window, Windowed
from streams.model.windows import SessionWindows
from streams.operators.aggregate.columns.accumulators import FieldAccumulators
from streams.operators.aggregate.columns.by_record import (
    PickedFields,
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
from streams.operators.aggregate.windowed import HeldUpdate
from streams.operators.columnar import OneByOne

Int64s = npt.NDArray[np.int64]


class _Step(NamedTuple):
    """What a step changes, and has not changed yet.

    Attributes:
        keys: The bytes of the keys that have rows.
        merged: Their sessions.
        before: The accumulators of the stored sessions, which come first.
        after: The accumulators of the sessions that the step has made or added to, unless they are merged into others.
        values: The same as bytes.
    """

    keys: list[bytes]
    merged: MergedSessions
    before: list[Any]
    after: dict[int, Any]
    values: dict[int, bytes | None]


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
        taken = rows.key_codes >= 0
        self.ctx.drop_many(int((~taken).sum()), "null_key")
        if not taken.any():
            return
        times = stream_times(rows, taken, self._time.now)
        picked = PickedFields(self._fields, rows, taken)
        try:
            step = self._merged(rows, taken, times - self.windows.wait_ms, picked)
        except Exception as error:
            if not concerns_records(error):
                raise
            process_one_by_one(self, picked, rows, np.flatnonzero(taken))
            return
        self._time.observe(int(times[-1]))
        self._write(step)
        self.ctx.drop_many(int((step.merged.statuses == LATE).sum()), "late")
        for row in np.flatnonzero(step.merged.statuses == FAILED).tolist():
            fail(self.ctx, rows, row, picked.errors[row])

    def _merged(
        self, rows: ColumnRows, taken: npt.NDArray[np.bool_], close_times: Int64s, picked: PickedFields
    ) -> _Step:
        """The changes of the step, which are not made yet.

        Raises:
            Exception: They cannot be computed at once.
        """
        order = by_key(rows.key_codes, taken, len(rows.keys))
        keys = [rows.keys[code] for code in order.codes.tolist()]
        times, gap = rows.timestamps[order.rows], self.windows.gap_ms
        earliest, latest = (of.reduceat(times, order.bounds[:-1]) for of in (np.minimum, np.maximum))
        found = self.store.find_columns(pa.array(keys, pa.binary()), earliest - gap, latest + gap)
        bounds = np.searchsorted(found.requests, np.arange(len(keys) + 1))
        stored = StoredSessions(found.starts, found.ends, bounds)
        merged = merge_sessions(order, stored, rows.timestamps, close_times, picked.failing, gap)
        if merged.made.any() and merged.ends[merged.made].min() < self.store.earliest_end:
            raise OneByOne  # the store does not take all sessions, so later records do not meet them
        before = [self.store.codec.read_value(value) for value in found.values.to_pylist()]
        updated = np.flatnonzero(merged.made & (merged.slots != GONE))
        accumulators = FieldAccumulators(self._fields, picked.columns, before, merged.slot_count)
        accumulators.apply(merged.op_rows, merged.op_slots)
        after = dict(zip(updated.tolist(), accumulators.take(merged.slots[updated]), strict=True))
        codec, key_of = self.store.codec, merged.keys.tolist()
        values = {one: codec.fitting(keys[key_of[one]], codec.value(value)) for one, value in after.items()}
        return _Step(keys, merged, before, after, values)

    def _write(self, step: _Step) -> None:
        """Write the sessions in the order of their first writes, and hold their updates until the end of the step."""
        merged = step.merged
        written = np.flatnonzero(merged.written != NEVER)
        written = written[np.argsort(merged.written[written])]
        keys = pa.array(step.keys, pa.binary()).take(pa.array(merged.keys[written]))
        values = pa.array([step.values.get(one) for one in written.tolist()], pa.binary())
        self.store.put_columns(keys, merged.starts[written], merged.ends[written], values)
        self._retention.add_many(merged.starts[merged.made], merged.ends[merged.made])
        self._step = step

    def _flush_pending(self) -> None:
        """Emit each session's last value, in order of time."""
        super()._flush_pending()
        if self._step is not None:
            step, self._step = self._step, None
            self._emit_pending(self._updates(step))

    def _updates(self, step: _Step) -> Iterator[HeldUpdate]:
        """The updates, in order of time, then by arrival."""
        merged, stored = step.merged, len(step.before)
        exists = (merged.slots != GONE) | (np.arange(len(merged.slots)) < stored)
        held = np.flatnonzero((merged.written != NEVER) & exists)
        held = held[np.lexsort((merged.updated[held], merged.ends[held]))]
        keys: dict[int, Any] = {}
        columns = (held.tolist(), merged.keys[held].tolist(), merged.starts[held].tolist(), merged.ends[held].tolist())
        for session, number, start, end in zip(*columns, strict=True):
            if number not in keys:
                keys[number] = self.store.codec.read_key(step.keys[number])
            old = step.before[session] if session < stored else None
            yield HeldUpdate(Windowed(keys[number], Window(start, end)), old, step.after.get(session), end)
