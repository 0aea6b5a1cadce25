"""`filter` and `filter_not` (Kafka Streams: `KStreamFilter`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator
from streams.operators.operator_batches import call_each


class Filter(Operator):
    """Forwards the records for which the predicate is true, or false.

    Args:
        predicate: `(key, value) -> bool`; null keys and values are passed to it.
        negate: True for `filter_not`.
    """

    def __init__(self, predicate: Callable[[Any, Any], bool], negate: bool = False) -> None:
        self.predicate = predicate
        self.negate = negate

    def process(self, record: Record) -> None:
        """Forward or leave out."""
        if self._passes(record.key, record.value):
            self.ctx.forward(record)

    def process_together(self, batch: ColumnarBatch) -> None:
        """Forward those that pass."""
        records, passes = call_each(self.ctx, batch, self._passes)
        self.ctx.forward_batch(records if all(passes) else records.take(np.flatnonzero(passes)))

    def _passes(self, key: Any, value: Any) -> bool:
        return bool(self.predicate(key, value)) is not self.negate
