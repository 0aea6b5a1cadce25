"""Local keys as columns: prefixes of segments, suffixes of windows and sessions, ranges of rows of a key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.stores.segments import Segments
from state.tables.binary_columns import Int64s, constant, joined
from state.tables.table import RangeRows

SEGMENT_PREFIX = 10
"""Bytes of store id and segment in front of a key."""
_AFTER = constant(b"\x00")


def suffixes(*numbers: tuple[Int64s | int, str]) -> pa.BinaryArray:
    """Columns of big-endian numbers beside each other."""
    count = max(len(column) for column, _ in numbers if not isinstance(column, int))
    rows = np.empty(count, [(str(place), kind) for place, (_, kind) in enumerate(numbers)])
    for place, (column, _) in enumerate(numbers):
        rows[str(place)] = column
    bounds = np.arange(count + 1, dtype=np.int32) * rows.itemsize
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(rows.view(np.uint8))]
    return pa.BinaryArray.from_buffers(pa.binary(), count, buffers)


def segment_prefixes(segments: Segments, filed: Int64s) -> pa.BinaryArray | pa.BinaryScalar:
    """The first bytes of the local keys of rows in these segments."""
    found, places = np.unique(filed, return_inverse=True)
    if len(found) == 1:
        return pa.scalar(segments.prefix(int(found[0])), pa.binary())
    return pa.array([segments.prefix(segment) for segment in found.tolist()], pa.binary()).take(pa.array(places))


def ranges_by_segment(segments: Segments, from_ms: Int64s, to_ms: Int64s) -> Iterator[tuple[bytes, Int64s]]:
    """The live segments that hold times of some request: prefix of the segment, numbers of the requests."""
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
    """The ranges of local keys to scan, in the order of segments: number of the request, lower ends, upper ends."""
    requests, lowers, uppers = [np.empty(0, np.int64)], [_none()], [_none()]
    for prefix, numbers in by_segment:
        rows, front = pa.array(numbers), pa.scalar(prefix, pa.binary())
        own = keys.take(rows)
        requests.append(numbers)
        lowers.append(joined(front, own, lows.take(rows)))
        uppers.append(joined(front, own, highs.take(rows) if isinstance(highs, pa.Array) else highs, _AFTER))
    return np.concatenate(requests), pa.concat_arrays(lowers), pa.concat_arrays(uppers)


def own_rows(found: RangeRows, requests: Int64s, keys: pa.BinaryArray, suffix: int) -> tuple[Int64s, RangeRows]:
    """The rows that belong to their requests' keys, in the order of the requests: number of the request, row.

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
