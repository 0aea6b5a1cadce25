"""The operator in front of a lake sink: each record becomes a row of the sink's columns.

A record that does not fit is the record's fault, so the processing policy decides (fail, skip, dead letter), and a lake sink
itself meets no bad records any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streams.model.record import Record
from streams.model.row_layout import RowLayout, RowMaker
from streams.operators.columnar import ColumnarBatch, KeyColumn
from streams.operators.operator import Operator
from streams.operators.operator_batches import call_each


class ToRows(Operator):
    """Maps each record to the key and the row that the sink's internal topic has.

    Args:
        layout: The columns.
    """

    def __init__(self, layout: RowLayout) -> None:
        self._rows = RowMaker(layout)

    def process(self, record: Record) -> None:
        """Forward the row, with the record's timestamp; headers are no part of a table."""
        key, row = self._rows.row(record)
        self.ctx.forward(Record(key, row, record.timestamp))

    def process_together(self, batch: ColumnarBatch) -> None:
        """Forward the rows."""
        times = iter(batch.timestamps.tolist())

        def row(key: Any, value: Any) -> tuple[Any, Any]:
            return self._rows.row(Record(key, value, next(times)))

        records, rows = call_each(self.ctx, batch, row)
        keys = KeyColumn.of([key for key, _ in rows])
        self.ctx.forward_batch(replace(records, keys=keys, values=[value for _, value in rows], headers=None))
