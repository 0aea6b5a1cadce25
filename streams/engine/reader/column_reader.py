"""Reads columns: makes rows of fields from the bytes of a range, and runs the filters and mappers that are expressions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, codes_in, dictionary_of, number_column, rows_where
from state.kafka.placement import Placement
from streams.engine.graph.handlers import Stage
from streams.engine.graph.rows import NULL, SCALAR
from streams.engine.graph.settings import Counters
from streams.engine.graph.step_context import SourceRows, StepContext
from streams.engine.reader.task_inputs import Piece, tasks_of, written_keys
from streams.engine.reader.written_values import WholeValues, of_field, of_fields
from streams.model.expressions import KEY, ValueFields
from streams.model.paths import name_in_path
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn
from streams.operators.expressions import Bools, Frame, computed, first_bytes, objects_of, true_rows
from streams.topology.plan import SubTopology
from streams.topology.planning.column_head import ColumnStep
from streams.topology.planning.task_input import TaskInput
from streams.topology.specs.base import Keeps, Keys, Unwraps

# --- The columns that a reader sends to each entry of the task, with their keys, after its operators on columns have run.


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """The columns that leave a source through one entry.

    Attributes:
        columns: The fields and the records.
        keys: The new keys; None if the records keep their own.
    """

    columns: Columns
    keys: pa.DictionaryArray | None


class ColumnReader:
    """Runs the operators on columns that follow a source, and writes new keys.

    Args:
        source: The source's name.
        entries: The entries whose rows come from the source directly or as columns.
        run: Policies and counters.
    """

    def __init__(self, sub: SubTopology, source: str, entries: Sequence[TaskInput], run: StepContext) -> None:
        self._source = source
        self._steps = [step for step in sub.columns.steps if step.source == source]
        self._entries = entries
        self._run = run

    def read(self, rows: SourceRows, columns: Columns, rejected: Mapping[int, Exception]) -> dict[int, EntryColumns]:
        """Returns the columns for each entry, by its index. All errors are handled, in the order of the records."""
        behind, failures = run_steps(self._steps, self._source, columns, self._run.counters)
        found = {entry.index: self._of_entry(entry, behind[entry.from_node], rows, failures) for entry in self._entries}
        failed: list[tuple[int, Stage, str, Exception]]
        failed = [(row, "deserialization", self._source, error) for row, error in rejected.items()]
        failed += [(row, "processing", node, error) for row, _, node, error in sorted(failures, key=itemgetter(0, 1))]
        for row, stage, node, error in sorted(failed, key=itemgetter(0)):
            self._run.handlers.handle(stage, node, rows.origin(row), error)
        return found

    def _of_entry(
        self, entry: TaskInput, columns: Columns, rows: SourceRows, failures: list[OperatorFailure]
    ) -> EntryColumns:
        if columns.keys is None:
            return EntryColumns(columns, None)
        failed: dict[int, Exception] = {}
        keys = written_keys(columns.keys, columns.rows, entry.key_serde, rows.topic, failed)
        position = len(self._steps) + entry.index
        failures += (OperatorFailure(row, position, entry.node, error) for row, error in failed.items())
        return EntryColumns(replace(columns, rows=without(columns.rows, failed)), keys)


# --- Head operators on columns: filters, mappers of values and new keys by expressions, for all records of a piece at once.
#
# Results, errors and counters are the same as those of the operators record by record (`streams.operators.stateless`).


class OperatorFailure(NamedTuple):
    """A record on which an operator failed: its row, the operator's position and name, and the error."""

    row: int
    position: int
    node: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Columns:
    """The fields of the records after a node.

    Attributes:
        fields: Columns by path.
        null_values: bool[n]: whether a value is null.
        without_fields: bool[n]: whether a value is a text, a number or the like.
        rows: bool[n]: the records that have come so far.
        keys: The new keys; None if the records have the source's own.
        whole: The whole values; None if no later node takes them.
    """

    fields: Mapping[str, FieldColumn]
    null_values: Bools
    without_fields: Bools
    rows: Bools
    keys: FieldColumn | None = None
    whole: WholeValues | None = None

    @property
    def flags(self) -> dict[str, Bools]:
        """The flags of whole values, by the names of their columns."""
        return {NULL: self.null_values, SCALAR: self.without_fields}

    def frame(self) -> Frame:
        return Frame(len(self.rows), self.fields, self.without_fields if self.without_fields.any() else None)


