"""Built-in aggregates over columns: many records of many groups at once, with exactly the result of one at a time.

The meaning is `Aggregate.add`, record by record in processing order (`add_rows` is that, the twin). The kernels add in
the same order and switch from whole numbers to floats where Python would, so sums are equal to the last bit and do not
depend on how records are cut into steps. Where 64 bits or a double would not do what Python does (whole numbers
beyond 2^53 next to fractions, sums near 2^63, numbers that came as text), the field goes through `add_rows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from state.numba_kernels import kernel
from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn

if TYPE_CHECKING:
    from streams.model.aggregates import Aggregate

Int64s = npt.NDArray[np.int64]
_EXACT = 2**53
_MODES = {"sum": 0, "mean": 0, "min": 1, "max": 2}


def accumulate(
    aggregate: Aggregate, column: FieldColumn | None, rows: Int64s, groups: Int64s, before: list[Any]
) -> list[Any]:
    """Accumulators of all groups after the rows.

    Args:
        aggregate: What to compute.
        column: Its field; None if it has none (`count` of records).
        rows: int64[m], positions in the column, in processing order.
        groups: int64[m], the group of each.
        before: Accumulator of each group before.
    """
    if column is None:
        return _counted(groups, before)
    if aggregate.kind == "count":
        return _counted(groups[column.kinds[rows] != ABSENT], before)
    if aggregate.kind in ("first", "last"):
        return _ends(aggregate, column, rows, groups, before)
    return _numbers(aggregate, column, rows, groups, before)


def add_rows(
    aggregate: Aggregate, column: FieldColumn | None, rows: Int64s, groups: Int64s, before: list[Any]
) -> list[Any]:
    """The same as `accumulate`, in plain Python: one `Aggregate.add` after the other."""
    after = list(before)
    for row, group in zip(rows.tolist(), groups.tolist(), strict=True):
        value = cell(column, row) if column is not None else None
        after[group] = aggregate.add(after[group], value)
    return after


def cell(column: FieldColumn, row: int) -> Any:
    """One cell as a Python value."""
    kind = column.kinds[row]
    if kind == INT:
        return int(column.ints[row])
    if kind == FLOAT:
        return float(column.floats[row])
    return orjson.loads(column.texts[row].as_py()) if kind == TEXT and column.texts is not None else None


def _counted(groups: Int64s, before: list[Any]) -> list[Any]:
    counts = np.bincount(groups, minlength=len(before)).tolist()
    return [old + new for old, new in zip(before, counts, strict=True)]


def _ends(aggregate: Aggregate, column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any]:
    """First or last value that is there."""
    present = np.flatnonzero(column.kinds[rows] != ABSENT)
    if aggregate.kind == "first":
        present = present[::-1]
    chosen = np.full(len(before), -1, np.int64)
    chosen[groups[present]] = rows[present]  # the last assignment to a place stays
    after = list(before)
    for group in np.flatnonzero(chosen >= 0).tolist():
        after[group] = aggregate.add(before[group], cell(column, int(chosen[group])))
    return after


def _numbers(aggregate: Aggregate, column: FieldColumn, rows: Int64s, groups: Int64s, before: list[Any]) -> list[Any]:
    """Sum, mean, min, max."""
    mean = aggregate.kind == "mean"
    starts = [one[0] for one in before] if mean else before
    if not _fits(aggregate, column, starts):
        return add_rows(aggregate, column, rows, groups, before)
    kinds = np.array([ABSENT if x is None else FLOAT if isinstance(x, float) else INT for x in starts], np.uint8)
    ints = np.array([x if isinstance(x, int) else 0 for x in starts], np.int64)
    floats = np.array([x if isinstance(x, float) else 0.0 for x in starts], np.float64)
    counts = np.zeros(len(before), np.int64)
    _fold(_MODES[aggregate.kind], column.kinds, column.ints, column.floats, rows, groups, kinds, ints, floats, counts)
    after = [
        None if kind == ABSENT else number if kind == FLOAT else whole
        for kind, whole, number in zip(kinds.tolist(), ints.tolist(), floats.tolist(), strict=True)
    ]
    if not mean:
        return after
    return [[x, old[1] + new] for x, old, new in zip(after, before, counts.tolist(), strict=True)]


def _fits(aggregate: Aggregate, column: FieldColumn, starts: list[Any]) -> bool:
    """Whether 64-bit integers and doubles do exactly what Python's numbers would."""
    if column.texts is not None and _any_number(column.texts):
        return False
    start = max((abs(x) for x in starts if isinstance(x, int)), default=0)
    most = max(abs(int(column.ints.min(initial=0))), abs(int(column.ints.max(initial=0))))
    if aggregate.kind in ("min", "max"):
        return max(start, most) <= _EXACT
    return start + most * len(column.ints) < 2**62


def _any_number(texts: pa.BinaryArray) -> bool:
    """Whether a text cell is a number that did not fit 64 bits."""
    first = pc.unique(pc.binary_slice(texts.drop_null(), 0, 1)).to_pylist()
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
    """Sum (0), min (1) or max (2) into the accumulators, in order; counts the numbers."""
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
            # Equal numbers: the earlier one stays, as with Python's min and max.
            if better:
                acc_kinds[group], acc_ints[group], acc_floats[group] = kind, ints[row], floats[row]
