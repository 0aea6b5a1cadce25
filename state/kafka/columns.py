"""`RecordColumns`: a run of records of one topic-partition, column by column.

`BinaryCells` gives compiled kernels access to the buffers of an Arrow column. Columns, because a Python object per record costs
more than reading and processing the record. Invariants: all columns have the same length; offsets rise strictly; `headers` is
None when no record of the run has any (so the usual case costs nothing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BinaryColumn: TypeAlias = "pa.BinaryArray | pa.LargeBinaryArray"
"""Bytes or null per row."""


@dataclass(frozen=True)
class RecordColumns:
    """A run of n >= 1 records of one topic-partition, in offset order.

    Attributes:
        topic: The topic.
        partition: The partition.
        offsets: int64[n], strictly rising, with gaps where Kafka has control records or compacted records.
        timestamps: int64[n], milliseconds since the epoch; -1 where a record has none.
        keys: binary[n], null = the record has no key.
        values: binary[n], null = tombstone.
        headers: binary[n] of encoded header lists (see `state.kafka.headers`), null = none; None = no record has any.
    """

    topic: str
    partition: int
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.BinaryArray | None = None

    def __len__(self) -> int:
        return len(self.offsets)


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """A column of these values, with 64-bit offsets from 2 GiB on, where Arrow would otherwise split it into chunks."""
    return one_piece(pa.array(values, pa.binary()))


def one_piece(column: pa.BinaryArray | pa.ChunkedArray) -> BinaryColumn:
    """The column as a single array, whether Arrow returned one or split it into chunks."""
    return column.cast(pa.large_binary()).combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def one_column(columns: Sequence[BinaryColumn]) -> BinaryColumn:
    """One column of several, one after the other; with 64-bit offsets, if one of them has these or all of them need these."""
    if any(pa.types.is_large_binary(column.type) for column in columns) or sum(one.nbytes for one in columns) >= 2**31:
        columns = [column.cast(pa.large_binary()) for column in columns]
    return pa.concat_arrays(columns)


def data_and_bounds(column: BinaryColumn) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
    """The bytes of all cells, uint8, and where each begins and the last one ends, uint64[n + 1], for compiled kernels.

    Positions are unsigned: for signed ones numba checks for negative indices at every byte. The bytes are always read-only,
    because that is part of the type, and numba compiles a kernel for each type.
    """
    _, bounds, data = column.buffers()
    cells = np.frombuffer(data if data and data.size else b"\0", np.uint8)
    cells.flags.writeable = False
    if not len(column):
        return cells, np.zeros(1, np.uint64)
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    return cells, np.frombuffer(bounds, width)[column.offset : column.offset + len(column) + 1].astype(np.uint64)


class BinaryCells:
    """Addresses of an Arrow binary column's buffers, for compiled kernels; holds references to the buffers.

    Args:
        column: The column; None = all null.

    Attributes:
        addresses: Of the ends (int64[n + 1], relative to the data), of the data, and of the validity (uint8[n], 0 =
        null;
            address 0 = no nulls). All 0 = every cell is null.
    """

    def __init__(self, column: BinaryColumn | pa.NullArray | None) -> None:
        self.addresses = (0, 0, 0)
        if column is None or column.null_count == len(column):
            return
        _, ends_buffer, data_buffer = column.buffers()
        width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
        ends = np.frombuffer(ends_buffer, width)[column.offset : column.offset + len(column) + 1]
        self._ends: npt.NDArray[np.int64] = np.ascontiguousarray(ends, np.int64)
        # An address even where there are no bytes at all: for librdkafka address 0 means null, not empty.
        self._data = np.frombuffer(data_buffer, np.uint8) if data_buffer and data_buffer.size else np.zeros(1, np.uint8)
        self._valid = np.ascontiguousarray(column.is_valid(), np.uint8) if column.null_count else np.empty(0, np.uint8)
        validity = self._valid.ctypes.data if column.null_count else 0
        self.addresses = (self._ends.ctypes.data, self._data.ctypes.data, validity)
