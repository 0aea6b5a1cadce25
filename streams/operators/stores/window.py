"""The typed window and session stores of operators, over the byte stores of `state.stores`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from state.stores.byte_stores import SessionBytesStore, SessionRows, WindowBytesStore, WindowRows
from streams.model.ownership import snapshot
from streams.model.record import ValueAndTimestamp, Window, Windowed
from streams.operators.columnar import Int64s
from streams.operators.stores.codec import Codec
from streams.operators.stores.key_value import CachedRows


class TypedWindowStore:
    """Key and time -> values. The stores of joins hold every value of a key and time, in order of arrival."""

    def __init__(self, rows: WindowBytesStore, codec: Codec) -> None:
        self._rows = rows
        self.codec = codec

    def put(self, key: Any, start: int, value: Any) -> None:
        """Write a row at `start` milliseconds."""
        data = self.codec.key(key)
        self._rows.put(data, start, self.codec.fitting(data, self.codec.value(value)), start)

    def fetch(self, key: Any, start: int) -> Any:
        """The value of one window, the first if there are several; None if there is none."""
        return self.codec.read_value(self._rows.fetch(self.codec.key(key), start))

    def fetch_range(self, key: Any, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[int, Any]]:
        """Rows of a key with from_ms <= time <= to_ms, by time, then arrival."""
        for start, value in self._rows.fetch_range(self.codec.key(key), from_ms, to_ms, reverse):
            yield start, self.codec.read_value(value)

    @property
    def earliest_start(self) -> int:
        """The earliest time, ms: rows with earlier times are neither stored nor found."""
        return self._rows.earliest_start

    def fetch_ranges(self, keys: pa.BinaryArray, from_ms: Int64s, to_ms: Int64s) -> WindowRows:
        """`fetch_range` for a column of keys, as bytes; values are bytes, too."""
        return self._rows.fetch_ranges(keys, from_ms, to_ms)

    def fetch_columns(self, keys: pa.BinaryArray, starts: Int64s) -> pa.BinaryArray:
        """The values' bytes of a column of windows, null where there is none."""
        return self._rows.fetch_columns(keys, starts)

    def put_columns(self, keys: pa.BinaryArray, starts: Int64s, values: pa.BinaryArray) -> None:
        """`put` for columns of rows whose sizes have been checked (`Codec.check_all`)."""
        self._rows.put_columns(keys, starts, values, starts)

    def fetch_all(self, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[Any, int, Any]]:
        """Rows of all keys with from_ms <= time <= to_ms, by time, then key bytes, then arrival."""
        for key, start, value in self._rows.fetch_all(from_ms, to_ms, reverse):
            yield self.codec.read_key(key), start, self.codec.read_value(value)


class HeldUpdate(NamedTuple):
    """An update of a window that waits for the end of the step.

    Attributes:
        key: The key of the last record of the window.
        window: The window.
        old: The local value before the step; None if there was none.
        new: The aggregate; None: the window is deleted.
        time: The timestamp of the result, ms.
        headers: The encoded headers of the result.
    """

    key: Any
    window: Window
    old: bytes | None
    new: Any
    time: int
    headers: bytes | None


HeldUpdates: TypeAlias = dict[tuple[bytes, Window], HeldUpdate]
"""Key's bytes and window -> update. The store holds them, because the streams of a cogroup share it."""


