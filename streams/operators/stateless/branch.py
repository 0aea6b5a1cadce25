"""`split().branch(...)` (Kafka Streams: `KStreamBranch`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator
from streams.operators.operator_batches import call_each


class Branch(Operator):
    """Sends each record to the child of the first predicate that is true, or to none.

    Args:
        predicates: `(key, value) -> bool` each; None is true for every record (default branch).
        children: Names of the children, one for each predicate.
    """

    def __init__(self, predicates: Sequence[Callable[[Any, Any], bool] | None], children: Sequence[str]) -> None:
        self.branches = tuple(zip(predicates, children, strict=True))

    def process(self, record: Record) -> None:
        """Forward to the first match."""
        child = self._first_match(record.key, record.value)
        if child is not None:
            self.ctx.forward(record, child)

    def process_together(self, batch: ColumnarBatch) -> None:
        """Forward to the first matches."""
        records, chosen = call_each(self.ctx, batch, self._first_match)
        for _, child in self.branches:
            rows = [row for row, one in enumerate(chosen) if one == child]
            self.ctx.forward_batch(records.take(np.array(rows, np.int64)), child)

    def _first_match(self, key: Any, value: Any) -> str | None:
        for predicate, child in self.branches:
            if predicate is None or predicate(key, value):
                return child
        return None
