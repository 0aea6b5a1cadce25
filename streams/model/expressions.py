"""Expressions of a value's fields: `col("temperature") * 1.8`, `fields("user", total=col("price") * col("count"))`.

An expression is data. It shows which fields it reads, so only these are decoded, and whole columns are computed at once
(`streams.operators.expressions`, which leaves every case that is not simple to the functions here). It is also a function of the
value, so it is accepted wherever a function of the value is. The names are those of PySpark and Polars where these agree (`col`,
`lit`, the operators, `is_null`, `cast`), otherwise PySpark's or SQL's (`isin`, `between`, `least`, `greatest`). `otherwise` is
SQL's COALESCE of two values, or after `when` the ELSE of its CASE.

Operands are JSON values (None, bool, int, float, str, list, dict), and Decimals, which are exact. The result is null if an operand
is null, except for `is_null`, `otherwise` and the logical operators, which follow SQL's three-valued logic. Everything else is
Python's: integers have any size, `/` gives a float, `//` and `%` round down, a division by zero is an error. Unlike in Python,
booleans are not numbers.
"""

from __future__ import annotations

import dataclasses
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal, NoReturn, TypeAlias, overload
from zoneinfo import ZoneInfo

from streams.errors import NoFieldsError, TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.operations import OPERATIONS, TRUTH, truth
from streams.model.paths import IS_A_FIELD, is_path, name_in_path, names_of, path_of
from streams.model.record import has_fields, pick
from streams.wording import described

ReadField: TypeAlias = Callable[[str], Any]
"""Reads one field of a record's value by its dotted path."""

KEY: Final = ".key"
TIMESTAMP: Final = ".timestamp"
OF_RECORD: Final = frozenset({KEY, TIMESTAMP})
"""The paths by which expressions read a record's key and timestamp; no field of a value has such a path."""

_CASTS = {int: "to_int", float: "to_float", str: "to_text", Decimal: "to_decimal"}


