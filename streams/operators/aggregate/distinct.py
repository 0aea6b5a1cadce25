"""Counts distinct values (`agg.count_distinct`). Each distinct value is a row of its own.

The aggregation's store has the accumulators. A second store has the values seen so far: a key-value store or, with windows, a
window store, which drops a window's values together with the window.

For example, `agg.count_distinct("user")` gets the users a, b and a with the key `eu`. The second store then has two rows, one for
`eu` and a, one for `eu` and b, and the count is 2.
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
"""Columns of keys, starts of windows (ms), cells and timestamps (ms)."""


class _Seen(Protocol):
    """The store of the values seen so far. A row is the row's key and the start of its window, ms; without windows, -1."""

    def __contains__(self, row: tuple[bytes, int]) -> bool: ...

    def add(self, row: tuple[bytes, int], timestamp: int) -> None:
        """Store a value."""

    def are_new(self, keys: BinaryColumn, starts: Int64s) -> Bools:
        """bool[n], which values have no row yet."""

    def cells(self, keys: BinaryColumn) -> BinaryColumn:
        """The cell to store for each value. Raises `OversizedRowError` if a row does not fit the changelog."""

    def add_all(self, keys: BinaryColumn, starts: Int64s, cells: BinaryColumn, timestamps: Int64s) -> None:
        """Store values, in this order."""


class CountsDistinct(AddsFields):
    """Makes an aggregation count distinct values (`agg.count_distinct`): it counts a value whose row is new.

    Whole records are processed one by one. The fields of a step's records are processed at once: all values are looked up together,
    and each value of a group only once. The aggregate then counts the records that bring a new value. A record that fails leaves no
    row.

    A subclass lists this class first, then the class of the aggregation, which has the `functions` of the same fields.

    Attributes:
        seen_name: Name of the store of the values seen so far.
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
        """Compute everything that may fail, for all windows. Only then store the new values."""
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
        """Processes records one by one. A record's value is what the aggregates have read from it, or the error of reading it."""
        self._picked = partial(_read, self.fields)
        try:
            self.ctx.attempt_each(records, self.process)
        finally:
            self._picked = self.fields.picked

    def added(
        self, rows: FieldRows, columns: Sequence[FieldColumn | None], at: Int64s, window_starts: Int64s
    ) -> AddedGroups:
        """Counts new values. `begin` writes their rows later, when nothing can fail any more."""
        if (at[1:] == at[:-1]).any():
            # If windows overlap, a record's value may be new in one and not in another. So each pair becomes a separate row.
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
        """Writes the rows of new values, too: nothing can fail any more."""
        super().begin(batch, pairs)
        new, self._unwritten_values = self._unwritten_values, None
        if new is not None:
            self._seen.add_all(*new)


def _read(fields: FieldAggregates, read: Any) -> list[Any]:
    if isinstance(read, Exception):
        raise read
    return fields.kept(read)


class CountsDistinctOnUpdate(CountsDistinct, ColumnAggregate):
    """Counts distinct values and emits updates. If a record is late for all its windows, its fields are not read."""

    def process_batch(self, batch: ColumnarBatch) -> None:
        self._unfold()
        super().process_batch(batch)

    def _process_fields(self, rows: FieldRows, taken: Bools) -> None:
        batch, at = rows.batch, rows_where(taken)
        assigned = self._assigned(batch.timestamps[at]).within(at)
        picked, pairs, starts = fields_in_time(self.fields, rows, assigned)
        try:
            self._fold(rows, picked.columns, pairs, starts)
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
        seen: Name of the key-value store of the values seen so far. Each key is the group's key, the aggregate's number, and the
            value.
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
    """Counts distinct values in windows, which emit updates or one result on close."""

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._seen = _SeenInWindows(ctx.store(self.seen_name))

    @property
    def expiring(self) -> tuple[str, ...]:
        return (*super().expiring, self.seen_name)


class WindowDistinctAggregate(_DistinctInWindows, CountsDistinctOnUpdate):
    """`WindowAggregate` of fields with counts of distinct values. With `TimeWindows` and `CalendarWindows`, it gets columns.

    Args:
        store: Name of a timestamped window store of the accumulators.
        seen: Name of the window store of the values seen so far. It keeps a window as long as `store` does. Keys are as in
            `StreamDistinctAggregate`.
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
    """`WindowAggregateOnClose` of fields with counts of distinct values. Arguments are as for `WindowDistinctAggregate`."""

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
    """The values seen over all time, in a key-value store. Windows' starts are ignored."""

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
    """The values seen in each window, in a window store."""

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
