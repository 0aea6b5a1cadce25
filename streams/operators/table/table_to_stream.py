"""`to_stream`: the updates of a table as records (Kafka Streams: `KTable.toStream`)."""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.operator import Operator


class TableToStream(Operator):
    """`KTable.to_stream`: each update's new value as a record; a deletion is a null value."""

    def process(self, record: Record) -> None:
        """Unwrap the change."""
        self.ctx.forward(record.with_value(record.value.new))