class Expression(AnswersUnknownNames):
    """A computation over fields, made by `col`, `lit` and operators; `expression(value)` computes it for one value.

    Operators: `+ - * / // %`, `abs()`, comparisons, and `& | ~` for "and", "or", "not" (with parentheses around comparisons, since
    `&` binds more tightly). The result is null if an operand is null or missing. A predicate that is null is not true, and
    `false & null` is false, as in SQL. The rest is Python's: integers of any size, `/` gives a float, `//` and `%` round down.
    Operands of a wrong type and divisions by zero are errors of the record, which the policy `processing` handles.

    For example:

        celsius = (col("fahrenheit") - 32) / 1.8
        warm = (celsius > 20) & ~col("sensor.broken").otherwise(False)
        builder.stream("weather").filter(warm).group_by_key().aggregate(mean=agg.mean(celsius))
    """

    __slots__ = ()

    @abstractmethod
    def evaluate(self, read: ReadField) -> Any:
        """The result for one record; `read` returns its fields."""

    @property
    @abstractmethod
    def paths(self) -> tuple[str, ...]:
        """The distinct dotted paths of the fields that the expression reads."""

    def __call__(self, value: Any) -> Any:
        """The result for one value. Raises `RecordError`, or `NoFieldsError` for a value without fields."""
        return self.evaluate(partial(pick, value))

    def of_record(self, key: Any, value: Any, timestamp: int) -> Any:
        """The result for one record; the expression may also read its key and timestamp. Raises the same errors as a call."""
        return self.evaluate(partial(_part_of_record, key, value, timestamp))

    @property
    def is_condition(self) -> bool:
        """Whether every result is true, false or null."""
        return False

    def is_true(self, value: Any) -> bool:
        """Whether the result for a value is true; null is not. Raises `RecordError` if the result is neither a boolean nor null."""
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
        """The smaller of two values, as Python's `min` returns it; null if either is null."""
        return _operation("least", self, other)

    def greatest(self, other: object) -> Expression:
        """The larger of two values, as Python's `max` returns it; null if either is null."""
        return _operation("greatest", self, other)

    def cast(self, kind: type[int] | type[float] | type[str] | type[Decimal]) -> Expression:
        """The value as an `int`, a `float`, a `str` or a `Decimal`, converted as Python's class of that name does.

        A float becomes the `Decimal` of the digits that JSON writes (0.1 is 0.1). A `Decimal` becomes text without an exponent.
        """
        if kind not in _CASTS:
            raise TopologyError(f"cast() takes int, float, str or Decimal, not {described(kind)}.")
        return _operation(_CASTS[kind], self)

    # Texts and lists --------------------------------------------------------------------------------------------------

    def lower(self) -> Expression:
        """The text in lower case."""
        return _operation("lower", self)

    def upper(self) -> Expression:
        """The text in upper case."""
        return _operation("upper", self)

    def strip(self) -> Expression:
        """The text without white space at its ends."""
        return _operation("strip", self)

    def length(self) -> Expression:
        """The number of a text's characters, or of a list's elements."""
        return _operation("length", self)

    def contains(self, part: str) -> Expression:
        """Whether the text contains a part, which is not a pattern."""
        return _operation("contains", self, _constant("contains", part))

    def startswith(self, start: str) -> Expression:
        """Whether the text begins with `start`."""
        return _operation("startswith", self, _constant("startswith", start))

    def endswith(self, end: str) -> Expression:
        """Whether the text ends with `end`."""
        return _operation("endswith", self, _constant("endswith", end))

    def replace(self, old: str, new: str) -> Expression:
        """The text with every `old` replaced by `new`; `old` is not a pattern."""
        return _operation("replace", self, _constant("replace", old), _constant("replace", new))

    def split(self, separator: str) -> Expression:
        """The parts of a text as a list: `col("url").split("/")[3]`. The separator is taken literally."""
        if not _constant("split", separator):
            raise TopologyError("split() takes a separator of at least one character, such as split('/').")
        return _operation("split", self, separator)

    def substring(self, position: int, length: int) -> Expression:
        """The characters from `position` on; 1 is the first, as in SQL and PySpark. `[0:10]` counts from 0, as in Python."""
        if type(position) is not int or type(length) is not int or position < 1 or length < 0:
            raise TopologyError(
                f"substring({position!r}, {length!r}) takes a position, which is 1 for the first character, and a length. From the "
                f"end, write [-3:]."
            )
        return self[position - 1 : position - 1 + length]

    def regexp_extract(self, pattern: str, group: int = 1) -> Expression:
        """A group of the first match of a Python regular expression (`re.search`), 0 for the whole match; null without one."""
        try:
            groups = re.compile(_constant("regexp_extract", pattern)).groups
        except re.error as error:
            raise TopologyError(
                f"regexp_extract({pattern!r}) is not a regular expression of Python: {error}."
            ) from error
        if type(group) is not int or not 0 <= group <= groups:
            raise TopologyError(
                f"regexp_extract({pattern!r}, {group!r}): the pattern has {groups} groups; 0 is the whole match."
            )
        return _operation("regexp_extract", self, pattern, group)

    def __getitem__(self, index: int | slice | str) -> Expression:
        """An element of a list or a character of a text (null beyond the ends), a slice (`[0:10]`), or a field by its own name."""
        if isinstance(index, str) and isinstance(self, Col):
            return col(f"{self.path}.{name_in_path(index)}")
        if type(index) is int:
            return _operation("item", self, index)
        if isinstance(index, slice) and index.step is None:
            start, stop = (0 if index.start is None else index.start), index.stop
            if type(start) is int and (stop is None or type(stop) is int):
                return _operation("slice_from", self, start) if stop is None else _operation("slice", self, start, stop)
        raise TopologyError(
            f"{self!r}[...] takes one or two whole numbers, as in [0] or [0:10], not {described(index)}."
        )

    def __iter__(self) -> NoReturn:
        raise TopologyError(
            f"{self!r} has no elements while the program is built: [0] is the first one of each record's list."
        )

    # Times ------------------------------------------------------------------------------------------------------------

    def to_timestamp(self, format: str | None = None) -> Expression:
        """Reads a text as a time, in milliseconds since 1970. A text without an offset is UTC.

        Args:
            format: A format of Python's `datetime.strptime`, such as `"%d.%m.%Y %H:%M"`; None: ISO 8601.
        """
        if format is None:
            return _operation("read_iso", self)
        return _operation("read_time", self, _time_format("to_timestamp", format))

    def hour(self, zone: str = "UTC") -> Expression:
        """The hour of the day, 0 to 23, of a time in milliseconds since 1970, in a time zone such as `"Europe/Berlin"`."""
        return _operation("hour", self, _time_zone("hour", zone))

    def date_format(self, format: str, zone: str = "UTC") -> Expression:
        """Formats a time in milliseconds since 1970 as text; `format` is one of Python's `strftime`, such as `"%Y-%m-%d"`."""
        return _operation("date_format", self, _time_format("date_format", format), _time_zone("date_format", zone))

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
        """Whether the value equals one of several constants."""
        given = () if isinstance(values, str | Expression) else tuple(values)
        if not given:
            raise TopologyError(f"isin() takes a list of constants, such as ['a', 'b'], not {described(values)}.")
        return _operation("is_in", self, *(lit(_not_none(value, "is_null()")) for value in given))

    def is_null(self) -> Expression:
        """Whether the value is null or missing."""
        return _operation("is_null", self)

    def is_not_null(self) -> Expression:
        """Whether the value is neither null nor missing."""
        return _operation("is_not_null", self)

    def otherwise(self, instead: object) -> Expression:
        """The value, or `instead` where the value is null (SQL's COALESCE)."""
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
class _OfPath(Expression):
    """An expression that reads one path of a record."""

    path: str

    def evaluate(self, read: ReadField) -> Any:
        """Reads the value at the path."""
        return read(self.path)

    @property
    def paths(self) -> tuple[str, ...]:
        """The path itself."""
        return (self.path,)


