"""Processor nodes at run time: the guard around each call of an operator.

Invariant: an exception is attributed to the node that raised it (KIP-1033), not to those that forwarded to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from streams.model.record import Record
from streams.operators.columnar import BatchProcessor, ColumnarBatch, OneByOne, in_order
from streams.operators.operator import Operator
from streams.operators.processor import AnyProcessor
from streams.runtime.counters import ONE_BY_ONE
from streams.runtime.current_record import at_record, each_record, may_be_the_records_fault
from streams.runtime.node_context import NodeContext
from streams.runtime.step_context import StepContext


class NodeRunner:
    """One processor node in one run: counts, guards, and the operator together with its context."""

    def __init__(self, name: str, processor: AnyProcessor, context: NodeContext, run: StepContext) -> None:
        self.name = name
        self.processor = processor
        self.context = context
        self.received = 0
        self.group: NodeGroup | None = None
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

    def receive_batch(self, batch: ColumnarBatch) -> None:
        """Process a step's records together if the operator can; otherwise one by one."""
        if self.group is not None:
            self.group.receive([batch])
        else:
            self.receive_each(batch)

    def receive_each(self, batch: ColumnarBatch) -> None:
        """Process records one by one; their results go on together where that makes no difference."""
        with self.context.forwarding_together():
            for record in each_record(batch, self._run):
                self.receive(record)

    def flush(self) -> None:
        """End the step: emit pending results, together where that makes no difference."""
        with self._run.dead_letters_in_order(), self.context.forwarding_together(numbered=True):
            self.context.attempt(self.processor.flush)

    def count(self) -> None:
        """Count the records in and out since the last call."""
        self._run.counters.add(f"in:{self.name}", self.received)
        self._run.counters.add(f"out:{self.name}", self.context.forwarded)
        self.received = self.context.forwarded = 0


class NodeGroup:
    """Nodes that process a step's records together: one node, or several that share stores.

    Args:
        nodes: The nodes, in run order.
        processor: Processes their records.
        run: The step.
    """

    def __init__(self, nodes: Sequence[NodeRunner], processor: BatchProcessor, run: StepContext) -> None:
        self._nodes = nodes
        self._processor = processor
        self._run = run

    def receive(
        self, batches: Sequence[ColumnarBatch], reread: Callable[[], Iterable[ColumnarBatch]] | None = None
    ) -> None:
        """Process the records; one by one if that fails, so that only the one at fault meets its policy."""
        try:
            self._processor.process_batches(batches)
        except Exception as error:
            if not may_be_the_records_fault(error):
                raise
            self._count_one_by_one(batches, error)
            batches = batches if reread is None else list(reread())
            if len(batches) == 1:
                self._nodes[0].receive_each(batches[0])
                return
            for which, row in in_order(batches):
                with at_record(batches[which], row, self._run):
                    self._nodes[which].receive(batches[which].record(row))
            return
        for node, batch in zip(self._nodes, batches, strict=True):
            node.received += len(batch)

    def _count_one_by_one(self, batches: Sequence[ColumnarBatch], error: Exception) -> None:
        reason = str(error) if isinstance(error, OneByOne) else type(error).__name__
        for node, batch in zip(self._nodes, batches, strict=True):
            self._run.counters.add(f"{ONE_BY_ONE}{node.name}:{reason}", len(batch))
