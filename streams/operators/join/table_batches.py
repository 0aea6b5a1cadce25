"""`TableBatches`: a step's records of tables, and of the streams that look them up, processed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streams.operators.columnar import ColumnarBatch
from streams.operators.join.stream_table_join import StreamTableJoin
from streams.operators.table.table_source import TableSource
from streams.operators.table.value_getter import TableLookup


class TableBatches:
    """See `BatchProcessor`. A look-up sees the updates of the table that are before it in the step, and else the store.

    Args:
        operators: Those of the group.
    """

    def __init__(self, operators: Sequence[TableSource | StreamTableJoin]) -> None:
        self._operators = operators

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        """See `BatchProcessor`."""
        tables: dict[str, TableLookup] = {}
        effects: dict[int, Callable[[], None]] = {}
        # Tables first, because their updates are what the others look up.
        for at in sorted(range(len(batches)), key=lambda at: isinstance(self._operators[at], StreamTableJoin)):
            effects[at] = self._operators[at].process_together(batches[at], tables)
        for at in range(len(batches)):
            effects[at]()
