"""Aggregations of a grouped table (Kafka Streams: `KTableAggregate`, `KTableReduce`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.record import Change, Record
from streams.operators.aggregate.functions import Aggregator, Initializer
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.table.table_materializer import TableOperator


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

    def init(self, ctx: OperatorContext) -> None:
        """Open the store."""
        super().init(ctx)
        assert self.store_name is not None, "what is aggregated is kept"
        self._store: TypedTimestampedKeyValueStore = ctx.store(self.store_name)

    def process(self, record: Record) -> None:
        """Subtract, add, forward."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        change: Change = record.value
        found = self._store.get(record.key)
        value, timestamp = (None, -1) if found is None else found
        newest = max(record.timestamp, timestamp)
        time = record.timestamp
        if change.old is not None and value is not None:
            value, time = self.subtractor(record.key, change.old, value), newest
        if change.new is not None:
            value, time = self._added(record.key, change.new, value), newest
        self._table.update(Record(record.key, None, time, record.headers), value)

    def _added(self, key: Any, new: Any, value: Any) -> Any:
        if value is None:
            if self.initializer is None:
                return new
            value = self.initializer()
        return self.adder(key, new, value)
