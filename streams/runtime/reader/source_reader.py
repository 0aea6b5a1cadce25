"""Reads the records of one source in a reader: event times, the head's operators, rows of raw and columns entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import RecordColumns
from streams.model.record import Record
from streams.runtime.node import NodeRunner
from streams.runtime.reader.column_reader import ColumnReader, Columns, EntryColumns, field_rows
from streams.runtime.reader.json_fields import JsonFields, read_fields
from streams.runtime.reader.task_inputs import BRANCH_BITS, RowNumbering, tasks_of
from streams.runtime.reader.timestamps import DROPPED, TimestampReader
from streams.runtime.step_context import SourceRows, StepContext
from streams.topology.graph import SourceNode
from streams.topology.plan import SubTopology
from streams.topology.planning.task_input import TaskInput

EntryRows = tuple[int, pa.RecordBatch, "npt.NDArray[np.int32]"]


class SourceReader:
    """One source.

    Args:
        nodes: The head's processors.
        sequence: Numbers the rows that the operators make.
        run: Policies and counters.
        partition_times: (topic, partition) -> largest timestamp so far; updated.
    """

    def __init__(
        self,
        sub: SubTopology,
        source: SourceNode,
        nodes: Mapping[str, NodeRunner],
        sequence: RowNumbering,
        run: StepContext,
        partition_times: dict[tuple[str, int], int],
    ) -> None:
        self.name = source.name
        self.event_times: dict[tuple[str, int], int] = {}
        self.topics = frozenset(str(topic) for topic in source.topics)
        self._source = source
        self._sequence = sequence
        self._run = run
        self._times = TimestampReader(source, run, partition_times)
        children = sub.children(source.name)
        self._direct: list[tuple[int, TaskInput]] = [
            (children.index(_first_below(sub, source.name, entry)), entry)
            for entry in sub.entries
            if entry.source == source.name
        ]
        self._operators = [(at, nodes[name]) for at, name in enumerate(children) if name in nodes]
        self._paths = list(sub.columns.paths[source.name])
        self._columns = ColumnReader(sub, source.name, [entry for _, entry in self._direct], run)
        self._any_columns = any(entry.transport == "columns" for _, entry in self._direct)
        time = None if self._operators else self._times.expression
        self._paths += [path for path in (time.paths if time is not None else ()) if path not in self._paths]
        self._time_by_fields = time is not None

    def read(self, columns: RecordColumns, tasks: int) -> Iterator[EntryRows]:
        """Read a piece of a topic-partition; rows made by operators accumulate in their entries."""
        run, source = self._run, self._source
        run.counters.add(f"in:{source.name}", len(columns))
        by_field = self._time_by_fields
        objects = bool(self._operators) or (self._times.needs_record and not by_field)
        rows = _python_rows(columns, objects)
        fields = JsonFields([], np.zeros(0, np.bool_), np.zeros(0, np.bool_), {})
        if self._any_columns or by_field:
            fields = read_fields(columns.values, self._paths, partial(source.value_serde.deserialize, columns.topic))
        by_path = dict(zip(self._paths, fields.fields, strict=False))
        if objects:
            timestamps = self._read_objects(rows, columns.timestamps)
        elif by_field:
            timestamps = self._times.of_fields(rows, by_path, fields.rejected)
        else:
            timestamps = self._times.column(rows, columns.timestamps)
        rejected = {row: error for row, error in fields.rejected.items() if timestamps[row] != DROPPED}
        if rejected:
            timestamps = timestamps.copy()
            timestamps[list(rejected)] = DROPPED
        self._note_time(columns, timestamps)
        read = Columns(by_path, fields.null_values, fields.without_fields, timestamps != DROPPED)
        yield from self._direct_rows(columns, timestamps, self._columns.read(rows, read, rejected), tasks)

    def _note_time(self, columns: RecordColumns, timestamps: npt.NDArray[np.int64]) -> None:
        """Keeps the largest event time, for metrics."""
        largest = int(timestamps.max(initial=DROPPED))
        if largest != DROPPED:
            place = (columns.topic, columns.partition)
            self.event_times[place] = max(largest, self.event_times.get(place, largest))

    def _direct_rows(
        self,
        columns: RecordColumns,
        timestamps: npt.NDArray[np.int64],
        entries: Mapping[int, EntryColumns],
        tasks: int,
    ) -> Iterator[EntryRows]:
        for branch, entry in self._direct:
            if entry.rows_of != entry.index:
                continue
            seq = branch << BRANCH_BITS
            found = entries[entry.index]
            made = found.columns
            if entry.transport == "columns":
                cells = {
                    path: made.fields[path]
                    for _, reading in self._direct
                    if reading.rows_of == entry.index
                    for path in reading.fields
                    if path in made.fields
                }
                with_source = self._run.settings.keeps_source_bytes
                batch, routes = field_rows(columns, found.keys, timestamps, seq, cells, made.flags, tasks, with_source)
            else:
                batch = _raw_rows(columns, timestamps, seq)
                routes = tasks_of(columns.keys, columns.partition, tasks)
            if not made.rows.all():
                batch, routes = batch.filter(pa.array(made.rows)), routes[made.rows]
            yield entry.index, batch, routes

    def _read_objects(self, rows: SourceRows, recorded: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Deserialise record by record, extract the time, and run the operators; returns the timestamps of all rows."""
        source, run = self._source, self._run
        read_key, read_value = source.key_serde.deserialize, source.value_serde.deserialize
        needs_record = self._times.needs_record
        timestamps = np.full(len(rows.offsets), DROPPED, np.int64)
        # Where the extractor needs no record, all times are extracted at once.
        known = timestamps.tolist() if needs_record else self._times.column(rows, recorded).tolist()
        for row, (key_bytes, value_bytes) in enumerate(zip(rows.keys, rows.values, strict=True)):
            timestamp = known[row]
            if timestamp == DROPPED and not needs_record:
                continue
            run.cursor = (rows, row)
            headers = rows.headers_of(row) if rows.headers is not None else ()
            try:
                key = read_key(rows.topic, key_bytes, headers)
                value = read_value(rows.topic, value_bytes, headers)
            except Exception as error:
                run.handlers.handle("deserialization", source.name, rows.origin(row), error)
                continue
            if needs_record:
                timestamp = self._times.record(rows, row, key, value)
                if timestamp == DROPPED:
                    continue
            timestamps[row] = timestamp
            record = Record(key, value, timestamp, headers)
            for branch, node in self._operators:
                self._sequence.start(branch)
                node.receive(record)
        run.cursor = None
        return timestamps


