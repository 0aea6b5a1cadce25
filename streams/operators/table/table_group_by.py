"""`group_by` of a table (Kafka Streams: `KTableRepartitionMap`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.record import Change, Record
from streams.operators.operator import Operator


class TableGroupBy(Operator):
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
