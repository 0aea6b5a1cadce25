"""Edges out of the head: find the task of each row, write new keys, and turn records into rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import FEW_ROWS, BinaryColumn, RecordColumns
from state.errors import StepTooLargeError
from state.headers import encode_headers
from state.kafka.partitioner import partition_for_keys
from state.kafka.placement import Placement
from streams.engine.graph.handlers import DeadLetter, Origin
from streams.engine.graph.node import at_record, may_be_the_records_fault
from streams.engine.graph.step_context import SourceRows, StepContext
from streams.engine.graph.values import dump_value
from streams.engine.reader.head import Ways, number_in_runs
from streams.errors import RecordError, ValueNotPicklableError
from streams.model.record import Headers, Record
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, cell
from streams.operators.columnar import ColumnarBatch, Int64s
from streams.operators.expressions import Bools
from streams.serdes.base import Serde
from streams.serdes.columns import normal_keys
from streams.serdes.exactness import reads_alone
from streams.serdes.json import JsonSerde
from streams.topology.planning.task_input import TaskInput


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of a topic-partition as a source reads them.

    Attributes:
        columns: The records as they are in the topic.
        rows: The same records, for errors.
        keys: Their keys in canonical bytes; the column of `columns` if all of its keys are canonical.
        key_serde: The serde that writes the canonical keys.
    """

    columns: RecordColumns
    rows: SourceRows
    keys: BinaryColumn
    key_serde: Serde


def tasks_of(keys: pa.BinaryArray, partition: int, tasks: int, placement: Placement) -> npt.NDArray[np.int32]:
    """The task of each row, by the sub-topology's placement of its key. A null key goes to its source partition mod tasks."""
    if tasks == 1:
        return np.zeros(len(keys), np.int32)
    found: npt.NDArray[np.int32] = partition_for_keys(keys, tasks, placement)
    return np.where(found < 0, np.int32(partition % tasks), found)


