"""The head: what a reader does with the records of a topic-partition before they are shuffled to the tasks.

Stateless operators run here, record by record, and their results leave as object entries. Raw entries never become
Python objects: their bytes are cut by task and go. Columns entries carry only the fields that an aggregate declared.

Invariants: rows of a batch are in (offset, seq) order; the same records always give the same rows, whatever the size
of the pieces they come in; no clock is read (`NOW` stands for the step's).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.columns import RecordColumns
from streams.operators.record import Record
from streams.runtime.counters import Counters
from streams.runtime.entries import BRANCH_BITS, EntryRunner, Rows, Sequence
from streams.runtime.extract import DROPPED, TimestampReader
from streams.runtime.field_rows import field_rows
from streams.runtime.handlers import DeadLetter, Origin
from streams.runtime.nodes import NodeContext, NodeRunner, Receiver
from streams.runtime.punctuation import Punctuations
from streams.runtime.route import split_by_task, tasks_of
from streams.runtime.rows import DEAD_LETTER_ENTRY, RowBatch
from streams.runtime.run import Run, SourceRows
from streams.runtime.settings import TaskSettings
from streams.topology.graph import ProcessorNode, SourceNode
from streams.topology.plan import Entry, SubTopology


class _HeadRun(Run):
    """Dead letters travel to a task as rows, so that they are part of its transaction."""

    dead_letters: Rows

    def send_dead_letter(self, letter: DeadLetter, origin: Origin) -> None:
        self.dead_letters.add_dead_letter(letter, origin)


class Head:
    """The head of one sub-topology in one reader; used for one piece of records after the other.

    Args:
        sub: What to run.
        tasks: Number of tasks to route to.
        settings: Policies.

    Attributes:
        counters: Counts since the start.
        partition_times: (topic, partition) -> largest timestamp so far, for `UsePartitionTimeOnInvalidTimestamp` and
            custom extractors. Set it before `run` to go on where an earlier reader ended.
    """

    def __init__(self, sub: SubTopology, tasks: int, settings: TaskSettings) -> None:
        self.partition_times: dict[tuple[str, int], int] = {}
        self._tasks = tasks
        self._run = _HeadRun(settings, f"{sub.index}_reader", now_ms=-1)
        self._run.dead_letters = Rows()
        self._sequence = Sequence()
        self._entries = {
            (entry.from_node, entry.node): EntryRunner(entry, self._run, self._sequence)
            for entry in sub.entries
            if entry.transport == "object"
        }
        self._object_entries = {
            entry.index: (entry.from_node, entry.node) for entry in sub.entries if entry.source is None
        }
        self._nodes = _head_nodes(sub, self._run, self._entries)
        self._sources = [_SourceReader(sub, source, self) for source in sub.sources]

    @property
    def counters(self) -> Counters:
        """Counts since the start."""
        for node in self._nodes.values():
            node.count()
        return self._run.counters

    def run(self, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        """Read a piece of a topic-partition.

        Args:
            columns: The records.

        Yields:
            Task and rows for it.

        Raises:
            RecordFailedError: A record cannot be handled and its policy is `fail`.
        """
        for source in self._sources:
            if columns.topic in source.topics:
                yield from source.read(columns)
        yield from self._gathered(columns.topic, columns.partition)

    def _gathered(self, topic: str, partition: int) -> Iterator[tuple[int, RowBatch]]:
        gathered = [(index, self._entries[edge].take()) for index, edge in self._object_entries.items()]
        gathered.append((DEAD_LETTER_ENTRY, self._run.dead_letters))
        self._run.dead_letters = Rows()
        for index, rows in gathered:
            if rows.offsets:
                batch = rows.to_batch()
                yield from self.routed(topic, partition, index, batch)

    def routed(self, topic: str, partition: int, index: int, rows: pa.RecordBatch) -> Iterator[tuple[int, RowBatch]]:
        """Cut rows by task."""
        for task, part in split_by_task(rows, tasks_of(rows.column("key"), partition, self._tasks)):
            yield task, RowBatch(topic, partition, index, part)


class _SourceReader:
    """Reads the records of one source: times, raw and columns entries, then the operators."""

    def __init__(self, sub: SubTopology, source: SourceNode, head: Head) -> None:
        self.topics = frozenset(str(topic) for topic in source.topics)
        self._source = source
        self._head = head
        self._run = head._run
        self._times = TimestampReader(source, head._run, head.partition_times)
        children = sub.children(source.name)
        self._direct: list[tuple[int, Entry]] = [
            (children.index(entry.node), entry) for entry in sub.entries if entry.source == source.name
        ]
        self._operators = [(at, head._nodes[name]) for at, name in enumerate(children) if name in head._nodes]

    def read(self, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        """Give the rows of raw and columns entries; those of operators gather in their entries."""
        self._run.counters.add(f"in:{self._source.name}", len(columns))
        objects = bool(self._operators) or self._source.timestamp_extractor.needs_record
        rows = _python_rows(columns, objects)
        timestamps = self._read_objects(rows) if objects else self._times.column(rows, columns.timestamps)
        kept = timestamps != DROPPED
        for branch, entry in self._direct:
            if entry.transport == "columns":
                seq = branch << BRANCH_BITS
                serde = self._source.value_serde
                yield from field_rows(columns, rows, timestamps, seq, entry, serde, self._head._tasks, self._run)
                continue
            batch = _raw_rows(columns, timestamps, branch)
            yield from self._head.routed(
                columns.topic, columns.partition, entry.index, batch if kept.all() else batch.filter(pa.array(kept))
            )

    def _read_objects(self, rows: SourceRows) -> npt.NDArray[np.int64]:
        """Deserialise record by record, take the time, and run the operators; the timestamps of all rows."""
        source, run = self._source, self._run
        timestamps = np.full(len(rows.offsets), DROPPED, np.int64)
        for row, (key_bytes, value_bytes) in enumerate(zip(rows.keys, rows.values, strict=True)):
            run.cursor = (rows, row)
            headers = rows.headers_of(row)
            try:
                key = source.key_serde.deserialize(rows.topic, key_bytes, headers)
                value = source.value_serde.deserialize(rows.topic, value_bytes, headers)
            except Exception as error:
                run.handlers.handle("deserialization", source.name, rows.origin(row), error)
                continue
            timestamp = self._times.record(rows, row, key, value)
            timestamps[row] = timestamp
            if timestamp == DROPPED:
                continue
            record = Record(key, value, timestamp, headers)
            for branch, node in self._operators:
                self._head._sequence.start(branch)
                node.receive(record)
        run.cursor = None
        return timestamps


def _head_nodes(sub: SubTopology, run: Run, entries: Mapping[tuple[str, str], EntryRunner]) -> dict[str, NodeRunner]:
    """Build and connect the head's processors."""
    nodes: dict[str, NodeRunner] = {}
    punctuations = Punctuations({}, run.now_ms)
    for name, node in sub.nodes.items():
        if name in sub.head and isinstance(node, ProcessorNode):
            nodes[name] = NodeRunner(name, node.supplier(), NodeContext(name, run, punctuations), run)
    for name, runner in nodes.items():
        children: dict[str, Receiver] = {}
        for child in sub.children(name):
            children[child] = nodes[child] if child in nodes else entries[(name, child)]
        runner.context.connect(children)
        runner.processor.init(runner.context)
    return nodes


