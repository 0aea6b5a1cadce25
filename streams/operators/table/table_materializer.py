"""The tables that operators maintain: look-ups as of each update of a step, and the storing and forwarding of updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, binary_column, column_of, rows_where
from state.sorting import is_identity
from streams.model.record import NO_TIME, Change, Headers, HeldRecord, Record, ValueAndTimestamp
from streams.operators.columnar import (
    Changes,
    ColumnarBatch,
    EncodedValues,
    HeldRows,
    Int64s,
    KeyColumn,
    WindowedKeys,
    concatenated,
    null_values,
    take_values,
    values_at,
)
from streams.operators.operator import Operator, OperatorContext
from streams.operators.pending import Pending, emit_pending
from streams.operators.process.user_stores import typed_store_of
from streams.operators.stores.codec import timestamps_of
from streams.operators.stores.found_rows import FoundRows, TableLookup
from streams.operators.stores.key_value import (
    NOT_PUT,
    VALID_TO_UNDEFINED,
    CachedRow,
    CachedRows,
    TypedKeyValueStore,
    TypedTimestampedKeyValueStore,
    TypedVersionedStore,
    row_as_result,
)
from streams.operators.stores.window import TypedTimestampedWindowStore
from streams.operators.table.value_getter import ValueGetter


class TableRows(NamedTuple):
    """Rows for `TypedTimestampedKeyValueStore.put_column`: keys, local values (null deletes the row), and timestamps, ms."""

    keys: BinaryColumn
    values: BinaryColumn
    timestamps: Int64s


class TableUpdates:
    """The updates of a table in one step, which can be looked up as of each of them.

    Args:
        store: The table's store, without these updates.
        batch: The updates, in order, with the new values. No key is null.
        caching: Whether look-ups return the step's own objects, as the store's cache does; otherwise they return new objects,
            decoded from the bytes.

    Raises:
        Exception: A key cannot be written.
    """

    def __init__(self, store: TypedTimestampedKeyValueStore, batch: ColumnarBatch, caching: bool) -> None:
        self.batch = batch
        self._store = store
        self.caching = caching
        self._number_of, self._numbers = numbered(store.codec.keys(batch.keys), batch.keys)
        self._span = int(batch.order[-1]) + 1 if len(batch) else 1
        self._places: Int64s = self._numbers * self._span + batch.order
        self._by_place = np.argsort(self._places, kind="stable")
        self._sorted_places = self._places[self._by_place]
        self._before: BinaryColumn | None = None
        self._written: BinaryColumn | None = None

    def key_column(self, rows: Int64s) -> BinaryColumn:
        """The bytes of the keys of the updates in these rows."""
        distinct = binary_column(list(self._number_of))
        return distinct.take(pa.array(self._numbers[rows]))

    def remember(self) -> None:
        """Reads the rows as they are before the step, so that `lookup` can return them even after the updates are written."""
        self._before = self._store.stored_column(binary_column(list(self._number_of)))

    def rows(self, rows: Int64s) -> TableRows:
        """The updates in these rows, in the form that the store writes.

        Raises:
            SerdeError: A value cannot be written.
            OversizedRowError: A row does not fit the changelog.
        """
        keys, timestamps = self.key_column(rows), self.batch.timestamps[rows]
        values = self._store.codec.timestamped_column(keys, self._value_column(rows), timestamps)
        return TableRows(keys, values, timestamps)

    def stored(self, rows: Int64s) -> BinaryColumn:
        """The local values before the step for the keys of some updates, null where there is none."""
        return self._store.stored_column(self.key_column(rows))

    def _value_column(self, rows: Int64s) -> BinaryColumn:
        """The bytes of the values in these rows. Without a cache, all are made together, before functions below can change them."""
        if self.caching:
            return self._store.codec.values(take_values(self.batch.values, rows))
        if self._written is None:
            self._written = self._store.codec.values(self.batch.values)
        whole = len(rows) == len(self.batch) and is_identity(rows)
        return self._written if whole else self._written.take(pa.array(rows))

    def followed_by(self, later: TableUpdates) -> TableUpdates:
        """These updates and later ones of the same step, which are emitted together at the end of the step."""
        batch = concatenated([self.batch, later.batch])
        return TableUpdates(self._store, replace(batch, order=np.arange(len(batch))), self.caching)

    def last_of_each_key(self) -> Int64s:
        """The row of the last update of each key, ordered by timestamp, then by the key's first update.

        Example: the updates (a, time 10), (b, 20), (a, 30) give the rows [1, 2]: b at 20, then a at 30.
        """
        every = np.arange(len(self.batch))
        first, last = np.empty(len(self._number_of), np.int64), np.full(len(self._number_of), -1)
        first[self._numbers[::-1]] = every[::-1]
        last[self._numbers] = every
        there = last >= 0
        first, last = first[there], last[there]
        return last[np.lexsort((first, self.batch.timestamps[last]))]

    def lookup(self, keys: KeyColumn, order: Int64s) -> FoundRows:
        """The table's row for each key, just before its position in the step (`order`, int64[n])."""
        data = self._store.codec.keys(keys)
        of_object = np.array([self._number_of.get(key, -1) for key in data], np.int64)
        numbers = of_object[keys.codes]
        at = self._last_before(numbers, order)
        if self._before is None:
            return self._found(at, partial(stored_rows, self._store, data, keys.codes))
        return self._found(at, partial(self._rows_before, self._before, numbers, data, keys.codes))

    def before_each(self) -> FoundRows:
        """The table's row just before each update."""
        by_place = self._by_place
        same = rows_where(self._numbers[by_place[1:]] == self._numbers[by_place[:-1]])
        before = np.full(len(self.batch), -1)
        before[by_place[same + 1]] = by_place[same]
        return self._found(before, partial(stored_rows, self._store, list(self._number_of), self._numbers))

    def _found(self, at: Int64s, stored: Callable[[Int64s], FoundRows]) -> FoundRows:
        """The rows of look-ups: `at` is the update that has written the row, or -1 for a row from before the step (`stored`)."""
        own = at >= 0
        if own.all():
            return self._seen(at)
        others = stored(rows_where(~own))
        return woven(own, self._seen(at[own]), others) if own.any() else others

    def _rows_before(
        self, before: BinaryColumn, numbers: Int64s, data: Sequence[bytes], codes: npt.NDArray[np.int32], rows: Int64s
    ) -> FoundRows:
        """The rows before the step: remembered ones for keys that have updates, and rows of the store for other keys."""
        known = numbers[rows] >= 0
        remembered = rows_of(self._store, before.take(pa.array(numbers[rows[known]])))
        if known.all():
            return remembered
        return woven(known, remembered, stored_rows(self._store, data, codes, rows[~known]))

    def _last_before(self, numbers: Int64s, order: Int64s) -> Int64s:
        """The last update of each key before a position, or -1 if there is none."""
        if not len(self.batch):
            return np.full(len(numbers), -1)
        # A position after the last update must not reach into the numbers of the next key.
        places = numbers * self._span + np.minimum(order, self._span)
        at = np.searchsorted(self._sorted_places, places) - 1
        rows = self._by_place[at]
        return np.where((at >= 0) & (self._numbers[rows] == numbers), rows, -1)

    def _seen(self, rows: Int64s) -> FoundRows:
        """The rows that these updates have written, as look-ups see them."""
        timestamps, values = self.batch.timestamps[rows], self.batch.values
        if self.caching and isinstance(values, EncodedValues):
            there = ~values.nulls[rows]
            timestamps = np.where(there, timestamps, NO_TIME)
            return FoundRows(there, timestamps, partial(values_at, values, rows), partial(_unread, values, rows), True)
        if self.caching:
            return FoundRows.of(values_at(values, rows), timestamps, shared=True)
        written, codec = self._value_column(rows), self._store.codec
        there = written.is_valid().to_numpy(zero_copy_only=False)
        timestamps = np.where(there, timestamps, NO_TIME)
        return FoundRows(
            there, timestamps, lambda: codec.read_values(written.to_pylist()), partial(codec.encoded, written)
        )


