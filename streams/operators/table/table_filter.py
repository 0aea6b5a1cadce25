"""`filter` and `filter_not` of a table (Kafka Streams: `KTableFilter`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streams.model.record import Change, Record
from streams.operators.columnar import ColumnarBatch, OneByOne
from streams.operators.operator_batches import call_each
from streams.operators.operator_context import OperatorContext
from streams.operators.table.table_materializer import TableOperator


class TableFilter(TableOperator):
    """A table of the rows for which the predicate is true; rows that no longer match are deleted downstream.

    A deletion of a row that did not match before is forwarded only where the old value is unknown: with known old values it is left
    out, unless the table above is versioned (KIP-914).

    Args:
        predicate: `(key, value) -> bool`; not called for None.
        negate: True for `filter_not`.
        store: Name of a timestamped key-value store or a versioned one; None = not stored.
        knows_old: The table above fills `Change.old`.
        old_is_exact: The old values are the ones that were forwarded; otherwise (a join without a store) only compat mode relies
            on them.
        versioned: The table above is versioned.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`.
    """

    def __init__(
        self,
        predicate: Callable[[Any, Any], bool],
        negate: bool,
        store: str | None = None,
        knows_old: bool = False,
        old_is_exact: bool = True,
        versioned: bool = False,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.predicate = predicate
        self.negate = negate
        self.old_is_exact = old_is_exact
        self.drops_needless = (knows_old or send_old) and not versioned

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        if not self.old_is_exact and ctx.mode == "strict":
            self.drops_needless = False

    def process(self, record: Record) -> None:
        """Forward the update, as a deletion if the new value does not match."""
        change = self._changed(record.key, record.value)
        if change is not None:
            self._table.update(record, *change)

    def process_together(self, batch: ColumnarBatch) -> None:
        """Forward the updates, in a table without a store."""
        if self._table.kept:
            raise OneByOne("a table with a store is updated row by row")
        records, changes = call_each(self.ctx, batch, self._changed)
        rows = np.array([row for row, change in enumerate(changes) if change is not None], np.int64)
        forwarded = [change if self.send_old else change._replace(old=None) for change in changes if change is not None]
        self.ctx.forward_batch(records.take(rows).with_values(forwarded))

    def _changed(self, key: Any, change: Change) -> Change | None:
        """What an update is here; None: nothing."""
        new = self._matching(key, change.new)
        old = None
        if self.drops_needless or self.send_old:
            old = self._table.value(key) if self._table.kept else self._matching(key, change.old)
        if new is None and old is None and self.drops_needless:
            return None
        return Change(new, old, change.is_latest)

    def _matching(self, key: Any, value: Any) -> Any:
        return value if value is not None and bool(self.predicate(key, value)) is not self.negate else None
