"""Aggregates over a field of the value: the base class, and the built-in aggregates.

An aggregate is data (`agg.mean("delay")`), so the engine can decode only that field and process whole columns. The classes here
define the result: `result` of `updated` over what `value_in` reads of the records, in order. An accumulator is a JSON value, which
is stored; so no built-in aggregate ever becomes NaN or infinite, which JSON does not have: the record that would make it so fails,
and the accumulator stays as it was. The kernels that compute the same on whole columns are in
`streams.operators.aggregate.accumulators`.
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
"""What an aggregate reads of each value: a dotted path, or an expression."""


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
    """The classes of the values that a built-in aggregate takes, apart from `bool`, and what a message says of them; None: all."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", _checked_field(self, self.field))

    @property
    def text(self) -> str:
        """The aggregate as a program writes it, for messages."""
        return f"{type(self).__name__}({self.field!r})"

    @property
    def identity(self) -> str:
        """The text for names and the topology hash, the same at every start of the program.

        Raises:
            TopologyError: The `repr` of a user's class has a memory address.
        """
        text = repr(self)
        if " at 0x" in text:
            raise TopologyError(
                f"The aggregate {text} is known by a memory address, so no state would fit it at the next start: make "
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
        """Whether an expression that the aggregate reads makes Decimals of what JSON gives."""
        return isinstance(self.field, Expression) and gives_decimals(self.field)

    def value_in(self, value: Any) -> Any:
        """What the aggregate reads of a record's value. Raises `RecordError`, also for what it cannot aggregate."""
        return self.checked(self.field(value) if isinstance(self.field, Expression) else pick(value, self.field))

    def checked(self, value: Any) -> Any:
        """The field's value as the aggregate takes it; by default any value. Raises `RecordError` for one that it cannot take."""
        return value

    def takes(self, value: Any) -> bool:
        """Whether to aggregate a field's value: by default if it exists and is not null. Other values never reach `add`."""
        return value is not None

    @abstractmethod
    def initial(self) -> Any:
        """The accumulator before the first record."""

    @abstractmethod
    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more value of the field."""

    @abstractmethod
    def merge(self, earlier: Any, later: Any) -> Any:
        """The accumulator of two consecutive sequences of records, as of two sessions that are merged."""

    def remove(self, accumulator: Any, value: Any) -> Any:
        """The accumulator without a value that was added before; only grouped tables, whose rows change and leave, need it.

        Built-in ones that have it: count, sum, mean and quantile.
        """
        raise NotImplementedError(f"{self.text} cannot take a value back")

    @property
    def takes_back(self) -> bool:
        """Whether the aggregate has `remove`."""
        return type(self).remove is not Aggregate.remove

    def result(self, accumulator: Any) -> Any:
        """The value to emit for an accumulator; by default the accumulator itself."""
        return accumulator

    def updated(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more record, whose field has the value `value`."""
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
            f"An aggregate cannot read {found[0]!r} itself: take it into the value before, as in "
            f"map_values(fields('*', name={found[0]!r}))."
        )


def _checked_field(aggregate: Aggregate, field: object) -> Field:
    """What an aggregate reads. A column alone is the same as its path, also in names and hashes. Raises `TopologyError`."""
    if isinstance(field, Expression) and not isinstance(field, Col):
        _refuse_record(field)
        return field
    path = field.path if isinstance(field, Col) else field
    if not isinstance(path, str) or not is_path(path):
        raise TopologyError(f"{aggregate.text}: {IS_A_FIELD}.")
    return path_of(names_of(path))


@dataclass(frozen=True)
class NumericAggregate(Aggregate):
    """An aggregate of numbers, which ignores other values of the field (text, booleans)."""

    def takes(self, value: Any) -> bool:
        """Whether the value is a number; booleans are not."""
        return isinstance(value, int | float) and not isinstance(value, bool)


class BuiltIn(Aggregate):
    """A built-in aggregate, identified by its name in `agg`."""

    @property
    def text(self) -> str:
        """The aggregate as a program writes it."""
        return f"agg.{self.kind}({self.field!r})"

    @property
    def kind(self) -> str:
        """Its name in `agg`."""
        return type(self).__name__.lower()

    @property
    def identity(self) -> str:
        """Name and field."""
        return f"{self.kind}({'' if self.field is None else self.field})"


