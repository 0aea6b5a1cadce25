"""The columns that aggregates read: declared fields as they are, expressions computed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streams.model.aggregates import Aggregate
from streams.model.expressions.expression import Expression
from streams.operators.aggregate.columns.column_rows import ColumnRows, FieldColumn
from streams.operators.expressions.evaluate import Frame, computed
from streams.operators.expressions.vector import Bools


def columns_of(
    aggregates: Iterable[Aggregate], rows: ColumnRows, taken: Bools, failed: dict[int, Exception]
) -> list[FieldColumn | None]:
    """The column of each aggregate; None for one that has no field.

    Args:
        aggregates: The aggregates.
        rows: The records.
        taken: bool[n], the records to aggregate.
        failed: Receives the records whose values have no fields, or for which an expression fails: the first error of each.
    """
    frame = Frame(len(rows), rows.fields)
    needed = taken.copy()
    found: list[FieldColumn | None] = []
    for aggregate in aggregates:
        if rows.without_fields is not None and (wrong := _error_without_fields(aggregate)) is not None:
            failed.update(dict.fromkeys(np.flatnonzero(needed & rows.without_fields).tolist(), wrong))
            needed &= ~rows.without_fields
        errors: dict[int, Exception] = {}
        found.append(_column(aggregate, rows, frame, needed, errors))
        needed[list(errors)] = False
        failed.update(errors)
    return found


def _column(
    aggregate: Aggregate, rows: ColumnRows, frame: Frame, needed: Bools, errors: dict[int, Exception]
) -> FieldColumn | None:
    if isinstance(aggregate.field, Expression):
        return computed(aggregate.field, frame, needed, errors)
    return None if aggregate.field is None else rows.fields[aggregate.field]


def _error_without_fields(aggregate: Aggregate) -> Exception | None:
    """The error for a value that has no fields, such as a text; None if the aggregate reads none of it."""
    try:
        aggregate.value_in("")
    except Exception as error:
        return error
    return None
