"""`Expression`: a computation over the fields of a value that the engine can read, unlike a function.

An expression is data: it says which fields it reads, so only these are decoded, and whole columns are computed at once
(`streams.operators.expressions`). It is also a function of the value, so it fits wherever a function of the value does. The names
are those of PySpark and Polars where these agree (`col`, `lit`, the operators, `is_null`, `cast`) and PySpark's or SQL's otherwise
(`isin`, `between`, `least`, `greatest`); `otherwise` stands for SQL's COALESCE of two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from streams.errors import TopologyError
from streams.model.expressions.operations import OPERATIONS, truth
from streams.model.fields import pick
from streams.wording import described

ReadField: TypeAlias = Callable[[str], Any]
"""Reads one field of a record's value by its dotted path."""

_CASTS = {int: "to_int", float: "to_float", str: "to_text"}


class Expression(ABC):
    """A computation over fields, made by `col`, `lit` and operators; `expression(value)` computes it for one value.

    Operators: `+ - * / // %`, `abs()`, comparisons, and `& | ~` for "and", "or", "not" (with parentheses around comparisons, since
    `&` binds more tightly). Null in, null out: a missing field makes the result null, a predicate that is null is not true, and
    `false & null` is false, as in SQL. All else is Python's: integers of any size, `/` gives a float, `//` and `%` round
    down. Operands of a wrong type and divisions by zero are errors of the record, and meet the policy `processing`.

    Example::

        celsius = (col("fahrenheit") - 32) / 1.8
        warm = (celsius > 20) & ~col("sensor.broken").otherwise(False)
        builder.stream("weather").filter(warm).group_by_key().aggregate(mean=agg.mean(celsius))
    """

    __slots__ = ()

    @abstractmethod
    def evaluate(self, read: ReadField) -> Any:
        """The result for one record, whose fields `read` gives."""

    @property
    @abstractmethod
    def paths(self) -> tuple[str, ...]:
        """The distinct dotted paths of the fields that the expression reads."""

    def __call__(self, value: Any) -> Any:
        """The result for one value. Raises `RecordError`, or `NoFieldsError` for a value without fields."""
        return self.evaluate(partial(pick, value))

    def is_true(self, value: Any) -> bool:
        """Whether the result for a value is true; null is not. Raises `RecordError` if the result is no truth value."""
        return truth(self(value)) is True

    # Arithmetic -------------------------------------------------------------------------------------------------------

    def __add__(self, other: object) -> Expression:
        return _operation("add", self, other)

    def __radd__(self, other: object) -> Expression:
        return _operation("add", other, self)

    def __sub__(self, other: object) -> Expression:
        return _operation("subtract", self, other)

    def __rsub__(self, other: object) -> Expression:
        return _operation("subtract", other, self)

    def __mul__(self, other: object) -> Expression:
        return _operation("multiply", self, other)

    def __rmul__(self, other: object) -> Expression:
        return _operation("multiply", other, self)

    def __truediv__(self, other: object) -> Expression:
        return _operation("divide", self, other)

    def __rtruediv__(self, other: object) -> Expression:
        return _operation("divide", other, self)

    def __floordiv__(self, other: object) -> Expression:
        return _operation("floor_divide", self, other)

    def __rfloordiv__(self, other: object) -> Expression:
        return _operation("floor_divide", other, self)

    def __mod__(self, other: object) -> Expression:
        return _operation("remainder", self, other)

    def __rmod__(self, other: object) -> Expression:
        return _operation("remainder", other, self)

    def __neg__(self) -> Expression:
        return _operation("negative", self)

    def __abs__(self) -> Expression:
        return _operation("absolute", self)

    def least(self, other: object) -> Expression:
        """The smaller one of two, as Python's `min`; null if either is null."""
        return _operation("least", self, other)

    def greatest(self, other: object) -> Expression:
        """The larger one of two, as Python's `max`; null if either is null."""
        return _operation("greatest", self, other)

    def cast(self, kind: type[int] | type[float] | type[str]) -> Expression:
        """The value as an `int`, a `float` or a `str`, converted as by Python's classes of these names."""
        if kind not in _CASTS:
            raise TopologyError(f"cast() takes int, float or str, not {described(kind)}.")
        return _operation(_CASTS[kind], self)

    # Comparisons and logic --------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _operation("equal", self, _not_none(other, "is_null()"))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _operation("not_equal", self, _not_none(other, "is_not_null()"))

    def __lt__(self, other: object) -> Expression:
        return _operation("less", self, other)

    def __le__(self, other: object) -> Expression:
        return _operation("less_equal", self, other)

    def __gt__(self, other: object) -> Expression:
        return _operation("greater", self, other)

    def __ge__(self, other: object) -> Expression:
        return _operation("greater_equal", self, other)

    def between(self, low: object, high: object) -> Expression:
        """Whether the value lies between two others, both included."""
        return (self >= low) & (self <= high)

    def isin(self, values: Iterable[object]) -> Expression:
        """Whether the value equals one of some constants."""
        given = () if isinstance(values, str | Expression) else tuple(values)
        if not given:
            raise TopologyError(f"isin() takes a list of constants, such as ['a', 'b'], not {described(values)}.")
        return _operation("is_in", self, *(lit(_not_none(value, "is_null()")) for value in given))

    def is_null(self) -> Expression:
        """Whether the value is null, or missing."""
        return _operation("is_null", self)

    def is_not_null(self) -> Expression:
        """Whether the value is neither null nor missing."""
        return _operation("is_not_null", self)

    def otherwise(self, instead: object) -> Expression:
        """The value, or something else where it is null (SQL's COALESCE)."""
        return _operation("otherwise", self, instead)

    def __and__(self, other: object) -> Expression:
        return _operation("and", self, other)

    def __rand__(self, other: object) -> Expression:
        return _operation("and", other, self)

    def __or__(self, other: object) -> Expression:
        return _operation("or", self, other)

    def __ror__(self, other: object) -> Expression:
        return _operation("or", other, self)

    def __invert__(self) -> Expression:
        return _operation("not", self)

    # What an expression is not ----------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise TopologyError(
            f"{self!r} has no truth value while the program is built, only for each record: use & instead of 'and', | instead of "
            f"'or', ~ instead of 'not', .isin([...]) instead of 'in', .between(low, high) instead of low <= x <= high, "
            f".least(...) and .greatest(...) instead of min(...) and max(...)."
        )

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Col(Expression):
    """A field of the value."""

    path: str

    def evaluate(self, read: ReadField) -> Any:
        """The field's value."""
        return read(self.path)

    @property
    def paths(self) -> tuple[str, ...]:
        """The field's own path."""
        return (self.path,)

    def __repr__(self) -> str:
        return f"col({self.path!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lit(Expression):
    """A constant."""

    value: bool | int | float | str | None

    def evaluate(self, read: ReadField) -> Any:
        """The constant."""
        return self.value

    @property
    def paths(self) -> tuple[str, ...]:
        """None."""
        return ()

    def __repr__(self) -> str:
        return f"lit({self.value!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operation(Expression):
    """An operation on other expressions.

    Attributes:
        name: The name in `streams.model.expressions.operations.OPERATIONS`.
        operands: What it computes with.
    """

    name: str
    operands: tuple[Expression, ...]

    def evaluate(self, read: ReadField) -> Any:
        """The operation's result."""
        return OPERATIONS[self.name].of([partial(operand.evaluate, read) for operand in self.operands])

    @property
    def paths(self) -> tuple[str, ...]:
        """Those of all operands."""
        return tuple(dict.fromkeys(path for operand in self.operands for path in operand.paths))

    def __repr__(self) -> str:
        how = OPERATIONS[self.name]
        if self.name == "is_in":
            value, *candidates = self.operands
            constants = [one.value for one in candidates if isinstance(one, Lit)]
            return f"{_within(value, first=True)}.isin({constants!r})"
        constant = all(isinstance(operand, Lit) for operand in self.operands)
        first = not how.infix or constant
        shown = [_within(operand, first=first and at == 0) for at, operand in enumerate(self.operands)]
        return how.text.format(*shown)


