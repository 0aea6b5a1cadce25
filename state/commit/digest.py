"""A digest of a step's changelog records, stored in the marker. A restore proves with the digest that it saw every record.

The digest depends only on the order of the records, not on how they are split into parts when they are sent or read.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from state.columns import cell_bounds, cell_sizes
from state.commit.protocols import KeyedColumns

_BLOCK_ROWS = 65_536
"""Columns are digested in blocks of this many rows. The size is part of the digest's definition."""


class StepDigest:
    """The digest under construction. The records of each store are added in order, in parts of any size; stores in any order."""

    def __init__(self) -> None:
        self.records = 0
        self._stores: dict[str, _StoreDigest] = {}

    def add(self, store: str, columns: KeyedColumns) -> None:
        """Adds the next records of a store."""
        count = len(columns.timestamps)
        if count:
            self.records += count
            self._stores.setdefault(store, _StoreDigest()).add(columns.keys, columns.values, columns.timestamps)

    def hexdigest(self) -> str:
        """16 hex digits over store names, keys, values (a tombstone differs from an empty value) and timestamps."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self._stores):
            digest.update(name.encode() + b"\0" + self._stores[name].digest())
        return digest.hexdigest()


class _StoreDigest:
    """The digest of one store: block after block of rows."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._parts: list[tuple[pa.Array, pa.Array, np.ndarray]] = []
        self._rows = 0

    def add(self, keys: pa.Array, values: pa.Array, timestamps: np.ndarray) -> None:
        start, count = 0, len(timestamps)
        while self._rows + count - start >= _BLOCK_ROWS:
            end = start + _BLOCK_ROWS - self._rows
            self._parts.append((keys[start:end], values[start:end], timestamps[start:end]))
            self._flush(self._hash)
            start = end
        if start < count:
            self._parts.append((keys[start:], values[start:], timestamps[start:]))
            self._rows += count - start

    def digest(self) -> bytes:
        whole = self._hash.copy()
        if self._parts:
            _update(whole, self._parts)
        return whole.digest()

    def _flush(self, into: Any) -> None:
        _update(into, self._parts)
        self._parts, self._rows = [], 0


def _update(digest: Any, parts: list[tuple[pa.Array, pa.Array, np.ndarray]]) -> None:
    """Adds one block of rows to the digest."""
    timestamps = [part[2] for part in parts]
    for columns in ([part[0] for part in parts], [part[1] for part in parts]):
        for column in columns:
            digest.update(cell_sizes(column, null=-1))
        for column in columns:
            if len(column) and (data := column.buffers()[2]) is not None:
                bounds = cell_bounds(column)
                digest.update(memoryview(data)[int(bounds[0]) : int(bounds[-1])])
    for stamps in timestamps:
        # A client that cannot write time 0 writes 1 (`state.kafka.transport`).
        digest.update(np.maximum(stamps, 1).astype(np.int64, copy=False).tobytes())
