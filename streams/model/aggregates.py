"""Aggregates over a field of the value: the base class, and the built-in aggregates.

An aggregate is data (`agg.mean("delay")`), so the engine can decode only that field and process whole columns. The classes here
define the result: `value_in` reads each record in order, `updated` adds what it read to the accumulator, and `result` turns the
accumulator into the value. An accumulator is stored as JSON, which has no NaN and no infinity. So a record that would make a
built-in aggregate NaN or infinite fails, and leaves the accumulator as it was. The kernels that compute the same on whole columns
are in `streams.operators.aggregate.accumulators`.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, ClassVar, Final, TypeAlias

from state.exact_json import write
from streams.errors import RecordError, TopologyError
from streams.model.expressions import Col, Expression, ValueFields, col, gives_decimals, reads_record
from streams.model.operations import OPERATIONS
from streams.model.ownership import UNCHANGING
from streams.model.paths import IS_A_FIELD, is_path, names_of, path_of
from streams.model.record import pick
from streams.wording import described

Field: TypeAlias = str | Expression
"""The part of each value that an aggregate reads: a dotted path, or an expression."""


@dataclass(frozen=True)
class Aggregate(ABC):
    """An aggregate over one field of the values; subclass it to define your own.

    For example:

        class Longest(Aggregate):
            def initial(self):
                return ""

            def add(self, accumulator, value):
                return max(accumulator, str(value), key=len)

            def merge(self, earlier, later):
                return max(earlier, later, key=len)

        grouped.aggregate(name=Longest("customer.name"))

    The accumulator is stored, so it must be a JSON value; `add` and `merge` return a new one and do not change their arguments.
    For parameters besides the field, make the class a frozen dataclass, because the `repr` is part of generated names and of
    the topology hash.

    Attributes:
        field: The dotted path into the value, arrays by index (`v.0`), or an expression (`col("price") * col("count")`).
    """

    field: Field | None
    takes_only: ClassVar[tuple[tuple[type, ...], str] | None] = None
    """The classes of values that a built-in aggregate accepts, besides `bool`, and their description in messages; None: all."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", _checked_field(self, self.field))

    @property
    def text(self) -> str:
        """The aggregate as it is written in a program, for messages."""
        return f"{type(self).__name__}({self.field!r})"

    @property
    def identity(self) -> str:
        """The text that identifies the aggregate in names and in the topology hash, the same at every start of the program.

        Raises:
            TopologyError: The `repr` of a user's class contains a memory address.
        """
        text = repr(self)
        if " at 0x" in text:
            raise TopologyError(
                f"The aggregate {text} is identified by a memory address, so its state would not be found at the next start: make "
                f"{type(self).__qualname__} a frozen dataclass, or give it a __repr__ without addresses."
            )
        return text

    @property
    def paths(self) -> tuple[str, ...]:
        """The dotted paths of the fields that the aggregate reads."""
        if self.field is None:
            return ()
        return self.field.paths if isinstance(self.field, Expression) else (self.field,)

    @property
    def gives_decimals(self) -> bool:
        """Whether the aggregate reads an expression that may turn JSON values into Decimals."""
        return isinstance(self.field, Expression) and gives_decimals(self.field)

    def value_in(self, value: Any) -> Any:
        """Reads the aggregate's input from a record's value. Raises `RecordError`, also for a value that it cannot aggregate."""
        return self.checked(self.field(value) if isinstance(self.field, Expression) else pick(value, self.field))

    def checked(self, value: Any) -> Any:
        """Returns the field's value in the form to aggregate, by default unchanged. Raises `RecordError` for an invalid one."""
        return value

    def takes(self, value: Any) -> bool:
        """Whether `add` gets a field's value: by default if it exists and is not null. Other values are ignored."""
        return value is not None

    @abstractmethod
    def initial(self) -> Any:
        """The accumulator before the first record."""

    @abstractmethod
    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more value of the field."""

    @abstractmethod
    def merge(self, earlier: Any, later: Any) -> Any:
        """Combines the accumulators of two consecutive sequences of records, for example of two sessions that are merged."""

    def remove(self, accumulator: Any, value: Any) -> Any:
        """Removes a value that was added before from the accumulator, and returns the new accumulator.

        Only grouped tables call it, because their rows change and are deleted. The built-in aggregates count, sum, mean and
        quantile implement it.
        """
        raise NotImplementedError(f"{self.text} cannot remove a value")

    @property
    def takes_back(self) -> bool:
        """Whether the aggregate implements `remove`."""
        return type(self).remove is not Aggregate.remove

    def result(self, accumulator: Any) -> Any:
        """The value to emit for an accumulator; by default the accumulator itself."""
        return accumulator

    def updated(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more record, where `value` is the record's field."""
        if not self.takes(value):
            return accumulator
        after = self.add(accumulator, value)
        if after is None and accumulator is not None and type(accumulator) not in UNCHANGING:
            raise RecordError(
                f"{self.text}: add returned None for an accumulator of type {type(accumulator).__name__}. If it changes its "
                f"accumulator in place, it must return it"
            )
        return after


