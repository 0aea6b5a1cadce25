"""Finds the records of a step that repeat none within a time, for all keys at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from state.numba_kernels import kernel
from streams.operators.columnar import Int64s
from streams.operators.join.columns.kernels import grouped


def first_of_kind(groups: Int64s, timestamps: Int64s, within_ms: int, known: tuple[Int64s, Int64s]) -> Any:
    """Which records are the first of their kind: bool[n]."""
    rows, starts = grouped(groups, np.arange(len(groups)), len(known[1]) - 1)
    passed = np.zeros(len(groups), np.bool_)
    _pass(rows, starts, timestamps, within_ms, *known, passed)
    return passed


@kernel
def _pass(
    rows: Any, starts: Any, timestamps: Any, within: int, known: Any, known_starts: Any, passed: Any
) -> None:  # pragma: no cover - compiled
    for group in range(len(starts) - 1):
        before, end_before = known_starts[group], known_starts[group + 1]
        times = np.empty(end_before - before + starts[group + 1] - starts[group], np.int64)
        count = end_before - before
        times[:count] = known[before:end_before]
        for at in range(starts[group], starts[group + 1]):
            time = timestamps[rows[at]]
            low, high = 0, count  # the first known time that is not too early to be repeated
            while low < high:
                middle = (low + high) // 2
                if times[middle] <= time - within:
                    low = middle + 1
                else:
                    high = middle
            if low < count and times[low] < time + within:
                continue
            for place in range(count, low, -1):  # records come nearly in order, so hardly any time moves
                times[place] = times[place - 1]
            times[low] = time
            count += 1
            passed[rows[at]] = True
