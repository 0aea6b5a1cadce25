"""The aggregations that grouped and windowed streams share.

Each aggregation is described once (`streams.dsl.nodes.aggregation`). The differences between plain groups and windows (store, key,
operator) are behind one abstract method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

from streams.dsl import functions
from streams.dsl.arguments import named_option
from streams.dsl.group_facade import GroupFacade
from streams.dsl.nodes.aggregation import Aggregation, by_functions, counting, of_fields, reduction
from streams.dsl.nodes.result_types import aggregate_type
from streams.dsl.nodes.table_steps import TopAggregator, checked_top
from streams.dsl.options import Materialized, NameLike
from streams.errors import TopologyError
from streams.model.aggregates import Aggregate, Field, agg
from streams.model.typing import (
    KR,
    Aggregator,
    Initializer,
    K,
    KeyAggregator,
    R,
    Reducer,
    V,
    ValueMapper,
)
from streams.serdes.json import is_plain_json
from streams.serdes.primitives import Int64Serde
from streams.topology.node_kind import NodeKind

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable

Name: TypeAlias = NameLike | Materialized[Any, Any]
Store: TypeAlias = Materialized[Any, Any] | NameLike


class Aggregating(GroupFacade, ABC, Generic[K, V, KR]):
    """Aggregations of a grouped stream. Each returns a table with keys of type `KR`: the stream's keys, or windows of them."""

    @abstractmethod
    def _table(self, what: Aggregation, how: Materialized, name: str | None) -> KTable[KR, Any]:
        """Adds the store and the operator."""

    def count(
        self, named: NameLike | Materialized[K, int] = None, materialized: Materialized[K, int] | NameLike = None
    ) -> KTable[KR, int]:
        """Counts the records of each key, as a 64-bit integer.

        The result is a `KTable[K, int]`. Records with a null key are dropped, and so are null values in sliding windows and without
        windows. The result's timestamp is the largest of the records'. Source: Kafka Streams' `KStreamAggregate`.

        Args:
            named: Name of the operator.
            materialized: Name, serdes and settings of the store, or its name alone.
        """
        return self._build("count", counting(Int64Serde()), named, materialized)

    def reduce(
        self,
        reducer: Reducer[V],
        named: NameLike | Materialized[K, V] = None,
        materialized: Materialized[K, V] | NameLike = None,
    ) -> KTable[KR, V]:
        """Combines the values of each key with `reducer(aggregate, value)`; the first value becomes the first aggregate.

        The result is a `KTable[K, V]`. The rules for nulls and timestamps are those of `count`. If the reducer returns None, the
        key is deleted.

        Args:
            reducer: Returns the new aggregate.
            named: Name of the operator.
            materialized: Name, serdes and settings of the store, or its name alone.

        Raises:
            TopologyError: The function takes another number of arguments.

        Source: Kafka Streams' `KStreamReduce`.
        """
        what = reduction(functions.reducer(reducer), functions.merger(reducer))
        return self._build("reduce", what, named, materialized)

    def sum(self, field: Field, named: Name = None, materialized: Store = None) -> KTable[KR, dict[str, Any]]:
        """Adds up a field or an expression; short for `aggregate(sum=agg.sum(field))`."""
        return self._build("sum", of_fields({"sum": agg.sum(field)}), named, materialized)

    def min(self, field: Field, named: Name = None, materialized: Store = None) -> KTable[KR, dict[str, Any]]:
        """Finds the smallest number in a field or an expression; short for `aggregate(min=agg.min(field))`."""
        return self._build("min", of_fields({"min": agg.min(field)}), named, materialized)

    def max(self, field: Field, named: Name = None, materialized: Store = None) -> KTable[KR, dict[str, Any]]:
        """Finds the largest number in a field or an expression; short for `aggregate(max=agg.max(field))`."""
        return self._build("max", of_fields({"max": agg.max(field)}), named, materialized)

    def mean(self, field: Field, named: Name = None, materialized: Store = None) -> KTable[KR, dict[str, Any]]:
        """Averages a field or an expression; short for `aggregate(mean=agg.mean(field))`."""
        return self._build("mean", of_fields({"mean": agg.mean(field)}), named, materialized)

    def top(
        self,
        n: int,
        by: ValueMapper[V, Any],
        largest: bool = True,
        named: NameLike | Materialized[K, list[V]] = None,
        materialized: Materialized[K, list[V]] | NameLike = None,
    ) -> KTable[KR, list[V]]:
        """Ranks the values of each key (and window or session) and returns the best n as a list, best first.

        Args:
            n: The length of the list.
            by: `by(value)` returns the score, a number; a value whose score is None is not ranked.
            largest: Whether the largest score is the best. Among equal scores the earlier value ranks higher.
            named: Name of the operator.
            materialized: Name, serdes and settings of the store, which holds the lists.

        Raises:
            TopologyError: `n` is not a positive whole number.
        """
        best = TopAggregator(n, checked_top(n, by), largest)
        what = by_functions(NodeKind.KSTREAM_AGGREGATE, list, best, best.merge)
        return self._build("top", what, named, materialized)

    def _build(self, method: str, what: Aggregation, named: object, materialized: object) -> KTable[KR, Any]:
        name, how = named_option(method, Materialized, named, materialized)
        if what.view is not None and how.value_serde is not None and not is_plain_json(how.value_serde):
            raise TopologyError(
                "The store of built-in aggregates holds JSON: leave the value_serde out of Materialized."
            )
        return self._table(what, how, name)


