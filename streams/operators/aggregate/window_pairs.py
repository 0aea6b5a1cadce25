"""The windows of a batch's records, and the records that are dropped, for all records at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from streams.model.times import NO_TIME
from streams.model.windows import TimeWindows, Windows
from streams.operators.aggregate.columns.column_rows import Assigned, assign
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s
from streams.operators.encoded_values import null_values


class WindowPairs(NamedTuple):
    """Pairs of a record and a window, in the order in which they are aggregated.

    Attributes:
        rows: int64[m], the row of each pair, rising.
        starts: int64[m], the start of its window, ms, rising within a row; -1 without windows.
        dropped: Reason -> the rows that are dropped, once for each window.
        stream_time: Stream time after the records, ms; `NO_TIME` without windows.
    """

    rows: Int64s
    starts: Int64s
    dropped: Mapping[str, Int64s]
    stream_time: int


def pairs_without_windows(batch: ColumnarBatch) -> WindowPairs:
    """Each record that has a key and a value."""
    no_key = batch.keys.codes == NULL_KEY
    no_value = null_values(batch.values) & ~no_key
    rows = np.flatnonzero(~(no_key | no_value))
    dropped = {"null_key": np.flatnonzero(no_key), "null_value": np.flatnonzero(no_value)}
    return WindowPairs(rows, np.full(len(rows), -1, np.int64), dropped, NO_TIME)


def window_pairs(batch: ColumnarBatch, windows: Windows, stream_time: int) -> WindowPairs:
    """Each record that has a key, with its windows that are open when the record comes.

    Raises:
        Exception: A user's class of windows has failed.
    """
    has_key = batch.keys.codes != NULL_KEY
    rows = np.flatnonzero(has_key)
    timestamps = batch.timestamps[rows]
    if type(windows) is TimeWindows:
        assigned, late = assign(timestamps, windows, stream_time), np.empty(0, np.int64)
        if assigned.late:
            late = np.repeat(np.arange(len(rows)), _counts(timestamps, windows) - _per_row(assigned.rows, len(rows)))
    else:
        assigned, late = _assign_each(timestamps.tolist(), windows, stream_time)
    dropped = {"null_key": np.flatnonzero(~has_key), "late": rows[late]}
    return WindowPairs(rows[assigned.rows], assigned.starts, dropped, assigned.stream_time)


def _counts(timestamps: Int64s, windows: TimeWindows) -> Int64s:
    """The number of windows of each record, open or not."""
    advance = windows.advance_ms
    first = np.maximum(0, timestamps - windows.size_ms + advance) // advance
    counts: Int64s = np.maximum(0, timestamps // advance - first + 1)
    return counts


def _per_row(rows: Int64s, count: int) -> Int64s:
    counts: Int64s = np.bincount(rows, minlength=count)
    return counts


def _assign_each(timestamps: Sequence[int], windows: Windows, stream_time: int) -> tuple[Assigned, Int64s]:
    """`assign` for windows of any class, and the rows of the late pairs."""
    pairs, late = list[tuple[int, int]](), list[int]()
    for row, timestamp in enumerate(timestamps):
        stream_time = max(stream_time, timestamp)
        close_time = stream_time - windows.grace_ms
        for start in windows.starts(timestamp):
            if windows.end_of(start) > close_time:
                pairs.append((row, start))
            else:
                late.append(row)
    rows, starts = np.array(pairs, np.int64).reshape(-1, 2).T
    return Assigned(rows, starts, len(late), stream_time), np.array(late, np.int64)