def _within(operand: Expression, *, first: bool) -> str:
    """An operand as part of an operation; constants are as Python writes them, unless a method is called on them."""
    if isinstance(operand, Lit) and not first:
        return repr(operand.value)
    infix = isinstance(operand, Operation) and OPERATIONS[operand.name].infix
    return f"({operand!r})" if infix else repr(operand)


def _operation(name: str, *operands: object) -> Expression:
    return Operation(name, tuple(one if isinstance(one, Expression) else lit(one) for one in operands))


def _not_none(other: object, instead: str) -> object:
    if other is None:
        raise TopologyError(f"A comparison with None is null for every record, as in SQL: use .{instead} instead.")
    return other


def col(path: str) -> Expression:
    """A field of the value: `col("temperature")`, `col("customer.name")`; `col("v.0")` is the first element of an array.

    The name is PySpark's and Polars'. A missing field is null. A value that has no fields (a text, a number) is an error of the
    record; a null value has none either, so that its fields are null.

    Raises:
        TopologyError: The path is empty, or has an empty name in it.
    """
    if not isinstance(path, str) or not all(path.split(".")):
        raise TopologyError(f"col({path!r}): a field is a name, or names joined by single dots.")
    return Col(path)


def lit(value: object) -> Expression:
    """A constant; needed only where no operand is an expression yet, as in `fields("user", source=lit("web"))`.

    Raises:
        TopologyError: The value is no text, number, truth value or None.
    """
    if value is not None and type(value) not in (bool, int, float, str):
        raise TopologyError(
            f"An expression computes with texts, numbers, truth values and None, not with {described(value)}: use a function, "
            f"such as lambda value: ..., for anything else."
        )
    return Lit(value)  # type: ignore[arg-type]
