"""The typed key-value stores of operators: plain, timestamped with a step cache, and versioned.

Timestamped stores can have a step cache: decoded values that several records of a step share, and that are serialised once at the
end (Kafka Streams' record cache, bounded here by the step). Reads always see the cache; a scan first writes it to the store.
Invariant: without the cache every read decodes again, so a value that user code modifies in place is never shared. A step in
which a function has failed runs again with private rows, which keep that invariant even with a cache
(`StepContext.private_rows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn
from state.stores.byte_stores import NOT_PUT, VALID_TO_UNDEFINED, KeyValueBytesStore, VersionedBytesStore
from streams.model.ownership import snapshot
from streams.model.record import Headers, HeldRecord, ValueAndTimestamp, Window, Windowed
from streams.operators.stores.codec import Codec, value_of
from streams.operators.stores.found_rows import TableLookup
from streams.serdes.order import KeySpan


class CachedRow:
    """A row of a timestamped store that is being modified: its new value, and the stored one.

    Attributes:
        key: Key bytes.
        start: Window start, ms; -1 in a key-value store.
        value: The value; None = no row.
        timestamp: Milliseconds; -1 = no row.
        stored: The local value that was forwarded last: before this step, or (without a cache) before this update.
        dirty: Whether the value was set and has not been forwarded since.
    """

    __slots__ = ("dirty", "key", "start", "stored", "timestamp", "value")

    def __init__(self, key: bytes, start: int, stored: bytes | None, codec: Codec) -> None:
        self.key = key
        self.start = start
        self.stored = stored
        found = codec.read_timestamped(stored)
        self.value: Any = None if found is None else found.value
        self.timestamp = -1 if found is None else found.timestamp
        self.dirty = False

    def set(self, value: Any, timestamp: int) -> None:
        self.value, self.timestamp, self.dirty = value, timestamp, True

    @property
    def cell(self) -> bytes | None:
        """The bytes of the value; None if they are not known, because the value was set."""
        return None if self.dirty else value_of(self.stored)

    def sent(self, written: bytes | None) -> None:
        """Notes that the row was forwarded with this local value."""
        self.stored, self.dirty = written, False

    @property
    def is_no_op(self) -> bool:
        """Whether the row neither existed before this step nor exists now, so that nothing has to be forwarded."""
        return self.stored is None and self.value is None


class PrivateRow(CachedRow):
    """A row whose value is held as bytes. Each reader gets a new object, so only `set` can change the row."""

    __slots__ = ("_cell", "_codec")

    def __init__(self, key: bytes, start: int, stored: bytes | None, codec: Codec) -> None:
        self._codec = codec
        super().__init__(key, start, stored, codec)

    @property
    def cell(self) -> bytes | None:
        return self._cell

    @property  # type: ignore[override]
    def value(self) -> Any:
        return self._codec.read_value(self._cell)

    @value.setter
    def value(self, value: Any) -> None:
        self._cell = self._codec.value(value)


def drain_pending(
    store: CachedRows, held: dict[Any, tuple[Any, Headers, CachedRow]]
) -> Iterator[tuple[Any, Headers, CachedRow]]:
    """Removes the pending updates and returns the ones to forward (key, headers, row), ordered by timestamp, then by arrival."""
    updates = sorted(held.values(), key=lambda one: one[2].timestamp)
    held.clear()
    for key, headers, entry in updates:
        if entry.is_no_op:
            store.write(entry)  # a scan may already have written it
        else:
            yield key, headers, entry


def result_of(entry: CachedRow, headers: Headers, window: Window | None = None) -> HeldRecord:
    """The record that errors name for a result that no single record caused: its key, and its window if it has one."""
    return HeldRecord(entry.key, None, entry.timestamp, headers, window)


def row_as_result(codec: Codec, key: Any, data: bytes | None, timestamp: int, headers: Headers) -> HeldRecord:
    """The record that errors name for a table's row, from its key and the key's bytes, which include a windowed key's window."""
    if isinstance(key, Windowed):
        return HeldRecord(codec.base_key(key, data), None, timestamp, headers, key.window)
    return HeldRecord(data, None, timestamp, headers)


# --- Stores whose rows may be shared within a step.