class Col(_OfPath):
    """A field of the value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"col({self.path!r})"


class OfRecord(_OfPath):
    """The record's key or timestamp: `KEY` or `TIMESTAMP`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"record_{self.path[1:]}()"


def _part_of_record(key: Any, value: Any, timestamp: int, path: str) -> Any:
    if path == KEY:
        return key
    return timestamp if path == TIMESTAMP else pick(value, path)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lit(Expression):
    """A constant."""

    value: bool | int | float | str | Decimal | None

    def evaluate(self, read: ReadField) -> Any:
        """The constant."""
        return self.value

    @property
    def paths(self) -> tuple[str, ...]:
        """An empty tuple: a constant reads no field."""
        return ()

    def __repr__(self) -> str:
        return f"lit({self.value!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operation(Expression):
    """An operation on other expressions.

    Attributes:
        name: The name in `OPERATIONS`.
        operands: The expressions that it computes with.
    """

    name: str
    operands: tuple[Expression, ...]

    def evaluate(self, read: ReadField) -> Any:
        """Computes the operation's result for one record."""
        how = OPERATIONS[self.name]
        if how.lazy:
            return how.compute(*[partial(operand.evaluate, read) for operand in self.operands])
        return how.of_values(*[operand.evaluate(read) for operand in self.operands])

    @property
    def is_condition(self) -> bool:
        """Whether the operation is a comparison, or combines conditions."""
        if self.name == "case":
            values = results_of(self)
            return bool(values) and all(one.is_condition for one in values)
        return self.name in TRUTH or (self.name == "otherwise" and self.operands[0].is_condition)

    @property
    def paths(self) -> tuple[str, ...]:
        """The distinct paths of all operands."""
        return tuple(dict.fromkeys(path for operand in self.operands for path in operand.paths))

    def __repr__(self) -> str:
        how = OPERATIONS[self.name]
        if self.name == "case":
            return _case_text(self.operands)
        if self.name == "is_in":
            value, *candidates = self.operands
            constants = [one.value for one in candidates if isinstance(one, Lit)]
            return f"{_within(value, first=True)}.isin({constants!r})"
        constant = all(isinstance(operand, Lit) for operand in self.operands)
        first = not how.infix or constant
        shown = [_within(operand, first=first and at == 0) for at, operand in enumerate(self.operands)]
        return how.text.format(*shown)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class When(Operation):
    """`when(condition, value)`, which takes further cases; null where no condition is true, unless `otherwise` gives a value."""

    def when(self, condition: Expression, value: object) -> When:
        """Adds a case for records for which no earlier condition is true."""
        return When("case", (*self.operands[:-1], _condition(condition), _expression(value), lit(None)))

    def otherwise(self, instead: object) -> Expression:
        """Sets the value for records for which no condition is true. The value of a true case stays, even if it is null."""
        return Operation("case", (*self.operands[:-1], _expression(instead)))


