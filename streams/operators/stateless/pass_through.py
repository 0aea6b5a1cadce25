"""`merge`, and the internal joints of other operators (Kafka Streams: `PassThrough`)."""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator


class PassThrough(Operator):
    """Forwards every record of every parent unchanged."""

    def process(self, record: Record) -> None:
        """Forward the record."""
        self.ctx.forward(record)

    def process_together(self, batch: ColumnarBatch) -> None:
        """Forward the records."""
        self.ctx.forward_batch(batch)
