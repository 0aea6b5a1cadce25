"""`split().branch(...)` (Kafka Streams: `KStreamBranch`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streams.model.record import Record
from streams.operators.operator import Operator


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
        for predicate, child in self.branches:
            if predicate is None or predicate(record.key, record.value):
                self.ctx.forward(record, child)
                return
