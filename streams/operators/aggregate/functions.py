"""The functions of an aggregation, and the new aggregate that they compute from an old one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from streams.model.record import Record
from streams.operators.stores.cached_row import CachedRow

Initializer: TypeAlias = Callable[[], Any]
Aggregator: TypeAlias = Callable[[Any, Any, Any], Any]
Merger: TypeAlias = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class AggregationFunctions:
    """The functions of an aggregation.

    Attributes:
        aggregator: `(key, value, aggregate) -> aggregate`; a result of None deletes, and the next record starts anew.
        initializer: `() -> aggregate`; None for a reduce, which starts with the first value itself.
        merger: `(key, aggregate, aggregate) -> aggregate`, for sessions.
        view: Computes the table's value from the stored aggregate, where they differ.
    """

    aggregator: Aggregator
    initializer: Initializer | None = None
    merger: Merger | None = None
    view: Callable[[Any], Any] | None = None

    def initial(self) -> Any:
        """The aggregate before the first value; None for a reduce."""
        return None if self.initializer is None else self.initializer()

    def added(self, key: Any, value: Any, aggregate: Any) -> Any:
        """The aggregate with one more value; `aggregate` is the result of `initial` or of an earlier call."""
        if aggregate is None and self.initializer is None:
            return value
        return self.aggregator(key, value, aggregate)

    def merged(self, key: Any, earlier: Any, later: Any) -> Any:
        """The aggregate of two sessions; `earlier` is the result of `initial` or of an earlier call."""
        if earlier is None and self.initializer is None:
            return later
        assert self.merger is not None, "sessions are aggregated with a merger"
        return self.merger(key, earlier, later)

    def updated(self, row: CachedRow, record: Record) -> tuple[Any, int]:
        """Value and timestamp of a row after one more record. The timestamp is the largest of the records."""
        if row.value is None:
            return self.added(record.key, record.value, self.initial()), record.timestamp
        return self.aggregator(record.key, record.value, row.value), max(record.timestamp, row.timestamp)

    def viewed(self, stored: Any) -> Any:
        """The table's value of a stored aggregate; None for none."""
        return stored if self.view is None or stored is None else self.view(stored)

    def viewed_column(self, stored: Sequence[Any]) -> Sequence[Any]:
        return stored if self.view is None else list(map(self.viewed, stored))