def numbered(data: Sequence[bytes], keys: KeyColumn) -> tuple[dict[bytes, int], Int64s]:
    """Numbers the distinct keys. Returns key bytes -> number, and int64[n]: the number of each row's key."""
    number_of: dict[bytes, int] = {}
    of_object = [number_of.setdefault(key, len(number_of)) for key in data]
    return number_of, np.array(of_object, np.int64)[keys.codes]


def _look_up_forwarded(store: TypedTimestampedKeyValueStore, keys: KeyColumn, order: Int64s) -> FoundRows:
    """A `TableLookup` of rows as they were last forwarded: the cache still has these if a scan has written newer rows."""
    return _each(store.forwarded, keys) if store.has_cached_rows else _look_up_stored(store, keys)


def _look_up_last(store: TypedTimestampedKeyValueStore, keys: KeyColumn, order: Int64s) -> FoundRows:
    """A `TableLookup` of the current rows."""
    store.settle()
    return _each(store.get, keys) if store.has_cached_rows else _look_up_stored(store, keys)


def _look_up_windows(store: TypedTimestampedWindowStore, forwarded: bool, keys: KeyColumn, order: Int64s) -> FoundRows:
    """A `TableLookup` of windows: as they were last forwarded, or as they are now."""
    if store.has_cached_rows or store.updates or not isinstance(keys, WindowedKeys):
        return _each(store.forwarded if forwarded else store.get, keys)
    return rows_of(store, store.fetch_columns(store.codec.key_cells(keys.inner), keys.starts))


