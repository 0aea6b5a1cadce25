"""Aggregations of a grouped table (Kafka Streams: `KTableAggregate`, `KTableReduce`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streams.model.record import Change, Record, ValueAndTimestamp
from streams.operators.aggregate.functions import Aggregator, Initializer
from streams.operators.columnar import NULL_KEY, ColumnarBatch, OneByOne
from streams.operators.dropped import drop_rows
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.table.table_materializer import TableOperator
from streams.operators.table.table_updates import numbered


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

    def process(self, record: Record) -> None:
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        value, time = self._changed(record.key, record.value, record.timestamp, self._store.get(record.key))
        self._table.update(Record(record.key, None, time, record.headers), value)

    def process_together(self, batch: ColumnarBatch) -> None:
        """Subtract and add in the order of the records, with one read of all groups; the table has a cache.

        Raises:
            OneByOne: A function may fail after it has changed a group.
            Exception: A function of the user has failed; there has been no effect.
        """
        if self.ctx.private_rows:
            raise OneByOne("a function has failed")
        null_key = batch.keys.codes == NULL_KEY
        records = batch.take(np.flatnonzero(~null_key)) if null_key.any() else batch
        codec = self._store.codec
        number_of, numbers = numbered(codec.keys(records.keys), records.keys)
        groups = list(map(codec.read_timestamped, self._store.stored_column(list(number_of)).to_pylist()))
        values, times = [], []
        rows = zip(numbers.tolist(), records.keys, records.values, records.timestamps.tolist(), strict=True)
        for number, key, change, timestamp in rows:
            value, time = self._changed(key, change, timestamp, groups[number])
            groups[number] = None if value is None else ValueAndTimestamp(value, time)
            values.append(value)
            times.append(time)
        results = replace(records, values=values, timestamps=np.array(times, np.int64))
        update = self._table.update_together(results, self._table.updates(results))
        drop_rows(self.ctx, batch, {"null_key": null_key})
        update()

    def _changed(self, key: Any, change: Change, timestamp: int, group: ValueAndTimestamp | None) -> tuple[Any, int]:
        """The aggregate and its time after an update."""
        value, before = (None, -1) if group is None else group
        newest, time = max(timestamp, before), timestamp
        if change.old is not None and value is not None:
            value, time = self.subtractor(key, change.old, value), newest
        if change.new is not None:
            value, time = self._added(key, change.new, value), newest
        return value, time

    def _added(self, key: Any, new: Any, value: Any) -> Any:
        if value is None:
            if self.initializer is None:
                return new
            value = self.initializer()
        return self.adder(key, new, value)
