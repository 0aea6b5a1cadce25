"""`UnitRunner`: a unit of nodes at run time (`streams.topology.planning.units`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from streams.operators.columnar import BatchProcessor, ColumnarBatch, OneByOne
from streams.runtime.counters import ONE_BY_ONE
from streams.runtime.current_record import may_be_the_records_fault, records_in_order
from streams.runtime.forwarded import Inbox
from streams.runtime.nodes import NodeRunner
from streams.runtime.step_context import StepContext
from streams.runtime.task.punctuation import StreamTimePunctuations
from streams.runtime.task.sink import SinkRunner

Runner: TypeAlias = NodeRunner | SinkRunner


class UnitRunner:
    """The nodes of a unit in one step.

    Args:
        nodes: The nodes in run order.
        children: The children of each node, in their order, and the receivers of dropped records among them.
        groups: See `Unit`.
        inboxes: Those of all nodes of the task.
        run: The step.
    """

    def __init__(
        self,
        nodes: Mapping[str, Runner],
        children: Mapping[str, tuple[Sequence[str], Collection[str]]],
        groups: Sequence[Sequence[str]],
        inboxes: Mapping[str, Inbox],
        run: StepContext,
    ) -> None:
        self._nodes = nodes
        self._children = children
        self._groups = groups
        self._inboxes = inboxes
        self._run = run
        self._processors: dict[str, BatchProcessor] = {}
        self._connect(() if groups else nodes)

    def set_processors(self, processors: Mapping[str, BatchProcessor]) -> None:
        """First node of each group that has one -> what processes the group's batches, made after the operators' `init`."""
        self._processors = dict(processors)

    def process(self, punctuations: StreamTimePunctuations | None) -> None:
        """Processes all records that wait for the nodes, and makes the calls that stream time makes due."""
        if not self._groups:
            self._depth_first(self._nodes, punctuations)
        for at, names in enumerate(self._groups):
            if len(names) == 1 and isinstance(sink := self._nodes[names[0]], SinkRunner):
                if self._inboxes[names[0]]:
                    sink.receive_batch(self._inboxes[names[0]].take())
            elif (processor := self._processors.get(names[0])) is None:
                self._depth_first(names, punctuations)
            elif any(map(self._inboxes.__getitem__, names)) and not self._together(names, processor):
                # What follows in the unit may look rows up as of each record, which only batches can show.
                rest = [name for group in self._groups[at:] for name in group]
                self._connect(rest)
                self._depth_first([name for name in self._nodes if name in rest], punctuations)
                self._connect(())
                return

    def hand_on(self) -> None:
        """Moves what the nodes have forwarded to the inboxes of others."""
        for node in self._nodes.values():
            if isinstance(node, NodeRunner):
                node.context.hand_on()

    def _connect(self, direct: Collection[str]) -> None:
        """Lets nodes pass records to some nodes of the unit at once, and to all other nodes in batches."""
        for name, (children, on_drop) in self._children.items():
            node = self._nodes[name]
            assert isinstance(node, NodeRunner), "sinks have no children"
            at_once = {child: self._nodes[child] for child in children if name in direct and child in direct}
            inboxes = {child: self._inboxes[child] for child in children if child not in at_once}
            node.context.connect(at_once, inboxes, on_drop)

    def _together(self, names: Sequence[str], processor: BatchProcessor) -> bool:
        """Processes batches; if that fails, puts the records back, so that only the one at fault meets its policy."""
        inboxes = [self._inboxes[name] for name in names]
        batches = [inbox.take() for inbox in inboxes]
        nodes = [self._nodes[name] for name in names]
        try:
            processor.process_batches(batches)
        except Exception as error:
            if not may_be_the_records_fault(error):
                raise
            reason = str(error) if isinstance(error, OneByOne) else type(error).__name__
            for inbox, node, batch in zip(inboxes, nodes, batches, strict=True):
                self._run.counters.add(f"{ONE_BY_ONE}{node.name}:{reason}", len(batch))
                inbox.add(batch if inbox.read is None else inbox.read())
            return False
        for node, batch in zip(nodes, batches, strict=True):
            node.received += len(batch)
            if isinstance(node, NodeRunner):
                node.context.hand_on()
        return True

    def _depth_first(self, names: Collection[str], punctuations: StreamTimePunctuations | None) -> None:
        """Passes each record through some nodes before the next one."""
        due = None if punctuations is None else punctuations.of(names)
        waiting = [name for name in names if self._inboxes[name]]
        batches: list[ColumnarBatch] = [self._inboxes[name].take() for name in waiting]
        receivers = [self._nodes[name].receive for name in waiting]
        if batches:
            for which, record in records_in_order(batches, self._run):
                if due is not None:
                    due.before(self._run.position)
                receivers[which](record)
        if due is not None:
            due.rest()
        for name in names:
            if isinstance(node := self._nodes[name], NodeRunner):
                node.context.hand_on()