class CachedRows(ABC):
    """A store of values with timestamps, with a step cache. A row is located by its key's bytes and its window's start, or -1."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._cache: dict[tuple[bytes, int], CachedRow] | None = None
        self._row: type[CachedRow] = CachedRow
        self.pending: dict[Any, tuple[Any, Headers, CachedRow]] = {}
        """The key, headers and row of each pending update of an aggregation; all streams of a cogroup share them."""

    @abstractmethod
    def _fetch(self, key: bytes, start: int) -> bytes | None:
        """The local value of a row."""

    @abstractmethod
    def _fetch_each(self, places: Sequence[tuple[bytes, int]]) -> list[bytes | None]: ...

    @abstractmethod
    def _put(self, key: bytes, start: int, cell: bytes | None, timestamp: int) -> None: ...

    def use_cache(self, private: bool) -> None:
        """From now on, rows are shared within the step, and so are their decoded values unless rows are private."""
        self._cache = {} if self._cache is None else self._cache
        self._row = PrivateRow if private else CachedRow

    @property
    def has_cached_rows(self) -> bool:
        return bool(self._cache)

    def forget_cache(self) -> None:
        """From now on, rows are read from the store again, because all updates are written."""
        self._cache = None if self._cache is None else {}

    def entry_at(self, key: bytes, start: int) -> CachedRow:
        """A row for modification; `write` stores a change."""
        if self._cache is None:
            return CachedRow(key, start, self._fetch(key, start), self.codec)
        entry = self._cache.get((key, start))
        if entry is None:
            entry = self._cache[key, start] = self._row(key, start, self._fetch(key, start), self.codec)
        return entry

    def entries(self, places: Sequence[tuple[bytes, int]]) -> list[CachedRow]:
        """Returns `entry_at` for many places, with one read of the store."""
        cache = {} if self._cache is None else self._cache
        new = [place for place in places if place not in cache]
        found = dict(zip(new, self._fetch_each(new), strict=True)) if new else {}
        for place, stored in found.items():
            cache[place] = self._row(*place, stored, self.codec)
        return [cache[place] for place in places]

    def write(self, entry: CachedRow) -> bytes | None:
        """Write an entry's value and timestamp (None deletes), and return the local value."""
        data = self.codec.timestamped(entry.value, entry.timestamp)
        self._put(entry.key, entry.start, self.codec.fitting(entry.key, data), entry.timestamp)
        return data

    def _get(self, key: bytes, start: int, *, own: bool = True) -> ValueAndTimestamp | None:
        """Value and timestamp of a row; a value from the cache is copied if it should be the caller's `own`."""
        entry = self._cache.get((key, start)) if self._cache else None
        if entry is not None:
            value = entry.value
            return None if value is None else ValueAndTimestamp(snapshot(value) if own else value, entry.timestamp)
        return self.codec.read_timestamped(self._fetch(key, start))

    def _write_through(self) -> None:
        for entry in (self._cache or {}).values():
            self.write(entry)


# --- The typed key-value stores of operators, over the byte stores of `state.stores`: plain, or timestamped with a step cache.


