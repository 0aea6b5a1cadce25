"""Typed stores: what operators and user code read and write, over the byte stores of `state.stores`.

Timestamped stores can keep a step cache: decoded values that several records of a step share, serialised once at the
end (Kafka Streams' record cache, bounded here by the step). Reads always see it; a scan writes it through first.
Invariant: without the cache every read decodes anew, so a value that user code changes in place stays its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from streams.model.record import Headers, HeldRecord, ValueAndTimestamp, Windowed
from streams.operators.stores.byte_stores import KeyValueBytes, WindowBytes
from streams.operators.stores.codec import Codec


class CachedRow:
    """One row of a timestamped store in work: its value, and what was stored before.

    Attributes:
        key: Key bytes.
        start: Window start, ms; -1 in a key-value store.
        value: The value; None = no row.
        timestamp: Milliseconds; -1 = no row.
        stored: The local value that was forwarded last: before this step, or (without a cache) before this update.
        dirty: Set, and not forwarded since.
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
        """Change it."""
        self.value, self.timestamp, self.dirty = value, timestamp, True

    def sent(self, written: bytes | None) -> None:
        """It is forwarded as it was written now."""
        self.stored, self.dirty = written, False

    @property
    def is_no_op(self) -> bool:
        """Whether there was no row before this step, and is none now: nobody need be told."""
        return self.stored is None and self.value is None


def drain_pending(
    store: TimestampedKeyValueStore | TimestampedWindowStore, held: dict[Any, tuple[Any, Headers, CachedRow]]
) -> Iterator[tuple[Any, Headers, CachedRow]]:
    """Takes out the updates that were held back (key, headers, row) and are to be told, the oldest first, then as they came."""
    updates = sorted(held.values(), key=lambda one: one[2].timestamp)
    held.clear()
    for key, headers, entry in updates:
        if entry.is_no_op:
            store.write(entry)  # a scan may have found it meanwhile, and so have written it
        else:
            yield key, headers, entry


def result_of(entry: CachedRow, headers: Headers) -> HeldRecord:
    """What errors name where a result is emitted at the end of a step, and no single record is behind it: its key."""
    return HeldRecord(entry.key, None, entry.timestamp, headers)


