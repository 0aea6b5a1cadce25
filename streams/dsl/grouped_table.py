"""``KGroupedTable``: what ``KTable.group_by`` gives, and its aggregations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from streams.dsl import functions
from streams.dsl.graph_builder import GraphBuilder, Port
from streams.dsl.materialize import key_value_store, table_names
from streams.dsl.options import Grouped, Materialized, NameLike, plain_name
from streams.operators.table_aggregate import TableAggregate
from streams.serdes.base import Serde
from streams.serdes.change import ChangeSerde
from streams.serdes.primitives import Int64Serde

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


class KGroupedTable:
    """A table grouped anew: aggregate it into another one.

    A row that changes is first subtracted from its old group, then added to its new one, so every aggregation needs both
    directions. The rows pass a repartition topic, since groups lie in other tasks than the rows they are made of.
    """

    def __init__(self, graph: GraphBuilder, port: Port, grouped: Grouped) -> None:
        self._graph = graph
        self._port = port
        self._grouped = grouped
        self._placed: Port | None = None

    def count(self, named: NameLike = None, materialized: Materialized | None = None) -> KTable:
        """Number of rows of each group, as a 64-bit integer; a group that loses its last row stays, with 0."""
        return self._table("KTABLE-AGGREGATE", _zero, _plus_one, _minus_one, Int64Serde(), named, materialized)

    def reduce(
        self,
        adder: functions.Function,
        subtractor: functions.Function,
        named: NameLike = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Combines the values of each group: ``adder(aggregate, value)`` and its inverse ``subtractor``.

        The first value of a group is taken as it is.
        """
        add, subtract = functions.reducer(adder), functions.reducer(subtractor)
        return self._table("KTABLE-REDUCE", None, add, subtract, self._value_serde, named, materialized)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: functions.Function,
        subtractor: functions.Function,
        named: NameLike = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Aggregates the values of each group.

        Args:
            initializer: gives the aggregate of an empty group.
            adder: gives the aggregate with one more value, ``adder(value, aggregate)`` or ``adder(key, value,
                aggregate)``; None deletes it.
            subtractor: the same with a value that is no longer there.
            named: name of the operator.
            materialized: name, serdes and settings of the store.
        """
        initial = functions.initializer(initializer)
        add, subtract = functions.aggregator(adder), functions.aggregator(subtractor)
        return self._table("KTABLE-AGGREGATE", initial, add, subtract, None, named, materialized)

    @property
    def _value_serde(self) -> Serde:
        return self._graph.value_serde(self._grouped.value_serde, self._port.value_serde)

    def _table(
        self,
        kind: str,
        initializer: Callable[[], Any] | None,
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        value_serde: Serde | None,
        named: NameLike,
        materialized: Materialized | None,
    ) -> KTable:
        from streams.dsl.ktable import KTable

        graph, how = self._graph, materialized or Materialized()
        key_serde = graph.key_serde(self._grouped.key_serde, self._port.key_serde, how.key_serde)
        if self._placed is None:
            change_serde = ChangeSerde(self._value_serde)
            self._placed = graph.colocated(self._port, self._grouped.name, key_serde, change_serde)
        stored_serde = graph.value_serde(how.value_serde, value_serde)
        name, store = table_names(kind, self._placed.lineage, plain_name(named), how, ())
        graph.store(key_value_store(store, how), how.key_serde or key_serde, stored_serde)
        port = graph.stateful(
            kind,
            self._placed,
            partial(TableAggregate, store, initializer, adder, subtractor, caching=how.caching),
            name,
            stores=(store,),
            input_key_serde=key_serde,
            key_serde=key_serde,
            value_serde=stored_serde,
        )
        return KTable(graph, port, store)


def _zero() -> int:
    return 0


def _plus_one(key: Any, value: Any, aggregate: int) -> int:
    return aggregate + 1


def _minus_one(key: Any, value: Any, aggregate: int) -> int:
    return aggregate - 1