class TypedKeyValueStore:
    """A plain store: key -> value."""

    def __init__(self, rows: KeyValueBytesStore, codec: Codec) -> None:
        self.rows = rows
        self.codec = codec
        self._read: Callable[[bytes], Any] = codec.read_value

    def get(self, key: Any) -> Any:
        return self.codec.read_value(self.rows.get(self.codec.key(key)))

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        """Write a value; None deletes. `timestamp` is that of the changelog record, ms."""
        self.put_cell(self.codec.key(key), self.codec.value(value), timestamp)

    def put_cell(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write a row whose bytes are known; None deletes. Raises `OversizedRowError` if it does not fit the changelog."""
        self.rows.put(key, self.codec.fitting(key, value), timestamp)

    def put_column(self, keys: BinaryColumn, values: BinaryColumn, timestamps: npt.NDArray[np.int64]) -> None:
        """Write the local values of many rows in this order; null deletes."""
        self.rows.put_columns(keys, values, timestamps)

    def stored_column(self, keys: BinaryColumn) -> BinaryColumn:
        """The local values of many keys' bytes, null where there is none; updates in a step's cache are not seen."""
        order = pc.sort_indices(keys)
        found = self.rows.get_columns(keys.take(order))
        place = np.empty(len(keys), np.int64)
        place[order.to_numpy()] = np.arange(len(keys))
        return found.take(pa.array(place))

    def range(self, lower: Any, upper: Any, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Rows with lower <= key <= upper in order of the keys; None = open. Raises `KeyOrderError`."""
        return self._spans(self.codec.spans(lower, upper, reverse))

    def prefix(self, prefix: bytes) -> Iterator[tuple[Any, Any]]:
        """Rows whose key's bytes begin with `prefix`, in order of the keys' bytes."""
        return self._decoded(self.rows.prefix(prefix))

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """All rows in order of the keys' bytes."""
        return self._spans([KeySpan(None, None, reverse)])

    def count(self) -> int:
        """The number of rows, which are counted without decoding them."""
        self._write_through()
        return sum(1 for _ in self.rows.range(None, None))

    def _write_through(self) -> None:
        """Called before a scan, to write cached rows."""

    def _spans(self, spans: list[KeySpan]) -> Iterator[tuple[Any, Any]]:
        self._write_through()
        # All are opened at once, because a scan reads the store as of its beginning.
        yield from self._decoded(chain.from_iterable([self.rows.range(*span) for span in spans]))

    def _decoded(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, cell in rows:
            yield self.codec.read_key(key), self._read(cell)


class TypedTimestampedKeyValueStore(CachedRows, TypedKeyValueStore):
    """A table: key -> value and timestamp."""

    def __init__(self, rows: KeyValueBytesStore, codec: Codec) -> None:
        CachedRows.__init__(self, codec)
        TypedKeyValueStore.__init__(self, rows, codec)
        self._read = codec.read_timestamped
        self.watched = False
        """Whether other operators of the unit look up rows as of each record."""
        self.as_of: TableLookup | None = None
        """The look-up as of positions in the step, once the table has all updates and while the unit still runs."""
        self.forwarded_as_of: TableLookup | None = None
        """The look-up of rows as they were forwarded last, for a table without a cache."""
        self.unsettled: Callable[[], None] | None = None
        """Puts updates that the table has processed together into the cache, for code that reads single rows."""

    def _fetch(self, key: bytes, start: int) -> bytes | None:
        return self.rows.get(key)

    def _fetch_each(self, places: Sequence[tuple[bytes, int]]) -> list[bytes | None]:
        return self.rows.multi_get([key for key, _ in places])

    def _put(self, key: bytes, start: int, cell: bytes | None, timestamp: int) -> None:
        self.rows.put(key, cell, timestamp)

    def settle(self) -> None:
        """Makes all updates visible to code that reads single rows."""
        if self.unsettled is not None:
            settle, self.unsettled = self.unsettled, None
            settle()

    def entry(self, key: Any) -> CachedRow:
        """The row of a key for modification; `write` stores a change."""
        self.settle()
        return self.entry_at(self.codec.key(key), -1)

    def entries(self, places: Sequence[tuple[bytes, int]]) -> list[CachedRow]:
        self.settle()
        return super().entries(places)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        self.settle()
        return self._get(self.codec.key(key), -1)

    def get_shared(self, key: Any) -> ValueAndTimestamp | None:
        """`get` for callers that only read the value: copying a list of objects takes longer than comparing it."""
        self.settle()
        return self._get(self.codec.key(key), -1, own=False)

    def forwarded(self, key: Any) -> ValueAndTimestamp | None:
        key_bytes = self.codec.key(key)
        entry = self._cache.get((key_bytes, -1)) if self._cache else None
        return self.codec.read_timestamped(self.rows.get(key_bytes) if entry is None else entry.stored)

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        entry = self.entry(key)
        entry.value, entry.timestamp = None if value is None else snapshot(self.codec.seen(value)), timestamp
        entry.sent(self.write(entry))

    def prefix(self, prefix: bytes) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        self._write_through()
        yield from super().prefix(prefix)

    def _write_through(self) -> None:
        self.settle()
        super()._write_through()


# --- The typed store of versioned tables (KIP-889): every value of a key, with the time from which it is valid.

__all__ = ["NOT_PUT", "VALID_TO_UNDEFINED", "TypedVersionedStore"]


class TypedVersionedStore:
    """A table with history: key and time -> value and the time from which it is valid.

    There is no cache: two updates of a key in one step are two versions.
    """

    def __init__(self, rows: VersionedBytesStore, codec: Codec) -> None:
        self._rows = rows
        self.codec = codec
        self.forgets = False
        """Whether deletions are forgotten as in Kafka Streams: in compat mode."""

    def put(self, key: object, value: object, timestamp: int) -> int:
        """Write a version that is valid from `timestamp` (ms) on; None deletes from then on."""
        data = self.codec.key(key)
        return self._rows.put(data, self.codec.fitting(data, self.codec.value(value)), timestamp, self.forgets)

    def get(self, key: object, as_of: int | None = None) -> ValueAndTimestamp | None:
        """The newest value and its time, or those valid at `as_of` (ms); None if there was no value, or it was deleted."""
        found = self._rows.get(self.codec.key(key), as_of)
        return None if found is None else ValueAndTimestamp(self.codec.read_value(found.value), found.timestamp)
