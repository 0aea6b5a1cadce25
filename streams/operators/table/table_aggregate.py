"""Grouped tables: `group_by`, aggregation with adder and subtractor, and the best rows of each group."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from streams.model.ownership import lending, only_reads, snapshot
from streams.model.record import Change, Record, ValueAndTimestamp
from streams.operators.aggregate.functions import Aggregator, Initializer, explain_nothing
from streams.operators.columnar import NULL_KEY, ColumnarBatch
from streams.operators.operator import OperatorContext, RecordOperator, drop_rows
from streams.operators.stores.key_value import TypedKeyValueStore, TypedTimestampedKeyValueStore
from streams.operators.table.table_materializer import TableOperator, numbered
from streams.serdes.base import Serde

# --- `group_by` (Kafka Streams: `KTableRepartitionMap`).


class TableGroupBy(RecordOperator):
    """Sends each update to the groups concerned: the old value is subtracted, then the new one added.

    If the group stays the same, one `Change` has both values (KIP-904), so that the group is never seen without the row.
    If the group changes, there are two records, the old group's first. A row for which the selector
    returns None, or whose group key or value is None, is in no group.
    Out-of-order updates of a versioned table are skipped (KIP-914).

    Args:
        selector: `(key, value) -> (group key, value)`, or None; not called for None.
        versioned: The table above is versioned.
    """

    def __init__(self, selector: Callable[[Any, Any], tuple[Any, Any] | None], versioned: bool = False) -> None:
        self.selector = selector
        self.versioned = versioned

    @property
    def leaves_values(self) -> bool:
        return only_reads(self.selector)

    def process(self, record: Record) -> None:
        """Forward one record, two or none."""
        change: Change = record.value
        if self.versioned and not change.is_latest:
            self.ctx.drop(record, "not_latest")
            return
        old_key, old = self._selected(record.key, change.old)
        new_key, new = self._selected(record.key, change.new)
        if old is not None and new is not None and old_key == new_key and type(old_key) is type(new_key):
            self._forward(record, new_key, Change(new, old))
            return
        if old is not None:
            self._forward(record, old_key, Change(None, old))
        if new is not None:
            self._forward(record, new_key, Change(new, None))

    def _selected(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Group key and value; (None, None) if the row is in no group."""
        selected = None if value is None else self.selector(key, value)
        return (None, None) if selected is None or selected[0] is None else selected

    def _forward(self, record: Record, key: Any, change: Change) -> None:
        self.ctx.forward(Record(key, change, record.timestamp, record.headers))


# --- Aggregations of a grouped table (Kafka Streams: `KTableAggregate`, `KTableReduce`).