def _refuse_record(field: Expression | ValueFields) -> None:
    if found := reads_record(field):
        raise TopologyError(
            f"An aggregate cannot read {found[0]!r} itself: first add it to the value, as in "
            f"map_values(fields('*', name={found[0]!r}))."
        )


def _checked_field(aggregate: Aggregate, field: object) -> Field:
    """The field as a path or an expression. `col("a")` becomes its path, so that names and hashes agree. Raises `TopologyError`."""
    if isinstance(field, Expression) and not isinstance(field, Col):
        _refuse_record(field)
        return field
    path = field.path if isinstance(field, Col) else field
    if not isinstance(path, str) or not is_path(path):
        raise TopologyError(f"{aggregate.text}: {IS_A_FIELD}.")
    return path_of(names_of(path))


@dataclass(frozen=True)
class NumericAggregate(Aggregate):
    """An aggregate of numbers that ignores text and booleans in the field."""

    def takes(self, value: Any) -> bool:
        """Whether the value is a number; booleans are not."""
        return isinstance(value, int | float) and not isinstance(value, bool)


class BuiltIn(Aggregate):
    """A built-in aggregate, identified by its name in `agg`."""

    @property
    def text(self) -> str:
        """The aggregate as it is written in a program."""
        return f"agg.{self.kind}({self.field!r})"

    @property
    def kind(self) -> str:
        """The aggregate's name in `agg`."""
        return type(self).__name__.lower()

    @property
    def identity(self) -> str:
        """The aggregate's name and field."""
        return f"{self.kind}({'' if self.field is None else self.field})"


@dataclass(frozen=True)
class Count(BuiltIn):
    """Counts the records, or the records in which the field exists and is not null."""

    def __post_init__(self) -> None:
        if isinstance(self.field, Expression) and self.field.is_condition:
            raise TopologyError(
                f"{self.text} would count the records for which the condition is false, too: false is not null. Write "
                f"agg.count(where={self.field!r}), or filter the stream before it is grouped."
            )
        if self.field is not None:
            super().__post_init__()

    def value_in(self, value: Any) -> Any:
        """The field's value; None without a field."""
        return None if self.field is None else super().value_in(value)

    def takes(self, value: Any) -> bool:
        """Whether to count the record: always without a field, otherwise if the field exists and is not null."""
        return self.field is None or value is not None

    def initial(self) -> int:
        """Zero."""
        return 0

    def add(self, accumulator: int, value: Any) -> int:
        """The count plus one."""
        return accumulator + 1

    def remove(self, accumulator: int, value: Any) -> int:
        """The count minus one."""
        return accumulator - 1

    def merge(self, earlier: int, later: int) -> int:
        """The sum of both counts."""
        return earlier + later


