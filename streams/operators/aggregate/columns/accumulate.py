"""Aggregates over columns: many records of many groups at once, with exactly the results of record-by-record processing.

The definition is `Aggregate.updated`, record by record in processing order, as in `add_rows`, the reference. The kernels add
in the same order and switch from integers to floats where Python would, so sums are equal to the last bit and do not depend
on how records are split into steps. Where 64 bits or a double would differ from Python (integers beyond 2^53 next to
fractions, sums near 2^63, numbers that came as text), the field goes through `add_rows`, as does every aggregate class of a
user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from state.numba_kernels import kernel
from streams.model.aggregates import Aggregate, Count, First, Last, Max, Mean, Min, Sum
from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, FieldColumn, cell

Int64s: TypeAlias = npt.NDArray[np.int64]
_EXACT = 2**53
_SUM, _MIN, _MAX = 0, 1, 2


def accumulate(
    aggregate: Aggregate, column: FieldColumn | None, rows: Int64s, groups: Int64s, before: list[Any]
) -> list[Any]:
    """Accumulators of all groups after adding the rows.

    Args:
        aggregate: The aggregate.
        column: The aggregate's field; None if it has none (`count` of records).
        rows: int64[m], positions in the column, in processing order.
        groups: int64[m], the group of each row.
        before: Accumulator of each group before the rows; not changed.
    """
    if column is None:
        return _counted(groups, before)
    # Matched by the exact class, because a class derived from a built-in aggregate may compute something else.
    kernel_of_class = _KERNELS.get(type(aggregate))
    after = None if kernel_of_class is None else kernel_of_class(column, rows, groups, before)
    # Copied, because a user's `add` may change its accumulator in place, and a failed step must leave the old one.
    return add_rows(aggregate, column, rows, groups, deepcopy(before)) if after is None else after


def add_rows(
    aggregate: Aggregate, column: FieldColumn | None, rows: Int64s, groups: Int64s, before: list[Any]
) -> list[Any]:
    """The same as `accumulate`, in plain Python: one `Aggregate.updated` after the other."""
    after = list(before)
    for row, group in zip(rows.tolist(), groups.tolist(), strict=True):
        value = cell(column, row) if column is not None else None
        after[group] = aggregate.updated(after[group], value)
    return after


def _counted(groups: Int64s, before: list[Any]) -> list[Any]:
    counts = np.bincount(groups, minlength=len(before)).tolist()
    return [old + new for old, new in zip(before, counts, strict=True)]


def _count(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any]:
    return _counted(groups[column.kinds[rows] != ABSENT], before)


def _first(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any]:
    present = np.flatnonzero(column.kinds[rows] != ABSENT)[::-1]
    found = _chosen(column, rows, groups, len(before), present)
    return [new if old is None else old for old, new in zip(before, found, strict=True)]


def _last(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any]:
    present = np.flatnonzero(column.kinds[rows] != ABSENT)
    found = _chosen(column, rows, groups, len(before), present)
    return [old if new is None else new for old, new in zip(before, found, strict=True)]


def _chosen(column: FieldColumn, rows: Int64s, groups: Int64s, count: int, present: Int64s) -> list[Any]:
    """The last value in `present` for each group; None where a group has none."""
    chosen = np.full(count, -1, np.int64)
    chosen[groups[present]] = rows[present]  # the last assignment to an index wins
    return [None if row < 0 else cell(column, row) for row in chosen.tolist()]


def _sum(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any] | None:
    return _folded(_SUM, column, rows, groups, before)[0] if _sums_fit(column, before) else None


def _mean(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any] | None:
    sums = [accumulator[0] for accumulator in before]
    if not _sums_fit(column, sums):
        return None
    after, counts = _folded(_SUM, column, rows, groups, sums)
    return [[x, old[1] + new] for x, old, new in zip(after, before, counts, strict=True)]


def _min(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any] | None:
    return _folded(_MIN, column, rows, groups, before)[0] if _comparisons_fit(column, before) else None


def _max(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any] | None:
    return _folded(_MAX, column, rows, groups, before)[0] if _comparisons_fit(column, before) else None


Kernel: TypeAlias = "Callable[[FieldColumn, Int64s, Int64s, list[Any]], list[Any] | None]"
"""`accumulate` for one class; None where 64-bit integers and doubles would differ from Python's numbers."""

