"""Aggregates over columns whose accumulators are also merged, as those of sessions are.

The definition is the way of `SessionAggregate`, in `apply_operations`, the reference: before each row, the accumulators that it
brings together are merged behind the initial one, in order. The kernels differ in no result, since merging anything behind the
initial accumulator of a built-in aggregate does not change it; where they might differ, `apply_operations` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from state.numba_kernels import kernel
from streams.model.aggregates import Aggregate, Count, First, Last, Max, Mean, Min, Sum
from streams.operators.aggregate.columns.accumulate import EXACT, cell, has_long_numbers, largest, largest_of
from streams.operators.aggregate.columns.column_rows import ABSENT, FieldColumn
from streams.operators.aggregate.columns.number_fold import MAX, MIN, SUM, Numbers, fold

Int64s: TypeAlias = npt.NDArray[np.int64]

_NONE = np.iinfo(np.int64).min
_EVERY = np.empty(0, np.uint8)
_NEW: Final = object()


class Operations(NamedTuple):
    """What happens to the accumulators of a step, slot by slot.

    Attributes:
        rows: int64[m], a row to add, or ~s: the accumulator of slot s is merged, before the next row is added to the same slot.
        slots: int64[m], the slot of each operation.
        slot_count: The number of slots. The first ones have accumulators already, the others begin with the initial one.
        wanted: int64[k], the slots whose accumulators are asked for.
    """

    rows: Int64s
    slots: Int64s
    slot_count: int
    wanted: Int64s


def accumulate_merging(
    aggregate: Aggregate, column: FieldColumn | None, operations: Operations, before: list[Any]
) -> list[Any]:
    """The accumulators of the wanted slots after the operations.

    Args:
        aggregate: The aggregate.
        column: The aggregate's field; None if it has none (`count` of records).
        operations: The operations.
        before: The accumulators of the first slots; not changed.
    """
    # Matched by the exact class, because a class derived from a built-in aggregate may compute something else.
    of_class = _KERNELS.get(type(aggregate))
    after = None if of_class is None else of_class(column, operations, before)
    return apply_operations(aggregate, column, operations, deepcopy(before)) if after is None else after


def merges_without_failing(aggregate: Aggregate) -> bool:
    """Whether this class never fails when it merges accumulators, as user-defined classes may."""
    return type(aggregate) in _KERNELS


def apply_operations(
    aggregate: Aggregate, column: FieldColumn | None, operations: Operations, before: list[Any]
) -> list[Any]:
    """The same as `accumulate_merging`, in plain Python: one call of the aggregate after the other."""
    slots = [*before, *[_NEW] * (operations.slot_count - len(before))]
    waiting: Any = _NEW
    for row, slot in zip(operations.rows.tolist(), operations.slots.tolist(), strict=True):
        if waiting is _NEW:
            waiting = aggregate.initial()
            if slots[slot] is not _NEW:
                waiting = aggregate.merge(waiting, slots[slot])
        if row < 0:
            waiting = aggregate.merge(waiting, slots[~row])
        else:
            slots[slot] = aggregate.updated(waiting, None if column is None else cell(column, row))
            waiting = _NEW
    return [slots[slot] for slot in operations.wanted.tolist()]


def _count(column: FieldColumn | None, operations: Operations, before: list[Any]) -> list[Any]:
    counts = _padded(before, operations)
    _add_counts(_EVERY if column is None else column.kinds, operations.rows, operations.slots, counts)
    found: list[Any] = counts[operations.wanted].tolist()
    return found


def _sum(column: FieldColumn, operations: Operations, before: list[Any]) -> list[Any] | None:
    return _folded(SUM, column, operations, before) if _sums_fit(column, before) else None


def _min(column: FieldColumn, operations: Operations, before: list[Any]) -> list[Any] | None:
    return _folded(MIN, column, operations, before) if _comparisons_fit(column, before) else None


def _max(column: FieldColumn, operations: Operations, before: list[Any]) -> list[Any] | None:
    return _folded(MAX, column, operations, before) if _comparisons_fit(column, before) else None


def _mean(column: FieldColumn, operations: Operations, before: list[Any]) -> list[Any] | None:
    sums = [total for total, _ in before]
    if None in sums or not _sums_fit(column, sums):
        return None
    numbers = Numbers.of(sums, 0, operations.slot_count)
    counts = _padded([count for _, count in before], operations)
    fold(SUM, column, operations.rows, operations.slots, numbers, counts)
    wanted = operations.wanted
    return [list(pair) for pair in zip(numbers.take(wanted).to_list(), counts[wanted].tolist(), strict=True)]


def _first(column: FieldColumn, operations: Operations, before: list[Any]) -> list[Any]:
    return _chosen(True, column, operations, before)


def _last(column: FieldColumn, operations: Operations, before: list[Any]) -> list[Any]:
    return _chosen(False, column, operations, before)


Kernel: TypeAlias = "Callable[[Any, Operations, list[Any]], list[Any] | None]"
"""`accumulate_merging` for one class; None where 64-bit integers and doubles would differ from Python's numbers."""

_KERNELS: Final[dict[type[Aggregate], Kernel]] = {
    Count: _count,
    Sum: _sum,
    Min: _min,
    Max: _max,
    Mean: _mean,
    First: _first,
    Last: _last,
}


def _folded(mode: int, column: FieldColumn, operations: Operations, before: list[Any]) -> list[Any]:
    numbers = Numbers.of(before, None, operations.slot_count)
    fold(mode, column, operations.rows, operations.slots, numbers, np.zeros(operations.slot_count, np.int64))
    return numbers.take(operations.wanted).to_list()


def _sums_fit(column: FieldColumn, before: list[Any]) -> bool:
    most = largest(before) * len(before) + largest_of(column) * len(column.ints)
    return not has_long_numbers(column) and most < 2**62


def _comparisons_fit(column: FieldColumn, before: list[Any]) -> bool:
    return not has_long_numbers(column) and max(largest(before), largest_of(column)) <= EXACT


def _padded(counts: list[int], operations: Operations) -> Int64s:
    padded = np.zeros(operations.slot_count, np.int64)
    padded[: len(counts)] = counts
    return padded


def _chosen(first: bool, column: FieldColumn, operations: Operations, before: list[Any]) -> list[Any]:
    chosen = np.full(operations.slot_count, _NONE, np.int64)
    chosen[: len(before)] = [_NONE if value is None else ~slot for slot, value in enumerate(before)]
    _choose(first, column.kinds, operations.rows, operations.slots, chosen)
    return [
        None if choice == _NONE else before[~choice] if choice < 0 else cell(column, choice)
        for choice in chosen[operations.wanted].tolist()
    ]


@kernel
def _add_counts(kinds: Any, rows: Any, slots: Any, counts: Any) -> None:  # pragma: no cover - compiled
    """Counts the rows whose kind is not `ABSENT`, or all rows if there are no kinds."""
    every = len(kinds) == 0
    for i in range(len(rows)):
        row = rows[i]
        if row < 0:
            counts[slots[i]] += counts[~row]
        elif every or kinds[row] != ABSENT:
            counts[slots[i]] += 1


@kernel
def _choose(first: bool, kinds: Any, rows: Any, slots: Any, chosen: Any) -> None:  # pragma: no cover - compiled
    """Chooses the first or last value that is not null: a row, or ~s for what slot s began with."""
    for i in range(len(rows)):
        row, slot = rows[i], slots[i]
        choice = row
        if row < 0:
            choice = chosen[~row]
        elif kinds[row] == ABSENT:
            choice = _NONE
        if choice != _NONE and (not first or chosen[slot] == _NONE):
            chosen[slot] = choice