@dataclass(frozen=True)
class Count(BuiltIn):
    """Number of records, or of those in which the field exists and is not null."""

    def __post_init__(self) -> None:
        if isinstance(self.field, Expression) and self.field.is_condition:
            raise TopologyError(
                f"{self.text} would count the records for which the condition is false, too: false is not null. Write "
                f"agg.count(where={self.field!r}), or filter the stream before it is grouped."
            )
        if self.field is not None:
            super().__post_init__()

    def value_in(self, value: Any) -> Any:
        """The field's value; None if no field is given."""
        return None if self.field is None else super().value_in(value)

    def takes(self, value: Any) -> bool:
        """Every record if no field is given."""
        return self.field is None or value is not None

    def initial(self) -> int:
        """None so far."""
        return 0

    def add(self, accumulator: int, value: Any) -> int:
        """One more."""
        return accumulator + 1

    def remove(self, accumulator: int, value: Any) -> int:
        """One less."""
        return accumulator - 1

    def merge(self, earlier: int, later: int) -> int:
        """Both."""
        return earlier + later


class _Optional(BuiltIn):
    """An aggregate without a value before the first record; the first value is then the accumulator."""

    def initial(self) -> Any:
        """Nothing."""
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator combined with the value."""
        return value if accumulator is None else self.both(accumulator, value)

    def merge(self, earlier: Any, later: Any) -> Any:
        """Both accumulators combined, or the one that is not None."""
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
"""What reads the texts in accumulators, by the names of the classes."""


def _in_accumulator(value: Decimal | date | time) -> dict[str, str]:
    """What JSON has no form for, as accumulators have it: `{"Decimal": "1.50"}`."""
    if isinstance(value, Decimal):
        return {"Decimal": f"{value:f}"}
    kind = next(kind for kind in (datetime, date, time) if isinstance(value, kind))
    return {kind.__name__: value.isoformat()}


class OfNumbers(BuiltIn):
    """An aggregate that computes with numbers. Null takes no part; any other value (text, a truth value) fails its record."""

    takes_only: ClassVar[tuple[tuple[type, ...], str] | None] = (Real,), "takes numbers (int, float)"

    def checked(self, value: Any) -> Any:
        """An `int`, a `float` that is finite, or None. Raises `RecordError` for any other value."""
        if value is None or type(value) is int or (type(value) is float and math.isfinite(value)):
            return value
        number = number_in(value)
        if number is None:
            raise _refused(self, value)
        return number


class _OfExactNumbers(OfNumbers):
    """An aggregate that computes with Decimals, too."""

    takes_only = (Real, Decimal), "takes numbers (int, float, Decimal)"

    def checked(self, value: Any) -> Any:
        """The same, or a `Decimal` as accumulators have it. Raises `RecordError` for any other value."""
        return _in_accumulator(value) if is_decimal(value) else super().checked(value)


def is_decimal(value: Any) -> bool:
    """Whether a value is a finite `Decimal`."""
    return isinstance(value, Decimal) and value.is_finite()


def number_in(value: Any) -> int | float | None:
    """A finite number as an `int` or a `float`, such as one of NumPy's; None: it is not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else None


def _refused(aggregate: Aggregate, value: Any) -> RecordError:
    """The error of a record whose field has a value that an aggregate does not take."""
    if isinstance(value, float):
        return RecordError(f"{aggregate.text} is given {described(float(value))}, which is not a finite number")
    what = "" if aggregate.takes_only is None else aggregate.takes_only[1]
    return RecordError(
        f"{aggregate.text} {what}, not {described(value)}: convert the field with map_values(...) or an expression before, or "
        f"leave such records out with filter(...)"
    )


@dataclass(frozen=True)
class Sum(_OfExactNumbers, _Optional):
    """Sum. A sum of integers is an exact integer of any size; a single float makes it a float.

    A sum of Decimals, and of integers among them, is exact. Its accumulator is `{"Decimal": "12.50"}`, and the result that text.
    """

    def both(self, earlier: Any, later: Any) -> Any:
        """Their sum. Raises `RecordError` if that is not a finite float."""
        return _sum(self, earlier, later)

    def remove(self, accumulator: Any, value: Any) -> Any:
        """The sum without a number. Raises `RecordError` if that is not a finite float."""
        return _sum(self, accumulator, _negative(value))

    def result(self, accumulator: Any) -> Any:
        """The sum; of Decimals its text."""
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


class _Ordering(_Optional):
    """An aggregate that compares numbers, texts, or times of a field."""

    takes_only = (
        (Real, Decimal, str, date, time),
        "orders numbers (int, float, Decimal), texts, or times (datetime, date, time)",
    )

    def checked(self, value: Any) -> Any:
        """A finite number, a text, or a time. Raises `RecordError` for any other value."""
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


