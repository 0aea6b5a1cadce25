"""Window stores as bytes: one row per (key, window start), or one per put for joins.

Local key: store(2) ∥ segment(8) ∥ key ∥ start(8) ∥ seq(4), segment = start // segment width. Values are local values,
as in `keyvalue`. Scans over one key may meet rows of longer keys in between, which are recognised by their length
(Kafka Streams: `WindowKeySchema.hasNextCondition`).

Duplicates: the sequence number counts the rows of the same (key, start). It is derived from the existing rows, so it is the
same after a restart, a restore or a recompute, and never repeats (Kafka Streams counts in memory, from 0 after each restart,
and may overwrite an older duplicate).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.stores import window_columns
from state.stores.codec import (
    MAX_SEQUENCE,
    MAX_TIME,
    WINDOW_SUFFIX,
    pack_window_suffix,
    split_window_key,
    upper_with_suffix,
)
from state.stores.found_rows import WindowRows
from state.stores.local_keys import SEGMENT_PREFIX
from state.stores.segments import Segments
from state.stores.spec import StoreSpec
from state.tables.buffer import WriteBuffer


class WindowBytesStore:
    """Rows by key and window start; a put into an expired segment is ignored, as in Kafka Streams.

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
        self._duplicates = spec.retain_duplicates

    @property
    def oldest_ms(self) -> int:
        """Rows with earlier starts are expired: puts of them are ignored, and none are found."""
        return self._segments.bound * self._width

    def put(self, key: bytes, start: int, value: bytes | None, timestamp: int) -> None:
        """Writes the local value of a window; None deletes. With duplicates, a put adds a row, and None has no effect."""
        segment = start // self._width
        if segment < self._segments.bound:
            return
        sequence = 0
        if self._duplicates:
            if value is None:
                return
            sequence = self._next_sequence(key, start, segment)
            self._segments.touch_at(segment, start)
        else:
            self._segments.touch(segment)
        self._buffer.put(self._segments.prefix(segment) + key + pack_window_suffix(start, sequence), value, timestamp)

    @property
    def earliest_start(self) -> int:
        """The smallest start of a window that the store still takes, ms."""
        return self._segments.bound * self._width

    def fetch(self, key: bytes, start: int) -> bytes | None:
        """The local value of one window (with duplicates: the first of them)."""
        segment = start // self._width
        if segment < self._segments.bound:
            return None
        return self._buffer.get(self._segments.prefix(segment) + key + pack_window_suffix(start, 0))

    def multi_fetch(self, windows: Sequence[tuple[bytes, int]]) -> list[bytes | None]:
        """The local values of several (key, start), in their order."""
        prefix, width, bound = self._segments.prefix, self._width, self._segments.bound
        values = self._buffer.multi_get(
            [prefix(start // width) + key + pack_window_suffix(start, 0) for key, start in windows]
        )
        if bound:
            return [v if w[1] // width >= bound else None for w, v in zip(windows, values, strict=True)]
        return values

    def put_columns(
        self,
        keys: pa.BinaryArray,
        starts: npt.NDArray[np.int64],
        values: pa.BinaryArray,
        timestamps: npt.NDArray[np.int64],
    ) -> None:
        """Writes a column of rows, as `put` row by row would."""
        window_columns.put(self._buffer, self._segments, self._duplicates, (keys, starts, values, timestamps))

    def fetch_columns(self, keys: pa.BinaryArray, starts: npt.NDArray[np.int64]) -> pa.BinaryArray:
        """The local values of a column of windows, null where there is none (`fetch` for a column)."""
        return window_columns.fetch(self._buffer, self._segments, keys, starts)

    def fetch_ranges(
        self, keys: pa.BinaryArray, from_ms: npt.NDArray[np.int64], to_ms: npt.NDArray[np.int64]
    ) -> WindowRows:
        """Rows of each key with from_ms <= start <= to_ms (`fetch_range` for a column).

        Requests sorted by key and `from_ms` are the fastest.
        """
        return window_columns.fetch_ranges(self._buffer, self._segments, keys, from_ms, to_ms)

    def fetch_range(self, key: bytes, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[int, bytes]]:
        """(start, local value) of one key with from_ms <= start <= to_ms, by start, then in order of writing."""
        from_ms = max(from_ms, 0)
        if to_ms < from_ms:
            return iter(())
        low, high = pack_window_suffix(from_ms, 0), pack_window_suffix(to_ms, MAX_SEQUENCE) + b"\x00"
        scans = []
        for segment in self._segments.between(from_ms, to_ms):
            prefix = self._segments.prefix(segment) + key
            scans.append(self._buffer.scan(prefix + low, prefix + high, reverse))
        if reverse:
            scans.reverse()
        length = SEGMENT_PREFIX + len(key) + WINDOW_SUFFIX
        return (
            (int.from_bytes(row[-12:-4], "big"), value) for scan in scans for row, value in scan if len(row) == length
        )

    def fetch_all(self, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, start, local value) with from_ms <= start <= to_ms, by start, then key, then in order of writing.

        The rows of one segment at a time are sorted in memory.
        """
        return self.fetch_keys(None, None, from_ms, to_ms, reverse)

    def fetch_keys(
        self, key_from: bytes | None, key_to: bytes | None, from_ms: int, to_ms: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, int, bytes]]:
        """As `fetch_all`, for keys with key_from <= key <= key_to (None = open)."""
        from_ms = max(from_ms, 0)
        if to_ms < from_ms:
            return
        segments = self._segments.between(from_ms, to_ms)
        for segment in reversed(segments) if reverse else segments:
            rows: list[tuple[int, bytes, int, bytes]] = []
            for row, value in self._scan_segment(segment, key_from, key_to):
                key, start, sequence = split_window_key(row)
                if (
                    from_ms <= start <= to_ms
                    and (key_from is None or key >= key_from)
                    and (key_to is None or key <= key_to)
                ):
                    rows.append((start, key, sequence, value))
            rows.sort(reverse=reverse)
            for start, key, _, value in rows:
                yield key, start, value

    def _scan_segment(
        self, segment: int, key_from: bytes | None, key_to: bytes | None
    ) -> Iterator[tuple[bytes, bytes]]:
        prefix = self._segments.prefix(segment)
        lower = prefix + (key_from or b"")
        if key_to is None:
            upper = self._segments.prefix(segment + 1)
        else:
            upper = prefix + upper_with_suffix(key_to, pack_window_suffix(MAX_TIME, MAX_SEQUENCE)) + b"\x00"
        if lower >= upper:
            return
        for row, value in self._buffer.scan(lower, upper):
            yield row[SEGMENT_PREFIX:], value

    def _next_sequence(self, key: bytes, start: int, segment: int) -> int:
        """The next number of a (key, start), whose rows are numbered 0, 1, 2, ...: nearly always 0."""
        prefix = self._segments.prefix(segment) + key
        if start > self._segments.newest_ms(segment) or self._buffer.get(prefix + pack_window_suffix(start, 0)) is None:
            return 0
        lower = prefix + pack_window_suffix(start, 0)
        upper = prefix + pack_window_suffix(start, MAX_SEQUENCE) + b"\x00"
        for row, _ in self._buffer.scan(lower, upper, reverse=True):
            if len(row) == len(lower):
                return int.from_bytes(row[-4:], "big") + 1
        return 0
