"""`map_values` (Kafka Streams: `KStreamMapValues`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.record import Record
from streams.operators.operator import Operator


class MapValues(Operator):
    """Makes a new value; the key, and so the task, stays.

    Args:
        fn: `(key, value) -> value`; called for null values too.
    """

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn

    def process(self, record: Record) -> None:
        """Key, timestamp and headers stay."""
        self.ctx.forward(record.with_value(self.fn(record.key, record.value)))