class _Extreme(_Ordering):
    """The smallest or largest value of a field: of numbers, of texts, or of times.

    A time's accumulator is `{"datetime": "2026-01-31T12:00:00+00:00"}`, with the name of its class and the ISO text, which is the
    result. That of a Decimal is `{"Decimal": "1.50"}`.
    """

    choose: ClassVar[Callable[..., Any]]
    """Python's `min` or `max`, which take the first of equal values."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The better one. Raises `RecordError` if they are of two kinds, such as a number and a text."""
        try:
            if type(earlier) is not dict and type(later) is not dict:
                return self.choose(earlier, later)
            return self.choose(earlier, later, key=_ordered)
        except TypeError:
            raise self._of_two_kinds(earlier, later) from None

    def result(self, accumulator: Any) -> Any:
        """The number or the text; of a time its ISO text, of a Decimal its digits."""
        return _shown(accumulator)


def _ordered(accumulator: Any) -> Any:
    """What an accumulator is compared by."""
    if type(accumulator) is not dict:
        return accumulator
    ((name, text),) = accumulator.items()
    return _READ[name](text)


def _shown(accumulator: Any) -> Any:
    return next(iter(accumulator.values())) if type(accumulator) is dict else accumulator


@dataclass(frozen=True)
class Min(_Extreme):
    """Smallest value; of equal ones the first."""

    choose = staticmethod(min)


@dataclass(frozen=True)
class Max(_Extreme):
    """Largest value; of equal ones the first."""

    choose = staticmethod(max)


@dataclass(frozen=True)
class Mean(_OfExactNumbers):
    """Arithmetic mean, a float; of Decimals a text of at most 34 digits. The accumulator is `[sum, count]`."""

    def initial(self) -> list[Any]:
        """No sum of no numbers."""
        return [0, 0]

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        """One more number. Raises `RecordError` if the sum or the mean is not a finite float."""
        return self._both(accumulator[0], value, accumulator[1] + 1)

    def remove(self, accumulator: list[Any], value: Any) -> list[Any]:
        """One number less; without any, nothing of the sum is left. Raises `RecordError` as `add`."""
        count = accumulator[1] - 1
        return self._both(accumulator[0], _negative(value), count) if count else self.initial()

    def merge(self, earlier: list[Any], later: list[Any]) -> list[Any]:
        """Both sums, both counts. Raises `RecordError` if the sum or the mean is not a finite float."""
        return self._both(earlier[0], later[0], earlier[1] + later[1])

    def _both(self, earlier: Any, later: Any, count: int) -> list[Any]:
        total = _sum(self, earlier, later)
        if type(total) is int and not -_MOST < total < _MOST and abs(total) >= _MOST * count:
            raise _overflow(self, earlier, later)
        return [total, count]

    def result(self, accumulator: list[Any]) -> float | str | None:
        """The mean; None of no numbers."""
        if type(accumulator[0]) is dict:
            return f"{OPERATIONS['divide'].of_values(_ordered(accumulator[0]), accumulator[1]):f}"
        mean: float | None = accumulator[0] / accumulator[1] if accumulator[1] else None
        return mean


_MOST: Final = 2**1023
"""A quotient of integers below is a finite float."""


class Chosen(_Optional):
    """One of the values of a field, of any type that JSON has."""

    def checked(self, value: Any) -> Any:
        """The value. Raises `RecordError` for NaN and infinity."""
        return finite(self, value)


def finite(aggregate: Aggregate, value: Any) -> Any:
    """The value. Raises `RecordError` for NaN and infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(aggregate, value)
    return value


@dataclass(frozen=True)
class First(Chosen):
    """The first value that is not null, in order of processing."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The earlier one."""
        return earlier


@dataclass(frozen=True)
class Last(Chosen):
    """The last value that is not null, in order of processing."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The later one."""
        return later


