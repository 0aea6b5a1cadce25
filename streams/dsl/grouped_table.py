"""`KGroupedTable`: the result of `KTable.group_by`, and its aggregations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, overload

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl import functions
from streams.dsl.arguments import named_option
from streams.dsl.facade import Facade
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import key_value_store, table_names
from streams.dsl.nodes.result_types import aggregate_type
from streams.dsl.nodes.table_steps import checked_top
from streams.dsl.options import Grouped, Materialized, NameLike
from streams.model.typing import Aggregator, Initializer, K, KeyAggregator, R, Reducer, V, ValueMapper
from streams.serdes.base import Serde
from streams.serdes.change import ChangeSerde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import BytesSerde, Int64Serde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.tables import TableAggregateSpec, TableTopSpec

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


class KGroupedTable(Facade, Generic[K, V]):
    """A table whose rows are grouped by a new key, to aggregate into another table.

    A row that changes is first subtracted from its old group and then added to its new one, so every aggregation needs both
    functions. The rows go through a repartition topic, since a group may belong to another task than its rows.
    """

    def __init__(self, graph: GraphBuilder, port: Port, grouped: Grouped) -> None:
        self._graph = graph
        self._port = port
        self._grouped = grouped
        self._placed: Port | None = None

    def count(
        self, named: NameLike | Materialized[K, int] = None, materialized: Materialized[K, int] | NameLike = None
    ) -> KTable[K, int]:
        """Counts the rows of each group, as a 64-bit integer; a group that loses its last row stays, with a count of 0.

        The result is a `KTable[K2, int]`, whose timestamps are the largest of the group's updates. Source: Kafka Streams'
        `KTableAggregate`.
        """
        return self._table(
            "count", NodeKind.KTABLE_AGGREGATE, _zero, _plus_one, _minus_one, Int64Serde(), named, materialized
        )

    def reduce(
        self,
        adder: Reducer[V],
        subtractor: Reducer[V],
        named: NameLike | Materialized[K, V] = None,
        materialized: Materialized[K, V] | NameLike = None,
    ) -> KTable[K, V]:
        """Combines the values of each group with `adder(aggregate, value)` and its inverse, `subtractor(aggregate, value)`.

        The first value of a group becomes its first aggregate. The result is a `KTable[K2, V]`, whose timestamps are the largest of
        the group's updates.

        Raises:
            TopologyError: A function takes another number of arguments.

        Source: Kafka Streams' `KTableReduce`.
        """
        add, subtract = functions.reducer(adder), functions.reducer(subtractor)
        return self._table(
            "reduce", NodeKind.KTABLE_REDUCE, None, add, subtract, self._value_serde, named, materialized
        )

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        adder: Aggregator[V, R],
        subtractor: Aggregator[V, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        adder: KeyAggregator[K, V, R],
        subtractor: KeyAggregator[K, V, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    def aggregate(
        self,
        initializer: Initializer[R],
        adder: Aggregator[V, R] | KeyAggregator[K, V, R],
        subtractor: Aggregator[V, R] | KeyAggregator[K, V, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]:
        """Aggregates the values of each group.

        Args:
            initializer: Returns the aggregate of an empty group.
            adder: `adder(value, aggregate)` or `adder(key, value, aggregate)` returns the aggregate with the value added; None
                deletes the group.
            subtractor: The inverse: returns the aggregate with the value removed.
            named: Name of the operator.
            materialized: Name, serdes and settings of the store.
        """
        initial = functions.initializer(initializer)
        add, subtract = functions.aggregator(adder), functions.aggregator(subtractor)
        value_serde = self._graph.serde_of_values(aggregate_type(initializer, adder, subtractor))
        return self._table(
            "aggregate", NodeKind.KTABLE_AGGREGATE, initial, add, subtract, value_serde, named, materialized
        )

    def top(
        self,
        n: int,
        by: ValueMapper[V, Any],
        largest: bool = True,
        named: NameLike | Materialized[K, list[V]] = None,
        materialized: Materialized[K, list[V]] | NameLike = None,
    ) -> KTable[K, list[V]]:
        """Ranks the rows of each group and returns the values of the best n as a list, best first, as rows come, change and go.

        All rows of a group are stored in the order of their scores, so that the next row moves up when another is deleted.

        Args:
            n: The length of the list.
            by: `by(value)` returns the score, a number, compared as a 64-bit float; a row whose score is None is not ranked.
            largest: Whether the largest score is the best. Rows with equal scores are ordered by the bytes of their values.
            named: Name of the operator.
            materialized: Name, value serde and settings of the store, which holds the lists.

        Raises:
            TopologyError: `n` is not a positive whole number.
        """
        from streams.dsl.ktable import KTable

        score, graph = checked_top(n, by), self._graph
        operator_named, how = named_option("top", Materialized, named, materialized)
        placed, key_serde = self._placed_port(how)
        list_serde = graph.value_serde(how.value_serde)
        spec = TableTopSpec(n, largest, score, key_serde, self._value_serde, caching=how.caching)
        name, store = table_names(spec.kind, placed.lineage, operator_named, how, spec.parameters)
        graph.store(key_value_store(store, how), how.key_serde or key_serde, list_serde)
        rows = graph.store(
            StoreSpec(f"{store}-rows", StoreKind.KEY_VALUE, persistent=how.persistent, logged=how.logging),
            BytesSerde(),
            JsonSerde(),
        )
        port = graph.stateful(
            spec,
            placed,
            name,
            stores=(store, rows),
            input_key_serde=key_serde,
            key_serde=key_serde,
            value_serde=list_serde,
        )
        return KTable(graph, port, store)

    def _placed_port(self, how: Materialized) -> tuple[Port, Serde]:
        """The port behind the repartition topic, and the serde of the groups' keys."""
        graph = self._graph
        key_serde = graph.key_serde(self._grouped.key_serde, self._port.key_serde, how.key_serde)
        if self._placed is None:
            change_serde = ChangeSerde(self._value_serde)
            self._placed = graph.colocated(self._port, self._grouped.name, key_serde, change_serde)
        return self._placed, key_serde

    @property
    def _value_serde(self) -> Serde:
        return self._graph.value_serde(self._grouped.value_serde, self._port.value_serde)

    def _table(
        self,
        method: str,
        kind: NodeKind,
        initializer: Callable[[], Any] | None,
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        value_serde: Serde | None,
        named: object,
        materialized: object,
    ) -> KTable[K, Any]:
        from streams.dsl.ktable import KTable

        graph = self._graph
        operator, how = named_option(method, Materialized, named, materialized)
        placed, key_serde = self._placed_port(how)
        stored_serde = graph.value_serde(how.value_serde, value_serde)
        name, store = table_names(kind, placed.lineage, operator, how, ())
        graph.store(key_value_store(store, how), how.key_serde or key_serde, stored_serde)
        port = graph.stateful(
            TableAggregateSpec(kind, initializer, adder, subtractor, caching=how.caching),
            placed,
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