def _python_rows(columns: RecordColumns, objects: bool) -> SourceRows:
    """The columns as lists; keys and values stay Arrow's own until someone asks for a single one, unless `objects`."""
    keys: Any = columns.keys.to_pylist() if objects else _Lazy(columns.keys)
    values: Any = columns.values.to_pylist() if objects else _Lazy(columns.values)
    headers: Any = None if columns.headers is None else columns.headers.to_pylist()
    offsets: Any = columns.offsets.tolist() if objects else columns.offsets
    timestamps: Any = columns.timestamps.tolist() if objects else columns.timestamps
    return SourceRows(columns.topic, columns.partition, offsets, timestamps, keys, values, headers)


class _Lazy:
    """An Arrow column that is indexed like a list, for the few rows of an error."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __getitem__(self, row: int) -> bytes | None:
        value: bytes | None = self._column[row].as_py()
        return value


def _raw_rows(columns: RecordColumns, timestamps: npt.NDArray[np.int64], branch: int) -> pa.RecordBatch:
    """Kafka's bytes, untouched."""
    arrays: dict[str, pa.Array] = {
        "offset": pa.array(columns.offsets),
        "seq": pa.array(np.full(len(columns), branch << BRANCH_BITS, np.int32)),
        "timestamp": pa.array(timestamps),
        "key": columns.keys,
        "value": columns.values,
    }
    if columns.headers is not None:
        arrays["headers"] = columns.headers
    return pa.RecordBatch.from_pydict(arrays)
