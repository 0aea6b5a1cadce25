"""The head: a reader's processing of a topic-partition's records before they are shuffled to the tasks.

Stateless operators run here, record by record, and their results leave as object entries. Raw entries never become
Python objects: their bytes are split by task and sent. Columns entries have only the fields that an aggregate declared.

Invariants: rows of a batch are in (offset, seq) order; the same records always give the same rows, whatever the sizes
of the pieces they come in; no clock is read (`NOW` represents the step's, `ReaderPipeline.now_ms` is logged).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import RecordColumns
from streams.runtime.counters import Counters
from streams.runtime.event_time import UNKNOWN_NOW
from streams.runtime.node_context import NodeContext, Receiver
from streams.runtime.nodes import NodeRunner
from streams.runtime.reader.column_reader import compact_keys
from streams.runtime.reader.head_run import ReaderContext, number_anew
from streams.runtime.reader.route import split_by_task, tasks_of
from streams.runtime.reader.source_reader import SourceReader
from streams.runtime.reader.task_inputs import TaskInputRunner
from streams.runtime.routing import RoutingDigests
from streams.runtime.rows import DEAD_LETTER_ENTRY, RowBatch
from streams.runtime.settings import TaskSettings
from streams.runtime.step_context import StepContext
from streams.runtime.task.punctuation import Punctuations
from streams.topology.graph import ProcessorNode
from streams.topology.plan import SubTopology
from streams.topology.planning.task_input import TaskInput


class ReaderPipeline:
    """The head of one sub-topology in one reader, for one piece of records after the other.

    Args:
        sub: The sub-topology.
        tasks: Number of tasks to route to.
        settings: Policies.

    Attributes:
        counters: Counts since the start.
        partition_times: (topic, partition) -> largest timestamp so far, for `UsePartitionTimeOnInvalidTimestamp` and
            custom extractors. Set before `run` to continue where an earlier reader ended.
        touched: Tasks that must be called even without rows: records were for them, but an operator that is not
            repeatable gave no results this time.
        now_ms: When the micro-batch was planned, as logged with its offsets: timestamps too far ahead of it are turned away.
            `UNKNOWN_NOW`: only timestamps that no clock can show are.
    """

    def __init__(self, sub: SubTopology, tasks: int, settings: TaskSettings) -> None:
        self.partition_times: dict[tuple[str, int], int] = {}
        self.touched: set[int] = set()
        self._tasks = tasks
        self._run = ReaderContext(settings, f"{sub.index}_reader", now_ms=UNKNOWN_NOW)
        self._entries = {
            (entry.from_node, entry.node): TaskInputRunner(entry, self._run, self._run.sequence)
            for entry in sub.entries
            if entry.transport == "object"
        }
        self._keyed = {entry.index for entry in sub.entries if entry.transport == "columns" and entry.keyed_by}
        self._routings = RoutingDigests()
        self._run.letters_by_partition = all(entry.entry.by_partition for entry in self._entries.values())
        self._nodes = _head_nodes(sub, self._run, self._entries)
        self._run.behind = {
            name: [entry for edge, entry in self._entries.items() if edge[0] in _at_or_below(sub, name)]
            for name in self._nodes
            if not _node(sub, name).spec.repeatable
        }
        self._sources = [
            SourceReader(sub, source, self._nodes, self._run.sequence, self._run, self.partition_times)
            for source in sub.sources
        ]

    @property
    def counters(self) -> Counters:
        for node in self._nodes.values():
            node.count()
        return self._run.counters

    def event_time(self, topic: str, partition: int) -> int | None:
        """The largest event time of the topic-partition's records so far, ms; None: none."""
        found = (source.event_times.get((topic, partition)) for source in self._sources)
        return max((time for time in found if time is not None), default=None)

    def routings(self) -> dict[int, str]:
        """Task -> digest of the keys that head operators gave the task's records, see `streams.runtime.routing`."""
        return self._routings.by_task()

    @property
    def now_ms(self) -> int:
        return self._run.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._run.now_ms = now_ms

    def run(self, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        """Process a piece of a topic-partition.

        Raises:
            RecordFailedError: A record cannot be handled and its policy is `fail`.
        """
        for source in self._sources:
            if columns.topic in source.topics:
                for entry, rows, routes in source.read(columns, self._tasks):
                    for task, part in split_by_task(rows, routes):
                        if entry in self._keyed:
                            self._routings.add(task, entry, part)
                        yield task, RowBatch(columns.topic, columns.partition, entry, compact_keys(part))
        for node in self._nodes.values():
            node.context.attempt(node.processor.flush)
        yield from self._gathered(columns.topic, columns.partition)

    def close(self) -> None:
        """Close the operators, and discard the rows of a failed run."""
        for node in self._nodes.values():
            node.processor.close()
        for entry in self._entries.values():
            entry.take()
        self._run.take_dead_letters()
        self._run.touched.clear()

    def _gathered(self, topic: str, partition: int) -> Iterator[tuple[int, RowBatch]]:
        gathered = [(runner.entry, runner.take()) for runner in self._entries.values()]
        held = bool(self._run.touched)
        if held:
            self.touched.update(self._routes(self._run.touched, partition).tolist())
            self._run.touched.clear()
            number_anew([rows for _, rows in gathered])
            self._digest_held(partition)
        for entry, rows in gathered:
            if rows.offsets:
                batch = rows.to_batch()
                if held:
                    batch = batch.sort_by([("offset", "ascending"), ("seq", "ascending")])
                yield from self._routed(topic, partition, entry, batch)
        letters, order, keys, digested = self._run.take_dead_letters()
        if order:
            tasks = self._routes([keys[row] for row in order], partition)
            if any(entry.keyed_by for entry, _ in gathered):
                # A function that fails in one attempt alone gives the record to another task in the next one.
                for task, rows in split_by_task(digested.take(pa.array(order)), tasks):
                    self._routings.add(task, DEAD_LETTER_ENTRY, rows.filter(rows["key"].is_valid()))
            for task, rows in split_by_task(letters.to_batch().take(pa.array(order)), tasks):
                yield task, RowBatch(topic, partition, DEAD_LETTER_ENTRY, compact_keys(rows))

    def _routed(
        self, topic: str, partition: int, entry: TaskInput, batch: pa.RecordBatch
    ) -> Iterator[tuple[int, RowBatch]]:
        if entry.by_partition:
            yield partition % self._tasks, RowBatch(topic, partition, entry.index, compact_keys(batch))
            return
        for task, rows in split_by_task(batch, tasks_of(batch.column("key"), partition, self._tasks)):
            if entry.keyed_by and entry.repeatable:
                self._routings.add(task, entry.index, rows)
            yield task, RowBatch(topic, partition, entry.index, compact_keys(rows))

    def _digest_held(self, partition: int) -> None:
        """Add the keys of held-back records to the digests: their results may differ between attempts, but not their routing."""
        for index, rows in self._run.take_held_keys().items():
            batch = rows.to_batch()
            for task, part in split_by_task(batch, tasks_of(batch.column("key"), partition, self._tasks)):
                self._routings.add(task, index, part)

    def _routes(self, keys: Collection[bytes | None], partition: int) -> npt.NDArray[np.int32]:
        return tasks_of(pa.array(list(keys), pa.binary()), partition, self._tasks)


def _head_nodes(
    sub: SubTopology, run: StepContext, entries: Mapping[tuple[str, str], TaskInputRunner]
) -> dict[str, NodeRunner]:
    """Build and connect the head's processors, without those that work on columns."""
    nodes: dict[str, NodeRunner] = {}
    on_columns = {step.node for step in sub.columns.steps}
    punctuations = Punctuations({}, run.now_ms)
    for name, node in sub.nodes.items():
        if name in sub.head and name not in on_columns and isinstance(node, ProcessorNode):
            nodes[name] = NodeRunner(name, node.processor(), NodeContext(name, run, punctuations), run)
    for name, runner in nodes.items():
        children: dict[str, Receiver] = {
            child: nodes[child] if child in nodes else entries[(name, child)] for child in sub.children(name)
        }
        runner.context.connect(children, on_drop=sub.takers_of_dropped(name))
        runner.processor.init(runner.context)
    return nodes


def _node(sub: SubTopology, name: str) -> ProcessorNode:
    node = sub.nodes[name]
    assert isinstance(node, ProcessorNode), "the head is made of processors"
    return node


def _at_or_below(sub: SubTopology, name: str) -> set[str]:
    """A node of the head and all nodes below it there."""
    return {name}.union(*(_at_or_below(sub, child) for child in sub.children(name) if child in sub.head))