def split_by_task(rows: pa.RecordBatch, tasks_of_rows: npt.NDArray[np.int32]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Splits rows into one batch for each task, and keeps their order."""
    if not len(tasks_of_rows):
        return
    if (tasks_of_rows == tasks_of_rows[0]).all():
        yield int(tasks_of_rows[0]), rows
        return
    # 16-bit keys make numpy use a radix sort.
    narrow = tasks_of_rows.astype(np.int16) if tasks_of_rows.max() < 2**15 else tasks_of_rows
    order = np.argsort(narrow, kind="stable")
    ordered = tasks_of_rows[order]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ordered)) + 1))
    ends = np.append(starts[1:], len(ordered))
    taken = rows.take(pa.array(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(ordered[start]), taken.slice(start, end - start)


# --- New keys on columns: the results of an expression as keys' bytes. Each distinct key is written once.

_KINDS = (INT, FLOAT, TEXT)


def written_keys(
    keys: FieldColumn, rows: Bools, serde: Serde, topic: str, failed: dict[int, Exception]
) -> pa.DictionaryArray:
    """The keys as bytes."""
    codes = np.full(len(rows), -1, np.int32)
    written: list[bytes] = []
    for kind in _KINDS:
        at = np.flatnonzero(rows & (keys.kinds == kind))
        if not len(at):
            continue
        firsts, of_rows = _distinct(keys, kind, at)
        new = np.full(len(firsts), -1, np.int32)
        texts = _written_texts(keys, at[firsts], serde) if kind == TEXT else repeat(None)
        for number, (row, text) in enumerate(zip(at[firsts].tolist(), texts, strict=False)):
            try:
                key = serde.serialize(topic, cell(keys, row), ()) if text is None else text
            except Exception as error:
                failed.update(dict.fromkeys(at[of_rows == number].tolist(), error))
                continue
            if key is not None:
                new[number] = len(written)
                written.append(key)
        codes[at] = new[of_rows]
    indices = pa.array(codes, mask=codes < 0)
    # Keys of several kinds may have the same bytes.
    return pa.DictionaryArray.from_arrays(indices, pa.array(written, pa.binary())).cast(pa.binary()).dictionary_encode()


def _written_texts(keys: FieldColumn, rows: Int64s, serde: Serde) -> Iterable[bytes | None]:
    """The texts of some rows that a serde for JSON certainly writes as they are; None for others."""
    if keys.texts is None or not isinstance(serde, JsonSerde) or len(rows) <= FEW_ROWS:
        return repeat(None)
    texts = keys.texts.take(pa.array(rows))
    normal = normal_keys(serde, texts)
    if normal is None:
        return repeat(None)
    found: list[bytes | None] = pc.if_else(pa.array(normal), texts, pa.scalar(None, texts.type)).to_pylist()
    return found


def _distinct(
    keys: FieldColumn, kind: int, at: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the first position of each distinct cell, and for each row the number of its cell."""
    assert kind != ABSENT, "a null key is not written"
    if kind == TEXT:
        assert keys.texts is not None, "there are texts"
        encoded = keys.texts.take(pa.array(at)).dictionary_encode()
        numbers = encoded.indices.to_numpy().astype(np.int64)
        firsts = np.full(len(encoded.dictionary), len(at), np.int64)
        np.minimum.at(firsts, numbers, np.arange(len(at)))
        return firsts, numbers
    # Compared by their bits, because 0.0 and -0.0 are written differently.
    bits = keys.ints[at] if kind == INT else keys.floats[at].view(np.int64)
    _, firsts, numbers = np.unique(bits, return_index=True, return_inverse=True)
    return firsts.astype(np.int64), numbers.astype(np.int64)


# --- Edges out of the head: records made by head operators, converted to rows for the tasks.

BRANCH_BITS = 20
"""The bits of a `seq` for the record's running number. The higher bits are the number of the source's child: depth-first order."""


def too_many() -> RecordError:
    """Makes the error of a record that became more rows than can be numbered."""
    return RecordError(f"one record became more than {1 << BRANCH_BITS} records; flat_map less at a time")


@dataclass(slots=True)
class RowColumns:
    """Rows under construction, column by column (`streams.engine.graph.rows`)."""

    offsets: list[int] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def add_key(self, offset: int, key: bytes | None) -> None:
        self.offsets.append(offset)
        self.seqs.append(0)
        self.timestamps.append(0)
        self.keys.append(key)
        self.values.append(None)
        self.headers.append(())

    def add_dead_letter(self, letter: DeadLetter, origin: Origin, position: int) -> None:
        """Appends a dead letter unchanged."""
        self.offsets.append(origin.offset)
        self.seqs.append(position)
        self.timestamps.append(0)  # the task sets the step's time
        self.keys.append(letter.key)
        self.values.append(letter.value)
        self.headers.append(letter.headers)

    def to_batch(self) -> pa.RecordBatch:
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "offset": pa.array(np.array(self.offsets, np.int64)),
            "seq": pa.array(np.array(self.seqs, np.int32)),
            "timestamp": pa.array(np.array(self.timestamps, np.int64)),
            "key": pa.array(self.keys, pa.binary()),
            "value": pa.array(self.values, pa.binary()),
        }
        if any(self.headers):
            cells = [encode_headers(headers) if headers else None for headers in self.headers]
            columns["headers"] = pa.array(cells, pa.binary())
        if any(isinstance(column, pa.ChunkedArray) for column in columns.values()):
            raise StepTooLargeError(f"{len(self.offsets):,} records that were made before the shuffle")
        return pa.RecordBatch.from_pydict(columns)


class RowsOut(NamedTuple):
    """Rows that leave the head, without their `seq`.

    Attributes:
        positions: int64[n], as described in `streams.engine.reader.head`.
    """

    positions: Int64s
    rows: pa.RecordBatch