def when(condition: Expression, value: object) -> When:
    """A value for the records for which a condition is true.

    For example:

        when(col("n") > 9, "many").when(col("n") > 1, "few").otherwise("one")

    The first condition that is true decides; the values of the other cases are not computed. Without `otherwise`, the result is
    null where no condition is true. Name and form are PySpark's.

    Raises:
        TopologyError: The condition is not an expression, or the value is neither an expression nor a constant.
    """
    return When("case", (_condition(condition), _expression(value), lit(None)))


def results_of(case: Operation) -> tuple[Expression, ...]:
    """The expressions that give the results of a `when`, without constant nulls."""
    found = (*case.operands[1:-1:2], case.operands[-1])
    return tuple(one for one in found if not (isinstance(one, Lit) and one.value is None))


def gives_decimals(expression: Expression) -> bool:
    """Whether the result of an expression over JSON values may be a `Decimal`."""
    if isinstance(expression, Lit):
        return isinstance(expression.value, Decimal)
    if not isinstance(expression, Operation) or expression.name in TRUTH | {"to_int", "to_float", "to_text"}:
        return False
    operands = results_of(expression) if expression.name == "case" else expression.operands
    return expression.name == "to_decimal" or any(map(gives_decimals, operands))


def _condition(given: object) -> Expression:
    if not isinstance(given, Expression):
        raise TopologyError(f"when(...) takes a condition such as col('price') > 10, not {described(given)}.")
    return given


def _expression(given: object) -> Expression:
    return given if isinstance(given, Expression) else lit(given)


def _case_text(operands: Sequence[Expression]) -> str:
    *cases, instead = [_within(operand, first=False, alone=True) for operand in operands]
    text = ".".join(f"when({condition}, {value})" for condition, value in zip(cases[::2], cases[1::2], strict=True))
    return text if instead == "None" else f"{text}.otherwise({instead})"


def _constant(method: str, given: str) -> str:
    if not isinstance(given, str):
        raise TopologyError(
            f"{method}() takes a constant text, not {described(given)}: use a function for anything else."
        )
    return given


def _time_zone(method: str, name: str) -> str:
    try:
        ZoneInfo(_constant(method, name))
    except (ValueError, OSError, KeyError) as error:
        raise TopologyError(
            f"There is no time zone {name!r}: write a name such as 'UTC' or 'Europe/Berlin'."
        ) from error
    return name


def _time_format(method: str, given: str) -> str:
    if "%" not in _constant(method, given):
        raise TopologyError(
            f"The format {given!r} has no %: it is Python's, such as '%Y-%m-%d %H:%M:%S', where Spark and Java write "
            f"'yyyy-MM-dd HH:mm:ss'."
        )
    return given


def _within(operand: Expression, *, first: bool, alone: bool = False) -> str:
    """An operand as part of an operation; constants are as Python writes them, unless a method is called on them."""
    if isinstance(operand, Lit) and not first:
        return repr(operand.value)
    infix = not alone and isinstance(operand, Operation) and OPERATIONS[operand.name].infix
    return f"({operand!r})" if infix else repr(operand)


def _operation(name: str, *operands: object) -> Expression:
    return Operation(name, tuple(map(_expression, operands)))


def _not_none(other: object, instead: str) -> object:
    if other is None:
        raise TopologyError(f"A comparison with None is null for every record, as in SQL: use .{instead} instead.")
    return other


def col(path: str) -> Expression:
    """A field of the value: `col("temperature")`, `col("customer.name")`; `col("v.0")` is the first element of an array.

    The name is PySpark's and Polars'. A field with a dot in its own name is written in backticks, as in PySpark:
    ``col("`a.b`.c")``; `col("a")["b.c"]` reads such a field inside another one. A missing field is null. All fields of a null value
    are null; reading a field of a value without fields (a text, a number) is an error of the record.

    Raises:
        TopologyError: The path is empty, or contains an empty name.
    """
    if not is_path(path):
        raise TopologyError(f"col({path!r}): {IS_A_FIELD}.")
    return Col(path_of(names_of(path)))


def record_key() -> Expression:
    """The record's key, which may be null: `stream.filter(record_key() != "test")`.

    A stream's `filter`, `filter_not`, `map_values`, `select_key` and `group_by` can read it. For an aggregate, put it into the
    value first: `map_values(fields("*", user=record_key()))`.
    """
    return OfRecord(KEY)


def record_timestamp() -> Expression:
    """The record's event time in milliseconds since 1970: `fields("*", hour=record_timestamp().hour())`.

    The operators that can read `record_key()` can read it.
    """
    return OfRecord(TIMESTAMP)


