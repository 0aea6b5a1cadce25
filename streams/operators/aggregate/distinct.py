"""Aggregates of fields with counts of distinct values (`agg.count_distinct`), each of which is a row of its own.

The accumulators are in the store of the aggregation, and the values that were seen in another one: a key-value store, or in
windows a window store that forgets a window's values together with the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from state.columns import BinaryColumn, binary_column, rows_where, valid_rows
from streams.model.aggregates import CountDistinct
from streams.model.record import Record
from streams.model.windows import Windows
from streams.operators.aggregate.aggregates import WindowAggregate, WindowPairs, assign_any
from streams.operators.aggregate.column_aggregate import (
    AddedGroups,
    AddsFields,
    ColumnAggregate,
    FieldRows,
    StreamColumnAggregate,
    WindowColumnAggregateOnClose,
    concerns_records,
    fields_in_time,
)
from streams.operators.aggregate.column_rows import Assigned, FieldColumn, FieldValues, Int64s, group
from streams.operators.aggregate.distinct_values import Candidates, row_key
from streams.operators.aggregate.functions import AggregationFunctions, FieldAggregates
from streams.operators.columnar import ColumnarBatch
from streams.operators.expressions import Bools
from streams.operators.operator import OperatorContext
from streams.operators.stores.key_value import CachedRow, TypedKeyValueStore
from streams.operators.stores.window import TypedWindowStore

_PRESENT: Final = 1

_NewRows: TypeAlias = tuple[BinaryColumn, Int64s, BinaryColumn, Int64s]
"""Columns of keys, starts of windows, cells and timestamps."""


class _Seen(Protocol):
    """The values that were seen, each with the key of its row, and in windows by the window's start."""

    def __contains__(self, row: tuple[bytes, int]) -> bool: ...

    def add(self, row: tuple[bytes, int], timestamp: int) -> None:
        """Note a value."""

    def are_new(self, keys: BinaryColumn, starts: Int64s) -> Bools:
        """Which values have no row."""

    def cells(self, keys: BinaryColumn) -> BinaryColumn:
        """What is stored for values. Raises `OversizedRowError` if a row does not fit the changelog."""

    def add_all(self, keys: BinaryColumn, starts: Int64s, cells: BinaryColumn, timestamps: Int64s) -> None:
        """Note values, in their order."""


class CountsDistinct(AddsFields):
    """`agg.count_distinct` counts the values whose row is new. A record that fails has left no row.

    Whole records are taken one by one. The fields of a step's records are taken at once: each value of a group is looked up
    once, all of them together, and the aggregate counts the records that bring a new one.

    It stands in front of the class that it makes count, whose `functions` are those of the same fields.

    Attributes:
        seen_name: Name of the store of the values.
    """

    seen_name: str
    _seen: _Seen

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._picked: Callable[[Any], list[Any]] = self.fields.picked
        self._unwritten_values: _NewRows | None = None

    def process_batch(self, batch: ColumnarBatch) -> None:
        if isinstance(batch.values, FieldValues):
            super().process_batch(batch)
        else:
            self.ctx.attempt_each(batch, self.process)

    def process(self, record: Record) -> None:
        """Compute everything that may fail, for all windows, then note the new values."""
        self._new: list[tuple[bytes, int]] = []
        super().process(record)

    @cached_property
    def _distinct(self) -> list[int]:
        return [at for at, one in enumerate(self.fields.aggregates.values()) if isinstance(one, CountDistinct)]

    def _updated(self, row: CachedRow, value: Any, record: Record) -> tuple[Any, int]:
        picked = self._picked(value)
        for at in self._distinct:
            if picked[at] is not None:
                place = (row_key(row.key, at, picked[at]), row.start)
                if place in self._seen:
                    picked[at] = None
                else:
                    self._new.append(place)
        before = self.fields.initial() if row.value is None else row.value
        after = self.store.codec.seen(self.fields.add_picked(record.key, picked, before))
        return after, record.timestamp if row.value is None else max(record.timestamp, row.timestamp)

    def _set(self, row: CachedRow, value: Any, timestamp: int, record: Record) -> None:
        for place in self._new:
            self._seen.add(place, record.timestamp)
        self._new.clear()
        super()._set(row, value, timestamp, record)

    def process_read(self, records: ColumnarBatch) -> None:
        """Takes records one by one whose values are what the aggregates read of them, or the error of doing so."""
        self._picked = partial(_read, self.fields)
        try:
            self.ctx.attempt_each(records, self.process)
        finally:
            self._picked = self.fields.picked

    def added(
        self, rows: FieldRows, columns: Sequence[FieldColumn | None], at: Int64s, window_starts: Int64s
    ) -> AddedGroups:
        """Counts new values; `begin` writes their rows."""
        if (at[1:] == at[:-1]).any():
            # In windows that overlap, a record's value may be new in one and not in the other: each pair is a row of its own.
            rows = rows._replace(batch=rows.batch.take(at))
            columns = [None if one is None else one.take(at) for one in columns]
            at = np.arange(len(at))
        groups = group(rows.batch.keys.codes[at], window_starts)
        found = Candidates.of(rows.data, groups, columns, at, self._distinct)
        found = found.where(self._seen.are_new(found.keys, window_starts[found.firsts]))
        cells, starts = self._seen.cells(found.keys), window_starts[found.firsts]
        added = super().added(rows, found.marked(columns, at, self._distinct), at, window_starts)
        self._unwritten_values = found.keys, starts, cells, rows.batch.timestamps[at[found.firsts]]
        return added

    def begin(self, batch: ColumnarBatch, pairs: WindowPairs) -> None:
        """Then nothing can fail any more."""
        super().begin(batch, pairs)
        new, self._unwritten_values = self._unwritten_values, None
        if new is not None:
            self._seen.add_all(*new)


