"""`map` and `select_key`: one record in, one out, under another key (Kafka Streams: `KStreamMap`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.record import Record
from streams.operators.operator import Operator
from streams.operators.stateless.results import pair


class Map(Operator):
    """Maps each record to a new key and value.

    Args:
        fn: `(key, value) -> (key, value)`.
    """

    def __init__(self, fn: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self.fn = fn

    def process(self, record: Record) -> None:
        """Forward the result, with the record's timestamp and headers."""
        made = self.fn(record.key, record.value)
        key, value = (
            made if type(made) is tuple and len(made) == 2 else pair(self.fn, "map", "a tuple (key, value)", made)
        )
        self.ctx.forward(Record(key, value, record.timestamp, record.headers))


class SelectKey(Operator):
    """Maps each record to a new key.

    Args:
        fn: `(key, value) -> key`.
    """

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn

    def process(self, record: Record) -> None:
        """Forward the result, with the record's value, timestamp and headers."""
        self.ctx.forward(record.with_key(self.fn(record.key, record.value)))
