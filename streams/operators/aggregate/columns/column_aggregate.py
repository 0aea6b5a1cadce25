"""Aggregates of declared fields, plain or in tumbling and hopping windows.

There are two ways to the same result: `process` handles a single record, as Kafka Streams would, and `process_columns` all
records of a step at once, with one access to the store per group. The store holds the accumulators as a JSON list, in the
order of the aggregates; the emitted value is an object of their results. With `bare`, a single aggregate's accumulator is the
stored value and its result the emitted one, as in Kafka Streams' `count`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from state.kafka.columns import BinaryColumn
from streams.model.aggregates import BUILT_IN, Aggregate
from streams.model.record import Change, Headers, Record, Window, Windowed
from streams.model.windows import TimeWindows
from streams.operators.aggregate.columns.accumulate import accumulate
from streams.operators.aggregate.columns.aggregate_columns import columns_of
from streams.operators.aggregate.columns.by_record import concerns_records, fail
from streams.operators.aggregate.columns.column_rows import ColumnRows, FieldColumn
from streams.operators.aggregate.columns.folded_groups import FoldedGroups, Folding
from streams.operators.aggregate.columns.group_rows import Groups, group
from streams.operators.aggregate.columns.window_rows import Assigned, assign
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.pending import Pending, emit_pending
from streams.operators.stores.cached_row import CachedRow
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.stores.window import TypedTimestampedWindowStore
from streams.operators.stream_time import StreamTime


class ColumnAggregate(Operator):
    """Aggregates fields of JSON values per key (and window).

    Null keys are dropped; null values too unless there are windows (as in `StreamAggregate` and `WindowAggregate`). Records are
    late as in `WindowAggregate`. A value without fields fails, and does not advance stream time.

    Args:
        store: Name of a timestamped (window) store of JSON values.
        aggregates: The aggregates, by the fields of the result.
        windows: Size, advance and grace; None = no windows.
        caching: Emit the last value of a group once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`.
        bare: A single aggregate, not wrapped into a list and an object.
    """

    def __init__(
        self,
        store: str,
        aggregates: Mapping[str, Aggregate],
        windows: TimeWindows | None,
        caching: bool = True,
        send_old: bool = False,
        bare: bool = False,
    ) -> None:
        self.store_name = store
        self.aggregates = aggregates
        self.windows = windows
        self.caching = caching
        self.send_old = send_old
        self.bare = bare

    def init(self, ctx: OperatorContext) -> None:
        """Open the store and restore stream time."""
        super().init(ctx)
        self.store: TypedTimestampedKeyValueStore | TypedTimestampedWindowStore = ctx.store(self.store_name)
        if self.caching:
            self.store.use_cache()
        self._time = StreamTime(ctx.state)
        self._fields = FieldAggregates(self.aggregates, self.bare)
        self._pending: Pending = {}
        self._folded: FoldedGroups | None = None

    def process(self, record: Record) -> None:
        """Add one record to its group or windows."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        if record.value is None and self.windows is None:
            self.ctx.drop(record, "null_value")
            return
        values = [aggregate.value_in(record.value) for aggregate in self.aggregates.values()]
        key = self.store.codec.key(record.key)
        self._add(key, record.timestamp, values, record)

    def process_columns(self, rows: ColumnRows) -> None:
        """Add all records of the step, in their order. Only for an operator with caching."""
        no_key = rows.key_codes < 0
        taken = ~no_key if self.windows is not None else ~(no_key | rows.null_values)
        self.ctx.drop_many(int(no_key.sum()), "null_key")
        self.ctx.drop_many(int((~taken & ~no_key).sum()), "null_value")
        failed: dict[int, Exception] = {}
        columns = columns_of(self.aggregates.values(), rows, taken, failed)
        taken[list(failed)] = False
        at = np.flatnonzero(taken)
        timestamps = rows.timestamps[at]
        if self.windows is None:
            pairs = Assigned(np.arange(len(at)), np.full(len(at), -1, np.int64), 0, self._time.now)
        else:
            pairs = assign(timestamps, self.windows, self._time.now)
            self._time.observe(pairs.stream_time)
        self.ctx.drop_many(pairs.late, "late")
        at = at[pairs.rows]
        groups = group(rows.key_codes[at], pairs.starts)
        if not self._fold_at_once(rows, columns, at, groups):
            self._fold_what_can_be(rows, columns, at, groups, failed)
        for row, error in sorted(failed.items()):
            fail(self.ctx, rows, row, error)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time, which closes windows."""
        self._time.advance(elapsed_ms, limit)
        return limit

    def flush(self) -> None:
        """Emit each group's last value, in order of time."""
        emit_pending(self.ctx, self.store, self._pending, self._emit)
        folded, self._folded = self._folded, None
        if folded is not None:
            self._put(folded)
            self.ctx.forward_batch(folded.results)
        if self.windows is not None:
            self.ctx.expire(self.store_name, self._time.now)

    def _add(self, key: bytes, timestamp: int, values: list[Any], record: Record) -> None:
        """Add one record's field values to its group or windows."""
        if self.windows is None:
            self._update(key, -1, timestamp, values, record.headers)
            return
        close_time = self._time.observe(timestamp) - self.windows.grace_ms
        for start in self.windows.starts(timestamp):
            if start + self.windows.size_ms <= close_time:
                self.ctx.drop(record, "late")
            else:
                self._update(key, start, timestamp, values, record.headers)

    def _update(self, key: bytes, start: int, timestamp: int, values: list[Any], headers: Headers) -> None:
        entry = self.store.entries([(key, start)])[0]
        accumulators = self._accumulators(entry)
        pairs = zip(self.aggregates.values(), accumulators, values, strict=True)
        added = [aggregate.updated(accumulator, value) for aggregate, accumulator, value in pairs]
        entry.set(added[0] if self.bare else added, max(entry.timestamp, timestamp))
        if self.caching:
            self._pending[(key, start)] = (None, headers, entry)
        else:
            self._emit(None, headers, entry)

    def _fold_at_once(self, rows: ColumnRows, columns: list[FieldColumn | None], at: Any, groups: Groups) -> bool:
        """Fold all groups if nothing but arrays is needed for that; returns whether that was possible."""
        if not all(type(aggregate) in BUILT_IN for aggregate in self.aggregates.values()):
            return False
        size_ms = None if self.windows is None else self.windows.size_ms
        folding = Folding(self._fields, self.store.codec, self._stored, size_ms, self.send_old)
        try:
            self._folded = folding.fold(rows, columns, at, groups)
        except Exception as error:
            if not concerns_records(error):
                raise
            return False
        return True

    def _stored(self, keys: BinaryColumn, starts: Any) -> BinaryColumn:
        """The local values of groups."""
        if isinstance(self.store, TypedTimestampedWindowStore):
            return self.store.fetch_columns(keys, starts)
        return self.store.stored_column(keys.to_pylist())

    def _put(self, folded: FoldedGroups) -> None:
        """Write the groups, in the order of their updates."""
        if isinstance(self.store, TypedTimestampedWindowStore):
            self.store.put_columns(folded.keys, folded.starts, folded.values, folded.timestamps)
        else:
            self.store.put_column(folded.keys, folded.values, folded.timestamps)

    def _fold_what_can_be(
        self, rows: ColumnRows, columns: list[FieldColumn | None], at: Any, groups: Groups, failed: dict[int, Exception]
    ) -> None:
        """`_fold`; on failure, groups are halved until the unreadable ones are found, and only those are left out.

        Args:
            rows: All records.
            columns: What each aggregate reads of them.
            at: int64[m], the rows of the groups.
            groups: The groups.
            failed: Receives the rows of the failed groups, with the errors.
        """
        try:
            self._fold(rows, columns, at, groups)
        except Exception as error:
            if not concerns_records(error):
                raise
            count = len(groups.codes)
            if count == 1:
                failed.update(dict.fromkeys(at.tolist(), error))
                return
            for first, end in ((0, count // 2), (count // 2, count)):
                mine, part = groups.part(first, end)
                self._fold_what_can_be(rows, columns, at[mine], part, failed)

    def _fold(self, rows: ColumnRows, columns: list[FieldColumn | None], at: Any, groups: Groups) -> None:
        """Update all groups, or none: one read of the store, one pass per aggregate."""
        keys = [rows.keys[code] for code in groups.codes.tolist()]
        places = list(zip(keys, groups.starts.tolist(), strict=True))
        entries = self.store.entries(places)
        timestamps = np.array([entry.timestamp for entry in entries], np.int64)
        np.maximum.at(timestamps, groups.of_rows, rows.timestamps[at])
        before = [self._accumulators(entry) for entry in entries]
        after = []
        for index, aggregate in enumerate(self.aggregates.values()):
            old = [accumulators[index] for accumulators in before]
            after.append(accumulate(aggregate, columns[index], at, groups.of_rows, old))
        last_rows = np.zeros(len(entries), np.int64)
        last_rows[groups.of_rows] = at  # the last assignment to an index wins
        folded = zip(places, entries, timestamps.tolist(), last_rows.tolist(), *after, strict=True)
        for place, entry, timestamp, last_row, *accumulators in folded:
            entry.set(accumulators[0] if self.bare else accumulators, timestamp)
            self._pending[place] = (None, rows.headers_of(last_row), entry)

    def _accumulators(self, entry: CachedRow) -> list[Any]:
        if entry.value is None:
            return [aggregate.initial() for aggregate in self.aggregates.values()]
        accumulators: list[Any] = [entry.value] if self.bare else entry.value
        return accumulators

    def _emit(self, key: Any, headers: Headers, entry: CachedRow) -> None:
        """Write a group and forward it. The key is decoded here, once a step."""
        codec = self.store.codec
        key = codec.read_key(entry.key)
        old = codec.old_value(entry.stored) if self.send_old else None
        entry.sent(self.store.write(entry))
        if self.windows is not None:
            key = Windowed(key, Window(entry.start, entry.start + self.windows.size_ms))
        change = Change(self._fields.result(entry.value), self._fields.result(old))
        self.ctx.forward(Record(key, change, entry.timestamp, headers))
