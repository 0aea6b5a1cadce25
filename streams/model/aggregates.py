"""Aggregates over a field of the value: one class for each, the built-in ones and the base of users' own.

An aggregate is data (`agg.mean("delay")`), so that the engine may decode only that field and work on whole columns. What an
aggregate then gives is defined here: `result` of `updated` over the records, in order. An accumulator is a JSON value, as
the store holds it. The kernels that do the same for whole columns are in `streams.operators.aggregate.columns.accumulate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streams.errors import TopologyError
from streams.spelling.answers import AnswersUnknownNames


@dataclass(frozen=True)
class Aggregate(ABC):
    """An aggregate over one field of the values; subclass it for one of your own.

    Example::

        class Longest(Aggregate):
            def initial(self):
                return ""

            def add(self, accumulator, value):
                return max(accumulator, str(value), key=len)

            def merge(self, earlier, later):
                return max(earlier, later, key=len)

        grouped.aggregate(name=Longest("customer.name"))

    The accumulator goes into the store, so it is a JSON value; `add` and `merge` give a new one and leave theirs as they are.
    Parameters besides the field make the class a frozen dataclass: its `repr` is part of generated names and of the
    topology hash.

    Attributes:
        field: Dotted path into the value, arrays by index (`v.0`).
    """

    field: str | None

    def __post_init__(self) -> None:
        if not isinstance(self.field, str) or not all(self.field.split(".")):
            raise TopologyError(f"{self.text}: a field is a name, or names joined by single dots.")

    @property
    def text(self) -> str:
        """How the program writes it, for messages."""
        return f"{type(self).__name__}({self.field!r})"

    @property
    def identity(self) -> str:
        """The text by which names and the topology hash know it: the same at every start of the program.

        Raises:
            TopologyError: The `repr` of a class of the user's shows a memory address.
        """
        text = repr(self)
        if " at 0x" in text:
            raise TopologyError(
                f"The aggregate {text} is known by a memory address, so no state would fit it at the next start: make "
                f"{type(self).__qualname__} a frozen dataclass, or give it a __repr__ without addresses."
            )
        return text

    def takes(self, value: Any) -> bool:
        """Whether a field's value takes part: any that is there and not null. Others never reach `add`."""
        return value is not None

    @abstractmethod
    def initial(self) -> Any:
        """The accumulator before the first record."""

    @abstractmethod
    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more value of the field."""

    @abstractmethod
    def merge(self, earlier: Any, later: Any) -> Any:
        """The accumulator of two runs of records, one after the other: of two sessions that become one."""

    def result(self, accumulator: Any) -> Any:
        """The value that is emitted for an accumulator: the accumulator itself, if a class says nothing else."""
        return accumulator

    def updated(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more record, of which `value` is the field's value."""
        return self.add(accumulator, value) if self.takes(value) else accumulator


@dataclass(frozen=True)
class NumericAggregate(Aggregate):
    """An aggregate of numbers: whatever else stands in the field (text, a boolean) takes no part."""

    def takes(self, value: Any) -> bool:
        """Whether it is a number; booleans are none."""
        return isinstance(value, int | float) and not isinstance(value, bool)


class _BuiltIn(Aggregate):
    """The built-in aggregates are known by the name that they have in `agg`."""

    @property
    def text(self) -> str:
        """How the program writes it."""
        return f"agg.{self.kind}({self.field!r})"

    @property
    def kind(self) -> str:
        """Its name in `agg`."""
        return type(self).__name__.lower()

    @property
    def identity(self) -> str:
        """Name and field."""
        return f"{self.kind}({self.field or ''})"


@dataclass(frozen=True)
class Count(_BuiltIn):
    """Number of records (without a field), or of those whose field is there and not null."""

    def __post_init__(self) -> None:
        if self.field is not None:
            super().__post_init__()

    def takes(self, value: Any) -> bool:
        """Every record without a field to look at."""
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
    """An aggregate that has no value before the first record that takes part: then a value is its own accumulator."""

    def initial(self) -> Any:
        """Nothing."""
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        """The value is a run of one record."""
        return self.merge(accumulator, value)

    def merge(self, earlier: Any, later: Any) -> Any:
        """What there is, where one of them is nothing."""
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return self.both(earlier, later)

    @abstractmethod
    def both(self, earlier: Any, later: Any) -> Any:
        """Of two that are there."""


@dataclass(frozen=True)
class Sum(_Optional, NumericAggregate):
    """Sum. Whole numbers stay whole; the sum is a float once a float took part."""

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
    """The built-in aggregates, used as `agg`: `aggregate(flights=agg.count(), delay=agg.mean("dep.delay"))`."""

    @staticmethod
    def count(field: str | None = None) -> Aggregate:
        """Number of records, or of those whose field is there and not null."""
        return Count(field)

    @staticmethod
    def sum(field: str) -> Aggregate:
        """Sum of a field."""
        return Sum(field)

    @staticmethod
    def min(field: str) -> Aggregate:
        """Smallest number in a field."""
        return Min(field)

    @staticmethod
    def max(field: str) -> Aggregate:
        """Largest number in a field."""
        return Max(field)

    @staticmethod
    def mean(field: str) -> Aggregate:
        """Arithmetic mean of a field, a float."""
        return Mean(field)

    @staticmethod
    def first(field: str) -> Aggregate:
        """The field's first value that is not null, in order of processing."""
        return First(field)

    @staticmethod
    def last(field: str) -> Aggregate:
        """The field's last value that is not null, in order of processing."""
        return Last(field)


agg = AggregateFunctions


def results(aggregates: Mapping[str, Aggregate], accumulators: Sequence[Any] | None) -> dict[str, Any] | None:
    """The value that is emitted: one field for each aggregate, in their order. None for a deleted row."""
    if accumulators is None:
        return None
    pairs = zip(aggregates.items(), accumulators, strict=True)
    return {name: aggregate.result(accumulator) for (name, aggregate), accumulator in pairs}