class TypedTimestampedWindowStore(CachedRows):
    """A windowed table: key and window start -> value and timestamp."""

    def __init__(self, rows: WindowBytesStore, codec: Codec) -> None:
        super().__init__(codec)
        self._rows = rows
        self.updates: HeldUpdates = {}
        """The pending updates of sliding windows."""

    def _fetch(self, key: bytes, start: int) -> bytes | None:
        return self._rows.fetch(key, start)

    def _fetch_each(self, places: Sequence[tuple[bytes, int]]) -> list[bytes | None]:
        return self._rows.multi_fetch(places)

    def _put(self, key: bytes, start: int, cell: bytes | None, timestamp: int) -> None:
        self._rows.put(key, start, cell, timestamp)

    @property
    def earliest_start(self) -> int:
        """The smallest start of a window that the store still accepts, ms."""
        return self._rows.earliest_start

    def fetch_columns(self, keys: pa.BinaryArray, starts: Int64s) -> pa.BinaryArray:
        """The local values of a column of windows; null where there is none. Updates in the step cache are not included."""
        return self._rows.fetch_columns(keys, starts)

    def fetch_ranges(self, keys: pa.BinaryArray, from_ms: Int64s, to_ms: Int64s) -> WindowRows:
        """`fetch_range` for a column of keys, as bytes; values are local values."""
        return self._rows.fetch_ranges(keys, from_ms, to_ms)

    def put_columns(self, keys: pa.BinaryArray, starts: Int64s, values: pa.BinaryArray, timestamps: Int64s) -> None:
        """Write a column of windows, keys as bytes and local values; null deletes."""
        self._rows.put_columns(keys, starts, values, timestamps)

    def fetch(self, key: Any, start: int) -> ValueAndTimestamp | None:
        """Value and timestamp of one window, or None."""
        return self._get(self.codec.key(key), start)

    def get(self, key: Windowed) -> ValueAndTimestamp | None:
        return self.fetch(key.key, key.window.start)

    def forwarded(self, key: Windowed) -> ValueAndTimestamp | None:
        data = self.codec.key(key.key)
        if (data, key.window) in self.updates:
            value = self.codec.old_value(self.updates[data, key.window].old)
            return None if value is None else ValueAndTimestamp(value, -1)
        entry = self._cache.get((data, key.window.start)) if self._cache else None
        return self.codec.read_timestamped(entry.stored) if entry is not None and entry.dirty else self.get(key)

    def put(self, key: Any, start: int, value: Any, timestamp: int) -> None:
        data = self.codec.key(key)
        if self._cache is None:
            cell = self.codec.fitting(data, self.codec.timestamped(value, timestamp))
            self._rows.put(data, start, cell, timestamp)
            return
        entry = self.entry_at(data, start)
        entry.value, entry.timestamp = None if value is None else snapshot(self.codec.seen(value)), timestamp
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

    def newest_cells(self, keys: pa.BinaryArray, from_ms: Int64s, to_ms: Int64s) -> list[bytes | None]:
        """For each key, as bytes, the local value of its newest window with from_ms <= start <= to_ms; None if there is none."""
        ranges = zip(keys.to_pylist(), from_ms.tolist(), to_ms.tolist(), strict=True)
        # One scan per key, which ends at the first row, because the number of rows in a range is not known.
        found = (next(self._rows.fetch_range(key, start, end, reverse=True), None) for key, start, end in ranges)
        return [None if row is None else row[1] for row in found]

    def fetch_all(
        self, from_ms: int, to_ms: int, reverse: bool = False
    ) -> Iterator[tuple[Any, int, ValueAndTimestamp]]:
        """Windows of all keys with from_ms <= start <= to_ms, by start, then key bytes."""
        self._write_through()
        for key, start, value in self._rows.fetch_all(from_ms, to_ms, reverse):
            found = self.codec.read_timestamped(value)
            assert found is not None, "scans give rows that exist"
            yield self.codec.read_key(key), start, found


# --- The typed session store: key and session -> value, over the byte store of `state.stores`.
#
# A session's value has no timestamp of its own; its timestamp is the session's end (Kafka Streams: `SessionStore`).


class TypedSessionStore:
    """Sessions by key."""

    def __init__(self, rows: SessionBytesStore, codec: Codec) -> None:
        self._rows = rows
        self.codec = codec
        self.updates: HeldUpdates = {}
        """The pending updates of sessions."""

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        """Write a session's value; None deletes it."""
        data = self.codec.key(key)
        self._rows.put(data, start, end, self.codec.fitting(data, self.codec.value(value)), end)

    @property
    def earliest_end(self) -> int:
        """The smallest end of a session that the store still accepts, ms."""
        return self._rows.earliest_end

    def find_columns(self, keys: pa.BinaryArray, earliest_ends: Int64s, latest_starts: Int64s) -> SessionRows:
        """`find_sessions` for a column of keys, as bytes; values are bytes, too."""
        return self._rows.find_columns(keys, earliest_ends, latest_starts)

    def put_columns(self, keys: pa.BinaryArray, starts: Int64s, ends: Int64s, values: pa.BinaryArray) -> None:
        """Write a column of sessions, keys and values as bytes; null deletes."""
        self._rows.put_columns(keys, starts, ends, values, ends)

    def fetch(self, key: Any, start: int, end: int) -> Any:
        """The value of one session, or None."""
        return self.codec.read_value(self._rows.fetch_session(self.codec.key(key), start, end))

    def get(self, key: Windowed) -> ValueAndTimestamp | None:
        """The value of a windowed key, for table look-ups; its timestamp is the session's end."""
        value = self.fetch(key.key, key.window.start, key.window.end)
        return None if value is None else ValueAndTimestamp(value, key.window.end)

    def forwarded(self, key: Windowed) -> ValueAndTimestamp | None:
        place = (self.codec.key(key.key), key.window)
        if place not in self.updates:
            return self.get(key)
        value = self.codec.read_value(self.updates[place].old)
        return None if value is None else ValueAndTimestamp(value, key.window.end)

    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[Window, Any]]:
        """Sessions of a key with end >= earliest_end and start <= latest_start, by end, then start."""
        data = self.codec.key(key)
        for start, end, value in self._rows.find_sessions(data, earliest_end, latest_start, reverse):
            yield Window(start, end), self.codec.read_value(value)

    def fetch_all(self, from_end: int, to_end: int, reverse: bool = False) -> Iterator[tuple[Windowed, Any]]:
        """Sessions of all keys with from_end <= end <= to_end, by end, then start, then key bytes."""
        for key, start, end, value in self._rows.fetch_all(from_end, to_end, reverse):
            yield Windowed(self.codec.read_key(key), Window(start, end)), self.codec.read_value(value)