class TaskInputRunner:
    """Makes rows of records that leave the head through one entry: keys by the entry's serde, values by `engine.graph.values`.

    Args:
        ways: The layout of positions.
        piece: Returns the records of the source.
    """

    def __init__(self, entry: TaskInput, run: StepContext, ways: Ways, piece: Callable[[], Piece]) -> None:
        self.entry = entry
        self._run, self._ways, self._piece = run, ways, piece
        self._parts: list[RowsOut] = []

    def receive(self, batch: ColumnarBatch) -> None:
        """Appends rows. A record that cannot be written counts as a processing error of the entry's node."""
        failed: dict[int, Exception] = {}
        at, source = batch.order >> self._ways.bits, self._piece().columns
        keys, values = self._keys(batch, at, failed), self._values(batch, failed)
        columns: dict[str, pa.Array] = {
            "offset": pa.array(source.offsets[at]),
            "timestamp": pa.array(batch.timestamps),
            "key": keys,
            "value": self._in_one(values, len(batch)),
        }
        if batch.headers is not None:
            columns["headers"] = pa.array(batch.headers, pa.binary())
        if self._run.settings.keeps_source_bytes:
            columns["source_key"] = source.keys.take(pa.array(at))
            columns["source_value"] = source.values.take(pa.array(at))
        rows = pa.RecordBatch.from_pydict(columns)
        if failed:
            for row in sorted(failed):
                with at_record(batch, row, self._run):
                    self._run.handlers.handle("processing", self.entry.node, self._run.origin(), failed[row])
            kept = np.setdiff1d(np.arange(len(batch)), list(failed))
            batch, rows = batch.take(kept), rows.take(pa.array(kept))
        self._parts.append(RowsOut(batch.order, rows))

    @property
    def keeps_keys(self) -> bool:
        """Whether records of the piece leave with the keys that they came with."""
        return not self.entry.keyed_by and self.entry.key_serde == self._piece().key_serde

    def key_of(self, record: Record, topic: str) -> bytes | None:
        """The key that decides the record's task. None if it cannot be serialised, which `receive` handles later."""
        try:
            return self.entry.key_serde.serialize(topic, record.key, record.headers)
        except Exception:
            return None

    def take(self) -> RowsOut | None:
        """Returns and forgets the rows so far, in depth-first order; None if there are none."""
        parts, self._parts = self._parts, []
        if not parts:
            return None
        positions = np.concatenate([part.positions for part in parts])
        rows = parts[0].rows if len(parts) == 1 else _concatenated([part.rows for part in parts])
        if (positions[1:] >= positions[:-1]).all():
            return RowsOut(positions, rows)
        order = np.argsort(positions, kind="stable")
        return RowsOut(positions[order], rows.take(pa.array(order)))

    def _keys(self, batch: ColumnarBatch, at: Int64s, failed: dict[int, Exception]) -> BinaryColumn:
        piece, serde = self._piece(), self.entry.key_serde
        if self.keeps_keys:
            return piece.keys.take(pa.array(at))
        topic = piece.columns.topic
        if reads_alone(serde):
            try:
                keys: pa.BinaryArray = batch.keys.column(serde, topic)
                return keys
            except Exception as error:
                if not may_be_the_records_fault(error):
                    raise
        written: list[bytes | None] = []
        for row, key in enumerate(batch.keys):
            try:
                written.append(serde.serialize(topic, key, batch.headers_of(row)))
            except Exception as error:
                if not may_be_the_records_fault(error):
                    raise
                failed[row] = error
                written.append(None)
        return pa.array(written, pa.binary())

    def _values(self, batch: ColumnarBatch, failed: dict[int, Exception]) -> list[bytes | None]:
        values: list[bytes | None] = []
        for row, value in enumerate(batch.values):
            try:
                values.append(dump_value(value))
            except ValueNotPicklableError as error:
                with at_record(batch, row, self._run):
                    raise self._not_picklable(self._run.origin(), error) from error
            except Exception as error:
                failed.setdefault(row, error)
                values.append(None)
        return values

    def _in_one(self, values: list[bytes | None], count: int) -> pa.BinaryArray:
        column = pa.array(values, pa.binary())
        if isinstance(column, pa.ChunkedArray):
            raise StepTooLargeError(f"{count:,} records that were made before the shuffle")
        return column

    def _not_picklable(self, origin: Origin, error: ValueNotPicklableError) -> ValueNotPicklableError:
        return ValueNotPicklableError(
            f"'{self.entry.from_node}' gives '{self.entry.node}', which runs in a task, a value that cannot be sent there: "
            f"{error}. It came from the record at {origin.topic}-{origin.partition} offset {origin.offset}, but no policy for "
            f"records applies: use values that are data (plain values, dataclasses, classes that can be pickled), without open "
            f"files, connections, locks or generators, and start again"
        )


def _concatenated(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Joins the parts. Rows of a part without headers get null headers."""
    if any("headers" in part.schema.names for part in parts):
        nothing = [pa.nulls(part.num_rows, pa.binary()) for part in parts]
        parts = [
            part if "headers" in part.schema.names else part.append_column("headers", none)
            for part, none in zip(parts, nothing, strict=True)
        ]
        names = parts[0].schema.names
        parts = [part.select(names) for part in parts]
    return pa.concat_batches(parts)


def numbered(outs: Sequence[RowsOut], ways: Ways) -> list[npt.NDArray[np.int32]]:
    """The `seq` of the rows of each entry: numbers them among all rows of one record and one child of the source, depth first."""
    positions = np.concatenate([out.positions for out in outs])
    order = np.argsort(positions, kind="stable")
    groups = positions[order] >> ways.branch_shift
    seqs = (groups & ((1 << (ways.bits - ways.branch_shift)) - 1)) << BRANCH_BITS
    if (groups[1:] == groups[:-1]).any():
        numbers = number_in_runs(groups)
        seqs = np.where(numbers < 1 << BRANCH_BITS, seqs | numbers, -1)
    seqs[order] = seqs.copy()
    return np.split(seqs.astype(np.int32), np.cumsum([len(out.positions) for out in outs])[:-1])