class TableAggregate(TableOperator):
    """Maintains a group's aggregate as rows enter, change and leave.

    The old value is subtracted first, then the new one added. Nothing is subtracted from a group without an aggregate;
    the update is forwarded all the same. The result's time is the larger of the update's and the aggregate's, or the update's
    own where nothing was subtracted or added.

    Args:
        store: Name of a timestamped key-value store.
        initializer: `() -> aggregate`; None for a reduce, whose first value is taken as it is.
        adder: `(key, value, aggregate) -> aggregate`; None deletes.
        subtractor: The same, for a value that is removed.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`.
    """

    leaves_values = True

    def __init__(
        self,
        store: str,
        initializer: Initializer | None,
        adder: Aggregator,
        subtractor: Callable[[Any, Any, Any], Any],
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.initializer = initializer
        # A batch is aggregated again, from the same values, when one of its records has failed.
        self._own = _itself if only_reads(adder) and only_reads(subtractor) else snapshot
        self.adder = adder
        self.subtractor = subtractor

    @property
    def changes_in_place(self) -> bool:
        """Without a cache every call gets an aggregate of its own."""
        return self.caching

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        assert self.store_name is not None, "what is aggregated is kept"
        self._store: TypedTimestampedKeyValueStore = ctx.store(self.store_name)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Subtract and add in the order of the records, with one read of all groups.

        Raises:
            Exception: A function of the user has failed; there has been no effect.
        """
        null_key = batch.keys.codes == NULL_KEY
        records = batch.take(np.flatnonzero(~null_key)) if null_key.any() else batch
        number_of, numbers = numbered(self._store.codec.keys(records.keys), records.keys)
        groups = self._groups(list(number_of))
        values, times, seen = [], [], self._store.codec.seen
        rows = zip(numbers.tolist(), records.keys, records.values, records.timestamps.tolist(), strict=True)
        for number, key, change, timestamp in rows:
            value, time = self._changed(key, change, timestamp, groups[number])
            value = None if value is None else seen(value)
            groups[number] = self._group(value, time)
            values.append(value)
            times.append(time)
        results = replace(records, values=values, timestamps=np.array(times, np.int64))
        update = self._table.update_together(results, self._table.updates(results))
        drop_rows(self.ctx, batch, {"null_key": null_key})
        update()

    def _group(self, value: Any, time: int) -> ValueAndTimestamp | None:
        """A group for the next update, which must not change what was forwarded without a cache."""
        if value is None or self.caching:
            return None if value is None else ValueAndTimestamp(value, time)
        codec = self._store.codec
        return codec.read_timestamped(codec.timestamped(value, time))

    def _groups(self, keys: list[bytes]) -> list[ValueAndTimestamp | None]:
        """The groups with these keys as they are now."""
        store = self._store
        store.settle()
        if not store.has_cached_rows:
            return list(map(store.codec.read_timestamped, store.stored_column(keys).to_pylist()))
        rows = [(row.value, row.timestamp) for row in store.entries([(key, -1) for key in keys])]
        return [None if value is None else ValueAndTimestamp(value, timestamp) for value, timestamp in rows]

    def _changed(self, key: Any, change: Change, timestamp: int, group: ValueAndTimestamp | None) -> tuple[Any, int]:
        """The aggregate and its time after an update."""
        value, before = (None, -1) if group is None else group
        newest, time = max(timestamp, before), timestamp
        if change.old is not None and value is not None:
            value, time = self.subtractor(key, self._own(change.old), value), newest
        if change.new is not None:
            value, time = self._added(key, self._own(change.new), value), newest
        return value, time

    def _added(self, key: Any, new: Any, value: Any) -> Any:
        if value is None:
            if self.initializer is None:
                return new
            original = self.initializer()
            value = snapshot(original)
            after = self.adder(key, new, value)
            if after is None and not only_reads(self.adder):
                explain_nothing("adder", self.adder, value, original, self._store.codec)
            return after
        return self.adder(key, new, value)


def _itself(value: Any) -> Any:
    return value


# --- `top` of a grouped table: the best n rows of each group, exact even when rows change and leave.

_DOUBLE = struct.Struct(">d")
_BITS = 2**64 - 1


class TableTop(RecordOperator, TableOperator):
    """Orders all rows of a group by score, and forwards the list of the first n when it changes.

    Scores are compared as 64-bit floats, equal ones by the bytes of the values. A row without a score (None, or not a number) is
    not ranked. Null keys are dropped. The result's time is the largest of its updates.

    Args:
        store: Name of a timestamped key-value store of the lists.
        rows: Name of a key-value store of the ranked values, by `ranked_key`, with the number of occurrences.
        value_serde: Serde of the values.
        key_serde: Serde of the groups' keys.
        n: Length of the list.
        by: `(value) -> score`.
        largest: Whether the largest score is the best.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`.
    """

    leaves_values = True

    def __init__(
        self,
        store: str,
        rows: str,
        key_serde: Serde,
        value_serde: Serde,
        n: int,
        by: Callable[[Any], Any],
        largest: bool,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.rows_name = rows
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.n = n
        self.by = lending(by)
        self.largest = largest

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        assert self.store_name is not None, "the lists are kept"
        self._tops = ctx.store(self.store_name)
        self._rows: TypedKeyValueStore = ctx.store(self.rows_name)

    def process(self, record: Record) -> None:
        """Remove the old value, add the new one, read the first n."""
        group = None if record.key is None else self.key_serde.serialize(self.rows_name, record.key)
        if group is None:
            self.ctx.drop(record, "null_key")
            return
        change: Change = record.value
        # Both scores before the first row changes: a record may fail for its new value alone.
        ranked = [(self._ranked_key(group, change.old), -1), (self._ranked_key(group, change.new), 1)]
        for key, difference in ranked:
            if key is not None:
                count = (self._rows.get(key) or 0) + difference
                self._rows.put(key, count if count > 0 else None, record.timestamp)
        found = self._tops.get(record.key)
        before, timestamp = (None, -1) if found is None else found
        now = self._first(group) or None
        if now != before:
            time = max(timestamp, record.timestamp)
            self._table.update(Record(record.key, None, time, record.headers), now)

    def _ranked_key(self, group: bytes, value: Any) -> bytes | None:
        """Where a value is among those of its group; None for one that is not ranked."""
        score = None if value is None else self.by(value)
        if isinstance(score, bool) or not isinstance(score, int | float):
            return None
        data = self.value_serde.serialize(self.rows_name, value)
        return _prefix(group) + ordered(float(score), self.largest) + (data or b"")

    def _first(self, group: bytes) -> list[Any]:
        prefix = _prefix(group)
        skip = len(prefix) + _DOUBLE.size
        rows = ((key[skip:], count) for key, count in self._rows.prefix(prefix))
        values = chain.from_iterable(repeat(data, count) for data, count in rows)
        return [self.value_serde.deserialize(self.rows_name, data) for data in islice(values, self.n)]


def ordered(score: float, largest: bool) -> bytes:
    """8 bytes that sort as the scores do, the best first."""
    (bits,) = struct.unpack(">Q", _DOUBLE.pack(score + 0.0))  # -0.0 becomes 0.0
    bits = bits ^ _BITS if bits >> 63 else bits | 1 << 63
    return struct.pack(">Q", bits ^ _BITS if largest else bits)


def _prefix(group: bytes) -> bytes:
    return len(group).to_bytes(4, "big") + group
