"""Reads the records of one source in a reader: event times, the head's operators, rows of raw and columns entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, RecordColumns, number_column, rows_where
from streams.engine.graph.cells import CellReader
from streams.engine.graph.event_time import in_other_units
from streams.engine.graph.keys import canonical_keys
from streams.engine.graph.step_context import SourceRows, StepContext
from streams.engine.reader.column_reader import ColumnReader, Columns, EntryColumns, field_rows, routes_of, whole_rows
from streams.engine.reader.task_inputs import BRANCH_BITS, Piece
from streams.engine.reader.timestamps import DROPPED, TimestampReader
from streams.engine.reader.written_values import of_source
from streams.model.expressions import KEY, OF_RECORD, TIMESTAMP
from streams.model.ownership import itself, snapshot
from streams.operators.aggregate.column_rows import FieldColumn
from streams.operators.columnar import ColumnarBatch
from streams.operators.expressions import of_keys, of_times
from streams.operators.json_fields import JsonFields, read_fields
from streams.serdes.registry import RegistrySerde
from streams.topology.graph import SourceNode
from streams.topology.plan import SubTopology
from streams.topology.planning.column_head import WHOLE
from streams.topology.planning.task_input import TaskInput

NoteTimes = Callable[[RecordColumns, "npt.NDArray[np.int64]"], None]
"""Is called with the records of a piece and their event times."""

EntryRows = tuple[int, pa.RecordBatch, "npt.NDArray[np.int32]"]


@dataclass(frozen=True, slots=True)
class PieceRead:
    """The result of reading a piece.

    Attributes:
        rows: The rows of raw and columns entries.
        records: The records for operators of the head, with their numbers in the piece as positions; None without operators.
        refuse_unreadable: Applies the deserialisation policy to records that could not be read.
    """

    rows: Iterator[EntryRows]
    records: ColumnarBatch | None
    refuse_unreadable: Callable[[], None]


class SourceReader:
    """Reads the records of one source.

    Args:
        has_operators: Whether operators of the head take the records as objects.
        run: Policies and counters.
        partition_times: (topic, partition) -> largest timestamp so far; updated.
        note_times: Called with the records of each piece and their event times, which are `DROPPED` for rejected records.
    """

    def __init__(
        self,
        sub: SubTopology,
        source: SourceNode,
        has_operators: bool,
        run: StepContext,
        partition_times: dict[tuple[str, int], int],
        note_times: NoteTimes | None = None,
    ) -> None:
        self.name = source.name
        self.event_times: dict[tuple[str, int], int] = {}
        self.topics = frozenset(str(topic) for topic in source.topics)
        self._source = source
        self._run = run
        self._note_times = note_times
        # Without stores nothing is found by key, and keys that only pass through need no registered schema.
        self._passes_keys_through = isinstance(source.key_serde, RegistrySerde) and not sub.stores
        self._times = TimestampReader(source, run, partition_times)
        self._direct = _numbered(sub, source.name)
        self.has_operators = has_operators
        own = run.settings.application_id + "-"
        # Records in a repartition topic were counted where they were first read.
        self._is_input = not any(
            str(one).startswith(own) and str(one).endswith("-repartition") for one in source.topics
        )
        read = sub.columns.paths[source.name]
        self._of_record = [path for path in read if path in OF_RECORD]
        self._paths = [path for path in read if path != WHOLE and path not in OF_RECORD]
        self._columns = ColumnReader(sub, source.name, [entry for _, entry in self._direct], run)
        self._any_columns = any(entry.transport != "raw" for _, entry in self._direct)
        time = None if has_operators else self._times.expression
        self._paths += [path for path in (time.paths if time is not None else ()) if path not in self._paths]
        self._time_by_fields = time is not None

    def piece(self, columns: RecordColumns) -> Piece:
        """Prepares a piece, with keys in canonical bytes.

        Raises:
            RegistryError: The schema registry of the keys does not answer.
        """
        serde = self._source.key_serde
        keys = columns.keys if self._passes_keys_through else canonical_keys(serde, columns)
        return Piece(columns, source_rows(columns, keys), keys, serde)

    def read(self, piece: Piece, tasks: int) -> PieceRead:
        run, source = self._run, self._source
        columns, rows = piece.columns, piece.rows
        run.counters.add(f"in:{source.name}", len(columns))
        by_field = self._time_by_fields
        fields = JsonFields([], np.zeros(0, np.bool_), np.zeros(0, np.bool_), {})
        if self._any_columns or by_field:
            fields = read_fields(columns.values, self._paths, partial(source.value_serde.deserialize, columns.topic))
        by_path = dict(zip(self._paths, fields.fields, strict=False))
        records, unreadable = None, dict[int, Exception]()
        if self.has_operators or (self._times.needs_record and not by_field):
            timestamps, records = self._read_records(piece, unreadable)
        elif by_field:
            timestamps = self._times.of_fields(rows, by_path, fields.rejected)
        else:
            timestamps = self._times.column(rows, columns.timestamps)
        of_record, no_keys = self._parts_of_records(piece, timestamps)
        unread = {**no_keys, **fields.rejected}
        rejected = {row: error for row, error in unread.items() if timestamps[row] != DROPPED}
        if rejected:
            timestamps = timestamps.copy()
            timestamps[list(rejected)] = DROPPED
        self._note_time(columns, timestamps)
        if self._note_times is not None:
            self._note_times(columns, timestamps)
        whole = of_source(columns.values, fields.null_values)
        read = Columns(
            {**by_path, **of_record}, fields.null_values, fields.without_fields, timestamps != DROPPED, whole=whole
        )
        found = self._columns.read(rows, read, rejected)
        refuse = partial(self._refuse, rows, unreadable)
        return PieceRead(self._direct_rows(piece, timestamps, found, tasks), records, refuse)

    def _parts_of_records(
        self, piece: Piece, timestamps: npt.NDArray[np.int64]
    ) -> tuple[dict[str, FieldColumn], dict[int, Exception]]:
        """The keys and event times that expressions read, and the rows whose keys cannot be read."""
        found, failed = dict[str, FieldColumn](), dict[int, Exception]()
        if TIMESTAMP in self._of_record:
            found[TIMESTAMP] = of_times(timestamps)
        if KEY in self._of_record:
            found[KEY] = of_keys(CellReader(piece.columns.topic, None).keys(self._source.key_serde, piece.keys, failed))
        return found, failed

    def _refuse(self, rows: SourceRows, unreadable: Mapping[int, Exception]) -> None:
        for row, error in sorted(unreadable.items()):
            self._run.handlers.handle("deserialization", self.name, rows.origin(row), error)

    def _note_time(self, columns: RecordColumns, timestamps: npt.NDArray[np.int64]) -> None:
        """Keeps the largest event time, for metrics, and counts the times that look like another unit."""
        for counter, count in in_other_units(timestamps).items() if self._is_input else ():
            self._run.counters.add(f"{counter}:{self.name}", count)
        largest = int(timestamps.max(initial=DROPPED))
        if largest != DROPPED:
            place = (columns.topic, columns.partition)
            self.event_times[place] = max(largest, self.event_times.get(place, largest))

    def _direct_rows(
        self,
        piece: Piece,
        timestamps: npt.NDArray[np.int64],
        entries: Mapping[int, EntryColumns],
        tasks: int,
    ) -> Iterator[EntryRows]:
        with_source = self._run.settings.keeps_source_bytes
        for seq, entry in self._direct:
            if entry.rows_of != entry.index:
                continue
            found = entries[entry.index]
            made = found.columns
            if entry.transport == "written":
                assert made.whole is not None, "see ColumnStep.whole"
                at = rows_where(made.rows)
                batch = whole_rows(piece, found.keys, timestamps, seq, made.whole, at, with_source)
                yield entry.index, batch, self._routes(entry, batch.column("key"), piece, tasks)
                continue
            if entry.transport == "columns":
                cells = {
                    path: made.fields[path]
                    for _, reading in self._direct
                    if reading.rows_of == entry.index
                    for path in reading.fields
                    if path in made.fields
                }
                batch = field_rows(piece, found.keys, timestamps, seq, cells, made.flags, with_source)
            else:
                batch = _raw_rows(piece, timestamps, seq)
            routes = self._routes(entry, batch.column("key"), piece, tasks)
            if not made.rows.all():
                batch, routes = batch.filter(pa.array(made.rows)), routes[made.rows]
            yield entry.index, batch, routes

    def _routes(
        self, entry: TaskInput, keys: BinaryColumn | pa.DictionaryArray, piece: Piece, tasks: int
    ) -> npt.NDArray[np.int32]:
        partition = piece.columns.partition
        if entry.by_partition:
            return np.full(len(keys), partition % tasks, np.int32)
        return routes_of(keys, partition, tasks, self._run.settings.placement)

    def _read_records(
        self, piece: Piece, unreadable: dict[int, Exception]
    ) -> tuple[npt.NDArray[np.int64], ColumnarBatch | None]:
        """Returns the timestamps of all rows, and the records for operators. Errors of unreadable rows go to `unreadable`."""
        columns, rows = replace(piece.columns, keys=piece.keys), piece.rows
        source, needs_record = self._source, self._times.needs_record
        # If the extractor needs no record, all times are extracted at once.
        timestamps = None if needs_record else self._times.column(rows, columns.timestamps)
        at = np.arange(len(columns)) if timestamps is None else np.flatnonzero(timestamps != DROPPED)
        part = columns if len(at) == len(columns) else columns.take(at)
        headers = None if part.headers is None else part.headers.to_pylist()
        reader, failed = CellReader(columns.topic, headers), dict[int, Exception]()
        keys = reader.keys(source.key_serde, part.keys, failed)
        values = reader.values(source.value_serde, part.values, failed, encoded=False)
        unreadable |= {int(at[row]): error for row, error in failed.items()}
        kept = np.ones(len(at), np.bool_)
        kept[list(failed)] = False
        if unreadable and self._run.settings.deserialization == "fail":
            kept &= at < min(unreadable)
        if timestamps is None:
            timestamps = np.full(len(columns), DROPPED, np.int64)
            # Operators get the values after the extractor, so an extractor that may change them gets a copy.
            lent = snapshot if self.has_operators and not self._times.reads else itself
            for row in np.flatnonzero(kept).tolist():
                timestamps[at[row]] = self._times.record(rows, int(at[row]), lent(keys[row]), lent(values[row]))
            kept &= timestamps[at] != DROPPED
        else:
            timestamps = timestamps.copy()
            timestamps[list(unreadable)] = DROPPED
        if not self.has_operators:
            return timestamps, None
        batch = ColumnarBatch(keys, values, timestamps[at], at, headers)
        return timestamps, batch if kept.all() else batch.take(np.flatnonzero(kept))


def _numbered(sub: SubTopology, source: str) -> list[tuple[int, TaskInput]]:
    """The entries whose rows come from a source, with the `seq` of these rows: one record reaches the entries depth first."""
    ways = {entry.index: _way(sub, source, entry) for entry in sub.entries if entry.source == source}
    numbers: dict[int, int] = {}
    found: dict[int, int] = {}
    for index, (branch, *_) in sorted(ways.items(), key=itemgetter(1)):
        found[index] = branch << BRANCH_BITS | numbers.setdefault(branch, 0)
        numbers[branch] += 1
    return [(found[entry.index], entry) for entry in sub.entries if entry.index in found]


def _way(sub: SubTopology, source: str, entry: TaskInput) -> tuple[int, ...]:
    """The number of the child that is taken at each node from the source down to an entry."""
    node, above, way = entry.node, entry.from_node, list[int]()
    while True:
        way.insert(0, sub.children(above).index(node))
        if above == source:
            return tuple(way)
        node, above = above, sub.nodes[above].parents[0]


def source_rows(columns: RecordColumns, canonical: BinaryColumn) -> SourceRows:
    """The rows of a piece. Keys, values and headers stay in Arrow until one of them is read."""
    routes: Any = None if canonical is columns.keys else _Lazy(canonical)
    headers: Any = None if columns.headers is None else _Lazy(columns.headers)
    keys: Any = _Lazy(columns.keys)
    values: Any = _Lazy(columns.values)
    offsets: Any = columns.offsets
    timestamps: Any = columns.timestamps
    return SourceRows(columns.topic, columns.partition, offsets, timestamps, keys, values, headers, routes=routes)


class _Lazy:
    """An Arrow column that is indexed like a list, for the few rows of an error."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __getitem__(self, row: int) -> bytes | None:
        value: bytes | None = self._column[row].as_py()
        return value


def _raw_rows(piece: Piece, timestamps: npt.NDArray[np.int64], seq: int) -> pa.RecordBatch:
    """Rows with Kafka's bytes, which are unchanged except for the notation of keys."""
    columns = piece.columns
    arrays: dict[str, pa.Array] = {
        "offset": number_column(columns.offsets),
        "seq": number_column(np.full(len(columns), seq, np.int32)),
        "timestamp": number_column(timestamps),
        "key": piece.keys,
        "value": columns.values,
    }
    if piece.keys is not columns.keys:
        arrays["source_key"] = columns.keys
    if columns.headers is not None:
        arrays["headers"] = columns.headers
    return pa.RecordBatch.from_pydict(arrays)
