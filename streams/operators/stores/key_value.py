"""The typed key-value stores of operators, over the byte stores of `state.stores`: plain, or timestamped with a step cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, binary_column
from streams.model.record import Headers, ValueAndTimestamp
from streams.operators.stores.byte_stores import KeyValueBytes
from streams.operators.stores.cached_row import CachedRow, PrivateRow
from streams.operators.stores.codec import Codec
from streams.operators.stores.found_rows import TableLookup


class TypedKeyValueStore:
    """A plain store: key -> value."""

    def __init__(self, rows: KeyValueBytes, codec: Codec) -> None:
        self.rows = rows
        self.codec = codec

    def get(self, key: Any) -> Any:
        return self.codec.read_value(self.rows.get(self.codec.key(key)))

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        """Write; None deletes. `timestamp` is the changelog record's, milliseconds."""
        data = self.codec.key(key)
        self.rows.put(data, self.codec.fitting(data, self.codec.value(value)), timestamp)

    def put_column(self, keys: BinaryColumn, values: BinaryColumn, timestamps: npt.NDArray[np.int64]) -> None:
        """Write many rows as bytes in this order; null deletes."""
        self.rows.put_columns(keys, values, timestamps)

    def range(self, lower: Any, upper: Any, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Rows with lower <= key <= upper in order of the keys' bytes; None = open."""
        for key, value in self.rows.range(_bound(self.codec, lower), _bound(self.codec, upper), reverse):
            yield self.codec.read_key(key), self.codec.read_value(value)

    def prefix(self, prefix: bytes) -> Iterator[tuple[Any, Any]]:
        """Rows whose key's bytes start with these, in order of the keys' bytes."""
        for key, value in self.rows.prefix(prefix):
            yield self.codec.read_key(key), self.codec.read_value(value)

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """All rows in order of the keys' bytes."""
        return self.range(None, None, reverse)

    def count(self) -> int:
        """The number of rows, which are read but not decoded."""
        return sum(1 for _ in self.rows.range(None, None))


class TypedTimestampedKeyValueStore:
    """A table: key -> value and timestamp."""

    def __init__(self, rows: KeyValueBytes, codec: Codec) -> None:
        self._rows = rows
        self.codec = codec
        self._cache: dict[bytes, CachedRow] | None = None
        self._row: type[CachedRow] = CachedRow
        self.pending: dict[bytes, tuple[Any, Headers, CachedRow]] = {}
        """Key, headers and row of the pending updates of an aggregation, shared by all streams of a cogroup."""
        self.watched = False
        """Whether a join looks rows up at positions within the step."""
        self.updates: TableLookup | None = None
        """The look-up at positions within the step, for a table without a cache all of whose updates are written already."""

    def use_cache(self, private: bool) -> None:
        """Share rows within the step from now on, and also their decoded values unless rows are private."""
        self._cache = {} if self._cache is None else self._cache
        self._row = PrivateRow if private else CachedRow

    def forget_cache(self) -> None:
        """Read rows anew from now on, because all updates are written."""
        self._cache = None if self._cache is None else {}

    def entry(self, key: Any) -> CachedRow:
        """The row of a key for modification; `write` stores a change."""
        key_bytes = self.codec.key(key)
        if self._cache is None:
            return CachedRow(key_bytes, -1, self._rows.get(key_bytes), self.codec)
        entry = self._cache.get(key_bytes)
        if entry is None:
            entry = self._cache[key_bytes] = self._row(key_bytes, -1, self._rows.get(key_bytes), self.codec)
        return entry

    def entries(self, places: Sequence[tuple[bytes, int]]) -> list[CachedRow]:
        """`entry` for the bytes of many keys, with one read of the store; the second part of a place is unused."""
        cache = {} if self._cache is None else self._cache
        new = [key for key, _ in places if key not in cache]
        found = dict(zip(new, self._rows.multi_get(new), strict=True)) if new else {}
        for key, stored in found.items():
            cache[key] = self._row(key, -1, stored, self.codec)
        return [cache[key] for key, _ in places]

    def stored_column(self, keys: Sequence[bytes]) -> BinaryColumn:
        """The local values of many keys, null where there is none; updates in the step cache are not seen."""
        column = binary_column(keys)
        order = pc.sort_indices(column)
        found = self._rows.get_columns(column.take(order))
        place = np.empty(len(keys), np.int64)
        place[order.to_numpy()] = np.arange(len(keys))
        return found.take(pa.array(place))

    def put_column(self, keys: BinaryColumn, values: BinaryColumn, timestamps: npt.NDArray[np.int64]) -> None:
        """Write the local values of many rows (`Codec.timestamped_column`) in this order; null deletes."""
        self._rows.put_columns(keys, values, timestamps)

    def write(self, entry: CachedRow) -> bytes | None:
        """Write an entry's value and timestamp, None deletes; returns the local value."""
        data = self.codec.timestamped(entry.value, entry.timestamp)
        self._rows.put(entry.key, self.codec.fitting(entry.key, data), entry.timestamp)
        return data

    def get(self, key: Any) -> ValueAndTimestamp | None:
        key_bytes = self.codec.key(key)
        entry = self._cache.get(key_bytes) if self._cache else None
        if entry is not None:
            return None if entry.value is None else ValueAndTimestamp(entry.value, entry.timestamp)
        return self.codec.read_timestamped(self._rows.get(key_bytes))

    def forwarded(self, key: Any) -> ValueAndTimestamp | None:
        key_bytes = self.codec.key(key)
        entry = self._cache.get(key_bytes) if self._cache else None
        return self.codec.read_timestamped(self._rows.get(key_bytes) if entry is None else entry.stored)

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        entry = self.entry(key)
        entry.value, entry.timestamp = value, timestamp
        entry.sent(self.write(entry))

    def range(self, lower: Any, upper: Any, reverse: bool = False) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        """Rows with lower <= key <= upper in order of the keys' bytes; None = open."""
        self._write_through()
        yield from self._decoded(self._rows.range(_bound(self.codec, lower), _bound(self.codec, upper), reverse))

    def prefix(self, prefix: bytes) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        """Rows whose key's bytes start with these, in order of the keys' bytes."""
        self._write_through()
        yield from self._decoded(self._rows.prefix(prefix))

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        """All rows in order of the keys' bytes."""
        return self.range(None, None, reverse)

    def count(self) -> int:
        """The number of rows, which are read but not decoded."""
        self._write_through()
        return sum(1 for _ in self._rows.range(None, None))

    def _write_through(self) -> None:
        for entry in (self._cache or {}).values():
            self.write(entry)

    def _decoded(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        for key, value in rows:
            found = self.codec.read_timestamped(value)
            assert found is not None, "scans give rows that exist"
            yield self.codec.read_key(key), found


def _bound(codec: Codec, key: Any) -> bytes | None:
    return None if key is None else codec.key(key)
