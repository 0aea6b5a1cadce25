"""`MeetingPoint`: where results meet that several nodes have made of a step's records, in front of a node with several parents."""

from __future__ import annotations

from streams.operators.columnar import ColumnarBatch, in_step_order
from streams.runtime.nodes import NodeRunner


class MeetingPoint:
    """Collects batches while a step's records are processed together, and passes them on in the order of the step.

    A single record comes where the group above processes all of its records one by one, and is passed on at once.

    Args:
        node: The node.
    """

    def __init__(self, node: NodeRunner) -> None:
        self.name = node.name
        self.receive = node.receive
        self._node = node
        self._batches: list[ColumnarBatch] = []
        self._open = False

    def receive_batch(self, batch: ColumnarBatch) -> None:
        if self._open:
            self._batches.append(batch)
        else:
            self._node.receive_batch(batch)

    def open(self) -> None:
        """Collect from now on, until `pass_on`."""
        self._open = True

    def pass_on(self) -> None:
        batches, self._batches, self._open = self._batches, [], False
        if batches:
            self._node.receive_batch(in_step_order(batches))