def run_steps(
    steps: Sequence[ColumnStep], source: str, columns: Columns, counters: Counters
) -> tuple[dict[str, Columns], list[OperatorFailure]]:
    """Runs the operators that follow a source. Returns the columns after each node, and the failures."""
    behind = {source: columns}
    failures: list[OperatorFailure] = []
    for position, step in enumerate(steps):
        above = behind[step.parent]
        failed: dict[int, Exception] = {}
        does = step.does
        if isinstance(does, Keeps):
            made = _kept(does, above, failed)
        elif isinstance(does, Keys):
            made = _keyed(does, above, failed)
        elif isinstance(does, Unwraps):
            made = _unwrapped(does, step, above, failed)
        else:
            made = _mapped(does, step, above, failed)
        behind[step.node] = made
        counters.add(f"in:{step.node}", int(above.rows.sum()))
        counters.add(f"out:{step.node}", int(made.rows.sum()))
        failures += (OperatorFailure(row, position, step.node, error) for row, error in failed.items())
    return behind, failures


def _kept(does: Keeps, above: Columns, failed: dict[int, Exception]) -> Columns:
    true = true_rows(does.where, above.frame(), above.rows, failed)
    rows = above.rows & (~true if does.negate else true)
    return replace(above, rows=without(rows, failed))


def _keyed(does: Keys, above: Columns, failed: dict[int, Exception]) -> Columns:
    if isinstance(does.key, ValueFields):
        made = _computed(does.key, above, failed)
        keys = objects_of(made, above.null_values)
    else:
        keys = computed(does.key, above.frame(), above.rows, failed)
    return replace(above, fields={**above.fields, KEY: keys}, rows=without(above.rows, failed), keys=keys)


def _unwrapped(does: Unwraps, step: ColumnStep, above: Columns, failed: dict[int, Exception]) -> Columns:
    """Makes a field the value, and keeps the fields within it."""
    values = computed(does.field, above.frame(), above.rows, failed)
    rows = without(above.rows, failed)
    null = values.kinds == ABSENT
    without_fields = rows & ~null
    if values.texts is not None:
        firsts = first_bytes(values.texts)
        without_fields &= ~((values.kinds == TEXT) & ((firsts == ord("{")) | (firsts == ord("["))))
    moved = {behind: above.fields[before] for behind, before in step.moved if before in above.fields}
    return Columns(moved, null, without_fields, rows, above.keys, of_field(values) if step.whole else None)


def _mapped(does: ValueFields, step: ColumnStep, above: Columns, failed: dict[int, Exception]) -> Columns:
    made = _computed(does, above, failed)
    moved = {behind: above.fields[before] for behind, before in step.moved if before in above.fields}
    computed_fields = {name_in_path(name): column for name, column in made.items()}
    kept = without(above.rows, failed)
    null = above.null_values
    whole = of_fields(made, null, above.whole if does.everything else None) if step.whole else None
    return Columns({**moved, **computed_fields}, null, np.zeros(len(kept), np.bool_), kept, above.keys, whole)


def _computed(does: ValueFields, above: Columns, failed: dict[int, Exception]) -> dict[str, FieldColumn]:
    """Computes the fields of each value that is not null; a null value stays null."""
    rows = above.rows & ~above.null_values
    if above.without_fields.any():
        rows = _fail_without_fields(does, above.without_fields, rows, failed)
    at = rows_where(rows)
    few = len(at) * 2 < len(rows)  # behind a filter
    frame = above.frame().take(at) if few else above.frame()
    made: dict[str, FieldColumn] = {}
    for name, expression in does.computed:
        errors: dict[int, Exception] = {}
        if few:
            column = computed(expression, frame, rows[at], errors).spread(at, len(rows))
            errors = {int(at[row]): error for row, error in errors.items()}
        else:
            column = _null_where(above.null_values, computed(expression, frame, rows, errors))
        made[name] = column
        rows = without(rows, errors)
        failed.update(errors)
    return made


def _fail_without_fields(does: ValueFields, without: Bools, rows: Bools, failed: dict[int, Exception]) -> Bools:
    """Fails values that have no fields with the error that the mapper raises for a single one."""
    try:
        does.of_record(None, "", 0)
    except Exception as error:
        failed.update(dict.fromkeys(np.flatnonzero(rows & without).tolist(), error))
        return rows & ~without
    return rows


def _null_where(null: Bools, column: FieldColumn) -> FieldColumn:
    if not null.any():
        return column
    texts = column.texts
    if texts is not None:
        texts = pc.if_else(pa.array(null), pa.scalar(None, pa.binary()), texts)
    return FieldColumn(np.where(null, np.uint8(ABSENT), column.kinds), column.ints, column.floats, texts)


def without(rows: Bools, failed: Mapping[int, Exception]) -> Bools:
    """The records that have not failed."""
    if not failed:
        return rows
    rows = rows.copy()
    rows[list(failed)] = False
    return rows


