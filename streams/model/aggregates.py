"""Built-in aggregates over a field of the value: what to compute, and in plain Python how.

``agg.mean("delay")`` is data, so that the engine may decode only that field and work on whole columns. What it then
gives is defined here: ``result`` of ``add`` over the records, in order. An accumulator is a JSON value, as it rests in
the store. A field that is missing or null takes no part; nor does one that is not a number, for ``sum``, ``min``,
``max`` and ``mean`` (booleans and text are no numbers). Whole numbers stay whole; a sum is a float once a float took
part.

A leaf module: operators import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from streams.errors import TopologyError
from streams.model.fields import pick, results

__all__ = ["Aggregate", "AggregateFunctions", "agg", "pick", "results"]

Kind: TypeAlias = Literal["count", "sum", "min", "max", "mean", "first", "last"]

_OF_NUMBERS = frozenset({"sum", "min", "max", "mean"})


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One built-in aggregate.

    Attributes:
        kind: what is computed.
        field: dotted path into the value, arrays by index (``v.0``); None only for ``count`` of records.
        name: its field in the result; given by ``aggregate(name=agg.sum("field"))``.
    """

    kind: Kind
    field: str | None
    name: str = ""

    def __post_init__(self) -> None:
        fits = (
            self.kind == "count" if self.field is None else isinstance(self.field, str) and all(self.field.split("."))
        )
        if not fits:
            raise TopologyError(f"agg.{self.kind}({self.field!r}): a field is a name, or names joined by single dots.")

    def takes(self, value: Any) -> bool:
        """Whether a field's value takes part."""
        if self.kind == "count" and self.field is None:
            return True
        if self.kind in _OF_NUMBERS:
            return isinstance(value, int | float) and not isinstance(value, bool)
        return value is not None

    def initial(self) -> Any:
        """The accumulator before the first record."""
        if self.kind == "count":
            return 0
        return [0, 0] if self.kind == "mean" else None

    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator after one more record, of which ``value`` is the field's value."""
        if not self.takes(value):
            return accumulator
        if self.kind == "count":
            return accumulator + 1
        return self.merge(accumulator, [value, 1] if self.kind == "mean" else value)

    def merge(self, earlier: Any, later: Any) -> Any:
        """The accumulator of two runs of records, one after the other."""
        if self.kind == "count":
            return earlier + later
        if self.kind == "mean":
            return [earlier[0] + later[0], earlier[1] + later[1]]
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return _MERGE[self.kind](earlier, later)

    def result(self, accumulator: Any) -> Any:
        """What the aggregate is, None if no record took part (0 for ``count``)."""
        if self.kind != "mean":
            return accumulator
        return accumulator[0] / accumulator[1] if accumulator[1] else None


_MERGE: dict[str, Any] = {
    "sum": lambda earlier, later: earlier + later,
    "min": min,
    "max": max,
    "first": lambda earlier, later: earlier,
    "last": lambda earlier, later: later,
}


class AggregateFunctions:
    """The built-in aggregates, used as ``agg``: ``aggregate(flights=agg.count(), delay=agg.mean("dep.delay"))``."""

    @staticmethod
    def count(field: str | None = None) -> Aggregate:
        """Number of records, or of those whose field is there and not null."""
        return Aggregate("count", field)

    @staticmethod
    def sum(field: str) -> Aggregate:
        """Sum of a field."""
        return Aggregate("sum", field)

    @staticmethod
    def min(field: str) -> Aggregate:
        """Smallest number in a field."""
        return Aggregate("min", field)

    @staticmethod
    def max(field: str) -> Aggregate:
        """Largest number in a field."""
        return Aggregate("max", field)

    @staticmethod
    def mean(field: str) -> Aggregate:
        """Arithmetic mean of a field, a float."""
        return Aggregate("mean", field)

    @staticmethod
    def first(field: str) -> Aggregate:
        """The field's first value that is not null, in order of processing."""
        return Aggregate("first", field)

    @staticmethod
    def last(field: str) -> Aggregate:
        """The field's last value that is not null, in order of processing."""
        return Aggregate("last", field)


agg = AggregateFunctions
