"""Logic of three values on vectors, and the operations that deal with nulls.

The definition computes the right operand only if the left one does not decide; so a row whose right operand is unsure, for
example because it divides by zero, is sure if the left operand decides.
"""

from __future__ import annotations

import numpy as np

from streams.operators.aggregate.columns.column_rows import ABSENT
from streams.operators.expressions.vector import BOOL, Bools, Vector, chosen, of_bools


def both(a: Vector, b: Vector) -> Vector:
    """`a & b`."""
    return _combined(a, b, deciding=False)


def either(a: Vector, b: Vector) -> Vector:
    """`a | b`."""
    return _combined(a, b, deciding=True)


def _combined(a: Vector, b: Vector, *, deciding: bool) -> Vector:
    """Both operands combined; one that has the deciding value decides."""
    by_left, by_right = _is(a, deciding) & ~a.unsure, _is(b, deciding)
    null = (a.kinds == ABSENT) | (b.kinds == ABSENT)
    decided = by_left | by_right
    unsure = ~by_left & (a.unsure | b.unsure | ~(a.is_a(BOOL, ABSENT) & b.is_a(BOOL, ABSENT)))
    return of_bools(decided if deciding else ~decided, null & ~decided, unsure)


def opposite(a: Vector) -> Vector:
    """`~a`."""
    return of_bools(a.ints == 0, a.kinds == ABSENT, a.unsure | ~a.is_a(BOOL, ABSENT))


def is_null(a: Vector) -> Vector:
    """`a.is_null()`."""
    return of_bools(a.kinds == ABSENT, np.zeros(1, np.bool_), a.unsure)


def is_not_null(a: Vector) -> Vector:
    """`a.is_not_null()`."""
    return of_bools(a.kinds != ABSENT, np.zeros(1, np.bool_), a.unsure)


def otherwise(a: Vector, b: Vector) -> Vector:
    """`a.otherwise(b)`."""
    return chosen((a.kinds != ABSENT) | a.unsure, a, b)


def _is(a: Vector, value: bool) -> Bools:
    found: Bools = a.is_a(BOOL) & (a.ints == int(value))
    return found
