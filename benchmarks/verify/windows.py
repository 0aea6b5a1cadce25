"""Expected results of windows: tumbling, hopping, sliding and sessions. Values are thousandths, so sums are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.verify.compare import Table

Ints = npt.NDArray[np.int64]


def hopping(keys: Ints, times: Ints, milli: Ints, size_ms: int, advance_ms: int) -> Table:
    """Count and mean of each key's windows `[start, start + size_ms)` that begin every `advance_ms`; tumbling if both are equal."""
    last = times // advance_ms * advance_ms
    parts = []
    for back in range(-(-size_ms // advance_ms)):
        start = last - back * advance_ms
        inside = start + size_ms > times
        if inside.any():
            parts.append(_grouped(keys[inside], start[inside], milli[inside]))
    return _with_mean(_merged({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}))


def sessions(keys: Ints, times: Ints, milli: Ints, gap_ms: int) -> Table:
    """Count and mean of each key's sessions; the records of a session are at most `gap_ms` apart."""
    order = np.lexsort((times, keys))
    keys, times, milli = keys[order], times[order], milli[order]
    is_first = np.ones(len(keys), bool)
    is_first[1:] = (keys[1:] != keys[:-1]) | (times[1:] - times[:-1] > gap_ms)
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(keys)) - 1
    count = last - first + 1
    return _with_mean(
        {
            "key": keys[first],
            "start": times[first],
            "end": times[last],
            "count": count,
            "sum": np.add.reduceat(milli, first) if len(first) else milli,
        }
    )


def sliding(keys: Ints, times: Ints, milli: Ints, difference_ms: int, *, only_left: bool = False) -> Table:
    """Count and mean of each key's windows `[start, start + difference_ms]`, both ends included.

    A window ends at each record; and one begins right after each record, unless it would be empty.

    Args:
        keys: The records' keys.
        times: Their timestamps.
        milli: Their values.
        difference_ms: The windows' length.
        only_left: Whether windows that begin right after a record are left out.
    """
    order = np.lexsort((times, keys))
    keys, times, milli = keys[order], times[order], milli[order]
    place, span = _places(keys, times, difference_ms)
    ends = np.append(0, np.cumsum(milli))
    starts = times - difference_ms if only_left else np.concatenate([times - difference_ms, times + 1])
    owners = keys if only_left else np.concatenate([keys, keys])
    windows = np.unique(np.stack([owners, starts], axis=1), axis=0)
    begin = windows[:, 0] * span + windows[:, 1] - _origin(times, difference_ms)
    low = np.searchsorted(place, begin, "left")
    high = np.searchsorted(place, begin + difference_ms, "right")
    full = high > low
    low, high, windows = low[full], high[full], windows[full]
    return _with_mean(
        {"key": windows[:, 0], "start": windows[:, 1], "count": high - low, "sum": ends[high] - ends[low]}
    )


def _origin(times: Ints, reach_ms: int) -> int:
    return int(times.min()) - 2 * reach_ms - 2


def _places(keys: Ints, times: Ints, reach_ms: int) -> tuple[Ints, int]:
    """One rising number for each (key, time), so far apart between keys that no window reaches into the next key."""
    span = int(times.max() - times.min()) + 4 * reach_ms + 8
    return keys * span + times - _origin(times, reach_ms), span


def _grouped(keys: Ints, starts: Ints, milli: Ints) -> dict[str, npt.NDArray[Any]]:
    base, step = int(starts.min()), int(starts.max() - starts.min()) + 1
    identity, inverse, count = np.unique(keys * step + starts - base, return_inverse=True, return_counts=True)
    # Sums of whole numbers below 2**53 are exact as floats, too.
    total = np.bincount(inverse, weights=milli).astype(np.int64)
    return {"key": identity // step, "start": identity % step + base, "count": count, "sum": total}


def _merged(parts: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The sums of the parts of each (key, start): several parts may contribute to one window."""
    order = np.lexsort((parts["start"], parts["key"]))
    sorted_parts = {name: column[order] for name, column in parts.items()}
    new = np.ones(len(order), bool)
    same_key = sorted_parts["key"][1:] == sorted_parts["key"][:-1]
    new[1:] = ~(same_key & (sorted_parts["start"][1:] == sorted_parts["start"][:-1]))
    first = np.flatnonzero(new)
    sums = {name: np.add.reduceat(sorted_parts[name], first) for name in ("count", "sum")}
    return {"key": sorted_parts["key"][first], "start": sorted_parts["start"][first], **sums}


def _with_mean(table: dict[str, npt.NDArray[Any]]) -> Table:
    mean = table["sum"] / 1000 / table["count"]
    return {**{name: column for name, column in table.items() if name != "sum"}, "mean": mean}
