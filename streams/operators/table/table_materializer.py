"""The shared part of table operators: an optional store, and the forwarding of updates.

Rules (Kafka Streams: `TimestampedTupleForwarder`, `CachingKeyValueStore`): without caching every update is forwarded. With
caching the last update of a key in a step is forwarded, at the end of the step, unless the key had no row before and has none
now. Updates are forwarded in order of time, so that even a long step makes no update late for operators below. `Change.old` is
filled only where needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from streams.model.record import Change, Headers, HeldRecord, Record
from streams.operators.columnar import ColumnarBatch, HeldRows, Int64s, OneByOne
from streams.operators.encoded_values import null_values
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.pending import Pending, emit_pending
from streams.operators.result_columns import Changes
from streams.operators.stores.cached_row import CachedRow
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.stores.versioned import NOT_PUT, VALID_TO_UNDEFINED, TypedVersionedStore
from streams.operators.table.table_updates import TableRows, TableUpdates


class TableMaterializer:
    """A table within an operator, for one step.

    Args:
        ctx: The operator's context.
        store: Name of a timestamped key-value store or a versioned one; None = the table is not stored.
        caching: Buffer updates until the end of the step; ignored for a versioned store.
        send_old: Whether children need `Change.old`.
        given_old: Without caching, `Change.old` is the argument of `update` even if the store has another value.
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
    def kept(self) -> bool:
        return self._store is not None or self._versioned is not None

    def value(self, key: Any) -> Any:
        """The stored value of a key, None if there is none."""
        store = self._store if self._store is not None else self._versioned
        found = None if store is None else store.get(key)
        return None if found is None else found.value

    def update(self, record: Record, new: Any, old: Any = None, is_latest: bool = True) -> None:
        """Set a key (`record`'s key, timestamp and headers) and forward the update."""
        if self._versioned is not None:
            self._put_version(self._versioned, record, new)
        elif self._store is None:
            change = Change(new, old if self._send_old else None, is_latest)
            self._ctx.forward(record.with_value(change))
        else:
            if (before := self._pending_together) is not None:
                self._pending_together = None
                self._update_each(before.batch)
            entry = self._store.entry(record.key)
            entry.set(new, record.timestamp)
            if self._caching:
                self._pending[entry.key] = (record.key, record.headers, entry)
            elif self._given_old:
                self._emit(self._store, record.key, record.headers, entry, old)
            else:
                self._emit_with_old(self._store, record.key, record.headers, entry)

    def updates(self, batch: ColumnarBatch) -> TableUpdates | None:
        """A step's updates together, for look-ups and `update_together`; None for a table without a store."""
        return None if self._store is None else TableUpdates(self._store, batch, self._caching)

    def update_together(
        self, batch: ColumnarBatch, updates: TableUpdates | None, given: Sequence[Any] | None = None
    ) -> Callable[[], None]:
        """`update` for all records of a batch; returns its effects, which cannot fail.

        Raises:
            OneByOne: The table is versioned.
            Exception: A row cannot be written.
        """
        if self._versioned is not None:
            raise OneByOne("each update of a versioned table finds its place in the history")
        if self._store is None or updates is None:
            changes = Changes(batch.values, given if self._send_old else None)
            return partial(self._ctx.forward_batch, batch.with_values(changes))
        if self._caching:
            return self._held_together(updates)
        every = np.arange(len(batch))
        olds = None
        if self._send_old:
            olds = given if self._given_old else updates.before_each().values
        return partial(self._emit_together, self._store, updates.rows(every), batch, olds, every)

    def _held_together(self, updates: TableUpdates) -> Callable[[], None]:
        """Leaves updates pending until the end of the step, behind those that are pending."""
        if self._pending:
            return partial(self._update_each, updates.batch)
        if self._pending_together is not None:
            updates = self._pending_together.followed_by(updates)
        return partial(setattr, self, "_pending_together", updates)

    def flush(self) -> None:
        """Forward each key's last value, in order of time."""
        if self._store is None:
            return  # only a store buffers updates
        updates, self._pending_together = self._pending_together, None
        if updates is not None:
            self._flush_together(self._store, updates)
        emit_pending(self._ctx, self._store, self._pending, partial(self._emit_with_old, self._store))

    def _flush_together(self, store: TypedTimestampedKeyValueStore, updates: TableUpdates) -> None:
        """Emit the last update of each key; leave them pending one by one if that fails, so that only one at fault is lost."""
        last = updates.last_of_each_key()
        batch = updates.batch.take(last)
        try:
            rows = updates.rows(last)
            deletes = null_values(batch.values)
            read = np.flatnonzero(deletes | self._send_old)
            stored = updates.stored(last[read])
            olds = store.codec.old_values(stored) if self._send_old else None
        except Exception:
            self._update_each(updates.batch)
            return
        forwarded = np.ones(len(batch), np.bool_)
        forwarded[read] = ~deletes[read] | stored.is_valid().to_numpy(zero_copy_only=False)
        order = np.arange(len(batch))
        held = HeldRows(
            lambda row: HeldRecord(rows.keys[row].as_py(), None, int(rows.timestamps[row]), batch.headers_of(row)),
            order,
        )
        results = ColumnarBatch(batch.keys, batch.values, batch.timestamps, order, batch.headers, held=held)
        self._emit_together(store, rows, results, olds, order[forwarded])

    def _update_each(self, batch: ColumnarBatch) -> None:
        for record in batch.records():
            self.update(record, record.value)

    def _emit_together(
        self,
        store: TypedTimestampedKeyValueStore,
        rows: TableRows,
        batch: ColumnarBatch,
        olds: Sequence[Any] | None,
        forwarded: Int64s,
    ) -> None:
        """Write rows, and forward some of the updates."""
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
        """Emit a row with the value that was forwarded last as the old one."""
        self._emit(store, key, headers, entry, store.codec.old_value(entry.stored) if self._send_old else None)

    def _emit(
        self, store: TypedTimestampedKeyValueStore, key: Any, headers: Headers, entry: CachedRow, old: Any
    ) -> None:
        entry.sent(store.write(entry))
        self._ctx.forward(Record(key, Change(entry.value, old if self._send_old else None), entry.timestamp, headers))

    def _put_version(self, store: TypedVersionedStore, record: Record, new: Any) -> None:
        before = store.get(record.key) if self._send_old else None
        newer = store.put(record.key, new, record.timestamp)
        if newer == NOT_PUT:
            self._ctx.drop(record, "late")
            return
        old = None if before is None else before.value
        self._ctx.forward(record.with_value(Change(new, old, newer == VALID_TO_UNDEFINED)))


class TableOperator(Operator):
    """Base of the operators whose result is a table: opens it as `_table`, and forwards pending updates at the end of the step.

    Args:
        store: Name of a timestamped key-value store or a versioned one; None = the table is not stored.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`.
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
