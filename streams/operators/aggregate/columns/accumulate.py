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

from streams.model.aggregates import Aggregate, Count, First, Last, Max, Mean, Min, Sum
from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, FieldColumn, cell
from streams.operators.aggregate.columns.number_fold import MAX, MIN, SUM, Numbers, fold

Int64s: TypeAlias = npt.NDArray[np.int64]
EXACT: Final = 2**53
"""Up to here, a double is exact for every integer."""


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
    return _folded(SUM, column, rows, groups, before)[0] if _sums_fit(column, before) else None


def _mean(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any] | None:
    sums = [accumulator[0] for accumulator in before]
    # An infinite sum was stored as null, to which nothing can be added.
    if None in sums or not _sums_fit(column, sums):
        return None
    after, counts = _folded(SUM, column, rows, groups, sums)
    return [[x, old[1] + new] for x, old, new in zip(after, before, counts, strict=True)]


def _min(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any] | None:
    return _folded(MIN, column, rows, groups, before)[0] if comparisons_fit(column, before) else None


def _max(column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any] | None:
    return _folded(MAX, column, rows, groups, before)[0] if comparisons_fit(column, before) else None


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
    numbers, counts = Numbers.of(starts), np.zeros(len(starts), np.int64)
    fold(mode, column, rows, groups, numbers, counts)
    return numbers.to_list(), counts.tolist()


def _sums_fit(column: FieldColumn, starts: list[Any]) -> bool:
    return not has_long_numbers(column) and largest(starts) + largest_of(column) * len(column.ints) < 2**62


def comparisons_fit(column: FieldColumn, starts: list[Any]) -> bool:
    """Whether numbers compare as in Python: integers with each other always, integers with fractions up to 2^53."""
    if has_long_numbers(column):
        return False
    most = max(largest(starts), largest_of(column))
    mixed = bool((column.kinds == FLOAT).any()) or any(isinstance(x, float) for x in starts)
    return most <= (EXACT if mixed else 2**63 - 1)


def largest(starts: list[Any]) -> int:
    """The largest absolute value of the integers."""
    return max((abs(x) for x in starts if isinstance(x, int)), default=0)


def largest_of(column: FieldColumn) -> int:
    """The largest absolute value of a column's integers."""
    return max(abs(int(column.ints.min(initial=0))), abs(int(column.ints.max(initial=0))))


def has_long_numbers(column: FieldColumn) -> bool:
    """Whether a text cell is a number that exceeds 64 bits."""
    if column.texts is None:
        return False
    first = pc.unique(pc.binary_slice(column.texts.drop_null(), 0, 1)).to_pylist()
    return any(byte in b"-0123456789" for byte in first)
