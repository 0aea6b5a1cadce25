"""`Writer`: rows of a native table written from columns, as one batch or as a file that the database takes over."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.columns import BinaryCells
from state.tables.native import kernels
from state.tables.native.columns import kernel_functions
from state.tables.native.library import Library
from state.tables.native.options import Handles
from state.tables.table import Columns, KeyRange

_RANGE_DELETION = b"\x0f"
_HEADER = struct.Struct("<QI")


class Writer:
    """Writes to an open database.

    Args:
        library: RocksDB's functions.
        database: The database.
        handles: RocksDB's options.
    """

    def __init__(self, library: Library, database: int, handles: Handles) -> None:
        self._library = library
        self._database = database
        self._handles = handles
        self._functions = kernel_functions(library)

    def write_batch(self, keys: pa.BinaryArray, values: pa.BinaryArray, delete_ranges: Sequence[KeyRange]) -> None:
        """Applies changes atomically, the ranges first; without a flush they do not survive a kill."""
        table, _cells = _addresses(keys, values)
        ranges = b"".join(_RANGE_DELETION + _sized(lower) + _sized(upper) for lower, upper in delete_ranges)
        head = _HEADER.pack(0, len(keys) + len(delete_ranges)) + ranges
        batch = np.empty(len(head) + kernels.batch_bytes(table, len(keys)), np.uint8)
        batch[: len(head)] = np.frombuffer(head, np.uint8)
        kernels.fill_batch(table, len(keys), batch.ctypes.data + len(head))
        handle = self._library.writebatch_create_from(batch.ctypes.data, len(batch))
        try:
            self._library.checked("write", self._database, self._handles.write, handle)
        finally:
            self._library.writebatch_destroy(handle)

    def flush(self) -> None:
        """Makes what was written survive a kill."""
        self._library.checked("flush", self._database, self._handles.flush)

    def write_file(self, path: Path, parts: Iterable[Columns]) -> bool:
        """Makes a table file of keys, strictly rising over all parts, and values; False = there was no row."""
        writer = self._library.sstfilewriter_create(self._handles.environment, self._handles.database)
        error = np.zeros(1, np.int64)
        rows = 0
        try:
            self._library.checked("sstfilewriter_open", writer, os.fsencode(path))
            for keys, values in parts:
                table, _cells = _addresses(keys, values)
                kernels.fill_file(writer, self._functions, table, len(keys), error)
                self._library.raise_if(int(error[0]))
                rows += len(keys)
            if rows:
                self._library.checked("sstfilewriter_finish", writer)
        finally:
            self._library.sstfilewriter_destroy(writer)
        return rows > 0

    def ingest(self, path: Path) -> None:
        """Moves a table file into the database: atomic, and survives a kill."""
        name = np.frombuffer(os.fsencode(path) + b"\x00", np.uint8)
        names = np.array([name.ctypes.data], np.int64)
        self._library.checked("ingest_external_file", self._database, names.ctypes.data, 1, self._handles.ingest)


def _addresses(keys: pa.BinaryArray, values: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], tuple[BinaryCells, ...]]:
    """The kernels' table of both columns, and what keeps its addresses valid."""
    cells = (BinaryCells(keys), BinaryCells(values))
    return np.array([each.addresses for each in cells], np.int64), cells


def _sized(data: bytes) -> bytes:
    """Bytes after their length as a varint."""
    size, length = bytearray(), len(data)
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes(size) + data