@dataclass(frozen=True)
class Ranked(_Ordering):
    """What the record has that comes first by a field, in an order. The accumulator is `[by, value]`.

    A record whose `field` is null takes no part, and the rest of it is not read. The value may be null.

    Attributes:
        field: What records are compared by.
        value: What is kept of the first one: a field, an expression, or several as `fields("auction", "price")`.
    """

    value: Field | ValueFields
    better: ClassVar[Callable[..., bool]]
    """Whether a record's `field`, the first argument, comes before that of the best one so far."""
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
        """Its name in `agg`."""
        return self.name

    @property
    def text(self) -> str:
        """The aggregate as a program writes it."""
        return f"agg.{self.name}({self.value!r}, by={self.field!r})"

    @property
    def identity(self) -> str:
        """Name, value and order."""
        return f"{self.name}({self.value}, by={self.field})"

    @property
    def parts(self) -> tuple[tuple[str, Expression], ...]:
        """The names and expressions of what is kept; of a single value the name is empty."""
        if isinstance(self.value, ValueFields):
            return self.value.computed
        return (("", col(self.value) if isinstance(self.value, str) else self.value),)

    @property
    def paths(self) -> tuple[str, ...]:
        """Those of the order and of what is kept."""
        return tuple(dict.fromkeys([*super().paths, *(path for _, one in self.parts for path in one.paths)]))

    @property
    def gives_decimals(self) -> bool:
        """Whether the order or what is kept may be a Decimal."""
        return super().gives_decimals or any(gives_decimals(one) for _, one in self.parts)

    def value_in(self, value: Any) -> list[Any] | None:
        """What the record is compared by, and what is kept of it; None: it takes no part. Raises `RecordError`."""
        by = super().value_in(value)
        if by is None:
            return None
        return [by, self.joined([self.kept(one(value)) for _, one in self.parts])]

    def kept(self, value: Any) -> Any:
        """A part of the value. Raises `RecordError` for NaN and infinity."""
        return finite(self, value)

    def joined(self, parts: Sequence[Any]) -> Any:
        """The value of its parts."""
        if isinstance(self.value, ValueFields):
            return dict(zip((name for name, _ in self.parts), parts, strict=True))
        return parts[0]

    def both(self, earlier: Any, later: Any) -> Any:
        """The better one. Raises `RecordError` if they are of two kinds, such as a number and a text."""
        try:
            return later if self.better(_ordered(later[0]), _ordered(earlier[0])) else earlier
        except TypeError:
            raise self._of_two_kinds(earlier[0], later[0]) from None

    def result(self, accumulator: Any) -> Any:
        """What is kept; None of no records."""
        return None if accumulator is None else accumulator[1]


@dataclass(frozen=True)
class MaxBy(Ranked):
    """What the record with the largest `field` has; of equal ones the first."""

    name = "max_by"
    better = staticmethod(operator.gt)


@dataclass(frozen=True)
class MinBy(Ranked):
    """What the record with the smallest `field` has; of equal ones the first."""

    name = "min_by"
    better = staticmethod(operator.lt)


@dataclass(frozen=True)
class LastBy(Ranked):
    """What the record with the largest `field` has; of equal ones the last."""

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
        """The aggregate as a program writes it."""
        return f"agg.collect({self.field!r}, last={self.last!r})"

    @property
    def identity(self) -> str:
        """Name, field and number."""
        return f"collect({self.field}, last={self.last})"

    def checked(self, value: Any) -> Any:
        """The value. Raises `RecordError` for NaN and infinity."""
        return finite(self, value)

    def initial(self) -> list[Any]:
        """No values."""
        return []

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        """One more at the end."""
        return [*accumulator, value][-self.last :]

    def merge(self, earlier: list[Any], later: list[Any]) -> list[Any]:
        """The last ones of both."""
        return [*earlier, *later][-self.last :]


@dataclass(frozen=True)
class CountDistinct(BuiltIn):
    """Number of distinct values that are not null; each is a row of its own in a store (`CountsDistinct`).

    Equal numbers are one value, also an integer, a float and a Decimal; otherwise values are equal if their JSON is.
    """

    @property
    def kind(self) -> str:
        """Its name in `agg`."""
        return "count_distinct"

    def checked(self, value: Any) -> Any:
        """The value, of a Decimal as `countable` gives it. Raises `RecordError` for NaN and infinity."""
        return countable(self, value)

    def initial(self) -> int:
        """None so far."""
        return 0

    def add(self, accumulator: int, value: Any) -> int:
        """One more, of a value that has not been there."""
        return accumulator + 1

    def merge(self, earlier: int, later: int) -> int:
        """Never called: counts do not say which values they have in common, so sessions are refused."""
        raise NotImplementedError(self.text)


def countable(aggregate: Aggregate, value: Any) -> Any:
    """The value; of a Decimal the integer or the float that equals it, and without one its digits, as accumulators have them.

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
    """The JSON of a value that JSON has; equal numbers have equal texts."""
    return write(int(value) if type(value) is float and value.is_integer() else value)


def results(aggregates: Mapping[str, Aggregate], accumulators: Sequence[Any] | None) -> dict[str, Any] | None:
    """The value to emit, with one field for each aggregate, in order. None for a deleted row."""
    if accumulators is None:
        return None
    pairs = zip(aggregates.items(), accumulators, strict=True)
    return {name: aggregate.result(accumulator) for (name, aggregate), accumulator in pairs}
