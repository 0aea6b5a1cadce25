"""What grouped streams and windowed ones have in common: their aggregations, in all their forms.

An aggregation is described once (`streams.dsl.build.aggregation`); what differs between plain groups and windows (store, key,
operator) is left to the one abstract method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streams.dsl import functions
from streams.dsl.build.aggregation import Aggregation, by_functions, counting, of_fields, reduction
from streams.dsl.build.top import TopAggregator, checked_top
from streams.dsl.facade import GroupFacade
from streams.dsl.options import Materialized, NameLike, option, plain_name
from streams.errors import TopologyError
from streams.model.aggregates import Aggregate, agg
from streams.serdes.json import is_plain_json
from streams.serdes.primitives import Int64Serde
from streams.topology.node_kind import NodeKind

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


class Aggregating(GroupFacade, ABC):
    """Aggregations of a grouped stream; each gives a table."""

    @abstractmethod
    def _table(self, what: Aggregation, how: Materialized, name: str | None) -> KTable:
        """Adds store and operator."""

    def count(self, named: NameLike = None, materialized: Materialized | None = None) -> KTable:
        """Number of records of each key, as a 64-bit integer.

        ``KTable[K, int]``; null keys are dropped, null values too without windows and in sliding ones. Time: the largest of
        the records'. Source: Kafka Streams' ``KStreamAggregate``.
        """
        return self._build(counting(Int64Serde()), named, materialized)

    def reduce(
        self, reducer: functions.Function, named: NameLike = None, materialized: Materialized | None = None
    ) -> KTable:
        """Combines the values of each key with ``reducer(aggregate, value)``; the first value is taken as it is.

        ``KTable[K, V]``; null and time rules as for ``count``. A None that it gives deletes.

        Raises:
            TopologyError: the function takes another number of arguments.

        Source: Kafka Streams' ``KStreamReduce``.
        """
        what = reduction(functions.reducer(reducer), functions.merger(reducer))
        return self._build(what, named, materialized)

    def sum(self, field: str, named: NameLike = None, materialized: Materialized | None = None) -> KTable:
        """Sum of a field; short for ``aggregate(sum=agg.sum(field))``."""
        return self._build(of_fields({"sum": agg.sum(field)}), named, materialized)

    def min(self, field: str, named: NameLike = None, materialized: Materialized | None = None) -> KTable:
        """Smallest number in a field; short for ``aggregate(min=agg.min(field))``."""
        return self._build(of_fields({"min": agg.min(field)}), named, materialized)

    def max(self, field: str, named: NameLike = None, materialized: Materialized | None = None) -> KTable:
        """Largest number in a field; short for ``aggregate(max=agg.max(field))``."""
        return self._build(of_fields({"max": agg.max(field)}), named, materialized)

    def mean(self, field: str, named: NameLike = None, materialized: Materialized | None = None) -> KTable:
        """Mean of a field; short for ``aggregate(mean=agg.mean(field))``."""
        return self._build(of_fields({"mean": agg.mean(field)}), named, materialized)

    def _build(self, what: Aggregation, named: NameLike, materialized: Materialized | None) -> KTable:
        how = option(materialized, Materialized)
        if what.view is not None and how.value_serde is not None and not is_plain_json(how.value_serde):
            raise TopologyError(
                "The store of built-in aggregates holds JSON: leave the value_serde out of Materialized."
            )
        return self._table(what, how, plain_name(named))


class AggregatingByRecord(Aggregating):
    """Aggregations that take one record after the other; those of sessions must also merge."""

    def aggregate(
        self,
        initializer: Callable[[], Any] | None = None,
        aggregator: functions.Function | None = None,
        named: NameLike = None,
        materialized: Materialized | None = None,
        **built_in: Aggregate,
    ) -> KTable:
        """Aggregates the values of each key, with functions of yours or with built-in ones.

        Examples::

            grouped.aggregate(lambda: 0, lambda value, total: total + value["price"])
            grouped.aggregate(flights=agg.count(), mean_delay=agg.mean("dep_delay"))

        Args:
            initializer: gives the aggregate before the first value.
            aggregator: gives the new aggregate; ``aggregator(value, aggregate)`` or ``aggregator(key, value,
                aggregate)``. None deletes it.
            named: name of the operator.
            materialized: name, serdes and settings of the store.
            **built_in: aggregates over fields of the values, by the name they have in the result, a JSON object: those of ``agg``,
                or objects of an ``Aggregate`` class of yours. Of JSON values the engine reads only those fields.

        Raises:
            TopologyError: neither or both forms are given, or a function has the wrong number of arguments.
        """
        functions_given = (initializer is not None) + (aggregator is not None)
        if functions_given not in (0, 2) or bool(functions_given) == bool(built_in):
            raise TopologyError(
                "aggregate takes either an initializer and an aggregator, or built-in aggregates by name: "
                "aggregate(n=agg.count(), delay=agg.mean('delay'))."
            )
        if initializer is not None and aggregator is not None:
            what = by_functions(
                NodeKind.KSTREAM_AGGREGATE, functions.initializer(initializer), functions.aggregator(aggregator)
            )
        else:
            what = of_fields(built_in)
        return self._build(what, named, materialized)

    def top(
        self,
        n: int,
        by: functions.Function,
        largest: bool = True,
        named: NameLike = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """The best n values of each key (and window), as a list, the best first.

        Args:
            n: how many.
            by: ``by(value)`` gives the score, a number; a value whose score is None is not ranked.
            largest: whether the largest score is the best. Among equal scores the earlier value is ahead.
            named: name of the operator.
            materialized: name, serdes and settings of the store, which holds the lists.

        Raises:
            TopologyError: n is not a positive whole number.
        """
        what = by_functions(NodeKind.KSTREAM_AGGREGATE, list, TopAggregator(n, checked_top(n, by), largest))
        return self._build(what, named, materialized)
