"""Rows of a `TimeOrderedBuffer` as columns: records that wait, and what a step writes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.kafka.headers import decode_headers
from state.tables.binary_columns import inverse, sorted_rows
from streams.model.record import HeldRecord
from streams.model.times import NO_TIME
from streams.operators.columnar import HeldRows, Int64s, KeyColumn
from streams.operators.join.columns.records import Bools
from streams.operators.stores.codec import Codec
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.serdes.waiting_columns import keys_in, split_waiting_keys, split_waiting_records

EXPIRE, JOIN, ADD = 0, 1, 2
"""What changes the buffer while a record is processed, in this order."""


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Waiting records.

    Attributes:
        keys: The bytes of each `WaitingKey`.
        values: The bytes of each `WaitingRecord`.
        times: int64[n], the time in the key, ms.
        sides: int64[n], the side in the key.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    times: Int64s
    sides: Int64s

    @classmethod
    def of(cls, keys: pa.BinaryArray, values: pa.BinaryArray) -> WaitingRows:
        """The rows with these keys and values."""
        return cls(keys, values, *split_waiting_keys(keys))

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: Int64s) -> WaitingRows:
        """Some of the rows."""
        at = pa.array(rows)
        return WaitingRows(self.keys.take(at), self.values.take(at), self.times[rows], self.sides[rows])

    def followed_by(self, others: WaitingRows) -> WaitingRows:
        """These rows, then others."""
        return WaitingRows(
            pa.concat_arrays([self.keys, others.keys]),
            pa.concat_arrays([self.values, others.values]),
            np.concatenate([self.times, others.times]),
            np.concatenate([self.sides, others.sides]),
        )

    def order_at(self, at: Int64s) -> Int64s:
        """The order in which rows leave: by the records that make the rows due, then as in the buffer."""
        order: Int64s = np.lexsort((inverse(sorted_rows(self.keys)), at))
        return order


@dataclass(frozen=True, slots=True)
class WaitingRecords:
    """What rows of the buffer stand for.

    Attributes:
        keys: The keys.
        cells: The bytes of the values.
        headers: Encoded headers; None if no record has any.
        held: The records that errors name.
        read: Reads the values.
    """

    keys: KeyColumn
    cells: pa.BinaryArray
    headers: list[bytes | None] | None
    held: HeldRows
    read: Callable[[], list[object]]

    @property
    def values(self) -> list[object]:
        """The values, read anew."""
        return self.read()

    @classmethod
    def of(
        cls, rows: WaitingRows, timestamps: Int64s, buffer: TimeOrderedBuffer, codec: Codec | None
    ) -> WaitingRecords:
        """Decodes rows.

        Args:
            rows: The rows.
            timestamps: int64[n], of the records.
            buffer: The buffer.
            codec: Reads the values of both sides; None: the buffer's own does.
        """
        cells = keys_in(rows.keys)
        distinct = cells.dictionary_encode()
        data, serde = distinct.dictionary.to_pylist(), buffer.key_serde
        codes = distinct.indices.to_numpy().astype(np.int32)
        keys = KeyColumn(codes, [serde.deserialize(buffer.name, one) for one in data], data, serde)
        headers, values = split_waiting_records(rows.values)

        def read() -> list[object]:
            if codec is None:
                return [buffer.store.codec.read_value(cell).value for cell in rows.values.to_pylist()]
            return list(map(codec.reader, values.to_pylist()))

        def held(row: int) -> HeldRecord:
            header = headers[row] if headers else None
            return HeldRecord(
                cells[row].as_py(), values[row].as_py(), int(timestamps[row]), tuple(decode_headers(header))
            )

        return cls(keys, values, headers, HeldRows(held, np.arange(len(rows))), read)


@dataclass(slots=True)
class WaitingWrites:
    """Rows of the buffer with what they have at the end of the step, and when the first write of each one happens."""

    at: list[Int64s] = field(default_factory=list)
    phases: list[Int64s] = field(default_factory=list)
    times: list[Int64s] = field(default_factory=list)
    keys: list[pa.BinaryArray] = field(default_factory=list)
    values: list[pa.BinaryArray] = field(default_factory=list)

    def remove(self, phase: int, at: Int64s, rows: WaitingRows) -> None:
        """Removes rows of earlier steps; the arguments are those of `add`."""
        self.add(phase, at, rows, np.zeros(len(rows), np.bool_))

    def add(self, phase: int, at: Int64s, rows: WaitingRows, stay: Bools) -> None:
        """Adds rows.

        Args:
            phase: What writes the rows; those of one record and phase are given in the order of their writes.
            at: The records that are processed when the rows are first written.
            rows: The rows.
            stay: Which rows are in the buffer at the end; the others leave a tombstone.
        """
        self.at.append(at)
        self.phases.append(np.full(len(at), phase))
        self.times.append(rows.times)
        self.keys.append(rows.keys)
        self.values.append(pc.if_else(pa.array(stay), rows.values, pa.scalar(None, pa.binary())))

    def write(self, buffer: TimeOrderedBuffer, added: Int64s, before: int = NO_TIME) -> None:
        """Writes the rows in the order of their first writes; the other arguments are those of `TimeOrderedBuffer.write`."""
        order = np.lexsort((np.concatenate(self.phases), np.concatenate(self.at)))
        keys, values = (pa.concat_arrays(column).take(pa.array(order)) for column in (self.keys, self.values))
        buffer.write((keys, values), np.concatenate(self.times)[order], added, before)
