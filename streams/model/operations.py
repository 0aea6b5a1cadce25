"""The operations of expressions on the values of one record: what each computes, and how it is written in a program.

`streams.model.expressions` has the rules that all of them follow. `streams.operators.expressions` computes the same on columns.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias

from streams.errors import RecordError
from streams.model import text_functions as texts
from streams.wording import described

Compute: TypeAlias = Callable[..., Any]
Operand: TypeAlias = Callable[[], Any]
"""Computes the value of an operand when it is called."""

_NO_NUMBERS = (bool, str, list, dict)


@dataclass(frozen=True, slots=True)
class Definition:
    """One operation.

    Attributes:
        text: How it is written in a program, with `{}` for each operand.
        compute: Computes the result, from values that are not null, or if `lazy`, from operands that may be null.
        lazy: Whether the operation deals with nulls itself, and computes only the operands that it needs.
        infix: Whether the text needs parentheses within another operation.
    """

    text: str
    compute: Compute
    lazy: bool = False
    infix: bool = True

    def of_values(self, *values: Any) -> Any:
        """Computes the result from the operands' values, for an operation that is not lazy."""
        for value in values:
            if value is None:
                return None
        try:
            return self.compute(*values)
        except (ArithmeticError, TypeError, ValueError) as error:
            text = self.text.format(*map(described, values))
            raise RecordError(f"{text} cannot be computed: {error}") from error


# --- Decimals: sums, differences and products are exact. Quotients and remainders of `//` and `%` are exact, too, and rounded down
# as sums of integers are. Only `/` rounds, as IEEE 754's decimal128 and Java's `MathContext.DECIMAL128` do.

_TRAPS = (decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow)
_MOST_DIGITS: Final = 1000
EXACT: Final = Context(prec=_MOST_DIGITS, traps=[*_TRAPS, decimal.Inexact])
_ROUNDED: Final = Context(prec=34, rounding=decimal.ROUND_HALF_EVEN, traps=list(_TRAPS))


def _floor_divide(context: Context, left: Any, right: Any) -> Decimal:
    quotient, rest = context.divmod(left, right)
    down = rest and (rest < 0) is not (right < 0)
    return context.subtract(quotient, 1) if down else context.plus(quotient)


def _remainder(context: Context, left: Any, right: Any) -> Decimal:
    rest = context.remainder(left, right)
    return context.add(rest, right) if rest and (rest < 0) is not (right < 0) else context.plus(rest)


_DIVISIONS: Final = (Context.divide, _floor_divide, _remainder)


def _numbers(compute: Compute, of_decimals: Compute, context: Context = EXACT) -> Compute:
    """An operation on numbers: `of_decimals` if an operand is a Decimal (the others may be integers), else `compute`."""

    def checked(*values: Any) -> Any:
        if any(isinstance(value, _NO_NUMBERS) for value in values):
            raise TypeError("it takes numbers")
        return _of_decimals(of_decimals, context, values) if Decimal in map(type, values) else compute(*values)

    return checked


def _of_decimals(compute: Compute, context: Context, values: Sequence[Any]) -> Any:
    if any(isinstance(value, float) for value in values):
        raise TypeError(
            "a Decimal cannot be combined with a float, which is not exact: write .cast(Decimal) after the float"
        )
    try:
        return compute(context, *values)
    except decimal.Inexact:
        raise ValueError(f"the result has more than {_MOST_DIGITS:,} digits") from None
    except decimal.DecimalException:
        if compute in _DIVISIONS and not values[1]:
            raise ZeroDivisionError("division by zero") from None
        raise ValueError("it is not a number, or too large") from None


_ADD: Final = _numbers(operator.add, Context.add)


def _add(left: Any, right: Any) -> Any:
    """Adds two numbers, or joins two texts."""
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, _NO_NUMBERS) or isinstance(right, _NO_NUMBERS):
        raise TypeError("it takes two numbers or two texts")
    return _ADD(left, right)


