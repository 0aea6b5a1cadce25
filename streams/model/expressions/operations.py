"""What expressions compute: the definition, in plain Python, for one record.

The rules: operands are what JSON gives (None, bool, int, float, str, list, dict). Null in, null out, but for `is_null`,
`otherwise` and the logical operators, which follow SQL's logic of three values. Everything else is Python's: integers have any
size, `/` gives a float, `//` and `%` round down, a division by zero is an error. Unlike in Python, truth values are no numbers.
`streams.operators.expressions` computes the same on columns, and leaves every case that is not simple to these functions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from streams.errors import RecordError
from streams.wording import described

Compute: TypeAlias = Callable[..., Any]
Operand: TypeAlias = Callable[[], Any]
"""An operand whose value is computed when it is asked for."""

_NO_NUMBERS = (bool, str, list, dict)


@dataclass(frozen=True, slots=True)
class Definition:
    """One operation.

    Attributes:
        text: How a program writes it, with `{}` for each operand.
        compute: Computes the result: of values that are not null, or if `lazy`, of operands that may be.
        lazy: Whether the operation deals with nulls itself, and computes only the operands that it needs.
        infix: Whether the text needs parentheses within another operation.
    """

    text: str
    compute: Compute
    lazy: bool = False
    infix: bool = True

    def of(self, operands: Sequence[Operand]) -> Any:
        """The result for the operands."""
        return self.compute(*operands) if self.lazy else self.of_values(*(operand() for operand in operands))

    def of_values(self, *values: Any) -> Any:
        """The result for the operands' values, of an operation that is not lazy."""
        if any(value is None for value in values):
            return None
        try:
            return self.compute(*values)
        except (ArithmeticError, TypeError, ValueError) as error:
            text = self.text.format(*map(described, values))
            raise RecordError(f"{text} cannot be computed: {error}") from error


def _numbers(compute: Compute) -> Compute:
    def checked(*values: Any) -> Any:
        if any(isinstance(value, _NO_NUMBERS) for value in values):
            raise TypeError("it takes numbers")
        return compute(*values)

    return checked


def _add(left: Any, right: Any) -> Any:
    """The sum of numbers, or one text behind the other."""
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, _NO_NUMBERS) or isinstance(right, _NO_NUMBERS):
        raise TypeError("it takes two numbers or two texts")
    return left + right


def truth(value: Any) -> bool | None:
    """A value that is true, false or null. Raises `RecordError` for any other."""
    if value is None or value is True or value is False:
        return value
    raise RecordError(f"true or false is needed here, not {described(value)}: compare it, as in col('count') != 0")


def _and(left: Operand, right: Operand) -> bool | None:
    first = truth(left())
    if first is False:
        return False
    second = truth(right())
    return second if first or second is False else None


def _or(left: Operand, right: Operand) -> bool | None:
    first = truth(left())
    if first is True:
        return True
    second = truth(right())
    return second if first is False or second else None


def _not(operand: Operand) -> bool | None:
    value = truth(operand())
    return None if value is None else not value


def _otherwise(value: Operand, instead: Operand) -> Any:
    found = value()
    return instead() if found is None else found


def _is_in(value: Any, *candidates: Any) -> bool:
    return value in candidates


def _whole(value: Any) -> int:
    if isinstance(value, list | dict):
        raise TypeError("it takes a number, a text or a truth value")
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, list | dict):
        raise TypeError("it takes a number, a text or a truth value")
    return float(value)


def _text(value: Any) -> str:
    if isinstance(value, bool | list | dict):
        raise TypeError("it takes a number or a text")
    return str(value)


OPERATIONS: dict[str, Definition] = {
    "add": Definition("{} + {}", _add),
    "subtract": Definition("{} - {}", _numbers(operator.sub)),
    "multiply": Definition("{} * {}", _numbers(operator.mul)),
    "divide": Definition("{} / {}", _numbers(operator.truediv)),
    "floor_divide": Definition("{} // {}", _numbers(operator.floordiv)),
    "remainder": Definition("{} % {}", _numbers(operator.mod)),
    "negative": Definition("-{}", _numbers(operator.neg)),
    "absolute": Definition("abs({})", _numbers(abs), infix=False),
    "equal": Definition("{} == {}", operator.eq),
    "not_equal": Definition("{} != {}", operator.ne),
    "less": Definition("{} < {}", operator.lt),
    "less_equal": Definition("{} <= {}", operator.le),
    "greater": Definition("{} > {}", operator.gt),
    "greater_equal": Definition("{} >= {}", operator.ge),
    "and": Definition("{} & {}", _and, lazy=True),
    "or": Definition("{} | {}", _or, lazy=True),
    "not": Definition("~{}", _not, lazy=True),
    "is_null": Definition("{}.is_null()", lambda value: value() is None, lazy=True, infix=False),
    "is_not_null": Definition("{}.is_not_null()", lambda value: value() is not None, lazy=True, infix=False),
    "otherwise": Definition("{}.otherwise({})", _otherwise, lazy=True, infix=False),
    "is_in": Definition("{}.isin({})", _is_in, infix=False),
    "least": Definition("{}.least({})", min, infix=False),
    "greatest": Definition("{}.greatest({})", max, infix=False),
    "to_int": Definition("{}.cast(int)", _whole, infix=False),
    "to_float": Definition("{}.cast(float)", _number, infix=False),
    "to_text": Definition("{}.cast(str)", _text, infix=False),
}
"""All operations, by their names in `Operation.name`."""
