"""The `BatchProcessor` of operators that process their records together without any other node, and calls of users' functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from streams.operators.columnar import ColumnarBatch
from streams.operators.operator_context import OperatorContext


@runtime_checkable
class BatchOperator(Protocol):
    """An operator with a way to process all records of a batch."""

    def process_together(self, batch: ColumnarBatch) -> None:
        """`process` for all records; a record that fails has met its policy."""


class OperatorBatches:
    """Passes the records on to their operator.

    Args:
        operators: The operator.
    """

    def __init__(self, operators: Sequence[BatchOperator]) -> None:
        (self._operator,) = operators

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        self._operator.process_together(batches[0])


def call_each(
    ctx: OperatorContext, batch: ColumnarBatch, function: Callable[..., Any], *columns: Iterable[Any]
) -> tuple[ColumnarBatch, list[Any]]:
    """Calls a user's function once for each record, also where others fail."""
    results: list[Any] = []
    failed: list[int] = []
    rows = zip(*(columns or (batch.keys, batch.values)), strict=False)
    while len(results) + len(failed) < len(batch):
        try:
            for arguments in rows:
                results.append(function(*arguments))
        except Exception as error:
            row = len(results) + len(failed)
            failed.append(row)
            ctx.refuse(batch, row, error)
    if not failed:
        return batch, results
    return batch.take(np.setdiff1d(np.arange(len(batch)), failed)), results
