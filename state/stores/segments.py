"""`Segments`: the time segments of a windowed store, and the first changelog offset that each of them still needs.

Rows that can never matter again are dropped a segment at a time, and the changelog is trimmed below the first offset that
any live segment still needs. Stores that number the rows of a time (joins) also note the newest row of each segment: newer rows
need no look-up for their number. Invariants: the offset recorded for a segment is never after its first record; a segment below
the bound is invisible at once, and its rows leave the table with the next write.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import Int64s, constant, joined
from state.stores.codec import MAX_TIME, pack_segment_prefix
from state.tables.table import KeyRange, RangeRows

UNLOGGED = -1


class Segments:
    """The segments of one store.

    Args:
        store_id: First part of the local keys.
        width_ms: Width of a segment.
        saved: The result of `to_json`, None for a new store.
    """

    def __init__(self, store_id: int, width_ms: int, saved: Mapping[str, Any] | None = None) -> None:
        self.width_ms = width_ms
        self._store_id = store_id
        self._first = {int(segment): int(offset) for segment, offset in (saved or {}).get("first", {}).items()}
        self._committed_before_ms = int((saved or {}).get("before", 0))
        self.before_ms = self._committed_before_ms
        self.bound = self.before_ms // width_ms
        self._committed_newest = {int(segment): int(ms) for segment, ms in (saved or {}).get("newest", {}).items()}
        self._newest = dict(self._committed_newest)
        self._fresh: set[int] = set()
        self._live = sorted(self._first)
        self._prefixes: dict[int, bytes] = {}

    def prefix(self, segment: int) -> bytes:
        """First bytes of the local keys of a segment."""
        prefix = self._prefixes.get(segment)
        if prefix is None:
            prefix = self._prefixes[segment] = pack_segment_prefix(self._store_id, segment)
        return prefix

    def prefixes(self, filed: Int64s) -> Iterator[bytes]:
        """The `prefix` of each row's segment, for n >= 1 rows."""
        same = distinct(filed)
        return repeat(self.prefix(same[0]), len(filed)) if len(same) == 1 else map(self.prefix, filed.tolist())

    def touch(self, segment: int) -> None:
        """Notes that a row of the segment is written in this step."""
        if segment not in self._first and segment not in self._fresh:
            self._fresh.add(segment)
            insort(self._live, segment)

    def newest_ms(self, segment: int) -> int:
        """A time after which the segment has no row: -1 if it has none at all, `MAX_TIME` if no such time is known."""
        unknown = segment in self._first or segment in self._fresh
        return self._newest.get(segment, MAX_TIME if unknown else -1)

    def touch_at(self, segment: int, newest_ms: int) -> None:
        """Does the same as `touch`, for rows up to a time. A store must call it for all of its rows, or for none."""
        known = self.newest_ms(segment)
        if known != MAX_TIME:
            self._newest[segment] = max(known, newest_ms)
        self.touch(segment)

    def between(self, from_ms: int, to_ms: int) -> list[int]:
        """Live segments with times in [from_ms, to_ms], ascending."""
        low = max(from_ms // self.width_ms, self.bound)
        live = self._live
        return live[bisect_left(live, low) : bisect_right(live, to_ms // self.width_ms)]

    def expire(self, before_ms: int) -> None:
        """Expires the rows with a time below `before_ms`. Moving back has no effect."""
        if before_ms > self.before_ms:
            self.before_ms = before_ms
            self.bound = before_ms // self.width_ms

    def dead_ranges(self) -> list[KeyRange]:
        """Key ranges to delete with the next write."""
        if any(segment < self.bound for segment in self._first):
            return [(self.prefix(min(self._first)), self.prefix(self.bound))]
        return []

    def written(self, first_offset: int) -> None:
        """Confirms a write of the table: new segments start at `first_offset`, dead ones are gone."""
        for segment in self._fresh:
            self._first[segment] = first_offset
        self._fresh.clear()
        self._committed_newest = dict(self._newest)
        self._drop_dead()

    def restored(self, firsts: Mapping[int, int]) -> None:
        """Confirms restored records of these segments; the values are the first offset of each segment among the records."""
        for segment, offset in firsts.items():
            self._first[segment] = min(offset, self._first.get(segment, offset))
            self._newest.pop(segment, None)
        self._committed_newest = dict(self._newest)
        self._drop_dead()

    def _drop_dead(self) -> None:
        self._first = {segment: offset for segment, offset in self._first.items() if segment >= self.bound}
        self._newest = {segment: ms for segment, ms in self._newest.items() if segment >= self.bound}
        self._live = sorted(self._first)
        self._committed_before_ms = self.before_ms

    def discard(self) -> None:
        """Forgets the segments that the failed step touched and expired."""
        self._fresh.clear()
        self._newest = dict(self._committed_newest)
        self._live = sorted(self._first)
        self.before_ms = self._committed_before_ms
        self.bound = self.before_ms // self.width_ms

    def clear(self) -> None:
        """Resets everything after the store was emptied; earlier expiry does not apply to later rows."""
        self._first.clear()
        self._newest.clear()
        self._committed_newest.clear()
        self._fresh.clear()
        self._live = []
        self.before_ms = self._committed_before_ms = self.bound = 0

    @property
    def first_offsets(self) -> Mapping[int, int]:
        """Live committed segment -> the first changelog offset that it needs."""
        return self._first

    def to_json(self) -> dict[str, Any]:
        """The state that survives a restart."""
        return self._json(self._first, self._newest)

    def to_json_after(self, first_offset: int, firsts: Mapping[int, int] | None = None) -> dict[str, Any]:
        """The result of `to_json` after the pending write, which must be part of the same atomic write."""
        merged = dict(self._first)
        merged.update(dict.fromkeys(self._fresh, first_offset))
        for segment, offset in (firsts or {}).items():
            merged[segment] = min(offset, merged.get(segment, offset))
        known = {segment: ms for segment, ms in self._newest.items() if segment not in (firsts or {})}
        return self._json(
            *({segment: value for segment, value in of.items() if segment >= self.bound} for of in (merged, known))
        )

    def _json(self, first: Mapping[int, int], newest: Mapping[int, int]) -> dict[str, Any]:
        saved: dict[str, Any] = {"first": {str(segment): offset for segment, offset in first.items()}}
        if newest:
            saved["newest"] = {str(segment): ms for segment, ms in newest.items()}
        return saved | {"before": self.before_ms}


# --- Local keys as columns: prefixes of segments, suffixes of windows and sessions, ranges of rows of a key.

SEGMENT_PREFIX = 10
"""The length of the store id and the segment before a key, bytes."""
_AFTER = constant(b"\x00")


def suffixes(*numbers: tuple[Int64s | int, str]) -> pa.BinaryArray:
    """Columns of big-endian numbers next to each other."""
    count = max(len(column) for column, _ in numbers if not isinstance(column, int))
    rows = np.empty(count, [(str(place), kind) for place, (_, kind) in enumerate(numbers)])
    for place, (column, _) in enumerate(numbers):
        rows[str(place)] = column
    bounds = np.arange(count + 1, dtype=np.int32) * rows.itemsize
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(rows.view(np.uint8))]
    return pa.BinaryArray.from_buffers(pa.binary(), count, buffers)


def distinct(filed: Int64s) -> list[int]:
    """The distinct segments of n >= 1 rows, usually a single one."""
    first = int(filed[0])
    return [first] if (filed == first).all() else np.unique(filed).tolist()


def segment_prefixes(segments: Segments, filed: Int64s) -> pa.BinaryArray | pa.BinaryScalar:
    """The first bytes of the local keys of n >= 1 rows in these segments."""
    if len(same := distinct(filed)) == 1:
        return pa.scalar(segments.prefix(same[0]), pa.binary())
    found, places = np.unique(filed, return_inverse=True)
    return pa.array([segments.prefix(segment) for segment in found.tolist()], pa.binary()).take(pa.array(places))


def ranges_by_segment(segments: Segments, from_ms: Int64s, to_ms: Int64s) -> Iterator[tuple[bytes, Int64s]]:
    """For each live segment that overlaps a request's range of times: its prefix, and the numbers of all such requests."""
    if not len(from_ms):
        return
    first, last = from_ms // segments.width_ms, to_ms // segments.width_ms
    for segment in segments.between(int(from_ms.min()), int(to_ms.max())):
        requests = np.flatnonzero((first <= segment) & (segment <= last) & (from_ms <= to_ms))
        if len(requests):
            yield segments.prefix(segment), requests


def key_ranges(
    keys: pa.BinaryArray,
    lows: pa.BinaryArray,
    highs: pa.BinaryArray | pa.BinaryScalar,
    by_segment: Iterator[tuple[bytes, Int64s]],
) -> tuple[Int64s, pa.BinaryArray, pa.BinaryArray]:
    """The ranges of local keys to scan, in the order of segments: numbers of the requests, lower ends, upper ends."""
    requests, lowers, uppers = [np.empty(0, np.int64)], [_none()], [_none()]
    for prefix, numbers in by_segment:
        rows, front = pa.array(numbers), pa.scalar(prefix, pa.binary())
        own = keys.take(rows)
        requests.append(numbers)
        lowers.append(joined(front, own, lows.take(rows)))
        uppers.append(joined(front, own, highs.take(rows) if isinstance(highs, pa.Array) else highs, _AFTER))
    return np.concatenate(requests), pa.concat_arrays(lowers), pa.concat_arrays(uppers)


def own_rows(found: RangeRows, requests: Int64s, keys: pa.BinaryArray, suffix: int) -> tuple[Int64s, RangeRows]:
    """The rows that have exactly their request's key, in the order of the requests: numbers of the requests, rows.

    Between the rows of a key there may be rows of longer keys, which are recognised by their length.
    """
    numbers = requests[found.ranges]
    lengths = pc.binary_length(keys).to_numpy()[numbers] + (SEGMENT_PREFIX + suffix)
    rows = np.flatnonzero(pc.binary_length(found.keys).to_numpy() == lengths)
    rows = rows[np.argsort(numbers[rows], kind="stable")]
    if len(rows) == len(numbers) and (rows[1:] > rows[:-1]).all():
        return numbers, found
    taken = pa.array(rows)
    return numbers[rows], RangeRows(found.ranges[rows], found.keys.take(taken), found.values.take(taken))


def _none() -> pa.BinaryArray:
    return pa.array([], pa.binary())
