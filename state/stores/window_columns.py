"""Reads and writes of window stores by columns; see the methods of `WindowBytesStore`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.stores.codec import MAX_SEQUENCE, WINDOW_SUFFIX
from state.stores.found_rows import WindowRows
from state.stores.local_keys import key_ranges, own_rows, ranges_by_segment, segment_prefixes, suffixes
from state.stores.segments import Segments
from state.tables.binary_columns import Int64s, joined, numbered, numbers_at, sorted_rows
from state.tables.buffer import WriteBuffer

WindowColumns = tuple[pa.BinaryArray, Int64s, pa.BinaryArray, Int64s]
"""Keys, starts, values, timestamps."""


def put(buffer: WriteBuffer, segments: Segments, duplicates: bool, columns: WindowColumns) -> None:
    """Writes rows in their order."""
    keys, starts, values, timestamps = columns
    filed = starts // segments.width_ms
    counted = filed >= segments.bound
    if duplicates:
        counted &= values.is_valid().to_numpy(zero_copy_only=False)
    if not counted.all():
        mask = pa.array(counted)
        keys, values = keys.filter(mask), values.filter(mask)
        starts, filed, timestamps = starts[counted], filed[counted], timestamps[counted]
    if not len(keys):
        return
    found, places = np.unique(filed, return_inverse=True)
    fronts = joined(segment_prefixes(segments, filed), keys, suffixes((starts, ">i8")))
    if duplicates:
        newest = np.array([segments.newest_ms(segment) for segment in found.tolist()])
        sequences = suffixes((next_sequences(buffer, fronts, starts <= newest[places]), ">i4"))
        for place, segment in enumerate(found.tolist()):
            segments.touch_at(segment, int(starts[places == place].max()))
    else:
        sequences = pa.scalar(bytes(4), pa.binary())
        for segment in found.tolist():
            segments.touch(segment)
    buffer.put_columns(joined(fronts, sequences), values, timestamps)


def next_sequences(buffer: WriteBuffer, fronts: pa.BinaryArray, asked: npt.NDArray[np.bool_]) -> Int64s:
    """The sequence number of each new row: those of the same key and start count on from the store's, in the order of the rows."""
    order = sorted_rows(fronts)
    numbers, repeats = numbered(fronts, order)
    heads = order[repeats[order] == 0]
    bases = np.zeros(len(heads), np.int64)
    asking = np.flatnonzero(asked[heads])
    fronts = fronts.take(pa.array(heads[asking]))
    zeros = joined(fronts, pa.scalar(bytes(4), pa.binary()))
    # Nearly always there is none.
    known = np.flatnonzero(buffer.get_columns(zeros).is_valid().to_numpy(zero_copy_only=False))
    if len(known):
        lowers = zeros.take(pa.array(known))
        last = pa.scalar(MAX_SEQUENCE.to_bytes(4, "big") + b"\x00", pa.binary())
        found = buffer.scan_ranges(lowers, joined(fronts.take(pa.array(known)), last))
        lengths = pc.binary_length(lowers).to_numpy()[found.ranges]
        own = np.flatnonzero(pc.binary_length(found.keys).to_numpy() == lengths)
        sequences = numbers_at(found.keys.take(pa.array(own)), -8) & MAX_SEQUENCE
        np.maximum.at(bases, asking[known][found.ranges[own]], sequences + 1)
    return bases[numbers] + repeats


def fetch(buffer: WriteBuffer, segments: Segments, keys: pa.BinaryArray, starts: Int64s) -> pa.BinaryArray:
    """The values of single windows, null where there is none."""
    if not len(keys):
        return keys
    filed = starts // segments.width_ms
    suffix = suffixes((starts, ">i8"), (0, ">i4"))
    values = buffer.get_columns(joined(segment_prefixes(segments, filed), keys, suffix))
    alive = filed >= segments.bound
    return values if alive.all() else pc.if_else(pa.array(alive), values, pa.scalar(None, pa.binary()))


def fetch_ranges(
    buffer: WriteBuffer, segments: Segments, keys: pa.BinaryArray, from_ms: Int64s, to_ms: Int64s
) -> WindowRows:
    """The rows of each key with from_ms <= start <= to_ms."""
    from_ms = np.maximum(from_ms, 0)
    lows = suffixes((from_ms, ">i8"), (0, ">i4"))
    highs = suffixes((to_ms, ">i8"), (MAX_SEQUENCE, ">i4"))
    requests, lowers, uppers = key_ranges(keys, lows, highs, ranges_by_segment(segments, from_ms, to_ms))
    numbers, found = own_rows(buffer.scan_ranges(lowers, uppers), requests, keys, WINDOW_SUFFIX)
    return WindowRows(numbers.astype(np.int32), numbers_at(found.keys, -WINDOW_SUFFIX), found.values)
