"""Aggregates over a field of the value: the base class, and the built-in aggregates.

An aggregate is data (`agg.mean("delay")`), so the engine can decode only that field and process whole columns. The classes here
define the result: `result` of `updated` over the records, in order. An accumulator is a JSON value, which is stored. The kernels
that compute the same on whole columns are in `streams.operators.aggregate.accumulators`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.expressions import Col, Expression
from streams.model.record import pick

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

    def __post_init__(self) -> None:
        if isinstance(self.field, Col):  # the same as its path, also in names and hashes
            object.__setattr__(self, "field", self.field.path)
        if isinstance(self.field, Expression):
            return
        if not isinstance(self.field, str) or not all(self.field.split(".")):
            raise TopologyError(f"{self.text}: a field is a name, or names joined by single dots.")

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

    def value_in(self, value: Any) -> Any:
        """What the aggregate reads of a record's value. Raises `RecordError`."""
        return self.field(value) if isinstance(self.field, Expression) else pick(value, self.field)

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

    def result(self, accumulator: Any) -> Any:
        """The value to emit for an accumulator; by default the accumulator itself."""
        return accumulator

    def updated(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more record, whose field has the value `value`."""
        return self.add(accumulator, value) if self.takes(value) else accumulator


@dataclass(frozen=True)
class NumericAggregate(Aggregate):
    """An aggregate of numbers, which ignores other values of the field (text, booleans)."""

    def takes(self, value: Any) -> bool:
        """Whether the value is a number; booleans are not."""
        return isinstance(value, int | float) and not isinstance(value, bool)


class _BuiltIn(Aggregate):
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
class Count(_BuiltIn):
    """Number of records, or of those in which the field exists and is not null."""

    def __post_init__(self) -> None:
        if isinstance(self.field, Expression) and self.field.is_condition:
            raise TopologyError(
                f"{self.text} would count the records for which the condition is false, too: false is not null. Write "
                f"agg.sum(({self.field!r}).cast(int)), or filter the stream before it is grouped."
            )
        if self.field is not None:
            super().__post_init__()

    def takes(self, value: Any) -> bool:
        """Every record if no field is given."""
        return self.field is None or value is not None

    def initial(self) -> int:
        """None so far."""
        return 0

    def add(self, accumulator: int, value: Any) -> int:
        """One more."""
        return accumulator + 1

    def merge(self, earlier: int, later: int) -> int:
        """Both."""
        return earlier + later


class _Optional(_BuiltIn):
    """An aggregate without a value before the first record; the first value is then the accumulator."""

    def initial(self) -> Any:
        """Nothing."""
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator combined with the value."""
        return self.merge(accumulator, value)

    def merge(self, earlier: Any, later: Any) -> Any:
        """Both accumulators combined, or the one that is not None."""
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return self.both(earlier, later)

    @abstractmethod
    def both(self, earlier: Any, later: Any) -> Any:
        """Combines two accumulators that are not None."""


@dataclass(frozen=True)
class Sum(_Optional, NumericAggregate):
    """Sum. A sum of integers is an integer; a single float makes it a float."""

    def both(self, earlier: Any, later: Any) -> Any:
        """Their sum."""
        return earlier + later


@dataclass(frozen=True)
class Min(_Optional, NumericAggregate):
    """Smallest number; of equal ones the first."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The smaller one."""
        return min(earlier, later)


@dataclass(frozen=True)
class Max(_Optional, NumericAggregate):
    """Largest number; of equal ones the first."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The larger one."""
        return max(earlier, later)


@dataclass(frozen=True)
class Mean(_BuiltIn, NumericAggregate):
    """Arithmetic mean, a float; the accumulator is `[sum, count]`."""

    def initial(self) -> list[Any]:
        """No sum of no numbers."""
        return [0, 0]

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        """One more number."""
        return [accumulator[0] + value, accumulator[1] + 1]

    def merge(self, earlier: list[Any], later: list[Any]) -> list[Any]:
        """Both sums, both counts."""
        return [earlier[0] + later[0], earlier[1] + later[1]]

    def result(self, accumulator: list[Any]) -> float | None:
        """The mean; None of no numbers."""
        mean: float | None = accumulator[0] / accumulator[1] if accumulator[1] else None
        return mean


@dataclass(frozen=True)
class First(_Optional):
    """The first value that is not null, in order of processing."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The earlier one."""
        return earlier


@dataclass(frozen=True)
class Last(_Optional):
    """The last value that is not null, in order of processing."""

    def both(self, earlier: Any, later: Any) -> Any:
        """The later one."""
        return later


class AggregateFunctions(AnswersUnknownNames):
    """The built-in aggregates, available as `agg`: `aggregate(flights=agg.count(), delay=agg.mean("dep.delay"))`."""

    @staticmethod
    def count(field: Field | None = None) -> Aggregate:
        """Number of records, or with a field or an expression, of those in which it is there and not null.

        A condition raises `TopologyError`, since false is not null: `agg.sum((col("delay") > 15).cast(int))` counts the true ones.
        """
        return Count(field)

    @staticmethod
    def sum(field: Field) -> Aggregate:
        """Sum of a field."""
        return Sum(field)

    @staticmethod
    def min(field: Field) -> Aggregate:
        """Smallest number in a field."""
        return Min(field)

    @staticmethod
    def max(field: Field) -> Aggregate:
        """Largest number in a field."""
        return Max(field)

    @staticmethod
    def mean(field: Field) -> Aggregate:
        """Arithmetic mean of a field, a float."""
        return Mean(field)

    @staticmethod
    def first(field: Field) -> Aggregate:
        """The field's first value that is not null, in order of processing."""
        return First(field)

    @staticmethod
    def last(field: Field) -> Aggregate:
        """The field's last value that is not null, in order of processing."""
        return Last(field)


agg = AggregateFunctions

BUILT_IN: Final[frozenset[type[Aggregate]]] = frozenset({Count, Sum, Min, Max, Mean, First, Last})
"""The classes of `agg` themselves; one that is derived from them may compute anything."""


def results(aggregates: Mapping[str, Aggregate], accumulators: Sequence[Any] | None) -> dict[str, Any] | None:
    """The value to emit, with one field for each aggregate, in order. None for a deleted row."""
    if accumulators is None:
        return None
    pairs = zip(aggregates.items(), accumulators, strict=True)
    return {name: aggregate.result(accumulator) for (name, aggregate), accumulator in pairs}
