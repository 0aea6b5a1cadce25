"""`TableBatches`: a step's records of tables, and of the streams and foreign-key joins that look them up, processed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from streams.operators.columnar import ColumnarBatch
from streams.operators.join.foreign_key import ForeignKeyResult, ForeignKeySubscriptions
from streams.operators.join.stream_table_join import StreamTableJoin
from streams.operators.table.table_materializer import TableUpdates
from streams.operators.table.table_steps import TableSource

TableOrReader: TypeAlias = TableSource | StreamTableJoin | ForeignKeySubscriptions | ForeignKeyResult


class TableBatches:
    """See `BatchProcessor`. A look-up sees the updates of the table that are before it in the step, and else the store.

    Args:
        operators: Those of the group.
    """

    def __init__(self, operators: Sequence[TableOrReader]) -> None:
        self._operators = operators

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        tables: dict[str, TableUpdates] = {}
        effects: dict[int, Callable[[], None]] = {}
        # Tables first, because their updates are what the others look up.
        for at in sorted(range(len(batches)), key=lambda at: not isinstance(self._operators[at], TableSource)):
            effects[at] = self._operators[at].process_together(batches[at], tables)
        for updates in tables.values():
            updates.show()
        for at in range(len(batches)):
            effects[at]()
