"""Aggregation in tumbling, hopping and other time windows (Kafka Streams: `KStreamWindowAggregate`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from streams.model.record import Change, Headers, Record, Window, Windowed
from streams.model.windows import Windows
from streams.operators.aggregate.window_pairs import WindowPairs, window_pairs
from streams.operators.aggregate.windowed import WindowedAggregation
from streams.operators.columnar import ColumnarBatch, Int64s, KeyColumn
from streams.operators.dropped import drop_each
from streams.operators.operator_context import OperatorContext
from streams.operators.pending import emit_pending, emit_together
from streams.operators.result_columns import WindowedKeys
from streams.operators.stores.cached_row import CachedRow
from streams.operators.stores.window import TypedTimestampedWindowStore


class WindowAggregate(WindowedAggregation[Windows]):
    """Aggregates per key and window; each update is a result.

    A window accepts a record while the window's end > stream time - grace, decided per window. Null keys are dropped and do not
    advance stream time; null values are aggregated like any value.

    Args:
        store: Name of a timestamped window store.
        windows: See `WindowedAggregation`, as the others.
    """

    @property
    def changes_in_place(self) -> bool:
        """Without a cache every call gets an aggregate of its own."""
        return self.caching

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self.store: TypedTimestampedWindowStore
        if self.caching:
            self.store.use_cache(self.ctx.private_rows)

    def process(self, record: Record) -> None:
        """Add one record to each of its open windows."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        close_time = self._time.observe(record.timestamp) - self.windows.grace_ms
        key = self.store.codec.key(record.key)
        rows = []
        for start in self.windows.starts(record.timestamp):
            if self.windows.end_of(start) <= close_time:
                self.ctx.drop(record, "late")
            else:
                rows.append(self.store.entry(key, start))
        # Of a record that fails in one window, no window keeps anything.
        for row, updated in [(row, self.functions.updated(row, record)) for row in rows]:
            self._set(row, *updated, record)

    def pairs(self, batch: ColumnarBatch) -> WindowPairs:
        """The records of a batch with each of their open windows."""
        return window_pairs(batch, self.windows, self._time.now)

    def begin(self, batch: ColumnarBatch, pairs: WindowPairs) -> None:
        """Drop late records and those without a key, and move stream time."""
        drop_each(self.ctx, batch, pairs.dropped)
        self._time.observe(pairs.stream_time)

    def keep(self, key: Any, headers: Headers, row: CachedRow) -> None:
        """Leave an update pending until the end of the step."""
        self.store.pending[(row.key, row.start)] = (key, headers, row)

    def end(self, batch: ColumnarBatch, opened: Sequence[tuple[int, CachedRow]], failed: Collection[int]) -> None:
        """Called after all records of a batch are aggregated."""

    def _set(self, row: CachedRow, value: Any, timestamp: int, record: Record) -> None:
        row.set(value, timestamp)
        if self.caching:
            self.keep(record.key, record.headers, row)
        else:
            self._emit(record.key, record.headers, row)

    def _flush_pending(self) -> None:
        """Emit each window's last value, in order of time."""
        if self.emits_together:
            emit_together(self.ctx, self.store, self.functions.viewed_column, self.send_old, self._keys)
        emit_pending(self.ctx, self.store, self.store.pending, self._emit)

    def _keys(self, keys: KeyColumn, starts: Int64s) -> WindowedKeys:
        ends = np.fromiter(map(self.windows.end_of, starts.tolist()), np.int64, len(starts))
        return WindowedKeys(keys, starts, ends)

    def _emit(self, key: Any, headers: Headers, row: CachedRow) -> None:
        old = self.store.codec.old_value(row.stored) if self.send_old else None
        row.sent(self.store.write(row))
        windowed = Windowed(key, Window(row.start, self.windows.end_of(row.start)))
        viewed = self.functions.viewed
        self.ctx.forward(Record(windowed, Change(viewed(row.value), viewed(old)), row.timestamp, headers))
