"""Built-in aggregates as functions, for the operators that work record by record (`ColumnAggregate` works on columns)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streams.model.fields import pick, results

if TYPE_CHECKING:
    from streams.model.aggregates import Aggregate


@dataclass(frozen=True)
class BuiltIn:
    """Some aggregates, computed together.

    Attributes:
        aggregates: What to compute.
        bare: A single aggregate, not wrapped into a list and an object.
    """

    aggregates: tuple[Aggregate, ...]
    bare: bool = False

    def initial(self) -> Any:
        """The accumulator before the first record."""
        found = [aggregate.initial() for aggregate in self.aggregates]
        return found[0] if self.bare else found

    def add(self, key: Any, value: Any, accumulator: Any) -> Any:
        """The accumulator after one more value."""
        before = [accumulator] if self.bare else accumulator
        pairs = zip(self.aggregates, before, strict=True)
        after = [one.add(old, pick(value, one.field)) for one, old in pairs]
        return after[0] if self.bare else after

    def merge(self, key: Any, earlier: Any, later: Any) -> Any:
        """The accumulator of two runs of records, one behind the other."""
        if self.bare:
            return self.aggregates[0].merge(earlier, later)
        return [one.merge(a, b) for one, a, b in zip(self.aggregates, earlier, later, strict=True)]

    def result(self, stored: Any) -> Any:
        """The table's value of an accumulator."""
        return self.aggregates[0].result(stored) if self.bare else results(self.aggregates, stored)
