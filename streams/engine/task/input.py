"""A task's input: rows in the order of the step, and the batches and columns that are made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, rows_where, valid_rows
from state.numba_kernels import allocating_kernel, kernel
from streams.engine.graph.cells import CellReader
from streams.engine.graph.event_time import latest, too_far
from streams.engine.graph.node import EMPTY, at_record
from streams.engine.graph.rows import NOW, NULL, SCALAR, RowBatch
from streams.engine.graph.step_context import SourceRows, StepContext
from streams.engine.graph.values import load_value
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, FieldValues
from streams.operators.columnar import ColumnarBatch, Int64s, in_step_order
from streams.topology.graph import Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.plan import SubTopology
from streams.topology.planning.task_input import TaskInput

# --- The order in which a task processes the rows of a step.
#
# Rule (Kafka Streams' `PartitionGroup`): each topic-partition in offset order; next comes the partition whose first
# remaining row has the smallest timestamp. Example: times 5, 3 in partition 0 and 4 in partition 1 give the order 4, 5, 3. Ties,
# unspecified there, are broken by topic, then partition, so that the same input always gives the same order. The kernel is a
# k-way merge over a binary heap.

Int32s = npt.NDArray[np.int32]


def merge_order(parts: Int32s, offsets: Int64s, seqs: Int32s, timestamps: Int64s) -> Int64s:
    """Returns the indices of the rows in processing order."""
    by_part = np.arange(len(parts), dtype=np.int64)
    if not _is_sorted(parts, offsets, seqs):
        by_part = np.lexsort((seqs, offsets, parts)).astype(np.int64, copy=False)
    sorted_parts = parts[by_part]
    bounds = rows_where(np.diff(sorted_parts)) + 1
    if not len(bounds):
        return by_part
    starts = np.concatenate(([0], bounds)).astype(np.int64)
    ends = np.concatenate((bounds, [len(parts)])).astype(np.int64)
    merged: Int64s = _merge(timestamps[by_part], starts, ends)
    return by_part[merged]


@kernel
def _is_sorted(parts: Int32s, offsets: Int64s, seqs: Int32s) -> bool:  # pragma: no cover - compiled
    for i in range(1, len(parts)):
        if parts[i] != parts[i - 1]:
            if parts[i] < parts[i - 1]:
                return False
        elif offsets[i] < offsets[i - 1] or (offsets[i] == offsets[i - 1] and seqs[i] < seqs[i - 1]):
            return False
    return True


@kernel
def _sift_down(
    heap: Int64s, count: int, at: int, timestamps: Int64s, heads: Int64s
) -> None:  # pragma: no cover - compiled
    while True:
        best = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < count:
                a, b = timestamps[heads[heap[child]]], timestamps[heads[heap[best]]]
                if a < b or (a == b and heap[child] < heap[best]):
                    best = child
        if best == at:
            return
        heap[at], heap[best] = heap[best], heap[at]
        at = best


@allocating_kernel
def _merge(timestamps: Int64s, starts: Int64s, ends: Int64s) -> Int64s:  # pragma: no cover - compiled
    """Merges the runs [starts[p], ends[p]) by (timestamp of the first remaining row, p)."""
    count = len(starts)
    heads = starts.copy()
    heap = np.empty(count, np.int64)
    for i in range(count):
        heap[i] = i
    for i in range(count // 2 - 1, -1, -1):
        _sift_down(heap, count, i, timestamps, heads)
    order = np.empty(len(timestamps), np.int64)
    for n in range(len(timestamps)):
        part = heap[0]
        order[n] = heads[part]
        heads[part] += 1
        if heads[part] == ends[part]:
            count -= 1
            heap[0] = heap[count]
        _sift_down(heap, count, 0, timestamps, heads)
    return order


# --- From row batches to rows in order: sets the step's clock, refuses times too far ahead, merges partitions.


class TaskRows:
    """The rows of one batch as Python lists."""

    def __init__(self, batch: RowBatch) -> None:
        columns = {name: batch.rows.column(name) for name in batch.rows.schema.names}

        def cells(name: str) -> list[bytes | None] | None:
            return columns[name].to_pylist() if name in columns else None

        self.rows = SourceRows(
            batch.topic,
            batch.partition,
            columns["offset"].to_numpy().tolist(),
            columns["timestamp"].to_numpy().tolist(),
            cells("key") or [],
            cells("value") or [],
            cells("headers"),
            cells("source_key"),
            cells("source_value"),
        )


def admit(batch: RowBatch, sub: SubTopology, run: StepContext) -> RowBatch:
    """Sets the step's clock where the reader could not, and refuses records too far in the future.

    The head has already refused such records of the source; results of head operators meet the same policy here.
    """
    rows = batch.rows
    timestamps = rows.column("timestamp").to_numpy()
    if len(timestamps) and timestamps.min() == NOW:
        timestamps = np.where(timestamps == NOW, run.now_ms, timestamps)
        at = rows.schema.get_field_index("timestamp")
        rows = rows.set_column(at, "timestamp", pa.array(timestamps))
    last, order = latest(run.settings, run.now_ms), batch.order
    if len(timestamps) and timestamps.max() > last:
        ahead = timestamps > last
        _turn_away(RowBatch(batch.topic, batch.partition, batch.entry, rows.filter(pa.array(ahead))), sub, run)
        rows, order = rows.filter(pa.array(~ahead)), None if order is None else order[~ahead]
    return RowBatch(batch.topic, batch.partition, batch.entry, rows, order)


def _turn_away(batch: RowBatch, sub: SubTopology, run: StepContext) -> None:
    entry, rows = sub.entries[batch.entry], source_rows(batch, sub)
    for row, timestamp in enumerate(rows.timestamps):
        error = too_far(timestamp, run.settings, run.now_ms)
        run.handlers.handle("future", entry.node, rows.origin(row), error)


def source_rows(batch: RowBatch, sub: SubTopology) -> SourceRows:
    """The rows as originally read, if the original keys and values were sent along."""
    transport = sub.entries[batch.entry].transport
    if transport == "columns":
        return _columns_as_raw(batch)
    rows = TaskRows(batch).rows
    rows.raw = transport == "raw"
    return rows


def _columns_as_raw(batch: RowBatch) -> SourceRows:
    rows = batch.rows
    nothing = pa.nulls(rows.num_rows, pa.binary())
    names = rows.schema.names
    columns = {name: rows.column(name) for name in ("offset", "timestamp", "headers") if name in names}
    columns["key"] = rows.column("source_key" if "source_key" in names else "key").cast(pa.binary())
    columns["value"] = rows.column("source_value") if "source_value" in names else nothing
    return TaskRows(RowBatch(batch.topic, batch.partition, batch.entry, pa.RecordBatch.from_pydict(columns))).rows


def merged(batches: Sequence[RowBatch]) -> tuple[list[int], npt.NDArray[np.int64]]:
    """The order in which to join the batches, and the order of their joined rows in the step."""
    if not batches:
        return [], np.empty(0, np.int64)
    if len(batches) == 1:
        return [0], np.arange(batches[0].rows.num_rows)
    places = sorted({_place(batch) for batch in batches})
    ranks = {place: rank for rank, place in enumerate(places)}
    # Batches come in any order. They are sorted by partition and first offset, so that sorted rows need not be sorted again.
    sequence = sorted(range(len(batches)), key=lambda i: (ranks[_place(batches[i])], _first_offset(batches[i])))
    ordered = [batches[i] for i in sequence]
    counts = [batch.rows.num_rows for batch in ordered]
    parts = np.repeat(np.array([ranks[_place(batch)] for batch in ordered], np.int32), counts)
    times = [batch.rows.column("timestamp").to_numpy() if batch.order is None else batch.order for batch in ordered]
    order = merge_order(parts, _joined(ordered, "offset"), _joined(ordered, "seq"), np.concatenate(times))
    return sequence, order


def _place(batch: RowBatch) -> tuple[str, int]:
    return batch.topic, batch.partition


def _first_offset(batch: RowBatch) -> int:
    return int(batch.rows.column("offset")[0].as_py()) if batch.rows.num_rows else 0


def _joined(batches: Sequence[RowBatch], name: str) -> npt.NDArray[Any]:
    return np.concatenate([batch.rows.column(name).to_numpy() for batch in batches])


# --- The task's side of raw and object entries whose records are processed together: rows joined into one `ColumnarBatch` a node.


class StepRecords:
    """All rows of a step.

    Args:
        batches: The rows, in any order.
        run: The step. A row's position is its number in the order of the step, shifted by `StepContext.shift`.
    """

    def __init__(self, batches: Sequence[RowBatch], sub: SubTopology, run: StepContext) -> None:
        sequence, order = merged(batches)
        self._batches = [batches[index] for index in sequence]
        self._shift = run.shift
        self._sub = sub
        self._run = run
        self._ends = np.array([*accumulate(batch.rows.num_rows for batch in self._batches)], np.int64)
        self._order = order
        self._task_rows: dict[int, SourceRows] = {}
        self._unreadable: dict[int, tuple[TaskInput, ColumnarBatch, int, Exception]] = {}
        self._on_columns: dict[int, ColumnarBatch] = {}
        """Batches that several nodes may read, by `TaskInput.rows_of`."""

    def of_node(self, node: str) -> ColumnarBatch:
        """Decodes the records that enter at a node again, without the unreadable ones (`refuse_unreadable`)."""
        parts = [self._of(entry) for entry in self._sub.entries if entry.node == node]
        return self._placed(in_step_order([part for part in parts if len(part)] or parts[:1]))

    def of_nodes(self, nodes: Iterable[str]) -> list[ColumnarBatch]:
        """`of_node` for several nodes, up to the first record in any of them that cannot be read and therefore stops the task."""
        batches = [self.of_node(node) for node in nodes]
        if not self._unreadable or self._run.settings.deserialization != "fail":
            return batches
        end = min(self._unreadable)
        return [batch.take(rows_where(batch.order < end)) for batch in batches]

    def __len__(self) -> int:
        return len(self._order)

    @property
    def latest(self) -> int:
        """The largest timestamp. There must be rows."""
        return max(
            int(batch.rows.column("timestamp").to_numpy().max()) for batch in self._batches if batch.rows.num_rows
        )

    def times(self, start: int) -> Int64s:
        """Stream time at each row, in order; `start` is the stream time before the step."""
        timestamps = [batch.rows.column("timestamp").to_numpy() for batch in self._batches]
        return np.maximum.accumulate(
            np.maximum(np.concatenate([np.empty(0, np.int64), *timestamps])[self._order], start)
        )

    def ends_of_records(self) -> Int64s:
        """The numbers of the last rows of each source record, because one record may have become several rows."""
        counts = [batch.rows.num_rows for batch in self._batches]
        places = [(batch.topic, batch.partition) for batch in self._batches]
        numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
        parts = np.repeat([numbers[place] for place in places], counts)[self._order]
        offsets = np.concatenate([batch.rows.column("offset").to_numpy() for batch in self._batches])[self._order]
        changes = (parts[1:] != parts[:-1]) | (offsets[1:] != offsets[:-1])
        return np.append(rows_where(changes), len(self._order) - 1)

    def refuse_unreadable(self) -> None:
        """Applies the deserialisation policy to the records that could not be read, in the order of the step."""
        for position in sorted(self._unreadable):
            entry, batch, row, error = self._unreadable[position]
            with at_record(self._placed(batch), row, self._run):
                self._run.handlers.handle("deserialization", entry.source or entry.node, self._run.origin(), error)

    def place(self, position: int) -> SourcePlace:
        """The source record at a position of the step."""
        return SourcePlace(self, position)

    def find(self, position: int) -> tuple[SourceRows, int]:
        """The rows that contain the source record of a position, and its index in them."""
        row = int(self._order[position >> self._shift])
        index = int(np.searchsorted(self._ends, row, "right"))
        found = self._task_rows.get(index)
        if found is None:
            found = self._task_rows[index] = source_rows(self._batches[index], self._sub)
        return found, row - int(self._ends[index] - self._batches[index].rows.num_rows)

    def _placed(self, batch: ColumnarBatch) -> ColumnarBatch:
        """A batch that knows its source records. Those kept here do not: a reference cycle would keep rows in memory."""
        return batch.at(batch.order, batch.nodes, self.place)

    def _of(self, entry: TaskInput) -> ColumnarBatch:
        if entry.transport != "columns":
            return self._of_entry(entry)
        if entry.rows_of not in self._on_columns:
            self._on_columns[entry.rows_of] = self._of_entry(entry)
        return self._on_columns[entry.rows_of]

    def _of_entry(self, entry: TaskInput) -> ColumnarBatch:
        mine = [index for index, batch in enumerate(self._batches) if batch.entry == entry.rows_of]
        if not mine:
            return EMPTY
        rows = [self._batches[index].rows for index in mine]
        order, at = self._positions(mine)
        timestamps = _taken(_in_one([one.column("timestamp").to_numpy() for one in rows]), at)
        cells = _column(rows, "headers", at).to_pylist() if any("headers" in one.schema.names for one in rows) else None
        failed: dict[int, Exception] = {}
        reader = CellReader(self._topics(entry, mine, at), cells)
        keys = reader.keys(entry.key_serde, _keys(rows, at), failed)
        values = self._values(entry, reader, rows, at, failed)
        batch = ColumnarBatch(keys, values, timestamps, order, cells)
        return self._readable(batch, entry, failed) if failed else batch

    def _topics(self, entry: TaskInput, mine: Sequence[int], at: Int64s | None) -> str | list[str]:
        """The topic of all rows, or a list with the topic of each row."""
        if len(mine) == 1:
            return self._batches[mine[0]].topic
        topics = [self._batches[index].topic for index in mine]
        if len(set(topics)) <= 1 or entry.transport == "columns":
            return topics[0]
        counts = [self._batches[index].rows.num_rows for index in mine]
        each: list[str] = _taken(np.repeat(np.array(topics, object), counts), at).tolist()
        return each

    def _values(
        self,
        entry: TaskInput,
        reader: CellReader,
        rows: Sequence[pa.RecordBatch],
        at: Int64s | None,
        failed: dict[int, Exception],
    ) -> Sequence[Any]:
        if entry.transport == "columns":
            sharing = (one for one in self._sub.entries if one.rows_of == entry.rows_of)
            return field_values(rows, dict.fromkeys(path for one in sharing for path in one.fields), at)
        cells = _column(rows, "value", at)
        if entry.transport == "written":
            return reader.written(cells, _takes_encoded(self._sub.nodes[entry.node]))
        if entry.source is None:
            return [None if cell is None else load_value(cell) for cell in cells.to_pylist()]
        source = self._sub.nodes[entry.source]
        assert isinstance(source, SourceNode), "see TaskInput"
        return reader.values(source.value_serde, cells, failed, _takes_encoded(self._sub.nodes[entry.node]))

    def _positions(self, indices: Sequence[int]) -> tuple[Int64s, Int64s | None]:
        """The positions in the step that the rows of some batches have, in ascending order.

        Returns:
            int64[n], the positions; int64[n], the row at each position; None: the rows are in this order.
        """
        step = np.arange(len(self._order)) << self._shift
        if len(indices) == len(self._batches):
            return step, None if len(indices) == 1 else self._order
        position = np.empty(len(self._order), np.int64)
        position[self._order] = step
        starts = self._ends - [batch.rows.num_rows for batch in self._batches]
        found = np.concatenate([position[int(starts[one]) : int(self._ends[one])] for one in indices])
        at = np.argsort(found, kind="stable")
        return found[at], at

    def _readable(self, batch: ColumnarBatch, entry: TaskInput, failed: dict[int, Exception]) -> ColumnarBatch:
        for row, error in failed.items():
            self._unreadable[int(batch.order[row])] = (entry, batch, row, error)
        return batch.take(np.setdiff1d(np.arange(len(batch)), np.array(sorted(failed), np.int64)))


class SourcePlace:
    """Stands for `StepContext.cursor`: source rows and an index in them, which are found only when an error or an operator asks."""

    __slots__ = ("_found", "_position", "_rows")

    def __init__(self, rows: StepRecords, position: int) -> None:
        self._rows = rows
        self._position = position
        self._found: tuple[SourceRows, int] | None = None

    def __getitem__(self, index: int) -> Any:
        if self._found is None:
            self._found = self._rows.find(self._position)
        return self._found[index]

    def __iter__(self) -> Iterator[Any]:
        return iter((self[0], self[1]))


def _takes_encoded(node: Node) -> bool:
    """Whether a node can work without the objects of values."""
    return isinstance(node, SinkNode) or (isinstance(node, ProcessorNode) and node.spec.takes_encoded)


def _taken(cells: npt.NDArray[Any], at: Int64s | None) -> npt.NDArray[Any]:
    return cells if at is None else cells[at]


def _in_one(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _column(rows: Sequence[pa.RecordBatch], name: str, at: Int64s | None) -> BinaryColumn:
    """Joins one column of all batches, in order. It is null if a batch lacks the column."""
    parts = [
        _plain(one.column(name)) if name in one.schema.names else pa.nulls(one.num_rows, pa.binary()) for one in rows
    ]
    whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return whole if at is None else whole.take(pa.array(at))


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary()) if pa.types.is_dictionary(column.type) else column


def _keys(rows: Sequence[pa.RecordBatch], at: Int64s | None) -> BinaryColumn | pa.DictionaryArray:
    """Joins the keys of all batches, in order."""
    columns = [one.column("key") for one in rows]
    if at is None and len(columns) == 1:
        return columns[0]
    chunks = [one if pa.types.is_dictionary(one.type) else one.dictionary_encode() for one in columns]
    whole = pa.concat_arrays(pa.chunked_array(chunks).unify_dictionaries().chunks)
    return whole if at is None else whole.take(pa.array(at))


# --- The values of a columns entry.


def field_values(rows: Sequence[pa.RecordBatch], paths: Iterable[str], at: Int64s | None) -> FieldValues:
    """Joins the fields of all rows, in order. `at` says which row is at each place; None if they are in order."""
    nulls, scalars = (_taken(_in_one([_flags(batch, name) for batch in rows]), at) for name in (NULL, SCALAR))
    return FieldValues({path: _field(rows, path, at) for path in paths}, nulls, scalars)


def _field(rows: Sequence[pa.RecordBatch], path: str, at: Int64s | None) -> FieldColumn:
    kinds, ints, floats, texts = [], [], [], f"j:{path}"
    for batch in rows:
        kind = np.full(batch.num_rows, ABSENT, np.uint8)
        ints.append(_numbers(batch, f"i:{path}", np.int64, kind, INT))
        floats.append(_numbers(batch, f"d:{path}", np.float64, kind, FLOAT))
        if texts in batch.schema.names:
            kind[valid_rows(batch.column(texts))] = TEXT
        kinds.append(kind)
    return FieldColumn(
        _taken(_in_one(kinds), at),
        _taken(_in_one(ints), at),
        _taken(_in_one(floats), at),
        _column(rows, texts, at) if any(texts in batch.schema.names for batch in rows) else None,
    )


def _numbers(
    batch: pa.RecordBatch, name: str, dtype: type, kinds: npt.NDArray[np.uint8], kind: int
) -> npt.NDArray[Any]:
    """The numbers of one column, 0 where there is none. Marks the cells with numbers in `kinds`."""
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, dtype)
    column = batch.column(name)
    if column.null_count == 0:
        kinds[:] = kind
    else:
        kinds[valid_rows(column)] = kind
        column = column.fill_null(0)
    # A copy can be written to. For read-only arrays, numba would compile a kernel once more.
    numbers: npt.NDArray[Any] = column.to_numpy().copy()
    return numbers


def _flags(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.bool_]:
    """A column of booleans. A batch has the column only if one of them is true."""
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, np.bool_)
    flags: npt.NDArray[np.bool_] = batch.column(name).to_numpy(zero_copy_only=False)
    return flags
