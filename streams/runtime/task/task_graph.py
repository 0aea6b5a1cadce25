"""The nodes that run in a task: created, connected, called in topological order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from streams.errors import ValueNotPicklableError
from streams.model.record import Record
from streams.operators.aggregate.columns.column_rows import ColumnRows
from streams.operators.punctuation import PunctuationType
from streams.operators.stream_time import NO_LIMIT
from streams.runtime.node_context import NodeContext, Receiver
from streams.runtime.nodes import NodeGroup, NodeRunner
from streams.runtime.rows import RowBatch
from streams.runtime.step_context import SourceRows, StepContext
from streams.runtime.task.columnar_input import StepRows
from streams.runtime.task.failed_sink import FailedSink
from streams.runtime.task.field_columns import column_rows
from streams.runtime.task.meeting import MeetingPoint
from streams.runtime.task.punctuation import Punctuations
from streams.runtime.task.sink import SinkRunner
from streams.runtime.values import load_value
from streams.topology.graph import ProcessorNode, SinkNode, SourceNode
from streams.topology.plan import SubTopology
from streams.topology.planning.task_input import TaskInput


class TaskGraph:
    """All nodes of a sub-topology that are not in its head, for one step."""

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
        receivers: dict[str, NodeRunner | SinkRunner] = {**self._nodes, **self._sinks}
        self._meetings = {name: MeetingPoint(self._nodes[name]) for name in sub.batching.meetings}
        for name, runner in self._nodes.items():
            on_drop = sub.takers_of_dropped(name)
            children = {child: receivers[child] for child in sub.children(name) if child not in on_drop}
            runner.context.connect(children, [receivers[child] for child in on_drop])
            runner.context.connect_batches({**children, **self._meeting(children)}, not sub.batching.groups)
        for runner in self._nodes.values():
            runner.processor.init(runner.context)
        self._punctuations.close()
        self._groups = [(names, self._group(names)) for names in sub.batching.groups if names[0] in self._nodes]
        entered = {name for names in sub.batching.groups for name in names}
        for name, runner in self._nodes.items():
            if name not in entered and (sub.batching.groups or not sub.nodes[name].stores):
                runner.group = self._group((name,))
        self._inputs = {entry.index: _EntryReader(entry, sub, receivers[entry.node], run) for entry in sub.entries}

    def _meeting(self, names: Iterable[str]) -> dict[str, MeetingPoint]:
        return {name: self._meetings[name] for name in names if name in self._meetings}

    def _group(self, names: tuple[str, ...]) -> NodeGroup | None:
        """What processes a step's records together for some nodes; None if nothing does."""
        nodes = [self._sub.nodes[name] for name in names]
        way = nodes[0].spec.batches if isinstance(nodes[0], ProcessorNode) else ""
        if isinstance(way, str):
            return None
        runners = [self._nodes[name] for name in names]
        return NodeGroup(runners, way([runner.processor for runner in runners]), self._run)

    def process_together(self, batches: Sequence[RowBatch]) -> None:
        """Process all rows of raw and object entries, group by group (`SubTopology.batching`)."""
        rows = StepRows(batches, self._sub, self._run)
        with self._run.dead_letters_in_order():
            entered = [name for names in self._sub.batching.groups for name in names]
            records = dict(zip(entered, rows.of_nodes(entered), strict=True))
            for meeting in self._meetings.values():
                meeting.open()
            for names, group in self._groups:
                assert group is not None, "the planner lets only such nodes process records together"
                if any(len(records[name]) for name in names):
                    group.receive([records[name] for name in names], partial(rows.of_nodes, names))
            for meeting in self._meetings.values():
                meeting.pass_on()
            for name, sink in self._sinks.items():
                if name in records and len(records[name]):
                    sink.receive_batch(records[name])
            rows.refuse_unreadable()

    def entry(self, index: int) -> _EntryReader:
        return self._inputs[index]

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

    def process_columns(self, node: str, rows: ColumnRows) -> None:
        """Pass all rows of the step to a vectorised operator."""
        runner = self._nodes[node]
        runner.received += len(rows)
        process: Callable[[ColumnRows], None] = runner.processor.process_columns  # type: ignore[attr-defined]
        runner.context.attempt(lambda: process(rows))

    @property
    def watches_stream_time(self) -> bool:
        """Whether any node has scheduled calls by stream time."""
        return self._punctuations.any_of_stream_time

    def punctuate(self, kind: PunctuationType, time: int) -> None:
        """Make the calls that are due, without a current record."""
        due = self._punctuations.due(kind, time)
        if not due:
            return
        cursor, self._run.cursor = self._run.cursor, None
        for one in due:
            callback = one.callback
            self._nodes[one.node].context.attempt(lambda callback=callback: callback(time))  # type: ignore[misc]
        self._run.cursor = cursor

    def flush(self, idle_ms: int = 0) -> None:
        """End the step: every operator emits its pending results, parents first."""
        self._run.flushing = True
        limits: dict[str, int] = {}
        for name, runner in self._nodes.items():
            if idle_ms:
                self._advance(name, idle_ms, limits)
            runner.flush()

    def _advance(self, name: str, idle_ms: int, limits: dict[str, int]) -> None:
        """Advance one operator as far as those above it allow, and note the limit for those below it."""
        runner = self._nodes[name]
        above = self._sub.nodes[name].parents
        limit = limits[name] = min((limits.get(parent, NO_LIMIT) for parent in above), default=NO_LIMIT)

        def advance() -> None:
            limits[name] = runner.processor.advance(idle_ms, limit)

        runner.context.attempt(advance)

    def close(self) -> None:
        for runner in self._nodes.values():
            runner.processor.close()

    def count(self) -> None:
        for runner in self._nodes.values():
            runner.count()
        for sink in self._sinks.values():
            sink.count()


class _EntryReader:
    """Converts the rows of one entry back into records and passes them to its node."""

    def __init__(self, entry: TaskInput, sub: SubTopology, receiver: Receiver, run: StepContext) -> None:
        self._entry = entry
        self._receive = receiver.receive
        self._run = run
        self.raw = entry.transport == "raw"
        self._read_key = entry.key_serde.deserialize
        self._read_value: Callable[..., object] = _unpickle
        if entry.source is not None:
            source = sub.nodes[entry.source]
            assert isinstance(source, SourceNode)
            self._read_key = source.key_serde.deserialize
            self._read_value = source.value_serde.deserialize

    def receive(self, rows: SourceRows, row: int, timestamp: int) -> None:
        """Deserialise under the deserialisation policy, then process."""
        headers = rows.headers_of(row) if rows.headers is not None else ()
        try:
            key = self._read_key(rows.topic, rows.keys[row], headers)
            value = self._read_value(rows.topic, rows.values[row], headers)
        except ValueNotPicklableError:
            raise
        except Exception as error:
            self._run.handlers.handle(
                "deserialization", self._entry.source or self._entry.node, rows.origin(row), error
            )
            return
        self._receive(Record(key, value, timestamp, headers))


def _unpickle(topic: str, data: bytes, headers: object) -> object:
    return load_value(data)