def truth(value: Any) -> bool | None:
    """Returns a value that is true, false or null. Raises `RecordError` for any other."""
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


def _case(*operands: Operand) -> Any:
    """The value after the first condition that is true, else the last operand; no other value is computed."""
    *cases, instead = operands
    for condition, value in zip(cases[::2], cases[1::2], strict=True):
        if truth(condition()) is True:
            return value()
    return instead()


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
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def as_decimal(value: Any) -> Decimal:
    """A number as a `Decimal` of its digits (for a float, the digits that JSON writes), or the number that a text contains.

    Raises:
        TypeError: The value is neither a number nor a text.
        ValueError: The text is not a number, or the number is not finite.
    """
    if isinstance(value, bool | list | dict):
        raise TypeError("it takes a number or a text")
    try:
        found = Decimal(repr(value) if isinstance(value, float) else value)
    except decimal.InvalidOperation:
        raise ValueError(f"{described(value)} is not a number") from None
    if not found.is_finite():
        raise ValueError("it is not a finite number")
    return found


OF_VALUES: Final[dict[str, Definition]] = {
    "lower": Definition("{}.lower()", texts.of_text(str.lower), infix=False),
    "upper": Definition("{}.upper()", texts.of_text(str.upper), infix=False),
    "strip": Definition("{}.strip()", texts.of_text(str.strip), infix=False),
    "contains": Definition("{}.contains({})", texts.of_text(operator.contains), infix=False),
    "startswith": Definition("{}.startswith({})", texts.of_text(str.startswith), infix=False),
    "endswith": Definition("{}.endswith({})", texts.of_text(str.endswith), infix=False),
    "replace": Definition("{}.replace({}, {})", texts.of_text(str.replace), infix=False),
    "split": Definition("{}.split({})", texts.of_text(str.split), infix=False),
    "regexp_extract": Definition("{}.regexp_extract({}, {})", texts.of_text(texts.regexp_extract), infix=False),
    "length": Definition("{}.length()", texts.of_text_or_list(len), infix=False),
    "item": Definition("{}[{}]", texts.of_text_or_list(texts.item), infix=False),
    "slice_from": Definition("{}[{}:]", texts.of_text_or_list(texts.part), infix=False),
    "slice": Definition("{}[{}:{}]", texts.of_text_or_list(texts.part), infix=False),
    "read_iso": Definition("{}.to_timestamp()", texts.read_iso, infix=False),
    "read_time": Definition("{}.to_timestamp({})", texts.of_text(texts.read_time), infix=False),
    "hour": Definition("{}.hour({})", texts.hour, infix=False),
    "date_format": Definition("{}.date_format({}, {})", texts.date_format, infix=False),
}
"""The operations on one value; their other operands are constants."""

OPERATIONS: dict[str, Definition] = {
    **OF_VALUES,
    "case": Definition("when({}, {})", _case, lazy=True, infix=False),
    "add": Definition("{} + {}", _add),
    "subtract": Definition("{} - {}", _numbers(operator.sub, Context.subtract)),
    "multiply": Definition("{} * {}", _numbers(operator.mul, Context.multiply)),
    "divide": Definition("{} / {}", _numbers(operator.truediv, Context.divide, _ROUNDED)),
    "floor_divide": Definition("{} // {}", _numbers(operator.floordiv, _floor_divide)),
    "remainder": Definition("{} % {}", _numbers(operator.mod, _remainder)),
    "negative": Definition("-{}", _numbers(operator.neg, Context.minus)),
    "absolute": Definition("abs({})", _numbers(abs, Context.abs), infix=False),
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
    "to_decimal": Definition("{}.cast(Decimal)", as_decimal, infix=False),
    "to_text": Definition("{}.cast(str)", _text, infix=False),
}
"""All operations, by their names in `Operation.name`."""

TRUTH: frozenset[str] = frozenset(
    {
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "and",
        "or",
        "not",
        "is_null",
        "is_not_null",
        "is_in",
        "contains",
        "startswith",
        "endswith",
    }
)
"""The operations whose results are true, false or null."""