def _look_up_stored(store: TypedTimestampedKeyValueStore, keys: KeyColumn) -> FoundRows:
    return stored_rows(store, store.codec.keys(keys), keys.codes)


def _each(get: Callable[[Any], ValueAndTimestamp | None], keys: KeyColumn) -> FoundRows:
    return _found([get(key) for key in keys])


def _found(found: Sequence[ValueAndTimestamp | None]) -> FoundRows:
    values = [None if row is None else row.value for row in found]
    return FoundRows.of(values, np.array([NO_TIME if row is None else row.timestamp for row in found], np.int64))


class LookUp(Protocol):
    """Looks up rows of a table."""

    def __call__(self, keys: KeyColumn, order: Int64s, times: Int64s | None = None) -> FoundRows:
        """The row for each key, at a position in the step.

        Args:
            keys: The keys; none is null.
            order: int64[n], the position for each key.
            times: int64[n], the time for each key in a versioned table, ms; None: the newest rows.
        """


def opened(ctx: OperatorContext, table: ValueGetter, forwarded: bool = False) -> LookUp:
    """The look-up function for many keys: of rows as they were last forwarded, or as they are now."""
    stores = {name: typed_store_of(ctx.store(name)) for name in table.stores}
    together = (TypedTimestampedKeyValueStore, TypedTimestampedWindowStore)
    plain = {name: store for name, store in stores.items() if isinstance(store, together)}

    def look_up(keys: KeyColumn, order: Int64s, times: Int64s | None = None) -> FoundRows:
        found = {name: _look_up(store, forwarded) for name, store in plain.items()}
        return table.open_together(found)(keys, order)

    def look_up_each(keys: KeyColumn, order: Int64s, times: Int64s | None = None) -> FoundRows:
        as_of = repeat(None) if times is None else times.tolist()
        return _found([single(key, time) for key, time in zip(keys, as_of, strict=False)])

    if table.reads_each or len(plain) < len(stores):
        single = table.open(ctx, forwarded)
        return look_up_each
    return look_up


def _look_up(store: TypedTimestampedKeyValueStore | TypedTimestampedWindowStore, forwarded: bool) -> TableLookup:
    if isinstance(store, TypedTimestampedWindowStore):
        return partial(_look_up_windows, store, forwarded)
    as_of = store.forwarded_as_of if forwarded else store.as_of
    return as_of or partial(_look_up_forwarded if forwarded else _look_up_last, store)


def _unread(values: EncodedValues, rows: Int64s) -> EncodedValues | None:
    """The values in these rows as bytes; None if some were decoded, and may have changed."""
    return values.take(rows) if values.is_untouched else None


