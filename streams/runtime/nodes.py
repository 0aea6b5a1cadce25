"""Processor nodes at run time: the guard around each call of an operator.

Invariant: an exception is attributed to the node that raised it (KIP-1033), not to those that forwarded to it.
"""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.operator import Operator
from streams.operators.processor import AnyProcessor
from streams.runtime.node_context import NodeContext
from streams.runtime.step_context import StepContext


class NodeRunner:
    """One processor node in one run: counts, guards, and the operator together with its context."""

    def __init__(self, name: str, processor: AnyProcessor, context: NodeContext, run: StepContext) -> None:
        self.name = name
        self.processor = processor
        self.context = context
        self.received = 0
        self._run = run
        self._process = processor.process
        context.changes_in_place = isinstance(processor, Operator) and processor.changes_in_place

    def receive(self, record: Record) -> None:
        """Process one record under the processing policy."""
        self.received += 1
        try:
            self._process(record)
        except Exception as error:
            self.context.guard(error)

    def count(self) -> None:
        """Count the records in and out since the last call."""
        self._run.counters.add(f"in:{self.name}", self.received)
        self._run.counters.add(f"out:{self.name}", self.context.forwarded)
        self.received = self.context.forwarded = 0