# --- The reader's side of a columns entry: the key and the declared fields of each record, split by task.
#
# Keys are sent dictionary-encoded, because an aggregate sees few distinct keys, and groups by their codes. A field's cells are
# sent as up to three columns (integers, numbers with a fraction, JSON text), each only if it has cells, so that
# integers stay exact up to 64 bits at no other cost.


def field_rows(
    piece: Piece,
    new_keys: pa.DictionaryArray | None,
    timestamps: npt.NDArray[np.int64],
    seq: int,
    fields: Mapping[str, FieldColumn],
    flags: Mapping[str, npt.NDArray[np.bool_]],
    with_source: bool,
) -> pa.RecordBatch:
    """Makes rows of decoded fields."""
    columns = piece.columns
    keys = dictionary_of(piece.keys) if new_keys is None else new_keys
    arrays: dict[str, pa.Array] = {
        "offset": number_column(columns.offsets),
        "seq": number_column(np.full(len(columns), seq, np.int32)),
        "timestamp": number_column(timestamps),
        "key": keys,
    }
    arrays.update({name: pa.array(flag) for name, flag in flags.items() if flag.any()})
    for path, field in fields.items():
        arrays.update(_cells(path, field))
    if with_source:
        arrays["source_value"] = columns.values
    if new_keys is not None:
        arrays["source_key"] = columns.keys if with_source else pa.nulls(len(columns))
    elif piece.keys is not columns.keys:
        arrays["source_key"] = columns.keys
    if columns.headers is not None:
        arrays["headers"] = columns.headers
    return pa.RecordBatch.from_pydict(arrays)


def whole_rows(
    piece: Piece,
    new_keys: pa.DictionaryArray | None,
    timestamps: npt.NDArray[np.int64],
    seq: int,
    values: WholeValues,
    at: npt.NDArray[np.int64],
    with_source: bool,
) -> pa.RecordBatch:
    """Makes rows with the whole values of the records at `at`."""
    source = piece.columns
    columns = source if len(at) == len(source) else source.take(at)
    keys = piece.keys if new_keys is None else new_keys
    arrays: dict[str, pa.Array] = {
        "offset": number_column(columns.offsets),
        "seq": number_column(np.full(len(at), seq, np.int32)),
        "timestamp": number_column(timestamps[at]),
        "key": keys.take(pa.array(at)),
        "value": values(at),
    }
    if with_source:
        arrays |= {"source_key": columns.keys, "source_value": columns.values}
    if columns.headers is not None:
        arrays["headers"] = columns.headers
    return pa.RecordBatch.from_pydict(arrays)


def _cells(path: str, field: FieldColumn) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    is_int, is_float = field.kinds == INT, field.kinds == FLOAT
    if is_int.any():
        columns[f"i:{path}"] = _numbers(field.ints, is_int)
    if is_float.any():
        columns[f"d:{path}"] = _numbers(field.floats, is_float)
    if field.texts is not None:
        columns[f"j:{path}"] = field.texts
    return columns


def _numbers(numbers: npt.NDArray[Any], there: Bools) -> pa.Array:
    return number_column(numbers) if there.all() else pa.array(numbers, mask=~there)


def routes_of(
    keys: BinaryColumn | pa.DictionaryArray, partition: int, tasks: int, placement: Placement
) -> npt.NDArray[np.int32]:
    """The task of each row. If distinct keys are known, each of them is hashed once."""
    if not pa.types.is_dictionary(keys.type):
        return tasks_of(keys, partition, tasks, placement)
    of_keys = tasks_of(keys.dictionary, partition, tasks, placement)
    if keys.indices.null_count:
        of_keys = np.append(of_keys, np.int32(partition % tasks))
    routes: npt.NDArray[np.int32] = of_keys[codes_in(keys, len(keys.dictionary))]
    return routes


def compact_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Reduces the keys' dictionary, if there is one, to the keys of these rows, so that a task does not get all keys."""
    at = rows.schema.get_field_index("key")
    keys = rows.column(at)
    if not pa.types.is_dictionary(keys.type):
        return rows
    codes, dictionary = keys.indices, keys.dictionary
    used = pc.unique(codes.drop_null())
    if len(used) == len(dictionary):
        return rows
    place = np.zeros(len(dictionary), np.int32)
    place[used.to_numpy()] = np.arange(len(used), dtype=np.int32)
    missing = None if codes.null_count == 0 else codes.is_null().to_numpy(zero_copy_only=False)
    codes = pa.array(place[codes.fill_null(0).to_numpy()], mask=missing)
    return rows.set_column(at, "key", pa.DictionaryArray.from_arrays(codes, dictionary.take(used)))