def lit(value: object) -> Expression:
    """A constant. It is needed only where no operand is an expression, as in `fields("user", source=lit("web"))`.

    Raises:
        TopologyError: The value is not a text, a number, a boolean or None, or is a Decimal that is not finite.
    """
    if isinstance(value, Decimal) and value.is_finite():
        return Lit(value)
    if value is not None and type(value) not in (bool, int, float, str):
        raise TopologyError(
            f"An expression computes with texts, numbers, truth values and None, not with {described(value)}: use a function, "
            f"such as lambda value: ..., for anything else."
        )
    return Lit(value)  # type: ignore[arg-type]


# --- `fields(...)` makes objects from fields and expressions, as `select` and `with_columns` of data frames do. It is one function:
# it maps a value, or with `left` and `right` joins two. `"*"` stands for all fields of a value; later fields replace earlier ones
# of the same name.

ALL = "*"


def reads_record(given: Expression | ValueFields | JoinedFields) -> tuple[Expression, ...]:
    """The expressions `record_key()` and `record_timestamp()`, each if `given` reads it."""
    found = (given,) if isinstance(given, Expression) else tuple(one for _, one in given.computed)
    paths = dict.fromkeys(path for one in found for path in one.paths if path in OF_RECORD)
    return tuple(map(OfRecord, paths))


Selected: TypeAlias = Sequence[str]
Computed: TypeAlias = "tuple[tuple[str, Expression], ...]"


@dataclass(frozen=True, slots=True, repr=False)
class ValueFields:
    """Makes an object from each value; created by `fields(...)`. A null value stays null.

    Called with two values, it acts as `JoinedFields` if its expressions read `left.<field>` and `right.<field>`.
    """

    everything: bool
    computed: Computed

    @property
    def paths(self) -> tuple[str, ...]:
        """The distinct paths of the fields that the expressions read."""
        return tuple(dict.fromkeys(path for _, expression in self.computed for path in expression.paths))

    @overload
    def __call__(self, value: Any, /) -> dict[str, Any]: ...
    @overload
    def __call__(self, left: Any, right: Any, /) -> dict[str, Any]: ...
    def __call__(self, value: Any, *right: Any) -> dict[str, Any]:
        """Makes the object. Raises `RecordError` as the expressions do, and `NoFieldsError` for a value without fields."""
        if right:
            joined = JoinedFields.of(self)
            if joined is None:
                raise TypeError(
                    f"{self!r} reads one value, and here there are two: write left.<field> and right.<field>"
                )
            return joined(value, *right)
        return self._made(value, partial(pick, value))

    def of_record(self, key: Any, value: Any, timestamp: int) -> dict[str, Any]:
        """Makes the object for a record; the expressions may also read its key and timestamp. Raises the same errors as a call."""
        return self._made(value, partial(_part_of_record, key, value, timestamp))

    def _made(self, value: Any, read: ReadField) -> dict[str, Any]:
        if value is None:
            return value  # type: ignore[return-value]  # a deletion, which no type says of a stream's values
        made = all_fields(value) if self.everything else {}
        for name, expression in self.computed:
            made[name] = expression.evaluate(read)
        return made

    def __repr__(self) -> str:
        return f"fields({', '.join([*([repr(ALL)] if self.everything else []), *_shown(self.computed)])})"


@dataclass(frozen=True, slots=True, repr=False)
class JoinedFields:
    """Makes an object from each pair of values; created by `fields(left=..., right=...)`.

    Attributes:
        left: The fields to take from the left value: `"*"`, or names.
        right: The fields to take from the right value; they replace fields of the left value with the same name.
        computed: Further fields by name, computed by expressions over `left.<field>` and `right.<field>`.
    """

    left: Selected
    right: Selected
    computed: Computed = ()

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        """Makes the object; a missing side has no fields. Raises `RecordError` as the expressions do."""
        made = {**_selected(left, self.left), **_selected(right, self.right)}
        read = partial(pick, {"left": left, "right": right})
        for name, expression in self.computed:
            made[name] = expression.evaluate(read)
        return made

    @classmethod
    def of(cls, given: ValueFields) -> JoinedFields | None:
        """The `JoinedFields` for `fields(due=col("left.total") - col("right.credit"))`; None if it reads anything else."""
        paths = [path for _, expression in given.computed for path in expression.paths]
        of_both = (
            paths and OF_RECORD.isdisjoint(paths) and all(names_of(path)[0] in ("left", "right") for path in paths)
        )
        return cls((), (), given.computed) if of_both and not given.everything else None

    def __repr__(self) -> str:
        sides = [f"{name}={side!r}" for name, side in (("left", self.left), ("right", self.right)) if side]
        return f"fields({', '.join([*sides, *_shown(self.computed)])})"


