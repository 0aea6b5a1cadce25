"""Session stores as bytes: one row per (key, session end, session start).

Local key: store(2) ∥ segment(8) ∥ key ∥ end(8) ∥ start(8), segment = end // segment width.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.stores.codec import MAX_TIME, SESSION_SUFFIX, pack_session_suffix, split_session_key
from state.stores.found_rows import SessionRows
from state.stores.local_keys import SEGMENT_PREFIX, key_ranges, own_rows, ranges_by_segment, segment_prefixes, suffixes
from state.stores.segments import Segments
from state.stores.spec import StoreSpec
from state.tables.binary_columns import joined, numbers_at
from state.tables.buffer import WriteBuffer
from state.tables.table import Row


class SessionBytesStore:
    """Sessions by key. A put of a session whose end is in an expired segment is ignored.

    Args:
        spec: The store.
        buffer: The task's writes over its table.
        segments: Its segments.
    """

    def __init__(self, spec: StoreSpec, buffer: WriteBuffer, segments: Segments) -> None:
        self.spec = spec
        self._buffer = buffer
        self._segments = segments
        self._width = segments.width_ms

    def put(self, key: bytes, start: int, end: int, value: bytes | None, timestamp: int) -> None:
        """Writes a session's aggregate, None deletes it."""
        segment = end // self._width
        if segment < self._segments.bound:
            return
        self._segments.touch(segment)
        self._buffer.put(self._segments.prefix(segment) + key + pack_session_suffix(end, start), value, timestamp)

    @property
    def earliest_end(self) -> int:
        """The smallest end of a session that the store still takes, ms."""
        return self._segments.bound * self._width

    def fetch_session(self, key: bytes, start: int, end: int) -> bytes | None:
        segment = end // self._width
        if segment < self._segments.bound:
            return None
        return self._buffer.get(self._segments.prefix(segment) + key + pack_session_suffix(end, start))

    def put_columns(
        self,
        keys: pa.BinaryArray,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        values: pa.BinaryArray,
        timestamps: npt.NDArray[np.int64],
    ) -> None:
        """Writes a column of sessions, as `put` row by row would."""
        filed = ends // self._width
        alive = filed >= self._segments.bound
        if not alive.all():
            keys, starts, ends, filed, timestamps = (
                keys.filter(alive),
                *(c[alive] for c in (starts, ends, filed, timestamps)),
            )
            values = values.filter(alive)
        for segment in np.unique(filed).tolist():
            self._segments.touch(segment)
        suffix = suffixes((ends, ">i8"), (starts, ">i8"))
        self._buffer.put_columns(joined(segment_prefixes(self._segments, filed), keys, suffix), values, timestamps)

    def find_columns(
        self, keys: pa.BinaryArray, earliest_ends: npt.NDArray[np.int64], latest_starts: npt.NDArray[np.int64]
    ) -> SessionRows:
        """Sessions of each key with end >= earliest_end and start <= latest_start (`find_sessions` for a column).

        Requests sorted by key and `earliest_ends` are the fastest.
        """
        earliest_ends = np.maximum(earliest_ends, 0)
        last = np.full(len(earliest_ends), MAX_TIME)
        lows = suffixes((earliest_ends, ">i8"), (0, ">i8"))
        by_segment = ranges_by_segment(self._segments, earliest_ends, last)
        requests, lowers, uppers = key_ranges(
            keys, lows, pa.scalar(pack_session_suffix(MAX_TIME, MAX_TIME), pa.binary()), by_segment
        )
        numbers, found = own_rows(self._buffer.scan_ranges(lowers, uppers), requests, keys, SESSION_SUFFIX)
        starts, ends = numbers_at(found.keys, -8), numbers_at(found.keys, -16)
        early = starts <= latest_starts[numbers]
        values = found.values.filter(pa.array(early))
        return SessionRows(numbers[early].astype(np.int32), starts[early], ends[early], values)

    def find_sessions(
        self, key: bytes, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, bytes]]:
        """(start, end, aggregate) of one key with end >= earliest_end and start <= latest_start, by end, then start."""
        earliest_end = max(earliest_end, 0)
        low, high = pack_session_suffix(earliest_end, 0), pack_session_suffix(MAX_TIME, MAX_TIME) + b"\x00"
        scans = []
        for segment in self._segments.between(earliest_end, MAX_TIME):
            prefix = self._segments.prefix(segment) + key
            scans.append(self._buffer.scan(prefix + low, prefix + high, reverse))
        if reverse:
            scans.reverse()
        return self._sessions(scans, SEGMENT_PREFIX + len(key) + SESSION_SUFFIX, latest_start)

    @staticmethod
    def _sessions(scans: list[Iterator[Row]], length: int, latest_start: int) -> Iterator[tuple[int, int, bytes]]:
        for scan in scans:
            for row, value in scan:
                if len(row) == length:
                    _, end, start = split_session_key(row)
                    if start <= latest_start:
                        yield start, end, value

    def fetch(self, key: bytes, reverse: bool = False) -> Iterator[tuple[int, int, bytes]]:
        """All sessions of one key: (start, end, aggregate), by end, then start."""
        return self.find_sessions(key, 0, MAX_TIME, reverse)

    def fetch_all(self, from_end: int, to_end: int, reverse: bool = False) -> Iterator[tuple[bytes, int, int, bytes]]:
        """(key, start, end, aggregate) with from_end <= end <= to_end, by end, then start, then key.

        The rows of one segment at a time are sorted in memory.
        """
        from_end = max(from_end, 0)
        if to_end < from_end:
            return
        segments = self._segments.between(from_end, to_end)
        for segment in reversed(segments) if reverse else segments:
            rows: list[tuple[int, int, bytes, bytes]] = []
            for row, value in self._buffer.scan(self._segments.prefix(segment), self._segments.prefix(segment + 1)):
                key, end, start = split_session_key(row[SEGMENT_PREFIX:])
                if from_end <= end <= to_end:
                    rows.append((end, start, key, value))
            rows.sort(reverse=reverse)
            for end, start, key, value in rows:
                yield key, start, end, value