class AggregatingByRecord(Aggregating[K, V, KR]):
    """Aggregations that take one record after the other; sessions also need a merger."""

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        aggregator: Aggregator[V, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[KR, R]: ...

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        aggregator: KeyAggregator[K, V, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[KR, R]: ...

    @overload
    def aggregate(
        self, *, named: Name = None, materialized: Store = None, **built_in: Aggregate
    ) -> KTable[KR, dict[str, Any]]: ...

    def aggregate(  # type: ignore[misc]  # no built-in aggregate can have the name of an argument
        self,
        initializer: Initializer[R] | None = None,
        aggregator: Aggregator[V, R] | KeyAggregator[K, V, R] | None = None,
        named: Name = None,
        materialized: Store = None,
        **built_in: Aggregate,
    ) -> KTable[KR, Any]:
        """Aggregates the values of each key, with your own functions or with built-in aggregates.

        Examples::

            grouped.aggregate(lambda: 0, lambda value, total: total + value["price"])
            grouped.aggregate(flights=agg.count(), mean_delay=agg.mean("dep_delay"))

        Args:
            initializer: Returns the aggregate before the first value.
            aggregator: `aggregator(value, aggregate)` or `aggregator(key, value, aggregate)` returns the new aggregate;
                None deletes the key.
            named: Name of the operator.
            materialized: Name, serdes and settings of the store.
            **built_in: Aggregates over fields of the values, by their names in the result, which is a JSON object. Use those of
                `agg`, or objects of your own `Aggregate` class. The engine parses only these fields of JSON values.

        Raises:
            TopologyError: Neither or both forms are given, or a function has the wrong number of arguments.
        """
        functions_given = (initializer is not None) + (aggregator is not None)
        if functions_given not in (0, 2) or bool(functions_given) == bool(built_in):
            raise TopologyError(
                "aggregate takes either an initializer and an aggregator, or built-in aggregates by name: "
                "aggregate(n=agg.count(), delay=agg.mean('delay'))."
            )
        if initializer is not None and aggregator is not None:
            what = by_functions(
                NodeKind.KSTREAM_AGGREGATE,
                functions.initializer(initializer),
                functions.aggregator(aggregator),
                value_type=aggregate_type(initializer, aggregator),
            )
        else:
            what = of_fields(built_in)
        return self._build("aggregate", what, named, materialized)
