"""Compiled searches for the pairs of a step: partners among the step's own records, and among the rows of the stores.

A group is a key of one store. Records are numbered in the order of the step; rows of the stores as they were fetched. Both are
sorted by group and time, so that the partners of a record are found by binary search.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from state.numba_kernels import kernel

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@kernel
def grouped(groups: Int64s, rows: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """Sort rows by group, stable."""
    starts = np.zeros(count + 1, np.int64)
    for row in rows:
        starts[groups[row] + 1] += 1
    for group in range(count):
        starts[group + 1] += starts[group]
    at = starts.copy()
    found = np.empty(len(rows), np.int64)
    for row in rows:
        found[at[groups[row]]] = row
        at[groups[row]] += 1
    return found, starts


@kernel
def ranges(rows: Int64s, starts: Int64s, lower: Int64s, upper: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The times that the records of each group look at, as ranges that do not touch."""
    groups, lows, highs = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    count = 0
    for group in range(len(starts) - 1):
        first = count
        for at in range(starts[group], starts[group + 1]):
            low, high = lower[rows[at]], upper[rows[at]]
            if low > high:
                continue
            if count > first and low <= highs[count - 1] + 1:
                highs[count - 1] = max(highs[count - 1], high)
                continue
            groups[count], lows[count], highs[count] = group, low, high
            count += 1
    return groups[:count], lows[:count], highs[:count]


@kernel
def _first_from(times: Int64s, low: int, high: int, time: int) -> int:
    """The first index of times[low:high], which rise, with a time of at least `time`; `high` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def newest_at(groups: Int64s, lower: Int64s, upper: Int64s, times: Int64s, starts: Int64s) -> Int64s:
    """The last of some rows, sorted by group, time and arrival, in each of some ranges of time."""
    found = np.full(len(groups), -1, np.int64)
    for at in range(len(groups)):
        group = groups[at]
        if group < 0:
            continue
        last = _first_from(times, starts[group], starts[group + 1], upper[at] + 1) - 1
        if last >= starts[group] and times[last] >= lower[at]:
            found[at] = last
    return found


@kernel
def pairs(
    asking: Int64s,
    groups: Int64s,
    lower: Int64s,
    upper: Int64s,
    new: tuple[Int64s, Int64s, Int64s],
    old: tuple[Int64s, Int64s],
) -> tuple[Int64s, Int64s]:
    """All pairs of a record and an earlier partner, in the order in which the records come and of their partners' times.

    At the same time partners are in order of arrival, those of earlier steps first.
    """
    rows, times, starts = new
    old_times, old_starts = old
    bounds = np.empty((len(asking), 4), np.int64)
    count = 0
    for at in range(len(asking)):
        row = asking[at]
        group, low, high = groups[row], lower[row], upper[row]
        bounds[at, 0] = _first_from(times, starts[group], starts[group + 1], low)
        bounds[at, 1] = _first_from(times, bounds[at, 0], starts[group + 1], high + 1)
        bounds[at, 2] = _first_from(old_times, old_starts[group], old_starts[group + 1], low)
        bounds[at, 3] = _first_from(old_times, bounds[at, 2], old_starts[group + 1], high + 1)
        count += max(0, bounds[at, 3] - bounds[at, 2])
        for index in range(bounds[at, 0], bounds[at, 1]):
            count += rows[index] < row
    found, partners = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for at in range(len(asking)):
        row, next_old, end_old = asking[at], bounds[at, 2], bounds[at, 3]
        for index in range(bounds[at, 0], bounds[at, 1]):
            if rows[index] >= row:
                continue
            while next_old < end_old and old_times[next_old] <= times[index]:
                found[count], partners[count] = row, -1 - next_old
                next_old += 1
                count += 1
            found[count], partners[count] = row, rows[index]
            count += 1
        while next_old < end_old:
            found[count], partners[count] = row, -1 - next_old
            next_old += 1
            count += 1
    return found, partners