def woven(first: npt.NDArray[np.bool_], rows: FoundRows, others: FoundRows) -> FoundRows:
    """The rows of two look-ups as one. bool[n] `first` is true where the next row of `rows` belongs, and false for `others`."""
    place = np.empty(len(first), np.int64)
    place[np.concatenate([rows_where(first), rows_where(~first)])] = np.arange(len(first))

    def read() -> list[Any]:
        values = [*rows.values, *others.values]
        return [values[row] for row in place.tolist()]

    def encoded() -> EncodedValues | None:
        one, other = rows.encoded(), others.encoded()
        values = None if one is None or other is None else one.joined([one, other])
        return values.take(place) if isinstance(values, EncodedValues) else None

    return FoundRows(
        np.concatenate([rows.there, others.there])[place],
        np.concatenate([rows.timestamps, others.timestamps])[place],
        read,
        encoded,
        rows.shared or others.shared,
    )


def stored_rows(
    store: TypedTimestampedKeyValueStore,
    keys: Sequence[bytes],
    codes: Int64s | npt.NDArray[np.int32],
    rows: Int64s | None = None,
) -> FoundRows:
    """The stored rows for many look-ups. Each look-up decodes its value again, because users may change the objects they get.

    Args:
        store: The table's store.
        keys: The bytes of the distinct keys.
        codes: int[n], the index of each look-up's key.
        rows: The look-ups to do; None: all of them.
    """
    needed, which = np.unique(codes if rows is None else codes[rows], return_inverse=True)
    found = store.stored_column(column_of(keys, needed))
    return rows_of(store, found.take(pa.array(which)))


def rows_of(store: CachedRows, stored: BinaryColumn) -> FoundRows:
    """The rows in a column of local values; null: no row."""
    there, codec = stored.is_valid().to_numpy(zero_copy_only=False), store.codec
    return FoundRows(
        there, timestamps_of(stored), partial(codec.old_values, stored), partial(codec.encoded_old, stored)
    )


# --- The shared part of table operators: an optional store, and the forwarding of updates.
#
# Rules (Kafka Streams: `TimestampedTupleForwarder`, `CachingKeyValueStore`). Without caching, every update is forwarded. With
# caching, only the last update of each key in a step is forwarded, at the end of the step. If the key had no row before the step
# and has none after it, nothing is forwarded. Updates are forwarded in order of time, so even a long step makes no update late for
# operators below. `Change.old` is filled only if a child needs it.
#
# Example: a step has the updates a: 1 at 10, b: 5 at 20, a: 2 at 30, c: 7 at 40 and c: None at 50. The step forwards b: 5 at 20,
# then a: 2 at 30. For c, which had no row, it forwards nothing.
#
# A late update, with an older timestamp than the row's, replaces the row all the same, as in Kafka Streams. In a versioned table
# (KIP-889), it becomes a version in the key's history. Example: a key has versions at 10 and 30. An update at 20 is valid until
# 30, and is forwarded with `is_latest` = False. With a history retention of 100, and 200 as the largest timestamp in the store, an
# update at 99 is dropped as late.


