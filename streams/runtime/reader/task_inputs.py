"""Edges out of the head: the task of each row, new keys, and records that become rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import encode_headers
from state.errors import StepTooLargeError
from state.kafka.partitioner import partition_for_keys
from streams.errors import RecordError, ValueNotPicklableError
from streams.model.record import Headers, Record
from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, cell
from streams.operators.expressions.evaluate import Bools
from streams.runtime.event_time import checked
from streams.runtime.handlers import DeadLetter, Origin
from streams.runtime.step_context import StepContext
from streams.runtime.values import dump_value
from streams.serdes.base import Serde
from streams.topology.planning.task_input import TaskInput


def tasks_of(keys: pa.BinaryArray, partition: int, tasks: int) -> npt.NDArray[np.int32]:
    """The task of each row: murmur2(key) mod tasks; for a null key, its source partition mod tasks."""
    if tasks == 1:
        return np.zeros(len(keys), np.int32)
    found: npt.NDArray[np.int32] = partition_for_keys(keys, tasks)
    return np.where(found < 0, np.int32(partition % tasks), found)


def split_by_task(rows: pa.RecordBatch, tasks_of_rows: npt.NDArray[np.int32]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split rows into one batch per task, preserving their order."""
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


# --- New keys on columns: the results of an expression as keys' bytes, each distinct key written once.

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
        for number, row in enumerate(at[firsts].tolist()):
            try:
                key = serde.serialize(topic, cell(keys, row), ())
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


def _distinct(
    keys: FieldColumn, kind: int, at: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For the distinct cells, the first position of each; and the number of each row's cell."""
    assert kind != ABSENT, "a null key is not written"
    if kind == TEXT:
        assert keys.texts is not None, "there are texts"
        encoded = keys.texts.take(pa.array(at)).dictionary_encode()
        numbers = encoded.indices.to_numpy().astype(np.int64)
        firsts = np.full(len(encoded.dictionary), len(at), np.int64)
        np.minimum.at(firsts, numbers, np.arange(len(at)))
        return firsts, numbers
    # By their bits: zeros of both signs are different texts.
    bits = keys.ints[at] if kind == INT else keys.floats[at].view(np.int64)
    _, firsts, numbers = np.unique(bits, return_index=True, return_inverse=True)
    return firsts.astype(np.int64), numbers.astype(np.int64)


# --- Edges out of the head: records made by head operators, converted to rows for the tasks.

BRANCH_BITS = 20
"""`seq` = branch of the source's child, then this many bits of a running number: depth-first order."""

Place: TypeAlias = "int | tuple[int, ...]"
"""A row's `seq`; for results of a held-back record (`streams.runtime.reader.pipeline`), the numbers on the path to it."""


@dataclass(slots=True)
class RowNumbering:
    """Numbers the rows that come from one source record.

    Attributes:
        end: The first number beyond the branch's own.
        above: Place of the held-back record whose results are being numbered; empty: none.
    """

    next: int = 0
    end: int = 0
    above: tuple[int, ...] = ()

    def start(self, branch: int) -> None:
        """Begin a record's path through the source's n-th child."""
        self.next = branch << BRANCH_BITS
        self.end = self.next + (1 << BRANCH_BITS)

    def go_on(self, place: tuple[int, ...]) -> None:
        """Continue the path of a held-back record."""
        self.next, self.end, self.above = 0, 1 << BRANCH_BITS, place

    def take(self) -> Place:
        if self.next == self.end:
            raise too_many()
        self.next += 1
        return (*self.above, self.next - 1) if self.above else self.next - 1

    @property
    def here(self) -> tuple[int, ...]:
        """The place of the next row, without numbering it."""
        return (*self.above, self.next)


def too_many() -> RecordError:
    """The error of a record that became more rows than can be numbered."""
    return RecordError(f"one record became more than {1 << BRANCH_BITS} records; flat_map less at a time")


@dataclass(slots=True)
class Rows:
    """Rows under construction, column by column (`streams.runtime.rows`)."""

    offsets: list[int] = field(default_factory=list)
    seqs: list[Place] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    source_keys: list[bytes | None] = field(default_factory=list)
    source_values: list[bytes | None] = field(default_factory=list)

    def add_key(self, offset: int, key: bytes | None) -> None:
        self.offsets.append(offset)
        self.seqs.append(0)
        self.timestamps.append(0)
        self.keys.append(key)
        self.values.append(None)
        self.headers.append(())

    def add_dead_letter(self, letter: DeadLetter, origin: Origin, place: Place) -> None:
        """Append a dead letter unchanged."""
        self.offsets.append(origin.offset)
        self.seqs.append(place)
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
        if self.source_keys:
            columns["source_key"] = pa.array(self.source_keys, pa.binary())
            columns["source_value"] = pa.array(self.source_values, pa.binary())
        if any(isinstance(column, pa.ChunkedArray) for column in columns.values()):
            raise StepTooLargeError(f"{len(self.offsets):,} records that were made before the shuffle")
        return pa.RecordBatch.from_pydict(columns)


class TaskInputRunner:
    """Receives records that leave the head through one entry: key by the entry's serde, value by `streams.runtime.values`."""

    def __init__(self, entry: TaskInput, run: StepContext, sequence: RowNumbering) -> None:
        self.entry = entry
        self.name = entry.node
        self.rows = Rows()
        self._serde = entry.key_serde
        self._run = run
        self._sequence = sequence
        self._keep_source = run.settings.keeps_source_bytes

    def receive(self, record: Record) -> None:
        """Append one row; a key that cannot be serialised counts as a processing error of the entry's node."""
        cursor = self._run.cursor
        assert cursor is not None, "head operators run only while a record is in process"
        source, row = cursor
        try:
            key = self._serde.serialize(source.topic, record.key, record.headers)
            value = dump_value(record.value)
            timestamp = checked(record.timestamp)
            seq = self._sequence.take()
        except ValueNotPicklableError as error:
            raise self._not_picklable(source.origin(row), error) from error
        except Exception as error:
            self._run.handlers.handle("processing", self.name, source.origin(row), error)
            return
        rows = self.rows
        rows.offsets.append(source.offsets[row])
        rows.seqs.append(seq)
        rows.timestamps.append(timestamp)
        rows.keys.append(key)
        rows.values.append(value)
        rows.headers.append(record.headers)
        if self._keep_source:
            rows.source_keys.append(source.keys[row])
            rows.source_values.append(source.values[row])

    def _not_picklable(self, origin: Origin, error: ValueNotPicklableError) -> ValueNotPicklableError:
        return ValueNotPicklableError(
            f"'{self.entry.from_node}' gives '{self.name}', which runs in a task, something that cannot travel there: {error}. It "
            f"came of the record at {origin.topic}-{origin.partition} offset {origin.offset}, but no policy for records applies: "
            f"make values of data (plain values, dataclasses, classes that can be pickled), without open files, connections, locks "
            f"or generators, and start again"
        )

    def key_of(self, record: Record, topic: str) -> bytes | None:
        """The key that would route the record here; None where it cannot be serialised, which `receive` then handles."""
        try:
            return self._serde.serialize(topic, record.key, record.headers)
        except Exception:
            return None

    def take(self) -> Rows:
        """Returns the rows so far and forgets them."""
        rows, self.rows = self.rows, Rows()
        return rows
