"""Assigns the rows of a step to windows and finds late ones: the vectorised form of `WindowAggregate`'s rule.

Rows are in processing order, so stream time at a row is a running maximum. `assign_plain` is the reference in plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from state.numba_kernels import kernel
from streams.model.windows import TimeWindows

Int64s = npt.NDArray[np.int64]


class Assigned(NamedTuple):
    """Pairs of row and window that are not late.

    Attributes:
        rows: int64[m], row of each pair, ascending.
        starts: int64[m], start of its window; ascending within a row.
        late: Number of late pairs.
        stream_time: Largest timestamp so far.
    """

    rows: Int64s
    starts: Int64s
    late: int
    stream_time: int


def assign(timestamps: Int64s, windows: TimeWindows, stream_time: int) -> Assigned:
    """Pair rows with their open windows.

    Args:
        timestamps: int64[n], milliseconds, in processing order.
        windows: Size, advance, grace.
        stream_time: Largest timestamp before these rows.
    """
    most = len(timestamps) * -(-windows.size_ms // windows.advance_ms)
    rows, starts = np.empty(most, np.int64), np.empty(most, np.int64)
    count, late, stream_time = _assign(
        timestamps, windows.size_ms, windows.advance_ms, windows.grace_ms, stream_time, rows, starts
    )
    return Assigned(rows[:count], starts[:count], late, stream_time)


def assign_plain(timestamps: Sequence[int], windows: TimeWindows, stream_time: int) -> Assigned:
    """The same as `assign`, in plain Python."""
    pairs, late = [], 0
    for row, timestamp in enumerate(timestamps):
        stream_time = max(stream_time, timestamp)
        for start in windows.starts(timestamp):
            if start + windows.size_ms > stream_time - windows.grace_ms:
                pairs.append((row, start))
            else:
                late += 1
    rows, starts = np.array(pairs, np.int64).reshape(-1, 2).T
    return Assigned(rows, starts, late, stream_time)


@kernel
def _assign(
    timestamps: Any, size: int, advance: int, grace: int, stream_time: int, rows: Any, starts: Any
) -> tuple[int, int, int]:  # pragma: no cover - compiled
    count, late = 0, 0
    for row in range(len(timestamps)):
        timestamp = timestamps[row]
        stream_time = max(stream_time, timestamp)
        start = max(0, timestamp - size + advance) // advance * advance
        while start <= timestamp:
            if start + size > stream_time - grace:
                rows[count], starts[count] = row, start
                count += 1
            else:
                late += 1
            start += advance
    return count, late, stream_time
