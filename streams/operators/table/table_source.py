"""A topic or a stream as a table (Kafka Streams: `KTableSource`, also used by `toTable`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streams.model.record import Record
from streams.operators.columnar import NULL_KEY, ColumnarBatch
from streams.operators.dropped import drop_rows
from streams.operators.table.table_materializer import TableOperator
from streams.operators.table.table_updates import TableUpdates


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

    def process(self, record: Record) -> None:
        """Set or delete. The store shows the update at once, even if forwarding waits."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
        else:
            self._table.update(record, record.value)

    def process_together(self, batch: ColumnarBatch, tables: dict[str, TableUpdates]) -> Callable[[], None]:
        """`process` for all records of a step; returns its effects, which cannot fail."""
        null_key = batch.keys.codes == NULL_KEY
        updated = batch.take(np.flatnonzero(~null_key)) if null_key.any() else batch
        updates = self._table.updates(updated)
        if updates is not None and self.store_name is not None:
            tables[self.store_name] = updates
        update = self._table.update_together(updated, updates)
        if updates is not None and not self.caching:
            updates.remember()

        def effects() -> None:
            drop_rows(self.ctx, batch, {"null_key": null_key})
            update()

        return effects
