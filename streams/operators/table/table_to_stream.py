"""`to_stream`: the updates of a table as records (Kafka Streams: `KTable.toStream`)."""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator
from streams.operators.result_columns import Changes


class TableToStream(Operator):
    """`KTable.to_stream`: each update's new value as a record; a deletion is a null value."""

    def process(self, record: Record) -> None:
        self.ctx.forward(record.with_value(record.value.new))

    def process_together(self, batch: ColumnarBatch) -> None:
        changes = batch.values
        new = changes.new if isinstance(changes, Changes) else [change.new for change in changes]
        self.ctx.forward_batch(batch.with_values(new))
