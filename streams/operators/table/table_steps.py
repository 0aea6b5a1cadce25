"""Operators of tables that process one update at a time: sources (also with expiry), `filter`, `map_values`, `to_stream`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from state.columns import rows_where
from streams.errors import TopologyError
from streams.model.ownership import lending, only_reads
from streams.model.record import RIGHT, Change, Record
from streams.operators.aggregate.top import WithRanks
from streams.operators.aggregate.top_columns import with_ranks_in
from streams.operators.columnar import NULL_KEY, Changes, ColumnarBatch
from streams.operators.operator import Operator, OperatorContext, RecordOperator, call_each, compute_all, drop_rows
from streams.operators.process.suppliers import check_methods
from streams.operators.process.user_processor import Attributes, UserContext, expire_stores
from streams.operators.process.user_stores import InProcess
from streams.operators.processor import ValueTransformer
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stream_time import StreamTime
from streams.operators.table.table_materializer import PassedOn, TableMaterializer, TableOperator, TableUpdates
from streams.serdes.base import Serde
from streams.users_code import users_function

# --- A topic or a stream as a table (Kafka Streams: `KTableSource`, also used by `toTable`).


class TableSource(TableOperator):
    """Stores the last value of each key: the last to arrive wins, even if its timestamp is older. Null values delete.

    With a versioned store (KIP-914) the timestamp wins: an older update becomes a historical version and is forwarded as such
    (`Change.is_latest` is False); an update older than the history is dropped as late.

    Args:
        store: Name of a timestamped key-value store or a versioned one; None if the table is never looked up, in which case
            updates are only forwarded.
        caching: Forward the last value of a key once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`.
    """

    leaves_values = True

    def process(self, record: Record) -> None:
        """Set or delete. The store shows the update at once, even if forwarding waits."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
        else:
            self._table.update(record, record.value)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Runs `process` for many records; other operators of the unit look up rows as of each of them."""
        if self._table.versioned:
            self.ctx.attempt_each(batch, self.process)
            return
        null_key = batch.keys.codes == NULL_KEY
        updated = batch.take(rows_where(~null_key)) if null_key.any() else batch
        _, (updates, update) = compute_all(self.ctx, updated, self._updates)
        self._table.show(updates)
        drop_rows(self.ctx, batch, {"null_key": null_key})
        update()

    def _updates(self, batch: ColumnarBatch) -> tuple[TableUpdates | None, Callable[[], None]]:
        updates = self._table.updates(batch)
        return updates, self._table.update_together(batch, updates)


# --- `filter` and `filter_not` of a table (Kafka Streams: `KTableFilter`), and `map_values` (`KTableMapValues`).


class _ComputedTable(TableOperator):
    """A table that computes each of its updates from an update of the table above."""

    _passed_on: PassedOn | None = None

    @abstractmethod
    def _changed(self, key: Any, change: Change) -> Change | None:
        """The update of this table for an update of the table above; None: none."""

    def process(self, record: Record) -> None:
        change = self._changed(record.key, record.value)
        if change is not None:
            if self._passed_on is not None:
                self._passed_on.note(record, change.new)
            self._table.update(record, *change)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Forward the updates together if the table has no store."""
        if self._table.kept or self._passed_on is not None:
            self.ctx.attempt_each(batch, self.process)
            return
        records, changes = call_each(self.ctx, batch, self._changed)
        forwarded = [change for change in changes if change is not None]
        if len(forwarded) < len(changes):
            records = records.take(np.array([row for row, one in enumerate(changes) if one is not None], np.int64))
        self.ctx.forward_batch(records.with_values(forwarded))


class TableFilter(_ComputedTable):
    """A table of the rows for which the predicate is true; rows that no longer match are deleted downstream.

    A deletion of a row that did not match before is only forwarded if the old value is unknown. With known old values it is left
    out, unless the table above is versioned (KIP-914).

    Args:
        predicate: `(key, value) -> bool`; not called for None.
        negate: True for `filter_not`.
        store: Name of a timestamped key-value store or a versioned one; None = not stored.
        knows_old: Whether the table above fills `Change.old`.
        versioned: Whether the table above is versioned.
        passed_on: Name of a store for `PassedOn`. Strict mode uses it instead of old values if the table above is a join that
            computes them, and may not have forwarded them.
    """

    leaves_values = True

    def __init__(
        self,
        predicate: Callable[[Any, Any], bool],
        negate: bool,
        store: str | None = None,
        knows_old: bool = False,
        versioned: bool = False,
        caching: bool = True,
        send_old: bool = False,
        passed_on: str | None = None,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.predicate = lending(predicate)
        self.negate = negate
        self.drops_needless = (knows_old or send_old) and not versioned
        self.passed_on_name = passed_on

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._passed_on = PassedOn.opened(ctx, self.passed_on_name)

    def _changed(self, key: Any, change: Change) -> Change | None:
        """The update, as a deletion if the new value does not match."""
        new = self._matching(key, change.new)
        old = None
        if self.drops_needless or self.send_old:
            old = self._table.value(key) if self._table.kept else self._matching(key, change.old)
        if (
            new is None
            and self.drops_needless
            and not (old is not None if self._passed_on is None else key in self._passed_on)
        ):
            return None
        return Change(new, old if self.send_old else None, change.is_latest)

    def _matching(self, key: Any, value: Any) -> Any:
        return value if value is not None and bool(self.predicate(key, value)) is not self.negate else None


class TableMapValues(_ComputedTable):
    """A table with a computed value for each key.

    Args:
        fn: `(key, value) -> value`; not called for None. A result of None deletes downstream.
        store: Name of a timestamped key-value store or a versioned one; None = not stored.
    """

    def __init__(
        self,
        fn: Callable[[Any, Any], Any],
        store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.fn = fn
        ranks = users_function(fn)
        self._ranks = ranks if isinstance(ranks, WithRanks) else None

    @property
    def leaves_values(self) -> bool:
        return only_reads(self.fn)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Map the values together if the table has no store; the ranks of `top` are added to texts."""
        ranked = None
        if self._ranks is not None and not self._table.kept:
            ranked = with_ranks_in(self._ranks, batch.values, self.send_old)
        if ranked is None:
            super().process_batch(batch)
        else:
            self.ctx.forward_batch(batch.with_values(ranked))

    def _changed(self, key: Any, change: Change) -> Change:
        """The update with the new value mapped, and the old value if it is needed and not stored."""
        old = self._mapped(key, change.old) if self.send_old and not self._table.kept else None
        return Change(self._mapped(key, change.new), old, change.is_latest)

    def _mapped(self, key: Any, value: Any) -> Any:
        return None if value is None else self.fn(key, value)


# --- `transform_values` of a table: a user's stateful value transformer (Kafka Streams: `KTableTransformValues`).


class TableTransformValues(RecordOperator, TableOperator):
    """A table whose values a transformer computes.

    While the result is not stored, Kafka Streams calls the transformer again to look up a row, or for its old value. With state,
    the second answer differs. Here the result is stored in that case, and each update is transformed once.

    Args:
        supplier: `() -> ValueTransformer`.
        send_old: Whether children need `Change.old`; only with a store.
    """

    def __init__(
        self,
        supplier: Callable[[], ValueTransformer],
        store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.transformer = supplier()
        check_methods(type(self.transformer))
        self._in_process = InProcess()

    def init(self, ctx: OperatorContext) -> None:
        """Open the store, and let the transformer open its own."""
        super().init(ctx)
        context = self._context = _SilentContext(ctx, self._in_process)
        self.transformer.ctx = context
        self.transformer.init(context)
        context._check_state()
        self._attributes = Attributes(self.transformer, getattr(self.transformer, "transient", ()))

    def process(self, record: Record) -> None:
        change: Change = record.value
        self._in_process.record = record
        try:
            new = self.transformer.transform(record.key, change.new)
            self._context._check_state()
        except Exception:
            if self._in_process.has_changed:
                self.ctx.partly_done()
            raise
        finally:
            self._in_process.record = None
        self._table.update(record, new, None, change.is_latest)

    def flush(self) -> None:
        """Forward pending updates, and check for attributes that would be lost."""
        super().flush()
        expire_stores(self._context)
        self._attributes.check(self.ctx.node)

    def close(self) -> None:
        self.transformer.close()


class _SilentContext(UserContext):
    """A context that refuses to forward: the result of `transform` is the only one."""

    def forward(self, record: Record, child: str | None = None) -> None:
        raise TopologyError(
            f"The value transformer of '{self.node}' calls forward: it gives its result back from transform(key, value). "
            f"To forward records, use table.to_stream().process(...)."
        )


# --- `to_stream`: the updates of a table as records (Kafka Streams: `KTable.toStream`).


class TableToStream(Operator):
    """`KTable.to_stream`: each update's new value as a record; a deletion is a null value."""

    leaves_values = True

    def process_batch(self, batch: ColumnarBatch) -> None:
        changes = batch.values
        new = changes.new if isinstance(changes, Changes) else [change.new for change in changes]
        self.ctx.forward_batch(batch.with_values(new))


# --- A table whose rows are deleted some time after their last update (TTL). Kafka Streams has no TTL for tables.


class ExpiringTable(RecordOperator, TableSource):
    """Deletes a row of time t, downstream too, when stream time reaches t + ttl, which is the time of the deletion.

    With a ttl of 60, a row updated at 10 and 30 is deleted when stream time reaches 90. Stream time is the largest timestamp that
    reached the table, so nothing depends on a clock, steps or restarts. An update that would have expired already is dropped as
    late. Deadlines are in a store ordered by time, one per row, and one more for each update that makes a row expire earlier. A due
    deadline is moved if the row was updated since then.

    Args:
        store: Name of a timestamped key-value store.
        deadlines: Name of the store of deadlines (`serdes.waiting`).
        ttl_ms: How long a row stays.
    """

    def __init__(
        self,
        store: str,
        deadlines: str,
        key_serde: Serde,
        ttl_ms: int,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.rows_name = store
        self.deadlines_name = deadlines
        self.key_serde = key_serde
        self.ttl_ms = ttl_ms

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self._time = StreamTime(ctx.state)
        self._table: TableMaterializer
        self._rows: TypedTimestampedKeyValueStore = ctx.store(self.rows_name)
        self._deadlines = TimeOrderedBuffer(
            ctx.store(self.deadlines_name), self.key_serde, self.deadlines_name, ctx.state
        )

    def process(self, record: Record) -> None:
        """Delete the expired rows, then set or delete this one."""
        time = self._time.observe(record.timestamp)
        self._expire(time)
        if record.key is None:
            self.ctx.drop(record, "null_key")
        elif record.timestamp + self.ttl_ms <= time:
            self.ctx.drop(record, "late")
        else:
            if record.value is not None and self._needs_deadline(record):
                self._deadlines.add(record.timestamp + self.ttl_ms, RIGHT, record.key, b"", ())
            self._table.update(record, record.value)

    def _needs_deadline(self, record: Record) -> bool:
        """Whether the row is new, or an out-of-order update makes it expire earlier."""
        held = self._rows.get(record.key)
        return held is None or record.timestamp < held.timestamp

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time, and delete the rows that then expire. Rows that expire later have a later time."""
        self._expire(self._time.advance(elapsed_ms, limit))
        return limit

    def _expire(self, time: int) -> None:
        expired = []
        for due in self._deadlines.take(time + 1):
            found = self._rows.get(due.key)
            if found is None:
                continue
            deadline = found.timestamp + self.ttl_ms
            if deadline > time:
                self._deadlines.remove_all(deadline, RIGHT, due.key)
                self._deadlines.add(deadline, RIGHT, due.key, b"", ())
            else:
                expired.append((deadline, due.place.key, due.key))
        # Ordered by their own deadlines: the deadlines found may be older, from before an update.
        for deadline, _, key in sorted(expired, key=lambda one: one[:2]):
            if self._rows.get(key) is not None:
                self._table.update(Record(key, None, deadline), None)
