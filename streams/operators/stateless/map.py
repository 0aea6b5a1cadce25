"""`map` and `select_key`: one record in, one out, under another key (Kafka Streams: `KStreamMap`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch, KeyColumn
from streams.operators.operator import Operator
from streams.operators.operator_batches import call_each
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
        key, value = self._mapped(record.key, record.value)
        self.ctx.forward(Record(key, value, record.timestamp, record.headers))

    def process_together(self, batch: ColumnarBatch) -> None:
        """Forward the results."""
        records, pairs = call_each(self.ctx, batch, self._mapped)
        keys = KeyColumn.of([key for key, _ in pairs])
        self.ctx.forward_batch(replace(records, keys=keys, values=[value for _, value in pairs]))

    def _mapped(self, key: Any, value: Any) -> tuple[Any, Any]:
        made = self.fn(key, value)
        return made if type(made) is tuple and len(made) == 2 else pair(self.fn, "map", "a tuple (key, value)", made)


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

    def process_together(self, batch: ColumnarBatch) -> None:
        """Forward the results."""
        records, keys = call_each(self.ctx, batch, self.fn)
        self.ctx.forward_batch(replace(records, keys=KeyColumn.of(keys)))
