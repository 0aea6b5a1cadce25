"""`flat_map` and `flat_map_values`: any number of records out of one (Kafka Streams: `KStreamFlatMap`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streams.model.record import Record
from streams.operators.operator import Operator
from streams.operators.stateless.results import items, pair


class FlatMap(Operator):
    """Maps each record to any number of records.

    Args:
        fn: `(key, value) -> iterable of (key, value)`.
    """

    def __init__(self, fn: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        self.fn = fn

    def process(self, record: Record) -> None:
        """Forward the results, with the record's timestamp and headers."""
        made = self.fn(record.key, record.value)
        for one in items(self.fn, "flat_map", "a list of tuples (key, value)", made):
            key, value = (
                one
                if type(one) is tuple and len(one) == 2
                else pair(self.fn, "flat_map", "a list of tuples (key, value)", one)
            )
            self.ctx.forward(Record(key, value, record.timestamp, record.headers))


class FlatMapValues(Operator):
    """Maps each record to any number of values under the same key.

    Args:
        fn: `(key, value) -> iterable of values`.
    """

    def __init__(self, fn: Callable[[Any, Any], Iterable[Any]]) -> None:
        self.fn = fn

    def process(self, record: Record) -> None:
        """Forward the results, with the record's key, timestamp and headers."""
        made = self.fn(record.key, record.value)
        for value in items(self.fn, "flat_map_values", "a list of values", made):
            self.ctx.forward(record.with_value(value))
