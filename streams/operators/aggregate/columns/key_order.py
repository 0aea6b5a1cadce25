"""Puts the rows of a step in the order of their keys; rows of one key stay in processing order (a counting sort)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from state.numba_kernels import kernel

Int64s = npt.NDArray[np.int64]


class KeyOrder(NamedTuple):
    """The rows of each key, one key after the other.

    Attributes:
        rows: int64[m], the rows that have a key.
        codes: int64[K], the key code of each key that has rows, ascending.
        bounds: int64[K + 1]: the rows of the k-th key are `rows[bounds[k]:bounds[k + 1]]`.
    """

    rows: Int64s
    codes: Int64s
    bounds: Int64s


def by_key(codes: npt.NDArray[np.int32], taken: npt.NDArray[np.bool_], keys: int) -> KeyOrder:
    """The order of the rows by key.

    Args:
        codes: int32[n], key codes; -1 = no key.
        taken: bool[n], the rows to include; none without a key.
        keys: The number of key codes.
    """
    counts = np.bincount(codes[taken], minlength=keys)
    ends = np.cumsum(counts)
    rows = np.empty(int(ends[-1]) if keys else 0, np.int64)
    _place(codes, taken, ends - counts, rows)
    present = np.flatnonzero(counts)
    return KeyOrder(rows, present, np.append(0, ends[present]))


@kernel
def _place(codes: Any, taken: Any, places: Any, rows: Any) -> None:  # pragma: no cover - compiled
    for row in range(len(codes)):
        if taken[row]:
            code = codes[row]
            rows[places[code]] = row
            places[code] += 1
