"""The nodes that run in a task: created, connected, called in topological order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from streams.operators.aggregate.columns.column_rows import ColumnRows
from streams.operators.columnar import BatchProcessor, Int64s
from streams.operators.processor import PunctuationType
from streams.operators.stream_time import NO_LIMIT
from streams.runtime.forwarded import Inbox
from streams.runtime.node_context import NodeContext
from streams.runtime.nodes import NodeRunner
from streams.runtime.rows import RowBatch
from streams.runtime.step_context import StepContext
from streams.runtime.task.columnar_input import StepRows
from streams.runtime.task.failed_sink import FailedSink
from streams.runtime.task.field_columns import column_rows
from streams.runtime.task.punctuation import Punctuation, Punctuations, StreamTimePunctuations
from streams.runtime.task.sink import SinkRunner
from streams.runtime.task.units import UnitRunner
from streams.topology.graph import ProcessorNode, SinkNode
from streams.topology.plan import SubTopology
from streams.topology.planning.units import why_single


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
                self._sinks[name] = SinkRunner(node, run) if node.failed is None else FailedSink(node, run)
            elif isinstance(node, ProcessorNode) and name not in sub.head:
                context = NodeContext(name, run, self._punctuations)
                self._nodes[name] = NodeRunner(name, node.processor(), context, run)
        self._inboxes = {name: Inbox() for name in (*self._nodes, *self._sinks)}
        self._units: list[UnitRunner] = []
        self._unit_of: dict[str, UnitRunner] = {}
        self._connect()
        for runner in self._nodes.values():
            runner.processor.init(runner.context)
        self._punctuations.close()
        run.shift = len(self._punctuations.of_stream_time).bit_length()
        for unit, running in zip(sub.units, self._units, strict=True):
            running.set_processors(self._processors(unit.groups))

    def _connect(self) -> None:
        runners: dict[str, NodeRunner | SinkRunner] = {**self._nodes, **self._sinks}
        for unit in self._sub.units:
            nodes = {name: runners[name] for name in unit.nodes}
            children = {
                name: (self._sub.children(name), self._sub.takers_of_dropped(name))
                for name in unit.nodes
                if name in self._nodes
            }
            made = UnitRunner(nodes, children, unit.groups, self._inboxes, self._run)
            self._units.append(made)
            self._unit_of |= dict.fromkeys(unit.nodes, made)

    def _processors(self, groups: Sequence[Sequence[str]]) -> dict[str, BatchProcessor]:
        """First node of a group -> what processes the group's batches, where anything does."""
        found = {}
        for names in groups:
            node = self._sub.nodes[names[0]]
            if isinstance(node, ProcessorNode) and why_single(node) is None and not isinstance(node.spec.batches, str):
                found[names[0]] = node.spec.batches([self._nodes[name].processor for name in names])
        return found

    def process(self, batches: Sequence[RowBatch]) -> None:
        """Process all rows that are not columns."""
        run, rows = self._run, StepRows(batches, self._sub, self._run)
        times = rows.times(run.stream_time)
        if not len(times):
            return
        entered = list(dict.fromkeys(entry.node for entry in self._sub.entries if entry.transport != "columns"))
        for name, batch in zip(entered, rows.of_nodes(entered), strict=True):
            self._inboxes[name].add(batch, lambda name=name: rows.of_nodes([name])[0])  # type: ignore[misc]
        run.times = times.tolist() if self._sees_stream_time else None
        with run.dead_letters_in_order():
            self._drain(self._due(rows, times))
            rows.refuse_unreadable()
        run.times, run.stream_time = None, int(times[-1])

    @property
    def _sees_stream_time(self) -> bool:
        nodes = (self._sub.nodes[name] for name in self._nodes)
        return any(isinstance(one, ProcessorNode) and (one.spec.sees_stream_time or one.wrapper) for one in nodes)

    def _due(self, rows: StepRows, times: Int64s) -> StreamTimePunctuations | None:
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
                unit.process(due)

    def _results_of(self, name: str, action: Callable[[], object]) -> None:
        """A pass with results of one node that come from no record."""
        run, node = self._run, self._nodes[name]
        run.numbered, run.position = True, 0
        node.context.attempt(action)
        run.numbered = False
        self._unit_of[name].hand_on()
        self._drain()

    def columns(self, batches: Sequence[RowBatch]) -> Iterator[tuple[list[str], ColumnRows]]:
        """The rows of columns entries, with the vectorised operators that read them, in the order of the entries."""
        entries = [entry for entry in self._sub.entries if entry.transport == "columns"]
        sources: dict[str, list[int]] = {}
        for entry in entries:
            sources.setdefault(entry.node, []).append(entry.rows_of)
        nodes: dict[tuple[int, ...], list[str]] = {}
        for node, rows_of in sources.items():
            nodes.setdefault(tuple(rows_of), []).append(node)
        for shared, readers in nodes.items():
            mine = [batch for batch in batches if batch.entry in shared]
            if mine:
                paths = dict.fromkeys(path for entry in entries if entry.node in readers for path in entry.fields)
                yield readers, column_rows(mine, list(paths))

    def process_columns(self, name: str, rows: ColumnRows) -> None:
        """Pass all rows of the step to a vectorised operator."""
        runner = self._nodes[name]
        runner.received += len(rows)
        process: Callable[[ColumnRows], None] = runner.processor.process_columns  # type: ignore[attr-defined]
        self._results_of(name, lambda: process(rows))

    def punctuate(self, kind: PunctuationType, time: int) -> None:
        """Make the calls that are due, without a current record."""
        for one in self._punctuations.due(kind, time):
            with self._run.dead_letters_in_order():
                self._results_of(one.node, partial(one.callback, time))

    def flush(self, idle_ms: int = 0) -> None:
        """End the step: every operator emits its pending results, parents first."""
        self._run.flushing = True
        limits: dict[str, int] = {}
        for name, runner in self._nodes.items():
            with self._run.dead_letters_in_order():
                if idle_ms:
                    self._advance(name, idle_ms, limits)
                self._results_of(name, runner.processor.flush)

    def _advance(self, name: str, idle_ms: int, limits: dict[str, int]) -> None:
        """Advance one operator as far as those above it allow, and note the limit for those below it."""
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