class KeyValueStore:
    """A plain store: key -> value."""

    def __init__(self, rows: KeyValueBytes, codec: Codec) -> None:
        self._rows = rows
        self._codec = codec

    def get(self, key: Any) -> Any:
        """The value, or None."""
        return self._codec.read_value(self._rows.get(self._codec.key(key)))

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        """Write; None deletes. `timestamp` is the changelog record's, milliseconds."""
        data = self._codec.key(key)
        self._rows.put(data, self._codec.fitting(data, self._codec.value(value)), timestamp)

    def range(self, lower: Any, upper: Any, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Rows with lower <= key <= upper in order of the keys' bytes; None = open."""
        for key, value in self._rows.range(_bound(self._codec, lower), _bound(self._codec, upper), reverse):
            yield self._codec.read_key(key), self._codec.read_value(value)

    def prefix(self, prefix: bytes) -> Iterator[tuple[Any, Any]]:
        """Rows whose key's bytes start with these, in order of the keys' bytes."""
        for key, value in self._rows.prefix(prefix):
            yield self._codec.read_key(key), self._codec.read_value(value)

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """All rows in order of the keys' bytes."""
        return self.range(None, None, reverse)


class TimestampedKeyValueStore:
    """A table: key -> value and timestamp."""

    def __init__(self, rows: KeyValueBytes, codec: Codec) -> None:
        self._rows = rows
        self.codec = codec
        self._cache: dict[bytes, CachedRow] | None = None
        self.pending: dict[bytes, tuple[Any, Headers, CachedRow]] = {}
        """Key, headers and row of what an aggregation, all streams of a cogroup together, holds back until the end of the step."""

    def use_cache(self) -> None:
        """Share decoded values within the step from here on."""
        self._cache = {} if self._cache is None else self._cache

    def entry(self, key: Any) -> CachedRow:
        """The row of a key, in work; `write` makes a change of it last."""
        key_bytes = self.codec.key(key)
        if self._cache is None:
            return CachedRow(key_bytes, -1, self._rows.get(key_bytes), self.codec)
        entry = self._cache.get(key_bytes)
        if entry is None:
            entry = self._cache[key_bytes] = CachedRow(key_bytes, -1, self._rows.get(key_bytes), self.codec)
        return entry

    def entries(self, places: Sequence[tuple[bytes, int]]) -> list[CachedRow]:
        """`entry` of many keys' bytes, with one read of the store; the second part of a place is unused."""
        cache = {} if self._cache is None else self._cache
        new = [key for key, _ in places if key not in cache]
        found = dict(zip(new, self._rows.multi_get(new), strict=True)) if new else {}
        for key, stored in found.items():
            cache[key] = CachedRow(key, -1, stored, self.codec)
        return [cache[key] for key, _ in places]

    def write(self, entry: CachedRow) -> bytes | None:
        """Write an entry's value and timestamp, None deletes; the local value."""
        data = self.codec.timestamped(entry.value, entry.timestamp)
        self._rows.put(entry.key, self.codec.fitting(entry.key, data), entry.timestamp)
        return data

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Value and timestamp, or None."""
        key_bytes = self.codec.key(key)
        entry = self._cache.get(key_bytes) if self._cache else None
        if entry is not None:
            return None if entry.value is None else ValueAndTimestamp(entry.value, entry.timestamp)
        return self.codec.read_timestamped(self._rows.get(key_bytes))

    def forwarded(self, key: Any) -> ValueAndTimestamp | None:
        """The same, but what was forwarded last of a row that is held back."""
        entry = self._cache.get(self.codec.key(key)) if self._cache else None
        return self.codec.read_timestamped(entry.stored) if entry is not None and entry.dirty else self.get(key)

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        """Write; None deletes."""
        entry = self.entry(key)
        entry.value, entry.timestamp = value, timestamp
        self.write(entry)

    def range(self, lower: Any, upper: Any, reverse: bool = False) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        """Rows with lower <= key <= upper in order of the keys' bytes; None = open."""
        for entry in (self._cache or {}).values():
            self.write(entry)
        for key, value in self._rows.range(_bound(self.codec, lower), _bound(self.codec, upper), reverse):
            found = self.codec.read_timestamped(value)
            assert found is not None, "scans give rows that exist"
            yield self.codec.read_key(key), found

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        """All rows in order of the keys' bytes."""
        return self.range(None, None, reverse)


class WindowStore:
    """Key and time -> values; join stores keep every value of a key and time, in order of arrival."""

    def __init__(self, rows: WindowBytes, codec: Codec) -> None:
        self._rows = rows
        self._codec = codec

    def put(self, key: Any, start: int, value: Any) -> None:
        """Write a row at `start` milliseconds."""
        data = self._codec.key(key)
        self._rows.put(data, start, self._codec.fitting(data, self._codec.value(value)), start)

    def fetch_range(self, key: Any, from_ms: int, to_ms: int) -> Iterator[tuple[int, Any]]:
        """Rows of a key with from_ms <= time <= to_ms, by time, then arrival."""
        for start, value in self._rows.fetch_range(self._codec.key(key), from_ms, to_ms):
            yield start, self._codec.read_value(value)


class TimestampedWindowStore:
    """A windowed table: key and window start -> value and timestamp."""

    def __init__(self, rows: WindowBytes, codec: Codec) -> None:
        self._rows = rows
        self.codec = codec
        self._cache: dict[tuple[bytes, int], CachedRow] | None = None
        self.pending: dict[tuple[bytes, int], tuple[Any, Headers, CachedRow]] = {}
        """As in `TimestampedKeyValueStore`."""
        self.updates: dict[tuple[bytes, int], Any] = {}
        """What operators of sliding windows hold back until the end of the step."""

    def use_cache(self) -> None:
        """Share decoded values within the step from here on."""
        self._cache = {} if self._cache is None else self._cache

    def entry(self, key: bytes, start: int) -> CachedRow:
        """The row of a key's bytes and a window start, in work; `write` makes a change of it last."""
        if self._cache is None:
            return CachedRow(key, start, self._rows.fetch(key, start), self.codec)
        entry = self._cache.get((key, start))
        if entry is None:
            entry = self._cache[(key, start)] = CachedRow(key, start, self._rows.fetch(key, start), self.codec)
        return entry

    def entries(self, places: Sequence[tuple[bytes, int]]) -> list[CachedRow]:
        """`entry` of many places, with one read of the store."""
        cache = {} if self._cache is None else self._cache
        new = [place for place in places if place not in cache]
        found = dict(zip(new, self._rows.multi_fetch(new), strict=True)) if new else {}
        for place, stored in found.items():
            cache[place] = CachedRow(place[0], place[1], stored, self.codec)
        return [cache[place] for place in places]

    def write(self, entry: CachedRow) -> bytes | None:
        """Write an entry's value and timestamp, None deletes; the local value."""
        data = self.codec.timestamped(entry.value, entry.timestamp)
        self._rows.put(entry.key, entry.start, self.codec.fitting(entry.key, data), entry.timestamp)
        return data

    def fetch(self, key: Any, start: int) -> ValueAndTimestamp | None:
        """Value and timestamp of one window, or None."""
        key_bytes = self.codec.key(key)
        entry = self._cache.get((key_bytes, start)) if self._cache else None
        if entry is not None:
            return None if entry.value is None else ValueAndTimestamp(entry.value, entry.timestamp)
        return self.codec.read_timestamped(self._rows.fetch(key_bytes, start))

    def get(self, key: Windowed) -> ValueAndTimestamp | None:
        """The same, as tables are looked up."""
        return self.fetch(key.key, key.window.start)

    def forwarded(self, key: Windowed) -> ValueAndTimestamp | None:
        """The same, but what was forwarded last of a row that is held back; of a sliding window without its time (-1)."""
        place = (self.codec.key(key.key), key.window.start)
        if place in self.updates:
            value = self.updates[place][1]
            return None if value is None else ValueAndTimestamp(value, -1)
        entry = self._cache.get(place) if self._cache else None
        return self.codec.read_timestamped(entry.stored) if entry is not None and entry.dirty else self.get(key)

    def put(self, key: Any, start: int, value: Any, timestamp: int) -> None:
        """Write; None deletes."""
        entry = self.entry(self.codec.key(key), start)
        entry.value, entry.timestamp = value, timestamp
        self.write(entry)

    def fetch_range(
        self, key: Any, from_ms: int, to_ms: int, reverse: bool = False
    ) -> Iterator[tuple[int, ValueAndTimestamp]]:
        """Windows of a key with from_ms <= start <= to_ms."""
        self._write_through()
        for start, value in self._rows.fetch_range(self.codec.key(key), from_ms, to_ms, reverse):
            found = self.codec.read_timestamped(value)
            assert found is not None, "scans give rows that exist"
            yield start, found

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Any, int, ValueAndTimestamp]]:
        """Windows of all keys with from_ms <= start <= to_ms, by start, then key bytes."""
        self._write_through()
        for key, start, value in self._rows.fetch_all(from_ms, to_ms):
            found = self.codec.read_timestamped(value)
            assert found is not None, "scans give rows that exist"
            yield self.codec.read_key(key), start, found

    def _write_through(self) -> None:
        for entry in (self._cache or {}).values():
            self.write(entry)


def _bound(codec: Codec, key: Any) -> bytes | None:
    return None if key is None else codec.key(key)
