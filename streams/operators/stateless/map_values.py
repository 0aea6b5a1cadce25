"""`map_values` (Kafka Streams: `KStreamMapValues`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator
from streams.operators.operator_batches import call_each


class MapValues(Operator):
    """Maps each record to a new value; the key, and so the task, stays.

    Args:
        fn: `(key, value) -> value`; called for null values too.
    """

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn

    def process(self, record: Record) -> None:
        """Forward the result, with the record's key, timestamp and headers."""
        self.ctx.forward(record.with_value(self.fn(record.key, record.value)))

    def process_together(self, batch: ColumnarBatch) -> None:
        """Forward the results."""
        records, values = call_each(self.ctx, batch, self.fn)
        self.ctx.forward_batch(records.with_values(values))