class TableMaterializer:
    """The table of an operator, for one step.

    Args:
        ctx: The operator's context.
        store: Name of a timestamped key-value store or a versioned one; None: the table is not stored.
        caching: Whether to hold updates back until the end of the step; ignored for a versioned store.
        send_old: Whether children need `Change.old`.
        given_old: Whether, without caching, `Change.old` is the argument `old` of `update`, even if the store has another value.
    """

    def __init__(
        self, ctx: OperatorContext, store: str | None, caching: bool, send_old: bool, given_old: bool = False
    ) -> None:
        self._ctx = ctx
        self._caching = caching
        self._send_old = send_old
        self._given_old = given_old
        found = None if store is None else ctx.store(store)
        self._versioned: TypedVersionedStore | None = found if isinstance(found, TypedVersionedStore) else None
        self._store: TypedTimestampedKeyValueStore | None = None if self._versioned is not None else found
        if caching and self._store is not None:
            self._store.use_cache(ctx.private_rows)
        self._pending: Pending = {}
        self._pending_together: TableUpdates | None = None

    @property
    def versioned(self) -> bool:
        """Whether each update becomes a version in the history of its key."""
        return self._versioned is not None

    @property
    def kept(self) -> bool:
        return self._store is not None or self._versioned is not None

    def value(self, key: Any) -> Any:
        """The stored value of a key; None if there is no row."""
        store = self._store if self._store is not None else self._versioned
        found = None if store is None else store.get(key)
        return None if found is None else found.value

    def update(self, record: Record, new: Any, old: Any = None, is_latest: bool = True) -> None:
        """Set the value of a key to `new`, and forward the update. The record has the key, the timestamp and the headers."""
        if self._versioned is not None:
            self._put_version(self._versioned, record, new)
        elif self._store is None:
            change = Change(new, old if self._send_old else None, is_latest)
            self._ctx.forward(record.with_value(change))
        else:
            entry = self._store.entry(record.key)
            entry.set(None if new is None else self._store.codec.seen(new), record.timestamp)
            if self._caching:
                self._pending[entry.key] = (record.key, record.headers, entry)
            elif self._given_old:
                self._emit(self._store, record.key, record.headers, entry, old)
            else:
                self._emit_with_old(self._store, record.key, record.headers, entry)

    def updates(self, batch: ColumnarBatch) -> TableUpdates | None:
        """The updates of a batch, for look-ups and for `update_together`; None for a table without a store.

        Raises:
            Exception: A key cannot be written, or a value would be read back as something else.
        """
        if self._store is None:
            return None
        seen = batch.with_values(self._store.codec.seen_column(batch.values))
        return TableUpdates(self._store, seen, self._caching)

    def show(self, updates: TableUpdates | None) -> None:
        """Lets the unit's other operators look up rows as of each update. Called before the updates are written or held back."""
        if self._store is None or updates is None or not self._store.watched:
            return
        self._store.as_of = updates.lookup
        if not self._caching:
            updates.remember()
            self._store.forwarded_as_of = updates.lookup

    def update_together(
        self, batch: ColumnarBatch, updates: TableUpdates | None, given: Sequence[Any] | None = None
    ) -> Callable[[], None]:
        """Does the part of `update` that can fail, for all records of a batch. Returns a function that does the rest.

        Args:
            batch: The records, with the new values.
            updates: The result of `updates` for this batch.
            given: The old values, if the table has no store or `given_old` is set.

        Raises:
            Exception: A row cannot be written.
        """
        if self._store is None or updates is None:
            changes = Changes(batch.values, given if self._send_old else None)
            return partial(self._ctx.forward_batch, batch.with_values(changes))
        if self._caching:
            return self._held_together(self._store, updates)
        every = np.arange(len(batch))
        olds = None
        if self._send_old:
            olds = given if self._given_old else updates.before_each().values
        return partial(self._emit_together, self._store, updates.rows(every), updates.batch, olds, every)

    def _held_together(self, store: TypedTimestampedKeyValueStore, updates: TableUpdates) -> Callable[[], None]:
        """Holds updates back until the end of the step, after earlier ones. Returns a function that does so."""
        if self._pending:
            return partial(self._update_each, updates.batch)
        if self._pending_together is not None:
            updates = self._pending_together.followed_by(updates)

        def hold() -> None:
            self._pending_together = updates
            store.unsettled = self._settle

        return hold

    def _settle(self) -> None:
        """Holds each update back by itself, for code that reads single rows."""
        updates, self._pending_together = self._pending_together, None
        if updates is not None:
            self._update_each(updates.batch)

    def flush(self) -> None:
        """Forward each key's last value, in order of time."""
        if self._store is None:
            return  # without a store, no update is held back
        updates, self._pending_together = self._pending_together, None
        self._store.unsettled = None
        if updates is not None:
            self._flush_together(self._store, updates)
        emit_pending(self._ctx, self._store, self._pending, partial(self._emit_with_old, self._store), self._result)

    def _flush_together(self, store: TypedTimestampedKeyValueStore, updates: TableUpdates) -> None:
        """Emit the last update of each key. If that fails, hold back each one separately, so that only the one at fault fails."""
        last = updates.last_of_each_key()
        batch = updates.batch.take(last)
        try:
            rows = updates.rows(last)
            deletes = null_values(batch.values)
            read = rows_where(deletes | self._send_old)
            stored = updates.stored(last[read])
            olds = store.codec.old_values(stored) if self._send_old else None
        except Exception:
            self._update_each(updates.batch)
            return
        forwarded = np.ones(len(batch), np.bool_)
        forwarded[read] = ~deletes[read] | stored.is_valid().to_numpy(zero_copy_only=False)
        order = np.arange(len(batch))
        held = HeldRows(
            lambda row: row_as_result(
                store.codec, batch.keys[row], rows.keys[row].as_py(), int(rows.timestamps[row]), batch.headers_of(row)
            ),
            order,
        )
        results = ColumnarBatch(batch.keys, batch.values, batch.timestamps, order, batch.headers, held=held)
        self._emit_together(store, rows, results, olds, order[forwarded])

    def _update_each(self, batch: ColumnarBatch) -> None:
        self._ctx.attempt_each(batch, lambda record: self.update(record, record.value))

    def _emit_together(
        self,
        store: TypedTimestampedKeyValueStore,
        rows: TableRows,
        batch: ColumnarBatch,
        olds: Sequence[Any] | None,
        forwarded: Int64s,
    ) -> None:
        """Write all rows, and forward the updates `forwarded`."""
        store.put_column(*rows)
        if not self._ctx.has_children:
            self._ctx.count_forwarded(len(forwarded))
            return
        if len(forwarded) < len(batch):
            batch, olds = batch.take(forwarded), None if olds is None else [olds[row] for row in forwarded.tolist()]
        self._ctx.forward_batch(batch.with_values(Changes(batch.values, olds)))

    def _emit_with_old(
        self, store: TypedTimestampedKeyValueStore, key: Any, headers: Headers, entry: CachedRow
    ) -> None:
        """Emit a row. The old value is the one that was forwarded last."""
        self._emit(store, key, headers, entry, store.codec.old_value(entry.stored) if self._send_old else None)

    def _result(self, key: Any, headers: Headers, entry: CachedRow) -> HeldRecord:
        """The record that errors name for a row that is emitted at the end of the step."""
        assert self._store is not None, "only a store buffers updates"
        return row_as_result(self._store.codec, key, entry.key, entry.timestamp, headers)

    def _emit(
        self, store: TypedTimestampedKeyValueStore, key: Any, headers: Headers, entry: CachedRow, old: Any
    ) -> None:
        entry.sent(store.write(entry))
        self._ctx.forward(Record(key, Change(entry.value, old if self._send_old else None), entry.timestamp, headers))

    def _put_version(self, store: TypedVersionedStore, record: Record, new: Any) -> None:
        before = store.get(record.key) if self._send_old else None
        new = None if new is None else store.codec.seen(new)
        newer = store.put(record.key, new, record.timestamp)
        if newer == NOT_PUT:
            self._ctx.drop(record, "late")
            return
        old = None if before is None else before.value
        self._ctx.forward(record.with_value(Change(new, old, newer == VALID_TO_UNDEFINED)))