class _Optional(BuiltIn):
    """An aggregate without a value before the first record; the first value becomes the first accumulator."""

    def initial(self) -> Any:
        """None: there is no accumulator yet."""
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator combined with the value."""
        return value if accumulator is None else self.both(accumulator, value)

    def merge(self, earlier: Any, later: Any) -> Any:
        """Both accumulators combined, or the only one that is not None."""
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return self.both(earlier, later)

    @abstractmethod
    def both(self, earlier: Any, later: Any) -> Any:
        """Combines two accumulators that are not None."""


_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "Decimal": Decimal,
}
"""Class name in an accumulator -> the function that reads its text."""


def _in_accumulator(value: Decimal | date | time) -> dict[str, str]:
    """The accumulator of a value that JSON cannot represent: its class and its text, `{"Decimal": "1.50"}`."""
    if isinstance(value, Decimal):
        return {"Decimal": f"{value:f}"}
    kind = next(kind for kind in (datetime, date, time) if isinstance(value, kind))
    return {kind.__name__: value.isoformat()}


class OfNumbers(BuiltIn):
    """An aggregate that computes with numbers. It ignores null; any other value (a text, a boolean) fails its record."""

    takes_only: ClassVar[tuple[tuple[type, ...], str] | None] = (Real,), "takes numbers (int, float)"

    def checked(self, value: Any) -> Any:
        """Returns an `int`, a finite `float`, or None. Raises `RecordError` for any other value."""
        if value is None or type(value) is int or (type(value) is float and math.isfinite(value)):
            return value
        number = number_in(value)
        if number is None:
            raise _refused(self, value)
        return number


class _OfExactNumbers(OfNumbers):
    """An aggregate that also computes with Decimals."""

    takes_only = (Real, Decimal), "takes numbers (int, float, Decimal)"

    def checked(self, value: Any) -> Any:
        """Returns a finite number or None; a Decimal in its accumulator form. Raises `RecordError` for any other value."""
        return _in_accumulator(value) if is_decimal(value) else super().checked(value)


def is_decimal(value: Any) -> bool:
    """Whether a value is a finite `Decimal`."""
    return isinstance(value, Decimal) and value.is_finite()


def number_in(value: Any) -> int | float | None:
    """A number of any class (such as NumPy's) as an `int` or a finite `float`; None if it is not a number or not finite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else None


def _refused(aggregate: Aggregate, value: Any) -> RecordError:
    """The error for a record whose field has a value that the aggregate does not accept."""
    if isinstance(value, float):
        return RecordError(f"{aggregate.text} is given {described(float(value))}, which is not a finite number")
    what = "" if aggregate.takes_only is None else aggregate.takes_only[1]
    return RecordError(
        f"{aggregate.text} {what}, not {described(value)}: first convert the field with map_values(...) or an expression, or "
        f"drop such records with filter(...)"
    )


@dataclass(frozen=True)
class Sum(_OfExactNumbers, _Optional):
    """A sum. The sum of integers is an exact integer of any size; a single float makes it a float.

    The sum of Decimals, or of Decimals and integers, is exact. Its accumulator is `{"Decimal": "12.50"}`, and its result the text
    `"12.50"`.
    """

    def both(self, earlier: Any, later: Any) -> Any:
        """The sum of both. Raises `RecordError` if it is not a finite float."""
        return _sum(self, earlier, later)

    def remove(self, accumulator: Any, value: Any) -> Any:
        """The sum without a number. Raises `RecordError` if it is not a finite float."""
        return _sum(self, accumulator, _negative(value))

    def result(self, accumulator: Any) -> Any:
        """The sum; a sum of Decimals as text."""
        return _shown(accumulator)


def _negative(value: Any) -> Any:
    return _in_accumulator(-_ordered(value)) if type(value) is dict else -value


def _sum(aggregate: Aggregate, earlier: Any, later: Any) -> Any:
    if type(earlier) is dict or type(later) is dict:
        try:
            total = OPERATIONS["add"].of_values(_ordered(earlier), _ordered(later))
        except RecordError as error:
            raise RecordError(f"{aggregate.text}: {error}") from error
        return _in_accumulator(total)
    try:
        total = earlier + later
    except OverflowError:  # an integer that is too large next to a float
        raise _overflow(aggregate, earlier, later) from None
    if type(total) is int or math.isfinite(total):
        return total
    raise _overflow(aggregate, earlier, later)


def _overflow(aggregate: Aggregate, earlier: Any, later: Any) -> RecordError:
    return RecordError(
        f"{aggregate.text} overflows: {described(earlier)} plus {described(later)} is more than a float holds (1.8e308). The sum "
        f"stays as it was before this record"
    )


class Ordering(_Optional):
    """An aggregate that compares the numbers, texts, or times in a field."""

    takes_only = (
        (Real, Decimal, str, date, time),
        "orders numbers (int, float, Decimal), texts, or times (datetime, date, time)",
    )

    def checked(self, value: Any) -> Any:
        """Returns a finite number, a text, or a time. Raises `RecordError` for any other value."""
        if value is None or type(value) in (int, str) or (type(value) is float and math.isfinite(value)):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, date | time) or is_decimal(value):
            return _in_accumulator(value)
        number = number_in(value)
        if number is None:
            raise _refused(self, value)
        return number

    def _of_two_kinds(self, earlier: Any, later: Any) -> RecordError:
        return RecordError(
            f"{self.text} cannot order {described(_shown(later))} and {described(_shown(earlier))}, which it has of earlier "
            f"records: the field needs values of one kind"
        )


