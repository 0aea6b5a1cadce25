"""Groups rows by (key code, window start) with a hash table; groups are numbered in order of their first row.

`group_plain` is the reference in plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from state.numba_kernels import kernel

Int64s = npt.NDArray[np.int64]


class Groups(NamedTuple):
    """The groups of n rows.

    Attributes:
        of_rows: int64[n], group of each row.
        codes: int64[G], key code of each group.
        starts: int64[G], window start of each group.
    """

    of_rows: Int64s
    codes: Int64s
    starts: Int64s

    def part(self, first: int, end: int) -> tuple[Int64s, Groups]:
        """The groups [first, end): the indices of their rows, and the groups renumbered."""
        rows = np.flatnonzero((self.of_rows >= first) & (self.of_rows < end))
        return rows, Groups(self.of_rows[rows] - first, self.codes[first:end], self.starts[first:end])


def group(codes: npt.NDArray[np.int32], starts: Int64s) -> Groups:
    """Number the distinct pairs.

    Args:
        codes: int32[n].
        starts: int64[n].
    """
    slots = np.full(1 << max(4, int(2 * len(codes)).bit_length()), -1, np.int64)
    of_rows = np.empty(len(codes), np.int64)
    group_codes, group_starts = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    count = _group(codes, starts, slots, of_rows, group_codes, group_starts)
    return Groups(of_rows, group_codes[:count], group_starts[:count])


def group_plain(codes: Sequence[int], starts: Sequence[int]) -> Groups:
    """The same as `group`, in plain Python."""
    numbers: dict[tuple[int, int], int] = {}
    of_rows = [numbers.setdefault(pair, len(numbers)) for pair in zip(codes, starts, strict=True)]
    pairs = np.array(list(numbers), np.int64).reshape(-1, 2)
    return Groups(np.array(of_rows, np.int64), pairs[:, 0], pairs[:, 1])


@kernel
def _group(
    codes: Any, starts: Any, slots: Any, of_rows: Any, group_codes: Any, group_starts: Any
) -> int:  # pragma: no cover - compiled
    mask = np.uint64(len(slots) - 1)
    count = 0
    for row in range(len(codes)):
        code, start = codes[row], starts[row]
        mixed = np.uint64(start) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(code) * np.uint64(0xC2B2AE3D27D4EB4F)
        slot = (mixed ^ (mixed >> np.uint64(29))) & mask
        while True:
            found = slots[slot]
            if found == -1:
                slots[slot] = count
                group_codes[count], group_starts[count] = code, start
                of_rows[row] = count
                count += 1
                break
            if group_codes[found] == code and group_starts[found] == start:
                of_rows[row] = found
                break
            slot = (slot + np.uint64(1)) & mask
    return count