class PassedOn:
    """The keys for which a table without a store has forwarded a row, and no deletion since then.

    Args:
        store: A key-value store of these keys, with empty values.
    """

    def __init__(self, store: TypedKeyValueStore) -> None:
        self._store = store

    @classmethod
    def opened(cls, ctx: OperatorContext, store: str | None) -> PassedOn | None:
        """Opens the store. None without a store, or in compat mode, which relies on computed old values, as Kafka Streams does."""
        return None if store is None or ctx.mode != "strict" else cls(ctx.store(store))

    def __contains__(self, key: Any) -> bool:
        return self._store.get(key) is not None

    def note(self, record: Record, new: Any) -> None:
        """Called for each update that is forwarded; a new value of None is a deletion."""
        if (record.key in self) is (new is None):
            self._store.put(record.key, None if new is None else b"", record.timestamp)


class TableOperator(Operator):
    """Base of operators whose result is a table. It opens the table as `_table`, and emits pending updates at the end of the step.

    Args:
        store: Name of a timestamped key-value store or a versioned one; None: the table is not stored.
        caching: Forward the last update of a key once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`.
    """

    def __init__(self, store: str | None = None, caching: bool = True, send_old: bool = False) -> None:
        self.store_name = store
        self.caching = caching
        self.send_old = send_old

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._table = TableMaterializer(ctx, self.store_name, self.caching, self.send_old)

    def flush(self) -> None:
        """Forward each key's last value, in order of time."""
        self._table.flush()
