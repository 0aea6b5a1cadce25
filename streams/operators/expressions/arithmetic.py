"""Arithmetic on vectors, equal to Python's.

Integers stay integers while 64 bits hold the result; beyond, the row is left to Python. Next to a double, an integer is
rounded as Python rounds it. NumPy's division, floor and remainder of doubles follow Python's rules (`npy_divmod` is Python's
`float_divmod`), also in the signs of zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT
from streams.operators.expressions.vector import EXACT, Bools, Vector

Int64s: TypeAlias = npt.NDArray[np.int64]
Whole: TypeAlias = Callable[[Int64s, Int64s], "tuple[Int64s, Bools]"]
"""An operation on integers, and where it overflows or has no result."""

_LEAST = np.iinfo(np.int64).min
_FAR = 2.0**62


def _numeric(
    whole: Whole | None, doubles: Callable[..., Any], a: Vector, b: Vector, *, divides: bool = False
) -> Vector:
    """An operation on numbers.

    Args:
        whole: The operation on integers; None: both become doubles first, which is exact up to `EXACT`.
        doubles: The operation on doubles.
        a: The left operand.
        b: The right operand.
        divides: Whether the right operand must not be zero.
    """
    null = (a.kinds == ABSENT) | (b.kinds == ABSENT)
    both_ints = (a.kinds == INT) & (b.kinds == INT)
    simple = a.is_a(INT, FLOAT) & b.is_a(INT, FLOAT)
    unsure = a.unsure | b.unsure | ~(null | simple)
    ints: Int64s = np.zeros(1, np.int64)
    floats: npt.NDArray[np.float64] = np.zeros(1)
    with np.errstate(all="ignore"):
        if both_ints.any():
            if whole is None:
                far = _beyond(a.ints, EXACT) | _beyond(b.ints, EXACT)
                unsure = unsure | (both_ints & far)
            else:
                ints, wrong = whole(a.ints, b.ints)
                unsure = unsure | (both_ints & wrong)
        if whole is None or not both_ints.all():
            right = b.numbers()
            if divides:
                unsure = unsure | (simple & (right == 0))
            floats = doubles(a.numbers(), right)
    is_int = both_ints if whole is not None else np.zeros(1, np.bool_)
    kinds = np.where(null, np.uint8(ABSENT), np.where(is_int, np.uint8(INT), np.uint8(FLOAT)))
    return Vector(kinds, ints, floats, None, unsure)


def negative(a: Vector) -> Vector:
    """The number with the other sign."""
    return _of_one(a, np.negative)


def absolute(a: Vector) -> Vector:
    """The number without its sign."""
    return _of_one(a, np.abs)


def to_int(a: Vector) -> Vector:
    """The number without its fraction; texts are left to Python."""
    with np.errstate(all="ignore"):
        ints = np.where(a.kinds == FLOAT, a.floats.astype(np.int64), a.ints)
    far = (a.kinds == FLOAT) & ~(np.abs(a.floats) < _FAR)
    null = a.kinds == ABSENT
    unsure = a.unsure | far | ~(null | a.is_a(INT, FLOAT))
    return Vector(np.where(null, np.uint8(ABSENT), np.uint8(INT)), ints, np.zeros(1), None, unsure)


def to_float(a: Vector) -> Vector:
    """The number as a double; texts are left to Python."""
    null = a.kinds == ABSENT
    unsure = a.unsure | ~(null | a.is_a(INT, FLOAT))
    kinds = np.where(null, np.uint8(ABSENT), np.uint8(FLOAT))
    return Vector(kinds, np.zeros(1, np.int64), a.numbers(), None, unsure)


def _of_one(a: Vector, operation: Callable[..., Any]) -> Vector:
    numbers = a.is_a(INT, FLOAT)
    unsure = a.unsure | ~((a.kinds == ABSENT) | numbers) | ((a.kinds == INT) & (a.ints == _LEAST))
    return Vector(np.where(numbers, a.kinds, np.uint8(ABSENT)), operation(a.ints), operation(a.floats), None, unsure)


def _beyond(ints: Int64s, limit: int) -> Bools:
    beyond: Bools = (ints > limit) | (ints < -limit)
    return beyond


def _add(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    found = a + b
    return found, ((a ^ found) & (b ^ found)) < 0


def _subtract(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    found = a - b
    return found, ((a ^ b) & (a ^ found)) < 0


def _multiply(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    # A product that is far from 2^63 as a double is far from it exactly.
    return a * b, np.abs(a.astype(np.float64) * b.astype(np.float64)) >= _FAR


def _floor_divide(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    return a // b, (b == 0) | ((a == _LEAST) & (b == -1))


def _remainder(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    return a % b, (b == 0) | (b == -1)


ARITHMETIC: Final[dict[str, Callable[[Vector, Vector], Vector]]] = {
    "add": partial(_numeric, _add, np.add),
    "subtract": partial(_numeric, _subtract, np.subtract),
    "multiply": partial(_numeric, _multiply, np.multiply),
    "divide": partial(_numeric, None, np.divide, divides=True),
    "floor_divide": partial(_numeric, _floor_divide, np.floor_divide, divides=True),
    "remainder": partial(_numeric, _remainder, np.remainder, divides=True),
}
"""Operations on two numbers, by their names."""
