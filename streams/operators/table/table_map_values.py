"""`map_values` of a table (Kafka Streams: `KTableMapValues`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.record import Change, Record
from streams.operators.columnar import ColumnarBatch, OneByOne
from streams.operators.operator_batches import call_each
from streams.operators.table.table_materializer import TableOperator


class TableMapValues(TableOperator):
    """A table with a computed value for each key.

    Args:
        fn: `(key, value) -> value`; not called for None. A result of None deletes downstream.
        store: Name of a timestamped key-value store or a versioned one; None = not stored.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`.
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

    def process(self, record: Record) -> None:
        """Map the new value, and the old one where it is needed and not stored."""
        change: Change = record.value
        old = self._mapped(record.key, change.old) if self.send_old and not self._table.kept else None
        self._table.update(record, self._mapped(record.key, change.new), old, change.is_latest)

    def process_together(self, batch: ColumnarBatch) -> None:
        """Map and forward, in a table without a store."""
        if self._table.kept:
            raise OneByOne("a table with a store is updated row by row")
        records, changes = call_each(self.ctx, batch, self._changed)
        self.ctx.forward_batch(records.with_values(changes))

    def _changed(self, key: Any, change: Change) -> Change:
        old = self._mapped(key, change.old) if self.send_old else None
        return Change(self._mapped(key, change.new), old, change.is_latest)

    def _mapped(self, key: Any, value: Any) -> Any:
        return None if value is None else self.fn(key, value)
