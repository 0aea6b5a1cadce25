"""The typed session store: key and session -> value, over the byte store of `state.stores`.

A session's value has no timestamp of its own; its timestamp is the session's end (Kafka Streams: `SessionStore`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.stores.byte_stores import SessionRows
from streams.model.record import ValueAndTimestamp, Window, Windowed
from streams.model.times import MAX_TIME
from streams.operators.stores.byte_stores import SessionBytes
from streams.operators.stores.codec import Codec
from streams.operators.stores.read_ahead import ReadAhead

Int64s: TypeAlias = npt.NDArray[np.int64]


class TypedSessionStore:
    """Sessions by key."""

    def __init__(self, rows: SessionBytes, codec: Codec) -> None:
        self._rows = rows
        self.codec = codec
        self._updates: dict[tuple[bytes, Window], tuple[Windowed, Any, Any]] = {}
        self._read = ReadAhead()

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        """Write a session's value; None deletes it."""
        data = self.codec.key(key)
        cell = self.codec.fitting(data, self.codec.value(value))
        self._rows.put(data, start, end, cell, end)
        if end >= self.earliest_end:
            self._read.put(data, (end, start), cell)

    def read_ahead(self, keys: Sequence[bytes], earliest_ends: Int64s, latest_starts: Int64s) -> None:
        """Reads sessions of many keys at once, for `find_sessions` within these bounds, until `forget`."""
        found = self._rows.find_columns(pa.array(keys, pa.binary()), earliest_ends, latest_starts)
        self._read = ReadAhead(keys)
        places = zip(found.ends.tolist(), found.starts.tolist(), strict=True)
        for request, place, cell in zip(found.requests.tolist(), places, found.values.to_pylist(), strict=True):
            self._read.append(keys[request], place, cell)

    def forget(self) -> None:
        self._read = ReadAhead()

    @property
    def earliest_end(self) -> int:
        """The smallest end of a session that the store still takes, ms."""
        return self._rows.earliest_end

    def find_columns(self, keys: pa.BinaryArray, earliest_ends: Int64s, latest_starts: Int64s) -> SessionRows:
        """`find_sessions` for the bytes of a column of keys; values are bytes, too."""
        return self._rows.find_columns(keys, earliest_ends, latest_starts)

    def put_columns(self, keys: pa.BinaryArray, starts: Int64s, ends: Int64s, values: pa.BinaryArray) -> None:
        """Write a column of sessions, keys and values as bytes; null deletes."""
        self._rows.put_columns(keys, starts, ends, values, ends)

    def fetch(self, key: Any, start: int, end: int) -> Any:
        """The value of one session, or None."""
        return self.codec.read_value(self._rows.fetch_session(self.codec.key(key), start, end))

    def get(self, key: Windowed) -> ValueAndTimestamp | None:
        """The value by windowed key, as in table look-ups; the timestamp is the session's end."""
        value = self.fetch(key.key, key.window.start, key.window.end)
        return None if value is None else ValueAndTimestamp(value, key.window.end)

    def forwarded(self, key: Windowed) -> ValueAndTimestamp | None:
        place = (self.codec.key(key.key), key.window)
        if place not in self._updates:
            return self.get(key)
        value = self._updates[place][1]
        return None if value is None else ValueAndTimestamp(value, key.window.end)

    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[Window, Any]]:
        """Sessions of a key with end >= earliest_end and start <= latest_start, by end, then start."""
        data = self.codec.key(key)
        for start, end, value in self._found(data, earliest_end, latest_start, reverse):
            yield Window(start, end), self.codec.read_value(value)

    def _found(
        self, key: bytes, earliest_end: int, latest_start: int, reverse: bool
    ) -> Iterable[tuple[int, int, bytes]]:
        if key not in self._read:
            return self._rows.find_sessions(key, earliest_end, latest_start, reverse)
        known = self._read.between(key, (earliest_end,), (MAX_TIME,), reverse)
        return [(start, end, value) for (end, start), value in known if start <= latest_start]

    def fetch_all(self, from_end: int, to_end: int, reverse: bool = False) -> Iterator[tuple[Windowed, Any]]:
        """Sessions of all keys with from_end <= end <= to_end, by end, then start, then key bytes."""
        for key, start, end, value in self._rows.fetch_all(from_end, to_end, reverse):
            yield Windowed(self.codec.read_key(key), Window(start, end)), self.codec.read_value(value)

    def hold_update(self, key: Windowed, new: Any, old: Any) -> None:
        """Buffers an update until the end of the step; of several, the first old value and the last new one count.

        The buffer is here and not in an operator, because the streams of a cogroup share the store.
        """
        place = (self.codec.key(key.key), key.window)
        first = self._updates[place][1] if place in self._updates else old
        self._updates[place] = (key, first, new)

    def take_updates(self) -> list[tuple[Windowed, Any, Any]]:
        """Removes and returns all pending updates (session, old value, new value), in order of time, then by arrival."""
        updates, self._updates = self._updates, {}
        return sorted(updates.values(), key=lambda update: update[0].window.end)
