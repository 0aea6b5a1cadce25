"""`filter` and `filter_not` of a table (Kafka Streams: `KTableFilter`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.operators.kept_table import KeptTable
from streams.operators.processor import Processor, ProcessorContext
from streams.operators.record import Change, Record


class TableFilter(Processor):
    """A table of the rows for which the predicate holds; what ceases to match is deleted downstream.

    A deletion of what was not there before goes on only where that cannot be known: with old values at hand it is left
    out, unless the table above is versioned (KIP-914).

    Args:
        predicate: `(key, value) -> bool`; not called for None.
        negate: True for `filter_not`.
        store: Name of a timestamped key-value store or a versioned one; None = not kept.
        knows_old: The table above fills `Change.old`.
        versioned: The table above is versioned.
        caching: As in `KeptTable`.
        send_old: As in `KeptTable`.
    """

    def __init__(
        self,
        predicate: Callable[[Any, Any], bool],
        negate: bool,
        store: str | None = None,
        knows_old: bool = False,
        versioned: bool = False,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        self.predicate = predicate
        self.negate = negate
        self.store_name = store
        self.drops_needless = (knows_old or send_old) and not versioned
        self.caching = caching
        self.send_old = send_old

    def init(self, ctx: ProcessorContext) -> None:
        """Open the store."""
        super().init(ctx)
        self._table = KeptTable(ctx, self.store_name, self.caching, self.send_old)

    def process(self, record: Record) -> None:
        """Pass the update on, as a deletion if the new value does not match."""
        change: Change = record.value
        new = self._matching(record.key, change.new)
        old = None
        if self.drops_needless or self.send_old:
            old = self._table.value(record.key) if self._table.kept else self._matching(record.key, change.old)
        if new is None and old is None and self.drops_needless:
            return
        self._table.update(record, new, old, change.is_latest)

    def flush(self) -> None:
        """Pass on what was held back."""
        self._table.flush()

    def _matching(self, key: Any, value: Any) -> Any:
        return value if value is not None and bool(self.predicate(key, value)) is not self.negate else None
