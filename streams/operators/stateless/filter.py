"""`filter` and `filter_not` (Kafka Streams: `KStreamFilter`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.record import Record
from streams.operators.operator import Operator


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
        if bool(self.predicate(record.key, record.value)) is not self.negate:
            self.ctx.forward(record)
