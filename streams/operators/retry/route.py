"""Sends each record that an operator has failed on to its retry topic, or to the dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from streams.model.record import Record
from streams.operators.operator import Operator
from streams.operators.retry.attempts import level_of


class RetryRoute(Operator):
    """Forwards a record to the sink of its level.

    Args:
        sinks: The names of the sinks: that of the dead letters, and those of the retry topics in order.
    """

    def __init__(self, sinks: Sequence[str]) -> None:
        self._sinks = tuple(sinks)

    def process(self, record: Record) -> None:
        self.ctx.forward(record, self._sinks[level_of(record)])
