"""A topic or a stream read as a table (Kafka Streams: `KTableSource`, which `toTable` uses too)."""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.table.table_materializer import TableOperator


class TableSource(TableOperator):
    """Keeps the last value of each key: the last to come wins, even if its timestamp is older. Null values delete.

    With a versioned store (KIP-914) time wins: an older update becomes a version of the past and goes on as one
    (`Change.is_latest` is False); one that is older than the history is dropped as late.

    Args:
        store: Name of a timestamped key-value store or a versioned one; None if nobody reads the table, then updates are
            only passed on.
        caching: Pass on the last value of a key once, at the end of the step; False: every update.
        send_old: Whether `Change.old` is wanted downstream.
    """

    def process(self, record: Record) -> None:
        """Set or delete; the store shows it at once, whatever is held back downstream."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
        else:
            self._table.update(record, record.value)
