"""`merge`, and the internal joints of other operators (Kafka Streams: `PassThrough`)."""

from __future__ import annotations

from collections.abc import Sequence

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator


class PassThrough(Operator):
    """Forwards every record of every parent unchanged."""

    def process(self, record: Record) -> None:
        """Forward the record."""
        self.ctx.forward(record)


class PassThroughTogether:
    """`PassThrough` for all records of a step."""

    def __init__(self, operators: Sequence[PassThrough]) -> None:
        (self._operator,) = operators

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        """Forward the records."""
        self._operator.ctx.forward_batch(batches[0])
