"""`count`, `reduce` and `aggregate` of a grouped stream (Kafka Streams: `KStreamAggregate`, `KStreamReduce`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from streams.model.record import Change, Headers, Record
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.window_pairs import WindowPairs, pairs_without_windows
from streams.operators.columnar import ColumnarBatch, Int64s, KeyColumn
from streams.operators.dropped import drop_each
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.pending import emit_pending, emit_together
from streams.operators.stores.cached_row import CachedRow
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore


class StreamAggregate(Operator):
    """Aggregates per key. Null keys and null values are dropped. The result's time is the largest of its records.

    Args:
        store: Name of a timestamped key-value store.
        functions: The functions of the aggregation.
        caching: Emit the last value of a key once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`.
    """

    def __init__(
        self, store: str, functions: AggregationFunctions, caching: bool = True, send_old: bool = False
    ) -> None:
        self.store_name = store
        self.functions = functions
        self.caching = caching
        self.send_old = send_old
        self.emits_together = False
        """Whether pending updates are written and forwarded as columns; see `AggregateBatches`."""

    @property
    def changes_in_place(self) -> bool:
        """Without a cache every call gets an aggregate of its own."""
        return self.caching

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self.store: TypedTimestampedKeyValueStore = ctx.store(self.store_name)
        if self.caching:
            self.store.use_cache(self.ctx.private_rows)

    def process(self, record: Record) -> None:
        """Add one record to the aggregate of its key."""
        if record.key is None or record.value is None:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")
            return
        row = self.store.entry(record.key)
        row.set(*self.functions.updated(row, record))
        if self.caching:
            self.keep(record.key, record.headers, row)
        else:
            self._emit(record.key, record.headers, row)

    def pairs(self, batch: ColumnarBatch) -> WindowPairs:
        """The records of a batch that are aggregated."""
        return pairs_without_windows(batch)

    def begin(self, batch: ColumnarBatch, pairs: WindowPairs) -> None:
        drop_each(self.ctx, batch, pairs.dropped)

    def keep(self, key: Any, headers: Headers, row: CachedRow) -> None:
        """Leave an update pending until the end of the step."""
        self.store.pending[row.key] = (key, headers, row)

    def end(self, batch: ColumnarBatch, opened: Sequence[tuple[int, CachedRow]], failed: Collection[int]) -> None:
        """Nothing: without windows, nothing closes."""

    def flush(self) -> None:
        """Emit each key's last value, in order of time."""
        if self.emits_together:
            emit_together(self.ctx, self.store, self.functions.viewed_column, self.send_old, self._keys)
        emit_pending(self.ctx, self.store, self.store.pending, self._emit)

    def _keys(self, keys: KeyColumn, starts: Int64s) -> KeyColumn:
        return keys

    def _emit(self, key: Any, headers: Headers, row: CachedRow) -> None:
        old = self.store.codec.old_value(row.stored) if self.send_old else None
        row.sent(self.store.write(row))
        viewed = self.functions.viewed
        self.ctx.forward(Record(key, Change(viewed(row.value), viewed(old)), row.timestamp, headers))
