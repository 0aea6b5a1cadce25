"""Computes an expression for all rows of a step: vectorised where that is certain, else by the definition, row by row.

The definition is `Expression.evaluate`. Vectorised operations mark the rows that they are not certain of, and only these are
computed again; so an error has the same words both ways, and belongs to its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.errors import NoFieldsError
from streams.model.expressions.expression import Col, Expression, Lit, Operation
from streams.model.expressions.operations import truth
from streams.operators.aggregate.columns.column_rows import ABSENT, FieldColumn, cell, encoded
from streams.operators.expressions import arithmetic, comparisons, logic
from streams.operators.expressions.vector import BOOL, Bools, Vector, of_constant, of_field, to_field


@dataclass(slots=True)
class Frame:
    """The fields of n values.

    Attributes:
        count: n.
        fields: Columns by path; a missing path is a field that no value has.
        without_fields: bool[n], whether a value is a text, a number or the like; None if no value is.
    """

    count: int
    fields: Mapping[str, FieldColumn]
    without_fields: Bools | None = None
    _vectors: dict[str, Vector] = field(default_factory=dict)

    def vector(self, path: str) -> Vector:
        """A field of all rows."""
        if path not in self._vectors:
            column = self.fields.get(path)
            self._vectors[path] = of_constant(None) if column is None else of_field(column)
        return self._vectors[path]

    def read(self, row: int, path: str) -> Any:
        """A field of one row. Raises `NoFieldsError`."""
        if self.without_fields is not None and self.without_fields[row]:
            raise NoFieldsError(path)
        column = self.fields.get(path)
        return None if column is None else cell(column, row)


def computed(expression: Expression, frame: Frame, rows: Bools, failed: dict[int, Exception]) -> FieldColumn:
    """The results of an expression.

    Args:
        expression: The expression.
        frame: The values.
        rows: bool[n], the rows that are needed; the others' results are not meaningful.
        failed: Receives the rows that have no result, with the errors.
    """
    if isinstance(expression, Col) and frame.without_fields is None and expression.path in frame.fields:
        return frame.fields[expression.path]
    found = _vector(expression, frame)
    column = to_field(found, frame.count)
    return _with_values(column, _one_by_one(expression, frame, found.unsure & rows, failed))


def true_rows(expression: Expression, frame: Frame, rows: Bools, failed: dict[int, Exception]) -> Bools:
    """Where an expression is true; arguments as for `computed`."""
    found = _vector(expression, frame)
    wrong = (found.kinds != BOOL) & (found.kinds != ABSENT)
    unsure = found.unsure | wrong
    true: Bools = np.broadcast_to((found.kinds == BOOL) & (found.ints == 1) & ~unsure, frame.count).copy()

    def decide(read: Callable[[str], Any]) -> bool | None:
        return truth(expression.evaluate(read))

    for row, value in _each(decide, frame, unsure & rows, failed):
        true[row] = value is True
    return true


def _vector(expression: Expression, frame: Frame) -> Vector:
    """All results that are certain."""
    if isinstance(expression, Lit):
        return of_constant(expression.value)
    if isinstance(expression, Col):
        found = frame.vector(expression.path)
        return found if frame.without_fields is None else _unsure_where(found, frame.without_fields)
    assert isinstance(expression, Operation), "there are no other expressions"
    operands = [_vector(operand, frame) for operand in expression.operands]
    vectorised = _VECTORISED.get(expression.name)
    if vectorised is None:
        return _unsure_where(of_constant(None), np.ones(1, np.bool_))
    return vectorised(*operands)


_VECTORISED: Final[dict[str, Callable[..., Vector]]] = {
    **arithmetic.ARITHMETIC,
    **comparisons.COMPARISONS,
    "is_in": comparisons.is_in,
    "negative": arithmetic.negative,
    "absolute": arithmetic.absolute,
    "to_int": arithmetic.to_int,
    "to_float": arithmetic.to_float,
    "least": comparisons.least,
    "greatest": comparisons.greatest,
    "and": logic.both,
    "or": logic.either,
    "not": logic.opposite,
    "is_null": logic.is_null,
    "is_not_null": logic.is_not_null,
    "otherwise": logic.otherwise,
}
"""Operations by their names; the definition computes those that are missing here."""


def _unsure_where(vector: Vector, unsure: Bools) -> Vector:
    return Vector(vector.kinds, vector.ints, vector.floats, vector.texts, vector.unsure | unsure)


def _one_by_one(expression: Expression, frame: Frame, rows: Bools, failed: dict[int, Exception]) -> dict[int, Any]:
    return dict(_each(expression.evaluate, frame, rows, failed))


def _each(
    evaluate: Callable[[Callable[[str], Any]], Any], frame: Frame, rows: Bools, failed: dict[int, Exception]
) -> list[tuple[int, Any]]:
    """The results of some rows by the definition."""
    found = []
    for row in np.flatnonzero(np.broadcast_to(rows, frame.count)).tolist():
        try:
            found.append((row, evaluate(partial(frame.read, row))))
        except Exception as error:
            failed[row] = error
    return found


def _with_values(column: FieldColumn, values: Mapping[int, Any]) -> FieldColumn:
    """The column with the cells of some rows replaced."""
    if not values:
        return column
    kinds, ints, floats = column.kinds.copy(), column.ints.copy(), column.floats.copy()
    texts: dict[int, bytes] = {}
    for row, value in values.items():
        kinds[row], ints[row], floats[row], text = encoded(value)
        if text is not None:
            texts[row] = text
    if not texts:
        return FieldColumn(kinds, ints, floats, column.texts)
    mask = np.zeros(len(kinds), np.bool_)
    mask[list(texts)] = True
    before = pa.nulls(len(kinds), pa.binary()) if column.texts is None else column.texts
    by_row = pa.array([texts[row] for row in sorted(texts)], pa.binary())
    return FieldColumn(kinds, ints, floats, pc.replace_with_mask(before, pa.array(mask), by_row))