class _Extreme(Ordering):
    """The smallest or largest number, text, or time in a field.

    The accumulator of a time names its class and has its ISO text, `{"datetime": "2026-01-31T12:00:00+00:00"}`; the result is that
    text. The accumulator of a Decimal is `{"Decimal": "1.50"}`.
    """

    choose: ClassVar[Callable[..., Any]]
    """Python's `min` or `max`, which return the first of equal values."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The smaller or the larger one. Raises `RecordError` if they cannot be compared, such as a number and a text."""
        try:
            if type(earlier) is not dict and type(later) is not dict:
                return self.choose(earlier, later)
            return self.choose(earlier, later, key=_ordered)
        except TypeError:
            raise self._of_two_kinds(earlier, later) from None

    def result(self, accumulator: Any) -> Any:
        """The number or the text; a time as its ISO text, a Decimal as its digits."""
        return _shown(accumulator)


def _ordered(accumulator: Any) -> Any:
    """The form of an accumulator that can be compared."""
    if type(accumulator) is not dict:
        return accumulator
    ((name, text),) = accumulator.items()
    return _READ[name](text)


def _shown(accumulator: Any) -> Any:
    return next(iter(accumulator.values())) if type(accumulator) is dict else accumulator


@dataclass(frozen=True)
class Min(_Extreme):
    """Smallest value; the first of equal ones."""

    choose = staticmethod(min)


@dataclass(frozen=True)
class Max(_Extreme):
    """Largest value; the first of equal ones."""

    choose = staticmethod(max)


@dataclass(frozen=True)
class Mean(_OfExactNumbers):
    """Arithmetic mean as a float; the mean of Decimals is a text of at most 34 digits. The accumulator is `[sum, count]`."""

    def initial(self) -> list[Any]:
        """The accumulator `[sum, count]` of no numbers."""
        return [0, 0]

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Adds a number. Raises `RecordError` if the sum or the mean is not a finite float."""
        return self._both(accumulator[0], value, accumulator[1] + 1)

    def remove(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Removes a number; without any, the sum is reset. Raises `RecordError` if the sum or mean is not a finite float."""
        count = accumulator[1] - 1
        return self._both(accumulator[0], _negative(value), count) if count else self.initial()

    def merge(self, earlier: list[Any], later: list[Any]) -> list[Any]:
        """Adds up both sums and both counts. Raises `RecordError` if the sum or the mean is not a finite float."""
        return self._both(earlier[0], later[0], earlier[1] + later[1])

    def _both(self, earlier: Any, later: Any, count: int) -> list[Any]:
        total = _sum(self, earlier, later)
        if type(total) is int and not -_MOST < total < _MOST and abs(total) >= _MOST * count:
            raise _overflow(self, earlier, later)
        return [total, count]

    def result(self, accumulator: list[Any]) -> float | str | None:
        """The mean; None without any numbers."""
        if type(accumulator[0]) is dict:
            return f"{OPERATIONS['divide'].of_values(_ordered(accumulator[0]), accumulator[1]):f}"
        mean: float | None = accumulator[0] / accumulator[1] if accumulator[1] else None
        return mean


