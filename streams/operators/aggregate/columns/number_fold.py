"""Accumulators that are numbers, as arrays, and the kernel that folds rows into them as Python's `+`, `min` and `max` would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from state.numba_kernels import kernel
from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, FieldColumn

Int64s: TypeAlias = npt.NDArray[np.int64]

SUM: Final = 0
MIN: Final = 1
MAX: Final = 2


class Numbers(NamedTuple):
    """Numbers, some of which may be missing.

    Attributes:
        kinds: uint8[n], `ABSENT`, `INT` or `FLOAT`.
        ints: int64[n], where the kind is `INT`; else anything.
        floats: float64[n], where the kind is `FLOAT`; else anything.
    """

    kinds: npt.NDArray[np.uint8]
    ints: Int64s
    floats: npt.NDArray[np.float64]

    @classmethod
    def of(cls, values: Sequence[Any], rest: Any = None, count: int | None = None) -> Numbers:
        """The numbers (or None) of a list, then `rest` until there are `count`."""
        size, known = len(values) if count is None else count, len(values)
        kinds = np.full(size, _kind(rest), np.uint8)
        ints = np.zeros(size, np.int64)
        floats = np.zeros(size, np.float64)
        if rest is not None:
            (floats if isinstance(rest, float) else ints)[known:] = rest
        kinds[:known] = [_kind(x) for x in values]
        ints[:known] = [x if isinstance(x, int) else 0 for x in values]
        floats[:known] = [x if isinstance(x, float) else 0.0 for x in values]
        return cls(kinds, ints, floats)

    def to_list(self) -> list[Any]:
        """The numbers as Python's, None where one is missing."""
        for kind, numbers in ((INT, self.ints), (FLOAT, self.floats)):
            if (self.kinds == kind).all():
                same: list[Any] = numbers.tolist()
                return same
        triples = zip(self.kinds.tolist(), self.ints.tolist(), self.floats.tolist(), strict=True)
        return [None if kind == ABSENT else number if kind == FLOAT else whole for kind, whole, number in triples]

    def take(self, at: Int64s) -> Numbers:
        """Those at these indices."""
        return Numbers(self.kinds[at], self.ints[at], self.floats[at])


def _kind(value: Any) -> int:
    return ABSENT if value is None else FLOAT if isinstance(value, float) else INT


def fold(mode: int, column: FieldColumn, rows: Int64s, groups: Int64s, numbers: Numbers, counts: Int64s) -> None:
    """Folds rows in order into the numbers of their groups.

    Args:
        mode: `SUM`, `MIN` or `MAX`.
        column: The rows' values; others than numbers are left out.
        rows: int64[m], positions in the column; ~g stands for the number of group g, which is merged into another group.
        groups: int64[m], the group of each row.
        numbers: The numbers of the groups; changed in place.
        counts: int64[G], to which the count of each group's numbers is added.
    """
    _fold(mode, column.kinds, column.ints, column.floats, rows, groups, *numbers, counts)


@kernel
def _fold(
    mode: int,
    kinds: Any,
    ints: Any,
    floats: Any,
    rows: Any,
    groups: Any,
    acc_kinds: Any,
    acc_ints: Any,
    acc_floats: Any,
    counts: Any,
) -> None:  # pragma: no cover - compiled
    for i in range(len(rows)):
        row, group = rows[i], groups[i]
        if row >= 0:
            kind, whole, fraction, count = kinds[row], ints[row], floats[row], 1
        else:
            kind, whole, fraction, count = acc_kinds[~row], acc_ints[~row], acc_floats[~row], counts[~row]
        if kind not in (INT, FLOAT):
            continue
        counts[group] += count
        acc_kind = acc_kinds[group]
        if acc_kind == ABSENT:
            acc_kinds[group], acc_ints[group], acc_floats[group] = kind, whole, fraction
        elif mode == 0:
            if kind == INT and acc_kind == INT:
                acc_ints[group] += whole
            else:
                number = float(whole) if kind == INT else fraction
                start = float(acc_ints[group]) if acc_kind == INT else acc_floats[group]
                acc_kinds[group], acc_floats[group] = FLOAT, start + number
        else:
            if kind == INT and acc_kind == INT:
                better = whole < acc_ints[group] if mode == 1 else whole > acc_ints[group]
            else:
                number = float(whole) if kind == INT else fraction
                start = float(acc_ints[group]) if acc_kind == INT else acc_floats[group]
                better = number < start if mode == 1 else number > start
            # For equal numbers the earlier one stays, as with Python's min and max.
            if better:
                acc_kinds[group], acc_ints[group], acc_floats[group] = kind, whole, fraction
