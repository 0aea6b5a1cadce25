"""Aggregates of declared fields in sliding windows, over the columns of a whole step.

As with sessions (`session_columns`), there are two ways to the same results, writes and counts, and a step that cannot be processed
at once goes record by record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.columns import BinaryColumn
from streams.model.windows import SlidingWindows
from streams.operators.aggregate.columns.accumulators import FieldAccumulators
from streams.operators.aggregate.columns.by_record import (
    PickedFields,
    RowKeys,
    concerns_records,
    fail,
    process_one_by_one,
)
from streams.operators.aggregate.columns.column_rows import ColumnRows, stream_times
from streams.operators.aggregate.columns.key_order import KeyOrder, by_key
from streams.operators.aggregate.columns.sliding_rows import NEVER, SlidWindows, StoredWindows, most_windows, slide
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.sliding_aggregate import SlidingAggregate
from streams.operators.columnar import ColumnarBatch, KeyColumn, OneByOne
from streams.operators.result_columns import Changes, WindowedKeys

Int64s = npt.NDArray[np.int64]


class _Step(NamedTuple):
    """What a step changes, and has not changed yet.

    Attributes:
        rows: The rows.
        keys: The bytes of the keys that have rows.
        objects: These keys.
        windows: Their windows.
        stored: The local values of the stored windows, which come first.
        accumulators: The accumulators of all windows after the step.
        updated: int64[u], the windows that are updated, in the order of their first updates.
        values: binary[u], their local values.
    """

    rows: ColumnRows
    keys: list[bytes]
    objects: list[Any]
    windows: SlidWindows
    stored: list[bytes]
    accumulators: FieldAccumulators
    updated: Int64s
    values: BinaryColumn


class SlidingColumnAggregate(SlidingAggregate):
    """Aggregates fields of JSON values per key and sliding window; see `SlidingAggregate`.

    Args:
        store: Name of a timestamped window store of JSON values.
        windows: Time difference and grace.
        fields: The aggregates.
        caching: See `WindowedAggregation`. Only an operator with caching gets columns.
        send_old: See `WindowedAggregation`.
    """

    def __init__(
        self,
        store: str,
        windows: SlidingWindows,
        fields: FieldAggregates,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        functions = AggregationFunctions(fields.add, fields.initial, fields.merge, fields.result)
        super().__init__(store, windows, functions, None, caching, send_old)
        self._fields = fields
        self._step: _Step | None = None

    def process_columns(self, rows: ColumnRows) -> None:
        """Put all records of the step into windows, in their order."""
        row_keys = RowKeys(rows, self.store.codec.read_key)
        taken = row_keys.readable & ~rows.null_values
        self.ctx.drop_many(row_keys.missing, "null_key")
        self.ctx.drop_many(int((row_keys.readable & rows.null_values).sum()), "null_value")
        row_keys.fail(self.ctx)
        if not taken.any():
            return
        times = stream_times(rows, taken, self._time.now)
        picked = PickedFields(self._fields, rows, taken)
        try:
            step = self._slid(rows, row_keys, times - self.windows.grace_ms, picked)
        except Exception as error:
            if not concerns_records(error):
                raise
            process_one_by_one(self, picked, row_keys, rows, np.flatnonzero(taken))
            return
        self._time.observe(int(times[-1]))
        self._write(step)
        self.ctx.drop_many(step.windows.late, "late")
        for row in step.windows.failed.tolist():
            fail(self.ctx, rows, row, picked.errors[row])

    def _slid(self, rows: ColumnRows, row_keys: RowKeys, close_times: Int64s, picked: PickedFields) -> _Step:
        """The changes of the step, which are not made yet.

        Raises:
            Exception: They cannot be computed at once.
        """
        difference = self.windows.difference_ms
        if difference == 0 and self.ctx.mode == "compat":
            raise OneByOne  # every record fails
        order = by_key(rows.key_codes, picked.taken, len(rows.keys))
        codes = order.codes.tolist()
        keys, objects = [rows.keys[code] for code in codes], [row_keys.objects[code] for code in codes]
        stored, values = self._stored(rows, order, keys)
        codec = self.store.codec
        before = [codec.old_value(value) for value in values]
        accumulators = FieldAccumulators(self._fields, picked.columns, before, most_windows(order, stored))
        windows = slide(order, stored, rows.timestamps, close_times, picked.failing, difference, accumulators.apply)
        updated = np.flatnonzero(windows.written != NEVER)
        updated = updated[np.argsort(windows.written[updated])]
        if len(updated) and windows.starts[updated].min() < self.store.earliest_start:
            raise OneByOne  # the store does not take all windows, so later records do not meet them
        accumulators.check()
        stamps = windows.times[updated]
        data = codec.timestamped_column(_keys(keys, windows, updated), accumulators.written(updated, codec), stamps)
        return _Step(rows, keys, objects, windows, values, accumulators, updated, data)

    def _stored(self, rows: ColumnRows, order: KeyOrder, keys: list[bytes]) -> tuple[StoredWindows, list[bytes]]:
        """The stored windows that the rows may read, and their local values."""
        times, difference = rows.timestamps[order.rows], self.windows.difference_ms
        earliest, latest = (of.reduceat(times, order.bounds[:-1]) for of in (np.minimum, np.maximum))
        found = self.store.fetch_ranges(
            pa.array(keys, pa.binary()), np.maximum(earliest - 2 * difference, 0), latest + 1
        )
        values = found.values.to_pylist()
        stamps = np.array([int.from_bytes(value[:8], "big") for value in values], np.int64)
        bounds = np.searchsorted(found.requests, np.arange(len(keys) + 1))
        return StoredWindows(found.starts, stamps, bounds), values

    def _write(self, step: _Step) -> None:
        """Write the windows in the order of their first updates, and hold the updates until the end of the step."""
        windows, at = step.windows, step.updated
        self.store.put_columns(_keys(step.keys, windows, at), windows.starts[at], step.values, windows.times[at])
        self._step = step

    def _flush_pending(self) -> None:
        """Emit each window's last value, in order of time."""
        super()._flush_pending()
        if self._step is not None:
            step, self._step = self._step, None
            self.ctx.forward_batch(self._results(step))

    def _results(self, step: _Step) -> ColumnarBatch:
        """The updates, in order of time, then by arrival."""
        windows, codec, rows = step.windows, self.store.codec, step.rows
        at = step.updated[np.argsort(windows.times[step.updated], kind="stable")]
        starts, stored = windows.starts[at], step.stored
        old = None
        if self.send_old:
            view = self._fields.result
            old = [view(codec.old_value(stored[one])) if one < len(stored) else None for one in at.tolist()]
        inner = KeyColumn(windows.keys[at].astype(np.int32), step.objects)
        headers = rows.headers and [rows.headers[row] for row in windows.last_rows[at].tolist()]
        return ColumnarBatch(
            WindowedKeys(inner, starts, starts + self.windows.difference_ms),
            Changes(step.accumulators.values(at), old),
            windows.times[at],
            np.arange(len(at)),
            headers,
        )


def _keys(keys: list[bytes], windows: SlidWindows, at: Int64s) -> BinaryColumn:
    """The bytes of the keys of some windows."""
    return pa.array(keys, pa.binary()).take(pa.array(windows.keys[at]))