_MOST: Final = 2**1023
"""The quotient of an integer below this number and a count is a finite float."""


class Chosen(_Optional):
    """An aggregate that keeps values of a field unchanged; they may have any type that JSON has."""

    def checked(self, value: Any) -> Any:
        """Returns the value. Raises `RecordError` for NaN and infinity."""
        return finite(self, value)


def finite(aggregate: Aggregate, value: Any) -> Any:
    """Returns the value. Raises `RecordError` for NaN and infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(aggregate, value)
    return value


@dataclass(frozen=True)
class First(Chosen):
    """The first value that is not null, in order of processing."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The earlier value."""
        return earlier


@dataclass(frozen=True)
class Last(Chosen):
    """The last value that is not null, in order of processing."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The later value."""
        return later


@dataclass(frozen=True)
class Ranked(Ordering):
    """Keeps a value from the record that ranks first by a field. The accumulator is `[by, value]`.

    A record whose `field` is null is left out, and its value is not read. The value may be null.

    Attributes:
        field: The field that records are compared by.
        value: The value to keep from the first record: a field, an expression, or several as `fields("auction", "price")`.
    """

    value: Field | ValueFields
    better: ClassVar[Callable[..., bool]]
    """`better(new, best)`: whether a record whose `field` is `new` ranks before the best one so far."""
    name: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.value, ValueFields):
            _refuse_record(self.value)
        if not isinstance(self.value, ValueFields):
            object.__setattr__(self, "value", _checked_field(self, self.value))
        elif self.value.everything:
            raise TopologyError(f"{self.text} keeps the fields that it names, so that only these are read: no '*'.")

    @property
    def kind(self) -> str:
        """The aggregate's name in `agg`."""
        return self.name

    @property
    def text(self) -> str:
        """The aggregate as it is written in a program."""
        return f"agg.{self.name}({self.value!r}, by={self.field!r})"

    @property
    def identity(self) -> str:
        """The aggregate's name, value and field of order."""
        return f"{self.name}({self.value}, by={self.field})"

    @property
    def parts(self) -> tuple[tuple[str | None, Expression], ...]:
        """The names and expressions of the kept fields; the name of a single value is None."""
        if isinstance(self.value, ValueFields):
            return self.value.computed
        return ((None, col(self.value) if isinstance(self.value, str) else self.value),)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the field of order and of the kept fields."""
        return tuple(dict.fromkeys([*super().paths, *(path for _, one in self.parts for path in one.paths)]))

    @property
    def gives_decimals(self) -> bool:
        """Whether the field of order or a kept field may be a Decimal."""
        return super().gives_decimals or any(gives_decimals(one) for _, one in self.parts)

    def value_in(self, value: Any) -> list[Any] | None:
        """Reads `[by, value]` from a record's value; None: the record is left out. Raises `RecordError`."""
        by = super().value_in(value)
        if by is None:
            return None
        kept = {name: self.kept(one(value)) for name, one in self.parts}
        return [by, kept.get(None, kept)]

    def kept(self, value: Any) -> Any:
        """Returns a part of the kept value. Raises `RecordError` for NaN and infinity."""
        return finite(self, value)

    def both(self, earlier: Any, later: Any) -> Any:
        """The accumulator that ranks first. Raises `RecordError` if they cannot be compared, such as a number and a text."""
        try:
            return later if self.better(_ordered(later[0]), _ordered(earlier[0])) else earlier
        except TypeError:
            raise self._of_two_kinds(earlier[0], later[0]) from None

    def result(self, accumulator: Any) -> Any:
        """The kept value; None without any records."""
        return None if accumulator is None else accumulator[1]


