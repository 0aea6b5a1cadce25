"""Aggregates of fields as functions, for the operators that work record by record (`ColumnAggregate` works on columns)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streams.model.aggregates import Aggregate, results


@dataclass(frozen=True)
class FieldAggregates:
    """Several aggregates, computed together.

    Attributes:
        aggregates: The aggregates, by their names in the result.
        bare: A single aggregate, not wrapped into a list and an object.
    """

    aggregates: Mapping[str, Aggregate]
    bare: bool = False

    def initial(self) -> Any:
        """The accumulator before the first record."""
        found = [aggregate.initial() for aggregate in self.aggregates.values()]
        return found[0] if self.bare else found

    def add(self, key: Any, value: Any, accumulator: Any) -> Any:
        """The accumulator after one more value."""
        return self.add_picked(key, [one.value_in(value) for one in self.aggregates.values()], accumulator)

    def add_picked(self, key: Any, picked: Sequence[Any], accumulator: Any) -> Any:
        """The accumulator after one more value, of which only the aggregates' fields are known, in their order."""
        before = [accumulator] if self.bare else accumulator
        parts = zip(self.aggregates.values(), before, picked, strict=True)
        after = [one.updated(old, value) for one, old, value in parts]
        return after[0] if self.bare else after

    def merge(self, key: Any, earlier: Any, later: Any) -> Any:
        """The accumulator of two consecutive runs of records."""
        parts = ([earlier], [later]) if self.bare else (earlier, later)
        after = [one.merge(a, b) for one, a, b in zip(self.aggregates.values(), *parts, strict=True)]
        return after[0] if self.bare else after

    def result(self, stored: Any) -> Any:
        """The table's value of an accumulator."""
        if not self.bare or stored is None:
            return results(self.aggregates, stored)
        (aggregate,) = self.aggregates.values()
        return aggregate.result(stored)