def _first_below(sub: SubTopology, source: str, entry: TaskInput) -> str:
    """The child of a source through which an entry's rows come."""
    node, above = entry.node, entry.from_node
    while above != source:
        node, above = above, sub.nodes[above].parents[0]
    return node


def _python_rows(columns: RecordColumns, objects: bool) -> SourceRows:
    """The columns as lists; without `objects`, keys and values stay in Arrow until a single one is read."""
    keys: Any = columns.keys.to_pylist() if objects else _Lazy(columns.keys)
    values: Any = columns.values.to_pylist() if objects else _Lazy(columns.values)
    headers: Any = None if columns.headers is None else columns.headers.to_pylist()
    offsets: Any = columns.offsets.tolist() if objects else columns.offsets
    timestamps: Any = columns.timestamps.tolist() if objects else columns.timestamps
    return SourceRows(columns.topic, columns.partition, offsets, timestamps, keys, values, headers)


class _Lazy:
    """An Arrow column indexed like a list, for the few rows of an error."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __getitem__(self, row: int) -> bytes | None:
        value: bytes | None = self._column[row].as_py()
        return value


def _raw_rows(columns: RecordColumns, timestamps: npt.NDArray[np.int64], seq: int) -> pa.RecordBatch:
    """Rows with Kafka's bytes, unchanged."""
    arrays: dict[str, pa.Array] = {
        "offset": pa.array(columns.offsets),
        "seq": pa.array(np.full(len(columns), seq, np.int32)),
        "timestamp": pa.array(timestamps),
        "key": columns.keys,
        "value": columns.values,
    }
    if columns.headers is not None:
        arrays["headers"] = columns.headers
    return pa.RecordBatch.from_pydict(arrays)
