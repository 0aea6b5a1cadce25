"""`peek` and `foreach` (Kafka Streams: `KStreamPeek`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator
from streams.operators.operator_batches import call_each


class Peek(Operator):
    """Calls a function for each record and forwards the record unchanged; `foreach` is a peek without children.

    Args:
        fn: `(key, value) -> anything`. May see a record more than once, because a failed step is repeated.
    """

    def __init__(self, fn: Callable[[Any, Any], object]) -> None:
        self.fn = fn

    def process(self, record: Record) -> None:
        """Call, then forward."""
        self.fn(record.key, record.value)
        self.ctx.forward(record)

    def process_together(self, batch: ColumnarBatch) -> None:
        """Call for all records, then forward them."""
        records, _ = call_each(self.ctx, batch, self.fn)
        self.ctx.forward_batch(records)