@dataclass(frozen=True)
class MaxBy(Ranked):
    """The value of the record whose `field` is the largest; the first of equal ones."""

    name = "max_by"
    better = staticmethod(operator.gt)


@dataclass(frozen=True)
class MinBy(Ranked):
    """The value of the record whose `field` is the smallest; the first of equal ones."""

    name = "min_by"
    better = staticmethod(operator.lt)


@dataclass(frozen=True)
class LastBy(Ranked):
    """The value of the record whose `field` is the largest; the last of equal ones."""

    name = "last_by"
    better = staticmethod(operator.ge)


@dataclass(frozen=True)
class Collect(BuiltIn):
    """The last n values that are not null, in order of processing."""

    last: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.last) is not int or self.last < 1:
            raise TopologyError(
                f"{self.text}: last= is how many values to keep, at least one. The list is one row of the store."
            )

    @property
    def text(self) -> str:
        """The aggregate as it is written in a program."""
        return f"agg.collect({self.field!r}, last={self.last!r})"

    @property
    def identity(self) -> str:
        """The aggregate's name, field and number of values."""
        return f"collect({self.field}, last={self.last})"

    def checked(self, value: Any) -> Any:
        """Returns the value. Raises `RecordError` for NaN and infinity."""
        return finite(self, value)

    def initial(self) -> list[Any]:
        """An empty list."""
        return []

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Appends a value."""
        return [*accumulator, value][-self.last :]

    def merge(self, earlier: list[Any], later: list[Any]) -> list[Any]:
        """The last values of both lists together."""
        return [*earlier, *later][-self.last :]


@dataclass(frozen=True)
class CountDistinct(BuiltIn):
    """Counts distinct values that are not null; each of them is a row in a separate store (`CountsDistinct`).

    Equal numbers are one value, even an integer, a float and a Decimal. Other values are equal if their JSON is equal.
    """

    @property
    def kind(self) -> str:
        """The aggregate's name in `agg`."""
        return "count_distinct"

    def checked(self, value: Any) -> Any:
        """Returns the value; a Decimal as `countable` gives it. Raises `RecordError` for NaN and infinity."""
        return countable(self, value)

    def initial(self) -> int:
        """Zero."""
        return 0

    def add(self, accumulator: int, value: Any) -> int:
        """The count plus one; only called for a value that is new."""
        return accumulator + 1

    def merge(self, earlier: int, later: int) -> int:
        """Never called: two counts do not show which values they have in common, so sessions are refused."""
        raise NotImplementedError(self.text)


def countable(aggregate: Aggregate, value: Any) -> Any:
    """The value. A Decimal becomes the equal integer or float or, without one, its digits, as in accumulators.

    Raises:
        RecordError: It is NaN or infinity.
    """
    if not is_decimal(value):
        return finite(aggregate, value)
    digits = f"{value:f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    if "." not in digits and len(digits) <= _MOST_DIGITS:
        return int(digits)
    number = float(value)
    return number if Decimal(number) == value else {"Decimal": digits}


_MOST_DIGITS: Final = 1_000
"""Of integers that become texts again; Python refuses 4,300."""


def distinct_text(value: Any) -> bytes:
    """The JSON of a value; equal numbers have equal texts."""
    return write(int(value) if type(value) is float and value.is_integer() else value)


def results(aggregates: Mapping[str, Aggregate], accumulators: Sequence[Any] | None) -> dict[str, Any] | None:
    """The value to emit: an object with one field for each aggregate, in order. None for a deleted row."""
    if accumulators is None:
        return None
    pairs = zip(aggregates.items(), accumulators, strict=True)
    return {name: aggregate.result(accumulator) for (name, aggregate), accumulator in pairs}