_KERNELS: Final[dict[type[Aggregate], Kernel]] = {
    Count: _count,
    Sum: _sum,
    Min: _min,
    Max: _max,
    Mean: _mean,
    First: _first,
    Last: _last,
}


def _folded(
    mode: int, column: FieldColumn, rows: Int64s, groups: Int64s, starts: list[Any]
) -> tuple[list[Any], list[int]]:
    """The number of each group after the rows, and how many numbers the rows contained for it."""
    kinds = np.array([ABSENT if x is None else FLOAT if isinstance(x, float) else INT for x in starts], np.uint8)
    ints = np.array([x if isinstance(x, int) else 0 for x in starts], np.int64)
    floats = np.array([x if isinstance(x, float) else 0.0 for x in starts], np.float64)
    counts = np.zeros(len(starts), np.int64)
    _fold(mode, column.kinds, column.ints, column.floats, rows, groups, kinds, ints, floats, counts)
    after = [
        None if kind == ABSENT else number if kind == FLOAT else whole
        for kind, whole, number in zip(kinds.tolist(), ints.tolist(), floats.tolist(), strict=True)
    ]
    return after, counts.tolist()


def _sums_fit(column: FieldColumn, starts: list[Any]) -> bool:
    return not _has_long_numbers(column) and _largest(starts) + _largest_of(column) * len(column.ints) < 2**62


def _comparisons_fit(column: FieldColumn, starts: list[Any]) -> bool:
    return not _has_long_numbers(column) and max(_largest(starts), _largest_of(column)) <= _EXACT


def _largest(starts: list[Any]) -> int:
    return max((abs(x) for x in starts if isinstance(x, int)), default=0)


def _largest_of(column: FieldColumn) -> int:
    return max(abs(int(column.ints.min(initial=0))), abs(int(column.ints.max(initial=0))))


def _has_long_numbers(column: FieldColumn) -> bool:
    """Whether a text cell is a number that exceeds 64 bits."""
    if column.texts is None:
        return False
    first = pc.unique(pc.binary_slice(column.texts.drop_null(), 0, 1)).to_pylist()
    return any(byte in b"-0123456789" for byte in first)


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
    """Folds the rows in order into the accumulators by sum (0), min (1) or max (2), and counts the numbers."""
    for i in range(len(rows)):
        row, group = rows[i], groups[i]
        kind = kinds[row]
        if kind not in (INT, FLOAT):
            continue
        counts[group] += 1
        acc_kind = acc_kinds[group]
        if acc_kind == ABSENT:
            acc_kinds[group], acc_ints[group], acc_floats[group] = kind, ints[row], floats[row]
        elif mode == 0:
            if kind == INT and acc_kind == INT:
                acc_ints[group] += ints[row]
            else:
                number = float(ints[row]) if kind == INT else floats[row]
                start = float(acc_ints[group]) if acc_kind == INT else acc_floats[group]
                acc_kinds[group], acc_floats[group] = FLOAT, start + number
        else:
            if kind == INT and acc_kind == INT:
                better = ints[row] < acc_ints[group] if mode == 1 else ints[row] > acc_ints[group]
            else:
                number = float(ints[row]) if kind == INT else floats[row]
                start = float(acc_ints[group]) if acc_kind == INT else acc_floats[group]
                better = number < start if mode == 1 else number > start
            # For equal numbers the earlier one stays, as with Python's min and max.
            if better:
                acc_kinds[group], acc_ints[group], acc_floats[group] = kind, ints[row], floats[row]
