"""The nodes that run in a task: its units (`streams.topology.planning.units`), and the passes of a step over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from streams.engine.graph.node import (
    Inbox,
    InboxEdge,
    NodeContext,
    NodeRunner,
    Punctuation,
    Punctuations,
    StreamTimePunctuations,
    changing_nodes,
    process_group,
    records_in_order,
)
from streams.engine.graph.rows import RowBatch
from streams.engine.graph.step_context import StepContext
from streams.engine.task.input import StepRecords
from streams.engine.task.sink import SinkRunner, sink_runner
from streams.operators.columnar import ColumnarBatch, Int64s
from streams.operators.json_fields import with_fields
from streams.operators.process.user_stores import typed_store_of
from streams.operators.processor import BaseProcessor, PunctuationType
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.stream_time import NO_LIMIT
from streams.topology.graph import ProcessorNode, SinkNode
from streams.topology.plan import SubTopology
from streams.topology.planning.units import Unit

Runner: TypeAlias = NodeRunner | SinkRunner

_PART_RECORDS: Final = 10_000
"""How many records pass a unit at a time if it makes results, as objects, for each of them."""


class UnitRunner:
    """The nodes of a unit in one step.

    Args:
        unit: The unit.
        nodes: The nodes in run order.
        children: The children of each node in their order, and which of them receive dropped records.
        inboxes: The inboxes of all nodes of the task.
        ranks: `Unit.ranks` of all units.
        changing: The nodes below which functions change their arguments (`changing_nodes`).
    """

    def __init__(
        self,
        unit: Unit,
        nodes: Mapping[str, Runner],
        children: Mapping[str, tuple[Sequence[str], Collection[str]]],
        inboxes: Mapping[str, Inbox],
        ranks: Mapping[tuple[str, str], int],
        changing: frozenset[str],
        run: StepContext,
    ) -> None:
        self._nodes = nodes
        self._groups = groups = unit.groups
        self._in_parts = unit.in_parts
        self._inboxes = inboxes
        self._run = run
        self._tables: Sequence[TypedTimestampedKeyValueStore] = ()
        for name, (below, on_drop) in children.items():
            node = nodes[name]
            assert isinstance(node, NodeRunner), "sinks have no children"
            at_once = {child: nodes[child] for child in below if not groups and child in nodes}
            waiting = {child: InboxEdge(inboxes[child], ranks.get((name, child), 0)) for child in below}
            later = {child: waiting[child] for child in below if child not in at_once}
            node.context.connect(at_once, later, on_drop, changing)

    def start(self, tables: Sequence[TypedTimestampedKeyValueStore]) -> None:
        """Prepares the tables. It is called after the operators' `init`.

        Args:
            tables: Stores in which nodes look up a row as of each record, while other nodes of the unit change it.
        """
        self._tables = tables
        for table in tables:
            table.watched = True

    @property
    def has_work(self) -> bool:
        """Whether records wait for any of its nodes."""
        return any(map(self._inboxes.__getitem__, self._nodes))

    def process(self, punctuations: StreamTimePunctuations | None) -> None:
        """Processes all records that wait for the nodes, and makes the calls that stream time makes due."""
        self._process(punctuations)
        for table in self._tables:
            table.as_of = table.forwarded_as_of = None

    def _process(self, punctuations: StreamTimePunctuations | None) -> None:
        if self._nodes and not self._groups:
            self._depth_first(self._nodes, punctuations)
            self._run.lap(next(iter(self._nodes)))
        for _ in self._parts(punctuations):
            for names in self._groups:
                if isinstance(sink := self._nodes[names[0]], SinkRunner):
                    if self._inboxes[names[0]]:
                        sink.receive_batch(self._inboxes[names[0]].take())
                elif punctuations is not None or any(self._inboxes[name] for name in names):
                    self._process_group(names, punctuations)
                else:
                    self._hand_on(names)
                self._run.lap(names[0])

    def _parts(self, punctuations: StreamTimePunctuations | None) -> Iterator[None]:
        """Puts one part of the records into the inbox at a time. If the unit cannot take parts, yields once for all of them."""
        if self._in_parts and punctuations is None:
            inbox = self._inboxes[self._groups[0][0]]
            read, batch = inbox.read, inbox.take()
            for first in range(0, len(batch), _PART_RECORDS):
                rows = np.arange(first, min(first + _PART_RECORDS, len(batch)))
                inbox.add(batch.take(rows), None if read is None else partial(_part, read, rows))
                yield
            if len(batch):
                return
        yield

    def _process_group(self, names: Sequence[str], punctuations: StreamTimePunctuations | None) -> None:
        runners: list[Any] = [self._nodes[name] for name in names]
        process_group(
            runners,
            [self._inboxes[name] for name in names],
            self._run,
            None if punctuations is None else punctuations.of(names),
        )

    def hand_on(self) -> None:
        """Moves the records that the nodes have forwarded to the inboxes of other nodes."""
        self._hand_on(self._nodes)

    def _hand_on(self, names: Iterable[str]) -> None:
        for name in names:
            if isinstance(node := self._nodes[name], NodeRunner):
                node.context.hand_on()

    def _depth_first(self, names: Collection[str], punctuations: StreamTimePunctuations | None) -> None:
        """Passes each record through the nodes before the next one."""
        due = None if punctuations is None else punctuations.of(names)
        for name in names:
            if self._inboxes[name].has_fields:  # all results come at the end of the step
                self._process_group([name], None)
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
        self._hand_on(names)


def _of_fields(process: Callable[[ColumnarBatch], None], paths: Sequence[str], batch: ColumnarBatch) -> None:
    """Processes a batch with the fields of its values instead of the values, if these are texts."""
    process(with_fields(batch, paths))


def _part(read: Callable[[], ColumnarBatch], rows: Int64s) -> ColumnarBatch:
    return read().take(rows)


# --- The nodes that run in a task: created, connected, called in topological order.


class TaskGraph:
    """All nodes of a sub-topology that are not in its head, for one step.

    A pass begins with records in the inboxes of some nodes, and runs one unit after the other until all inboxes are empty.
    """

    def __init__(self, sub: SubTopology, run: StepContext) -> None:
        self._run = run
        self._sub = sub
        self._punctuations = Punctuations(run.state("task", "punctuations"), run.now_ms)
        self._nodes: dict[str, NodeRunner] = {}
        self._sinks: dict[str, SinkRunner] = {}
        for name, node in sub.nodes.items():
            if isinstance(node, SinkNode):
                self._sinks[name] = sink_runner(node, run)
            elif isinstance(node, ProcessorNode) and name not in sub.head:
                context = NodeContext(name, (*node.stores, *node.global_stores), run, self._punctuations)
                self._nodes[name] = runner = NodeRunner.of(name, node.processor(), context, run)
                if name in sub.columns.scanning and run.followed is None:
                    runner.process_batch = partial(_of_fields, runner.process_batch, node.spec.projection or ())
        self._inboxes = {name: Inbox() for name in (*self._nodes, *self._sinks)}
        self._units: list[UnitRunner] = []
        self._unit_of: dict[str, UnitRunner] = {}
        self._connect()
        for runner in self._nodes.values():
            runner.processor.init(runner.context)
        self._punctuations.close()
        run.shift = len(self._punctuations.of_stream_time).bit_length()
        for unit, running, watched in zip(sub.units, self._units, sub.watched, strict=True):
            self._lead(unit.groups)
            running.start(self._tables(watched))

    def _connect(self) -> None:
        runners: dict[str, NodeRunner | SinkRunner] = {**self._nodes, **self._sinks}
        ranks = self._sub.ranks
        changing = changing_nodes({name: node.processor for name, node in self._nodes.items()}, self._sub.children)
        for unit in self._sub.units:
            nodes = {name: runners[name] for name in unit.nodes}
            children = {
                name: (self._sub.children(name), self._sub.takers_of_dropped(name))
                for name in unit.nodes
                if name in self._nodes
            }
            made = UnitRunner(unit, nodes, children, self._inboxes, ranks, changing, self._run)
            self._units.append(made)
            self._unit_of |= dict.fromkeys(unit.nodes, made)

    def _lead(self, groups: Sequence[Sequence[str]]) -> None:
        """Lets the first operator of each group process the records of the whole group."""
        for names in groups:
            node = self._sub.nodes[names[0]]
            if isinstance(node, ProcessorNode) and node.wrapper is None and node.spec.joint:
                operators: list[Any] = [self._nodes[name].processor for name in names]
                operators[0].lead(operators)

    def _tables(self, names: Sequence[str]) -> Sequence[TypedTimestampedKeyValueStore]:
        if not names:
            return ()
        stores = (typed_store_of(self._run.stores[name]) for name in names)
        return [store for store in stores if isinstance(store, TypedTimestampedKeyValueStore)]

    def process(self, batches: Sequence[RowBatch]) -> None:
        run, rows = self._run, StepRecords(batches, self._sub, self._run)
        if not len(rows):
            return
        # Only these need the time at each row.
        asked = self._sub.sees_stream_time or self._punctuations.of_stream_time
        times = rows.times(run.stream_time) if asked else None
        entered = self._sub.entered
        for name, batch in zip(entered, rows.of_nodes(entered), strict=True):
            self._inboxes[name].add(batch, lambda name=name: rows.of_nodes([name])[0])  # type: ignore[misc]
        run.times = None if times is None or not self._sub.sees_stream_time else times.tolist()
        run.begin_laps()
        with run.dead_letters_in_order():
            self._drain(None if times is None else self._due(rows, times))
            rows.refuse_unreadable()
        for inbox in self._inboxes.values():
            inbox.read = None  # it holds all rows of the step
        run.times, run.stream_time = None, max(run.stream_time, rows.latest)

    def _due(self, rows: StepRecords, times: Int64s) -> StreamTimePunctuations | None:
        scheduled = self._punctuations.of_stream_time
        if not scheduled:
            return None
        ends = rows.ends_of_records()
        return StreamTimePunctuations(scheduled, ends, times[ends], self._call, self._run.shift)

    def _call(self, one: Punctuation, time: int, position: int) -> None:
        """Makes a call that is due at a position of the step, without a current record."""
        run = self._run
        before = run.cursor, run.held, run.position, run.stream_time
        run.cursor, run.held, run.position, run.stream_time = None, None, position, time
        self._nodes[one.node].context.attempt(lambda: one.callback(time))
        run.cursor, run.held, run.position, run.stream_time = before

    def _drain(self, due: StreamTimePunctuations | None = None) -> None:
        if due is not None or any(self._inboxes.values()):
            for unit in self._units:
                if due is not None or unit.has_work:
                    unit.process(due)

    def _results_of(self, name: str, action: Callable[[], object]) -> None:
        """Runs a pass with results of one node that come from no record."""
        run, node = self._run, self._nodes[name]
        run.numbered, run.position = True, 0
        run.begin_laps()
        node.context.attempt(action)
        run.numbered = False
        self._unit_of[name].hand_on()
        run.lap(self._sub.timed_as[name])
        self._drain()

    def punctuate(self, kind: PunctuationType, time: int) -> None:
        """Makes the calls that are due, without a current record."""
        for one in self._punctuations.due(kind, time):
            with self._run.dead_letters_in_order():
                self._results_of(one.node, partial(one.callback, time))

    def flush(self, idle_ms: int = 0) -> None:
        """Ends the step: every operator emits its pending results, parents first."""
        self._run.flushing = True
        limits: dict[str, int] = {}
        for name, runner in self._nodes.items():
            if not idle_ms and type(runner.processor).flush is BaseProcessor.flush:
                continue
            with self._run.dead_letters_in_order():
                if idle_ms:
                    self._advance(name, idle_ms, limits)
                self._results_of(name, runner.processor.flush)

    def _advance(self, name: str, idle_ms: int, limits: dict[str, int]) -> None:
        """Advances one operator as far as the operators above it allow, and notes the limit for the operators below it."""
        runner = self._nodes[name]
        above = self._sub.nodes[name].parents
        limit = limits[name] = min((limits.get(parent, NO_LIMIT) for parent in above), default=NO_LIMIT)

        def advance() -> None:
            limits[name] = runner.processor.advance(idle_ms, limit)

        self._results_of(name, advance)

    def close(self) -> None:
        for runner in self._nodes.values():
            runner.processor.close()

    def count(self) -> None:
        for runner in self._nodes.values():
            runner.count()
        for sink in self._sinks.values():
            sink.count()
