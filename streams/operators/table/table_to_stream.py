"""`to_stream`: the updates of a table as records (Kafka Streams: `KTable.toStream`)."""

from __future__ import annotations

from collections.abc import Sequence

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator
from streams.operators.result_columns import Changes


class TableToStream(Operator):
    """`KTable.to_stream`: each update's new value as a record; a deletion is a null value."""

    def process(self, record: Record) -> None:
        """Unwrap the change."""
        self.ctx.forward(record.with_value(record.value.new))


class TableToStreamTogether:
    """`TableToStream` for all updates of a step."""

    def __init__(self, operators: Sequence[TableToStream]) -> None:
        (self._operator,) = operators

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        """Unwrap the changes."""
        (batch,) = batches
        changes = batch.values
        new = changes.new if isinstance(changes, Changes) else [change.new for change in changes]
        self._operator.ctx.forward_batch(batch.with_values(new))
