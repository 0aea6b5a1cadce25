"""The stores as bytes, by kind: key-value, versioned, window and session, over a `WriteBuffer`.

Values are local values: of a timestamped store `codec.timestamped(value, timestamp)`, both when read and when written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import FEW_CELLS, Int64s, binary_column, joined, numbers_at, prefix_ends, sliced
from state.sorting import numbered, sorted_rows
from state.stores.codec import (
    MAX_SEQUENCE,
    MAX_TIME,
    SESSION_SUFFIX,
    WINDOW_SUFFIX,
    pack_long,
    pack_session_suffix,
    pack_window_suffix,
    prefix_end,
    split_session_key,
    split_window_key,
)
from state.stores.segments import (
    SEGMENT_PREFIX,
    Segments,
    distinct,
    key_ranges,
    own_rows,
    ranges_by_segment,
    segment_prefixes,
    suffixes,
)
from state.stores.spec import StoreSpec
from state.tables.buffer import WriteBuffer, are_few
from state.tables.table import Columns, RangeRows, Row, columns_of


class WindowRows(NamedTuple):
    """Rows of a window store, columns of equal length, ordered by request, start and order of writing.

    Attributes:
        requests: int32[n], index of the key that a row was found for.
        starts: int64[n], ms.
        values: binary[n], local values, none null.
    """

    requests: npt.NDArray[np.int32]
    starts: Int64s
    values: pa.BinaryArray


class SessionRows(NamedTuple):
    """Sessions, columns of equal length, ordered by request, end and start.

    Attributes:
        requests: int32[n], index of the key that a session was found for.
        starts: int64[n], ms.
        ends: int64[n], ms.
        values: binary[n], aggregates, none null.
    """

    requests: npt.NDArray[np.int32]
    starts: Int64s
    ends: Int64s
    values: pa.BinaryArray


class KeyValueBytesStore:
    """Rows sorted by the unsigned bytes of the keys; any bytes may be a key, including none.

    Args:
        buffer: The task's writes over its table.
        prefix: First bytes of its local keys.
    """

    def __init__(self, spec: StoreSpec, buffer: WriteBuffer, prefix: bytes) -> None:
        self.spec = spec
        self._buffer = buffer
        self._prefix = prefix
        end = prefix_end(prefix)
        assert end is not None
        self._end: bytes = end
        self._skip = len(prefix)

    def get(self, key: bytes) -> bytes | None:
        """The local value, None if there is none."""
        return self._buffer.get(self._prefix + key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The local values of several keys, in their order."""
        prefix = self._prefix
        return self._buffer.multi_get([prefix + key for key in keys])

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Writes a local value, None deletes."""
        self._buffer.put(self._prefix + key, value, timestamp)

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The local values of a column of keys (none null), null where a key has none. Sorted keys are the fastest."""
        return self._buffer.get_columns(self._local(keys))

    def put_columns(self, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: Int64s) -> None:
        """Writes a column of rows, as `put` row by row would; null deletes."""
        if are_few(keys):
            for key, value, timestamp in zip(keys.to_pylist(), values.to_pylist(), timestamps.tolist(), strict=True):
                self.put(key, value, timestamp)
        else:
            self._buffer.put_columns(self._local(keys), values, timestamps)

    def scan_prefixes(self, prefixes: pa.BinaryArray) -> RangeRows:
        """Rows whose key starts with each of these bytes (`prefix` for a column). Sorted prefixes are the fastest."""
        lowers = self._local(prefixes)
        found = self._buffer.scan_ranges(lowers, prefix_ends(lowers))
        return found._replace(keys=sliced(found.keys, self._skip))

    def range_columns(self, lower: bytes, upper: bytes) -> RangeRows:
        bounds = ([self._prefix + lower], [self._prefix + upper + b"\x00"])
        found = self._buffer.scan_ranges(*(pa.array(bound, pa.binary()) for bound in bounds))
        return found._replace(keys=sliced(found.keys, self._skip))

    def _local(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return joined(pa.scalar(self._prefix, pa.binary()), keys)

    def range(self, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """Rows with lower <= key <= upper (both inclusive, None = open), as of now."""
        start = self._prefix if lower is None else self._prefix + lower
        # No key lies between `upper` and `upper ∥ 0x00`.
        end = self._end if upper is None else self._prefix + upper + b"\x00"
        return self._rows(start, end, reverse)

    def prefix(self, prefix: bytes, reverse: bool = False) -> Iterator[Row]:
        """Rows whose key starts with these bytes (Kafka Streams: `prefixScan`)."""
        start = self._prefix + prefix
        end = prefix_end(start)
        assert end is not None
        return self._rows(start, end, reverse)

    def all(self, reverse: bool = False) -> Iterator[Row]:
        return self._rows(self._prefix, self._end, reverse)

    def first_columns(self, start: bytes, end: bytes | None, rows: int, size: int) -> Columns:
        """The first rows with start <= key < end (None = open), as columns.

        Args:
            start: The smallest key.
            end: The first key that is not wanted.
            rows: The most rows.
            size: The most bytes of all keys, and of all values; a first row that is larger comes alone.
        """
        start, end = self._prefix + start, self._end if end is None else self._prefix + end
        if start >= end:
            return columns_of([])
        keys, values = self._buffer.first_columns(start, end, rows, size)
        return sliced(keys, self._skip), values

    def delete_range(self, lower: bytes | None, upper: bytes | None, timestamp: int) -> int:
        """Deletes the rows of a range, each with a tombstone in the changelog, and returns their number."""
        keys = [key for key, _ in self.range(lower, upper)]
        for key in keys:
            self.put(key, None, timestamp)
        return len(keys)

    def _rows(self, start: bytes, end: bytes, reverse: bool) -> Iterator[Row]:
        if start >= end:
            return iter(())
        skip = self._skip
        return ((key[skip:], value) for key, value in self._buffer.scan(start, end, reverse))


TOMBSTONE = b"\x00"
VALUE = b"\x01"
BOUNDED = b"\x02"
"""Marks a value at whose time the history before it ends, whatever that history is; a deletion at this time is remembered."""
FORGOTTEN = b"\x03"
"""Marks a row without a version: a deletion that the store has forgotten, with the value that it deleted (as Kafka Streams
does)."""

VALID_TO_UNDEFINED = -1
"""Returned by a put of the newest version: no later version ends it (Kafka Streams: PUT_RETURN_CODE_VALID_TO_UNDEFINED)."""
NOT_PUT = -(2**63)
"""Returned by a put that is older than the history (Kafka Streams: PUT_RETURN_CODE_NOT_PUT)."""


@dataclass(frozen=True, slots=True)
class VersionedRecord:
    """One version of a key.

    Attributes:
        value: The bare value.
        timestamp: The start of the version's validity, ms.
        valid_to: The end of its validity, exclusive; None = the newest version.
    """

    value: bytes
    timestamp: int
    valid_to: int | None


class VersionedBytesStore:
    """Versioned key-value stores as bytes (KIP-889): every value of a key with the time from which it is valid.

    Local key: store(2) ∥ key ∥ timestamp(8); local value: 0x01 ∥ value, or 0x00 for a deletion at that time. One more
    row, whose key is the bare store prefix, holds the store's stream time. Versions that ended before the history are
    pruned at a put of their key; the pruning is local and never reaches the changelog.

    Kafka Streams keeps the newest value of a key apart from the history (`RocksDBVersionedStore`). A deletion at the time of the
    newest value only removes that value: it is remembered only if the history before the value reaches up to that time. So an
    older value that comes later may become the newest. For example, a key has a single value, at 10, and is deleted at 10. Then a
    value at 5 arrives: it is valid from 5 on, even after 10. A put that `forgets` does the same. Versions alone do not show which
    deletions to forget. So versions are marked, in their rows (`BOUNDED`, `FORGOTTEN`) and in a header of their changelog records.

    Args:
        spec: The store; `retention_ms` is the length of the history.
        buffer: The task's writes over its table.
        prefix: First bytes of its local keys.
    """

    def __init__(self, spec: StoreSpec, buffer: WriteBuffer, prefix: bytes) -> None:
        self.spec = spec
        self._buffer = buffer
        self._prefix = prefix
        self._history = spec.retention_ms or 0

    @property
    def stream_time(self) -> int:
        """The largest timestamp ever put, -1 before the first."""
        data = self._buffer.get(self._prefix)
        return -1 if data is None else int.from_bytes(data, "big")

    def put(self, key: bytes, value: bytes | None, timestamp: int, forgets: bool = False) -> int:
        """Writes a version; None = deleted from then on. With `forgets`, it forgets such a deletion if Kafka Streams does."""
        stream_time = self.stream_time
        if timestamp < stream_time - self._history:
            return NOT_PUT
        if timestamp > stream_time:
            stream_time = timestamp
            self._buffer.put(self._prefix, pack_long(timestamp), timestamp)
        local = self._prefix + key
        data = TOMBSTONE if value is None else VALUE + value
        if forgets:
            data = self._marked(key, data, timestamp)
        self._buffer.put(local + pack_long(timestamp), data, timestamp)
        newer = next(self._versions(key, timestamp + 1, MAX_TIME), None)
        if newer is None:
            if data == FORGOTTEN:
                self._log_newest(key)
            self._prune(key, stream_time - self._history)
            return VALID_TO_UNDEFINED
        self._log_newest(key)
        return newer[0]

    def _log_newest(self, key: bytes) -> None:
        """Logs a key's newest version again: compaction keeps the last record by offset, which must be the newest version."""
        for latest, data in islice(self._versions(key, 0, MAX_TIME, reverse=True), 1):
            self._buffer.put_last(self._prefix + key + pack_long(latest), data, latest)

    def _marked(self, key: bytes, data: bytes, timestamp: int) -> bytes:
        """The local value of a version in a store that forgets. Marks the newest version if the history now reaches up to it."""
        newest, before = islice(chain(self._versions(key, 0, MAX_TIME, reverse=True), repeat(None)), 2)
        if newest is None or newest[0] < timestamp:
            return data
        bounded = newest[1][:1] == BOUNDED or (before is not None and before[1] != TOMBSTONE)
        if newest[0] == timestamp:
            bounded = bounded or newest[1] == TOMBSTONE
            if data != TOMBSTONE:
                return BOUNDED + data[1:] if bounded else data
            return TOMBSTONE if bounded else FORGOTTEN
        if newest[1] != TOMBSTONE and (bounded or before is None or before[0] <= timestamp):
            self._buffer.put(self._prefix + key + pack_long(newest[0]), BOUNDED + newest[1][1:], newest[0])
        return data

    def get(self, key: bytes, as_of: int | None = None) -> VersionedRecord | None:
        """The newest version, or the version that is valid at a time."""
        latest = next(self._versions(key, 0, MAX_TIME, reverse=True), None)
        if latest is None:
            return None
        if as_of is None or latest[0] <= as_of:
            return _record(latest, None)
        if as_of < self.stream_time - self._history:
            return None
        found = next(self._versions(key, 0, as_of, reverse=True), None)
        if found is None:
            return None
        newer = next(self._versions(key, found[0] + 1, MAX_TIME))
        return _record(found, newer[0])

    def delete(self, key: bytes, timestamp: int) -> VersionedRecord | None:
        """Deletes the key from a time on, and returns the version that was valid then."""
        old = self.get(key, timestamp)
        self.put(key, None, timestamp)
        return old

    def _prune(self, key: bytes, horizon: int) -> None:
        """Drops versions that were replaced before the horizon; the version that is valid at the horizon is still needed."""
        if horizon <= 0:
            return
        versions = list(self._rows(key, 0, horizon, reverse=True))
        valid = next((timestamp for timestamp, data in versions if data != FORGOTTEN), None)
        for timestamp in [timestamp for timestamp, _ in versions if timestamp != valid]:
            self._buffer.put(self._prefix + key + pack_long(timestamp), None, timestamp)

    def _versions(self, key: bytes, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[int, bytes]]:
        return (row for row in self._rows(key, from_ms, to_ms, reverse) if row[1] != FORGOTTEN)

    def _rows(self, key: bytes, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[int, bytes]]:
        local = self._prefix + key
        length = len(local) + 8
        if from_ms > to_ms:
            return iter(())
        rows: Iterator[Row] = self._buffer.scan(local + pack_long(from_ms), local + pack_long(to_ms) + b"\x00", reverse)
        return ((int.from_bytes(row[-8:], "big"), data) for row, data in rows if len(row) == length)


def _record(version: tuple[int, bytes], valid_to: int | None) -> VersionedRecord | None:
    timestamp, data = version
    return None if data == TOMBSTONE else VersionedRecord(data[1:], timestamp, valid_to)


# --- Window stores as bytes: one row per (key, window start), or one per put for joins.
#
# Local key: store(2) ∥ segment(8) ∥ key ∥ start(8) ∥ seq(4), segment = start // segment width. Values are local values,
# as in `keyvalue`. Scans over one key may meet rows of longer keys in between, which are recognised by their length
# (Kafka Streams: `WindowKeySchema.hasNextCondition`).
#
# Duplicates: the sequence number counts the rows of the same (key, start). It is derived from the existing rows, so it is the
# same after a restart, a restore or a recompute, and never repeats (Kafka Streams counts in memory, from 0 after each restart,
# and may overwrite an older duplicate).


class _SegmentedBytesStore:
    """Rows by key, by a time, which the end of a local key begins with, and by one more number."""

    def __init__(self, spec: StoreSpec, buffer: WriteBuffer, segments: Segments) -> None:
        self.spec = spec
        self._buffer = buffer
        self._segments = segments
        self._width = segments.width_ms

    def _scans(
        self, key: bytes, low: bytes, high: bytes, from_ms: int, to_ms: int, reverse: bool
    ) -> list[Iterator[Row]]:
        """The rows of a key, and of longer keys, with low <= end of the local key <= high, of the segments of these times."""
        segments = self._segments.between(from_ms, to_ms)
        fronts = [self._segments.prefix(segment) + key for segment in (reversed(segments) if reverse else segments)]
        return [self._buffer.scan(front + low, front + high + b"\x00", reverse) for front in fronts]

    def _in_order(
        self,
        from_ms: int,
        to_ms: int,
        reverse: bool,
        split: Callable[[bytes], tuple[bytes, int, int]],
        order: Callable[[tuple[bytes, int, int, bytes]], tuple[object, ...]],
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        """(key, time, number, local value) with from_ms <= time <= to_ms. One segment at a time is sorted in memory."""
        from_ms = max(from_ms, 0)
        if to_ms < from_ms:
            return
        segments = self._segments.between(from_ms, to_ms)
        for segment in reversed(segments) if reverse else segments:
            scan = self._buffer.scan(self._segments.prefix(segment), self._segments.prefix(segment + 1))
            rows = ((*split(row[SEGMENT_PREFIX:]), value) for row, value in scan)
            yield from sorted((row for row in rows if from_ms <= row[1] <= to_ms), key=order, reverse=reverse)


class WindowBytesStore(_SegmentedBytesStore):
    """Rows by key and window start; a put into an expired segment is ignored, as in Kafka Streams."""

    def __init__(self, spec: StoreSpec, buffer: WriteBuffer, segments: Segments) -> None:
        super().__init__(spec, buffer, segments)
        self._duplicates = spec.retain_duplicates

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
        """Rows with earlier starts are expired: puts of them are ignored, and none are found. In ms."""
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

    def put_columns(self, keys: pa.BinaryArray, starts: Int64s, values: pa.BinaryArray, timestamps: Int64s) -> None:
        """Writes a column of rows, as `put` row by row would."""
        if are_few(keys):
            for row in zip(keys.to_pylist(), starts.tolist(), values.to_pylist(), timestamps.tolist(), strict=True):
                self.put(*row)
            return
        segments = self._segments
        filed = starts // self._width
        counted = filed >= segments.bound
        if self._duplicates:
            counted &= values.is_valid().to_numpy(zero_copy_only=False)
        if not counted.all():
            mask = pa.array(counted)
            keys, values = keys.filter(mask), values.filter(mask)
            starts, filed, timestamps = starts[counted], filed[counted], timestamps[counted]
        if not len(keys):
            return
        if not self._duplicates:
            for segment in distinct(filed):
                segments.touch(segment)
            self._buffer.put_columns(self._local_keys(keys, starts, filed), values, timestamps)
            return
        found, places = np.unique(filed, return_inverse=True)
        fronts = joined(segment_prefixes(segments, filed), keys, suffixes((starts, ">i8")))
        newest = np.array([segments.newest_ms(segment) for segment in found.tolist()])
        sequences = suffixes((self._next_sequences(fronts, starts <= newest[places]), ">i4"))
        for place, segment in enumerate(found.tolist()):
            segments.touch_at(segment, int(starts[places == place].max()))
        self._buffer.put_columns(joined(fronts, sequences), values, timestamps)

    def _local_keys(self, keys: pa.BinaryArray, starts: Int64s, filed: Int64s) -> pa.BinaryArray:
        """The local keys of the first rows of n >= 1 windows."""
        if len(keys) <= FEW_CELLS:
            suffixes_of = map(pack_window_suffix, starts.tolist(), repeat(0))
            parts = zip(self._segments.prefixes(filed), keys.to_pylist(), suffixes_of, strict=True)
            return binary_column(list(map(b"".join, parts)))
        return joined(segment_prefixes(self._segments, filed), keys, suffixes((starts, ">i8"), (0, ">i4")))

    def fetch_columns(self, keys: pa.BinaryArray, starts: Int64s) -> pa.BinaryArray:
        """The local values of a column of windows, null where there is none (`fetch` for a column)."""
        if not len(keys):
            return keys
        filed = starts // self._width
        values = self._buffer.get_columns(self._local_keys(keys, starts, filed))
        alive = filed >= self._segments.bound
        return values if alive.all() else pc.if_else(pa.array(alive), values, pa.scalar(None, pa.binary()))

    def fetch_ranges(self, keys: pa.BinaryArray, from_ms: Int64s, to_ms: Int64s) -> WindowRows:
        """Rows of each key with from_ms <= start <= to_ms (`fetch_range` for a column).

        Requests sorted by key and `from_ms` are the fastest.
        """
        if are_few(keys):
            return self._fetch_few(keys, from_ms, to_ms)
        from_ms = np.maximum(from_ms, 0)
        lows = suffixes((from_ms, ">i8"), (0, ">i4"))
        highs = suffixes((to_ms, ">i8"), (MAX_SEQUENCE, ">i4"))
        requests, lowers, uppers = key_ranges(keys, lows, highs, ranges_by_segment(self._segments, from_ms, to_ms))
        numbers, found = own_rows(self._buffer.scan_ranges(lowers, uppers), requests, keys, WINDOW_SUFFIX)
        return WindowRows(numbers.astype(np.int32), numbers_at(found.keys, -WINDOW_SUFFIX), found.values)

    def _fetch_few(self, keys: pa.BinaryArray, from_ms: Int64s, to_ms: Int64s) -> WindowRows:
        asked = enumerate(zip(keys.to_pylist(), from_ms.tolist(), to_ms.tolist(), strict=True))
        rows = [(request, *row) for request, one in asked for row in self.fetch_range(*one)]
        requests, starts, values = zip(*rows, strict=True) if rows else ((), (), ())
        return WindowRows(np.array(requests, np.int32), np.array(starts, np.int64), pa.array(values, pa.binary()))

    def fetch_range(self, key: bytes, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[int, bytes]]:
        """(start, local value) of one key with from_ms <= start <= to_ms, by start, then in order of writing."""
        from_ms = max(from_ms, 0)
        if to_ms < from_ms:
            return iter(())
        low, high = pack_window_suffix(from_ms, 0), pack_window_suffix(to_ms, MAX_SEQUENCE)
        scans = self._scans(key, low, high, from_ms, to_ms, reverse)
        length = SEGMENT_PREFIX + len(key) + WINDOW_SUFFIX
        return (
            (int.from_bytes(row[-12:-4], "big"), value) for scan in scans for row, value in scan if len(row) == length
        )

    def fetch_all(self, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, start, local value) with from_ms <= start <= to_ms, by start, then key, then in order of writing."""
        rows = self._in_order(from_ms, to_ms, reverse, split_window_key, itemgetter(1, 0, 2))
        return ((key, start, value) for key, start, _, value in rows)

    def _next_sequence(self, key: bytes, start: int, segment: int) -> int:
        """The number of the next row with this key and start. Such rows are numbered 0, 1, 2, ..., so it is nearly always 0."""
        prefix = self._segments.prefix(segment) + key
        if start > self._segments.newest_ms(segment) or self._buffer.get(prefix + pack_window_suffix(start, 0)) is None:
            return 0
        lower = prefix + pack_window_suffix(start, 0)
        upper = prefix + pack_window_suffix(start, MAX_SEQUENCE) + b"\x00"
        for row, _ in self._buffer.scan(lower, upper, reverse=True):
            if len(row) == len(lower):
                return int.from_bytes(row[-4:], "big") + 1
        return 0

    def _next_sequences(self, fronts: pa.BinaryArray, asked: npt.NDArray[np.bool_]) -> Int64s:
        """The sequence number of each new row. If a key and start have rows 0 and 1 in the store, two new rows get 2 and 3."""
        order = sorted_rows(fronts)
        numbers, repeats = numbered(fronts, order)
        heads = order[repeats[order] == 0]
        bases = np.zeros(len(heads), np.int64)
        asking = np.flatnonzero(asked[heads])
        fronts = fronts.take(pa.array(heads[asking]))
        zeros = joined(fronts, pa.scalar(bytes(4), pa.binary()))
        # Nearly always there is none.
        known = np.flatnonzero(self._buffer.get_columns(zeros).is_valid().to_numpy(zero_copy_only=False))
        if len(known):
            lowers = zeros.take(pa.array(known))
            last = pa.scalar(MAX_SEQUENCE.to_bytes(4, "big") + b"\x00", pa.binary())
            found = self._buffer.scan_ranges(lowers, joined(fronts.take(pa.array(known)), last))
            lengths = pc.binary_length(lowers).to_numpy()[found.ranges]
            own = np.flatnonzero(pc.binary_length(found.keys).to_numpy() == lengths)
            sequences = numbers_at(found.keys.take(pa.array(own)), -8) & MAX_SEQUENCE
            np.maximum.at(bases, asking[known][found.ranges[own]], sequences + 1)
        return bases[numbers] + repeats


# --- Session stores as bytes: one row per (key, session end, session start).
#
# Local key: store(2) ∥ segment(8) ∥ key ∥ end(8) ∥ start(8), segment = end // segment width.


class SessionBytesStore(_SegmentedBytesStore):
    """Sessions by key. A put of a session whose end is in an expired segment is ignored."""

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
        starts: Int64s,
        ends: Int64s,
        values: pa.BinaryArray,
        timestamps: Int64s,
    ) -> None:
        """Writes a column of sessions, as `put` row by row would."""
        if are_few(keys):
            columns = (keys.to_pylist(), starts.tolist(), ends.tolist(), values.to_pylist(), timestamps.tolist())
            for row in zip(*columns, strict=True):
                self.put(*row)
            return
        filed = ends // self._width
        alive = filed >= self._segments.bound
        if not alive.all():
            keys, starts, ends, filed, timestamps = (
                keys.filter(alive),
                *(c[alive] for c in (starts, ends, filed, timestamps)),
            )
            values = values.filter(alive)
        for segment in distinct(filed):
            self._segments.touch(segment)
        suffix = suffixes((ends, ">i8"), (starts, ">i8"))
        self._buffer.put_columns(joined(segment_prefixes(self._segments, filed), keys, suffix), values, timestamps)

    def find_columns(self, keys: pa.BinaryArray, earliest_ends: Int64s, latest_starts: Int64s) -> SessionRows:
        """Sessions of each key with end >= earliest_end and start <= latest_start (`find_sessions` for a column).

        Requests sorted by key and `earliest_ends` are the fastest.
        """
        if are_few(keys):
            return self._find_few(keys, earliest_ends, latest_starts)
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

    def _find_few(self, keys: pa.BinaryArray, earliest_ends: Int64s, latest_starts: Int64s) -> SessionRows:
        asked = enumerate(zip(keys.to_pylist(), earliest_ends.tolist(), latest_starts.tolist(), strict=True))
        rows = [(request, *row) for request, one in asked for row in self.find_sessions(*one)]
        requests, starts, ends, values = zip(*rows, strict=True) if rows else ((), (), (), ())
        bounds = np.array(starts, np.int64), np.array(ends, np.int64)
        return SessionRows(np.array(requests, np.int32), *bounds, pa.array(values, pa.binary()))

    def find_sessions(
        self, key: bytes, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, bytes]]:
        """(start, end, aggregate) of one key with end >= earliest_end and start <= latest_start, by end, then start."""
        earliest_end = max(earliest_end, 0)
        low, high = pack_session_suffix(earliest_end, 0), pack_session_suffix(MAX_TIME, MAX_TIME)
        scans = self._scans(key, low, high, earliest_end, MAX_TIME, reverse)
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
        """(key, start, end, aggregate) with from_end <= end <= to_end, by end, then start, then key."""
        rows = self._in_order(from_end, to_end, reverse, split_session_key, itemgetter(1, 2, 0))
        return ((key, start, end, value) for key, end, start, value in rows)
