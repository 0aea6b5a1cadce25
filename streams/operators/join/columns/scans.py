"""The scans for waiting records in compat mode, compiled: which rows become due at which record."""

from __future__ import annotations

import numpy as np

from state.numba_kernels import kernel
from streams.model.times import MAX_TIME
from streams.operators.join.columns.kernels import Bools, Int64s

_BOTH = 3
"""Both sides, as bits."""


@kernel
def _scan(
    rows: tuple[Int64s, Int64s, Int64s], alive: Bools, due: Int64s, bounds: tuple[int, int], at: tuple[int, int]
) -> tuple[int, int]:
    """One scan, which ends behind the first open row of each side.

    Args:
        rows: Times of the rows, their sides, and until when each one is open.
        alive: Which rows are there; those that become due no longer are.
        due: Receives the record for the rows that become due.
        bounds: The first and the last row that may be there.
        at: The record, and stream time.

    Returns:
        The least time for the next scan, and the first open row, or the end.
    """
    times, sides, open_until = rows
    (low, high), (record, now) = bounds, at
    least, met, first = MAX_TIME, 0, high + 1
    for row in range(low, high + 1):
        if not alive[row]:
            continue
        least = times[row]
        if met == _BOTH:
            break
        if open_until[row] >= now:
            met |= 1 << sides[row]
            first = min(first, row)
        else:
            due[row], alive[row] = record, False
    return least, first


@kernel
def scans(
    triggers: Bools,
    record_waits: Int64s,
    now: Int64s,
    rows: tuple[Int64s, Int64s, Int64s, Int64s, Int64s],
    least: int,
    once: bool,
) -> tuple[Int64s, int, bool]:
    """Plays the scans of a step, as `CompatOuterJoinBuffer.expire` makes them.

    Args:
        triggers: Which records may trigger a scan.
        record_waits: How long rows of each record's side wait.
        now: Stream time at each record.
        rows: All rows that a scan may see, in the order of the buffer: their times; sides; until when each one is open; the record
            that adds each one, or -1; the record that removes each one because it is its partner, or n.
        least: The least time, which decides about the next scan.
        once: Whether the first scan is the only one of the step.

    Returns:
        The record that makes each row due, or n; the least time after the step; whether there was a scan.
    """
    times, sides, open_until, added_at, removed_at = rows
    due, alive = np.full(len(times), len(now), np.int64), added_at < 0
    row_of = np.full(len(now), -1, np.int64)
    for row in np.flatnonzero(added_at >= 0):
        row_of[added_at[row]] = row
    # All rows that are there lie between these two, so that a scan of few rows is short.
    living = np.flatnonzero(alive)
    low, high = (living[0], living[-1]) if len(living) else (0, -1)
    removals, removed, scanned = np.argsort(removed_at, kind="mergesort"), 0, False
    for record in range(len(now)):
        while removed < len(removals) and removed_at[removals[removed]] < record:
            alive[removals[removed]] = False
            removed += 1
        # The sum wraps around, as in Java.
        if triggers[record] and not (scanned and once) and least + record_waits[record] < now[record]:
            least, low = _scan((times, sides, open_until), alive, due, (low, high), (record, now[record]))
            scanned = True
        row = row_of[record]
        if row >= 0:
            alive[row] = True
            low, high = (min(low, row), max(high, row)) if low <= high else (row, row)
            least = min(least, times[row])
    return due, least, scanned
