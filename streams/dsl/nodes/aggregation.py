"""What an aggregation of grouped streams computes. The public classes describe it; `windowing` chooses the operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streams.dsl.nodes.result_types import Type, check_path
from streams.errors import TopologyError
from streams.model.aggregates import Aggregate, agg
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    StringSerde,
    UuidSerde,
    VoidSerde,
)
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import Parameters

_WITHOUT_FIELDS = frozenset(
    {
        BooleanSerde,
        BytesSerde,
        Float32Serde,
        Float64Serde,
        Int16Serde,
        Int32Serde,
        Int64Serde,
        StringSerde,
        UuidSerde,
        VoidSerde,
    }
)
"""Serdes whose values have no fields. The classes themselves: one that is derived from them may give anything."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What to compute per group.

    Attributes:
        kind: The kind of operator.
        functions: The functions that aggregate record by record.
        fields: The built-in aggregates of fields that `functions` implement; None: the functions are the user's.
        value_serde: The serde of the result, if it does not depend on the user; None: that of `Materialized`.
        value_type: The type of the result, according to the user's functions; None: unknown.
        keeps_type: Whether the result has the stream's type (reductions).
    """

    kind: NodeKind
    functions: AggregationFunctions
    fields: FieldAggregates | None = None
    value_serde: Serde | None = None
    value_type: Type = None
    keeps_type: bool = False

    @property
    def parameters(self) -> Parameters:
        """The parameters that are part of the topology hash."""
        if self.fields is None or self.fields.bare:
            return ()
        return tuple((f"agg:{name}", one.identity) for name, one in self.fields.aggregates.items())

    @property
    def projection(self) -> tuple[str, ...] | None:
        """The fields of a value that the aggregation needs; None: the whole value."""
        if self.fields is None:
            return None
        return tuple(dict.fromkeys(path for one in self.fields.aggregates.values() for path in one.paths))

    @property
    def view(self) -> Callable[[Any], Any] | None:
        """Converts the values in the store to the table's values; None: they are the same."""
        return None if self.fields is None or self.fields.bare else self.fields.result

    def check_values(self, node: str, serde: Serde | None) -> None:
        """Raises `TopologyError` if fields are read from values that are known not to have them.

        Args:
            node: The node that the values come from.
            serde: The serde of the values; None: unknown.
        """
        if self.fields is not None:
            for one in self.fields.aggregates.values():
                for path in one.paths:
                    check_path(one.text, path, node, serde)
        if self.projection and type(serde) in _WITHOUT_FIELDS:
            field, name = self.projection[0], type(serde).__name__
            raise TopologyError(
                f"An aggregate reads the field {field!r}, but the values of '{node}' are those of {name}, which have no "
                f"fields: read them with JsonSerde, or make a dict or an object of each with map_values(...) before."
            )


def by_functions(
    kind: NodeKind,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    merger: Callable[[Any, Any, Any], Any] | None = None,
    value_type: Type = None,
) -> Aggregation:
    """An aggregation with the user's functions."""
    return Aggregation(kind, AggregationFunctions(aggregator, initializer, merger), value_type=value_type)


def reduction(reducer: Callable[[Any, Any, Any], Any], merger: Callable[[Any, Any, Any], Any]) -> Aggregation:
    """A reduction, whose first aggregate is the first value."""
    return Aggregation(NodeKind.KSTREAM_REDUCE, AggregationFunctions(reducer, None, merger), keeps_type=True)


def counting(value_serde: Serde) -> Aggregation:
    """The number of records, as the table's value itself."""
    return _of_fields({"count": agg.count()}, value_serde, bare=True)


def of_fields(aggregates: Mapping[str, Aggregate]) -> Aggregation:
    """The aggregation of built-in aggregates, by their names in the result.

    Raises:
        TopologyError: A value is no aggregate.
    """
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise TopologyError(
                f"aggregate({name}=...) takes a built-in aggregate such as agg.sum('field'), or an object of an Aggregate class of "
                f"yours, not {aggregate!r}."
            )
    return _of_fields(dict(aggregates), JsonSerde(), bare=False)


def _of_fields(aggregates: dict[str, Aggregate], value_serde: Serde, bare: bool) -> Aggregation:
    fields = FieldAggregates(aggregates, bare)
    functions = AggregationFunctions(fields.add, fields.initial, fields.merge, fields.result)
    return Aggregation(NodeKind.KSTREAM_AGGREGATE, functions, fields, value_serde)
