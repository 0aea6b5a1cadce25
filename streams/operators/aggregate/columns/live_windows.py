"""The windows of one key while its rows are taken one after the other: their numbers, in the order of time."""

from __future__ import annotations

from typing import Any

from state.numba_kernels import kernel


@kernel
def first_live_from(times: Any, live: Any, alive: int, least: int) -> int:  # pragma: no cover - compiled
    """The index of the first window with a time of at least `least`, by binary search.

    Args:
        times: The times of all windows, such as their starts.
        live: The numbers of the key's windows, by time.
        alive: How many there are in `live`.
        least: The time.
    """
    low, high = 0, alive
    while low < high:
        middle = (low + high) // 2
        if times[live[middle]] < least:
            low = middle + 1
        else:
            high = middle
    return low