@overload
def fields(*names: str, **computed: Expression) -> ValueFields: ...
@overload
def fields(
    *, left: Literal["*"] | Selected = (), right: Literal["*"] | Selected = (), **computed: Expression
) -> JoinedFields: ...
def fields(*names: str, **computed: Any) -> ValueFields | JoinedFields:
    """Makes an object from fields and expressions: from one value for `map_values`, or from two values as a joiner.

    For example:

        stream.map_values(fields("user", "city", total=col("price") * col("count")))
        stream.map_values(fields("*", total=col("price") * col("count")))
        orders.join(customers, fields(left="*", right=["name"], due=col("left.total") - col("right.credit")))
        orders.join(customers, fields(user=col("left.user"), name=col("right.name")))

    Args:
        *names: The fields to take over; `"*"`: all. A null value stays null.
        **computed: Further fields, as expressions. In a join, `left` and `right`, each a list of names or `"*"`, are the fields to
            take over from the two values; the right value's replace the left value's. Expressions then read `left.<field>` and
            `right.<field>`.

    Raises:
        TopologyError: A name is not the name of a field, or a further field is not an expression.
    """
    sides = {side: computed.pop(side) for side in ("left", "right") if _is_selection(computed.get(side))}
    expressions = tuple((name, _checked(name, given)) for name, given in computed.items())
    if sides:
        if names:
            raise TopologyError("fields() takes names of one value, or left=[...] and right=[...] of two, not both.")
        return JoinedFields(_names(sides.get("left", ())), _names(sides.get("right", ())), expressions)
    if not names and not expressions:
        raise TopologyError("fields() takes at least one field: fields('user', total=col('price') * col('count')).")
    taken = _names(names)
    made = {name: Col(name_in_path(name)) for name in taken if name != ALL}
    return ValueFields(ALL in taken, tuple({**made, **dict(expressions)}.items()))


def all_fields(value: Any) -> dict[str, Any]:
    """All fields of a value by name; elements of an array have no names. Raises `NoFieldsError` for texts, numbers and the like."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list):
        return {}
    if not has_fields(value):
        raise NoFieldsError(ALL)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    named = getattr(value, "_fields", None) or getattr(value, "__struct_fields__", None)
    return {name: getattr(value, name) for name in named} if named else dict(vars(value))


def _selected(value: Any, names: Selected) -> dict[str, Any]:
    if ALL in names:
        return {} if value is None else all_fields(value)
    return {name: pick(value, name_in_path(name)) for name in names}


def _is_selection(given: object) -> bool:
    return isinstance(given, str | list | tuple)


def _names(given: Selected) -> Selected:
    """The names of a selection; `"*"` stays `"*"`. Raises `TopologyError`."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TopologyError(f"fields() takes names of fields, not {described(name)}.")
        if name != ALL and (not is_path(name) or len(names_of(name)) > 1):
            last = name.rpartition(".")[2].strip("`") or "name"
            raise TopologyError(
                f"fields({name!r}) needs a name for the nested field: fields({last}=col({name!r})). For a field whose own name has "
                f"a dot, write fields({name_in_path(name)!r})."
            )
    return tuple(name if name == ALL else names_of(name)[0] for name in names)


def _checked(name: str, given: object) -> Expression:
    if isinstance(given, Expression):
        return given
    if isinstance(given, str):
        raise TopologyError(
            f"fields({name}={given!r}): write {name}=col({given!r}) for the field, or {name}=lit({given!r}) for the text."
        )
    raise TopologyError(f"fields({name}=...) takes an expression such as col('price') * 2, not {described(given)}.")


def _shown(computed: Computed) -> list[str]:
    """The fields as they are written in a program; a field that keeps its name appears as its name alone."""
    kept = {name for name, one in computed if isinstance(one, Col) and one.path == name_in_path(name)}
    return [repr(name_in_path(name)) if name in kept else f"{name}={one!r}" for name, one in computed]