def _read(fields: FieldAggregates, read: Any) -> list[Any]:
    if isinstance(read, Exception):
        raise read
    return fields.kept(read)


class CountsDistinctOnUpdate(CountsDistinct, ColumnAggregate):
    """Emits the updates. The fields of records that are late for all their windows are not read."""

    def process_batch(self, batch: ColumnarBatch) -> None:
        self._unfold()
        super().process_batch(batch)

    def _process_fields(self, rows: FieldRows, taken: Bools) -> None:
        batch, at = rows.batch, rows_where(taken)
        assigned = self._assigned(batch.timestamps[at]).within(at)
        picked, pairs, starts = fields_in_time(self.fields, rows, assigned)
        try:
            self._folded = self._fold(rows, picked.columns, pairs, starts)
        except Exception as error:
            if not concerns_records(error):
                raise
            self.process_read(picked.records(at))
            return
        self.begin(batch, WindowPairs(assigned, {}))
        self.ctx.drop_many(len(assigned.late), "late")
        for row in sorted(picked.errors):
            self.ctx.refuse(batch, row, picked.errors[row])


class StreamDistinctAggregate(CountsDistinctOnUpdate, StreamColumnAggregate):
    """`StreamColumnAggregate` with counts of distinct values.

    Args:
        store: Name of a timestamped key-value store of the accumulators.
        seen: Name of a key-value store of bytes; each key is the group, the number of the aggregate, and a value.
        fields: The aggregates.
    """

    def __init__(
        self, store: str, seen: str, fields: FieldAggregates, caching: bool = True, send_old: bool = False
    ) -> None:
        super().__init__(store, fields, caching, send_old)
        self.seen_name = seen

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._seen = _SeenForEver(ctx.store(self.seen_name))


class _DistinctInWindows(CountsDistinct, WindowAggregate):
    """What windows of both ways to emit have in common."""

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._seen = _SeenInWindows(ctx.store(self.seen_name))

    @property
    def expiring(self) -> tuple[str, ...]:
        return (*super().expiring, self.seen_name)


class WindowDistinctAggregate(_DistinctInWindows, CountsDistinctOnUpdate):
    """`WindowAggregate` of fields with counts of distinct values. Those of `TimeWindows` and `CalendarWindows` get columns.

    Args:
        store: Name of a timestamped window store of the accumulators.
        seen: Name of a window store of bytes, which keeps a window as long; keys as in `StreamDistinctAggregate`.
        fields: The aggregates.
    """

    def __init__(
        self,
        store: str,
        seen: str,
        windows: Windows,
        fields: FieldAggregates,
        open_store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, windows, fields.functions, None, caching, send_old)
        self.fields, self.seen_name = fields, seen

    def _assigned(self, timestamps: Int64s) -> Assigned:
        return assign_any(timestamps, self.windows, self._time.now)


class WindowDistinctAggregateOnClose(_DistinctInWindows, WindowColumnAggregateOnClose):
    """`WindowAggregateOnClose` of fields with counts of distinct values; arguments as for `WindowDistinctAggregate`."""

    def __init__(
        self,
        store: str,
        seen: str,
        windows: Windows,
        fields: FieldAggregates,
        open_store: str | None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        WindowColumnAggregateOnClose.__init__(self, store, windows, fields, open_store)
        self.seen_name = seen

    def _add_in_turn(self, records: ColumnarBatch, functions: AggregationFunctions) -> None:
        self.process_read(records)


class _SeenForEver:
    def __init__(self, store: TypedKeyValueStore) -> None:
        self._store = store

    def __contains__(self, row: tuple[bytes, int]) -> bool:
        return self._store.get(row[0]) is not None

    def add(self, row: tuple[bytes, int], timestamp: int) -> None:
        self._store.put(row[0], _PRESENT, timestamp)

    def are_new(self, keys: BinaryColumn, starts: Int64s) -> Bools:
        return ~valid_rows(self._store.stored_column(keys))

    def cells(self, keys: BinaryColumn) -> BinaryColumn:
        return _cells(self._store, keys)

    def add_all(self, keys: BinaryColumn, starts: Int64s, cells: BinaryColumn, timestamps: Int64s) -> None:
        self._store.put_column(keys, cells, timestamps)


class _SeenInWindows:
    def __init__(self, store: TypedWindowStore) -> None:
        self._store = store

    def __contains__(self, row: tuple[bytes, int]) -> bool:
        return self._store.fetch(*row) is not None

    def add(self, row: tuple[bytes, int], timestamp: int) -> None:
        self._store.put(*row, _PRESENT)

    def are_new(self, keys: BinaryColumn, starts: Int64s) -> Bools:
        return ~valid_rows(self._store.fetch_columns(keys, starts))

    def cells(self, keys: BinaryColumn) -> BinaryColumn:
        return _cells(self._store, keys)

    def add_all(self, keys: BinaryColumn, starts: Int64s, cells: BinaryColumn, timestamps: Int64s) -> None:
        self._store.put_columns(keys, starts, cells)


def _cells(store: TypedKeyValueStore | TypedWindowStore, keys: BinaryColumn) -> BinaryColumn:
    cells = binary_column([store.codec.value(_PRESENT)] * len(keys))
    store.codec.check_all(keys, cells)
    return cells
