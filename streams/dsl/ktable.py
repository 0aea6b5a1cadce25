"""`KTable`: the latest value of each key; a record is an update of it.

Functions of values may also take the key first, as for streams. What an operator of a table is not given a name for, it
does not keep: it is computed from the tables above when somebody looks it up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import named_option, names, operator_name
from streams.dsl.build.dropped import add_dropped
from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.dsl.build.result_types import pair_types, result_type
from streams.dsl.build.suppress import add_suppress
from streams.dsl.build.table_node import TableNode
from streams.dsl.build.table_steps import add_filter, add_map_values, add_transform_values
from streams.dsl.grouped_table import KGroupedTable
from streams.dsl.kstream import KStream
from streams.dsl.ktable_joins import TableJoinMixin
from streams.dsl.options import Grouped, Materialized, NameLike
from streams.dsl.options.keywords import GroupedKeywords
from streams.dsl.suppressed import Suppressed
from streams.model.typing import K2, V2, K, KeyValueMapper, KeyValuePredicate, V, ValueMapper, ValuePredicate
from streams.operators.table.table_group_by import TableGroupBy
from streams.operators.table.table_to_stream import TableToStream
from streams.operators.table.table_transform_values import ValueTransformer
from streams.serdes.base import Serde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import OperatorSpec


class KTable(TableJoinMixin[K, V], Generic[K, V]):
    """A table that changes over time. Made by `StreamsBuilder.table`, `KStream.to_table` and aggregations.

    A table that is read or made of a stream keeps no state until something needs to look it up (a join), needs to know
    its old values (`group_by`, left and outer joins), or it was given a name (`Materialized(name=...)`): until then
    its updates only pass through.
    """

    def __init__(
        self,
        graph: GraphBuilder,
        port: Port,
        store: str | None = None,
        materialize: Callable[[], str] | None = None,
        from_stored: Callable[[Any], Any] | None = None,
        history_ms: int | None = None,
        node: TableNode | None = None,
    ) -> None:
        made = TableNode(graph, (port.node,), store, materialize, from_stored=from_stored, history_ms=history_ms)
        super().__init__(graph, port, node or made)

    @property
    def store_name(self) -> str | None:
        """Its store, as interactive queries and `streams state` know it; None while it has none."""
        return self._node.store

    # Rows one by one --------------------------------------------------------------------------------------------------

    @overload
    def filter(
        self,
        predicate: ValuePredicate[V],
        named: NameLike | Materialized[K, V] = None,
        materialized: Materialized[K, V] | NameLike = None,
    ) -> KTable[K, V]: ...

    @overload
    def filter(
        self,
        predicate: KeyValuePredicate[K, V],
        named: NameLike | Materialized[K, V] = None,
        materialized: Materialized[K, V] | NameLike = None,
    ) -> KTable[K, V]: ...

    def filter(
        self,
        predicate: ValuePredicate[V] | KeyValuePredicate[K, V],
        named: NameLike | Materialized[K, V] = None,
        materialized: Materialized[K, V] | NameLike = None,
    ) -> KTable[K, V]:
        """Keeps the rows for which the predicate holds; a row that ceases to match is deleted downstream.

        `KTable[K, V]` to `KTable[K, V]`; deletions are not shown to the predicate. Time and headers: the update's.

        Raises:
            TopologyError: The function takes another number of arguments, or the name is taken.

        Source: Kafka Streams' `KTableFilter`.
        """
        return self._filter("filter", predicate, named, materialized, negate=False)

    @overload
    def filter_not(
        self,
        predicate: ValuePredicate[V],
        named: NameLike | Materialized[K, V] = None,
        materialized: Materialized[K, V] | NameLike = None,
    ) -> KTable[K, V]: ...

    @overload
    def filter_not(
        self,
        predicate: KeyValuePredicate[K, V],
        named: NameLike | Materialized[K, V] = None,
        materialized: Materialized[K, V] | NameLike = None,
    ) -> KTable[K, V]: ...

    def filter_not(
        self,
        predicate: ValuePredicate[V] | KeyValuePredicate[K, V],
        named: NameLike | Materialized[K, V] = None,
        materialized: Materialized[K, V] | NameLike = None,
    ) -> KTable[K, V]:
        """Leaves out the rows for which the predicate holds; otherwise as `filter`.

        Source: Kafka Streams' `KTableFilter`.
        """
        return self._filter("filter_not", predicate, named, materialized, negate=True)

    def _filter(
        self, method: str, predicate: functions.Function, named: object, materialized: object, *, negate: bool
    ) -> KTable[K, V]:
        fn = functions.key_value(predicate, "predicate")
        name, how = named_option(method, Materialized, named, materialized)
        port, node = add_filter(self._port, self._node, fn, negate, name, how)
        return self._table(port, node)

    @overload
    def map_values(
        self,
        mapper: ValueMapper[V, V2 | None],
        named: NameLike | Materialized[K, V2] = None,
        materialized: Materialized[K, V2] | NameLike = None,
    ) -> KTable[K, V2]: ...

    @overload
    def map_values(
        self,
        mapper: KeyValueMapper[K, V, V2 | None],
        named: NameLike | Materialized[K, V2] = None,
        materialized: Materialized[K, V2] | NameLike = None,
    ) -> KTable[K, V2]: ...

    def map_values(
        self,
        mapper: ValueMapper[V, V2 | None] | KeyValueMapper[K, V, V2 | None],
        named: NameLike | Materialized[K, V2] = None,
        materialized: Materialized[K, V2] | NameLike = None,
    ) -> KTable[K, V2]:
        """Makes a new value of each row's; not called for deletions. A None that it gives deletes the row.

        `KTable[K, V]` to `KTable[K, V2]`. Time and headers: the update's.

        Raises:
            TopologyError: The function takes another number of arguments, or the name is taken.

        Source: Kafka Streams' `KTableMapValues`.
        """
        fn = functions.key_value(mapper, "value mapper")
        name, how = named_option("map_values", Materialized, named, materialized)
        value_type = result_type(mapper, self._port.key_serde, self._port.value_serde)
        return self._table(*add_map_values(self._port, self._node, fn, name, how, value_type))

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        stores: str | Sequence[str] = (),
        named: NameLike | Materialized[K, V2] = None,
        materialized: Materialized[K, V2] | NameLike = None,
    ) -> KTable[K, V2]:
        """Makes a new value of each row's with a `ValueTransformer` of yours, which may keep state.

        `KTable[K, V]` to `KTable[K, V2]`. It is called once for each update, also for deletions. Time and headers: the
        update's.

        Args:
            supplier: Makes a new transformer on each call; a subclass of `ValueTransformer` will do.
            stores: Names of stores added with `StreamsBuilder.add_state_store`.
            named: Name of the node; needed where two transformers have the same input.
            materialized: Name and settings of the result's store.

        Raises:
            TopologyError: `supplier` makes no transformers, or a store is unknown.

        Source: Kafka Streams' `KTableTransformValues`.
        """
        name, how = named_option("transform_values", Materialized, named, materialized)
        return self._table(*add_transform_values(self._port, self._node, supplier, names(stores), name, how))

    @overload
    def to_stream(self, mapper: NameLike = None, named: NameLike = None) -> KStream[K, V]: ...

    @overload
    def to_stream(self, mapper: KeyValueMapper[K, V, K2 | None], named: NameLike = None) -> KStream[K2, V]: ...

    @overload
    def to_stream(self, mapper: ValueMapper[V, K2 | None], named: NameLike = None) -> KStream[K2, V]: ...

    def to_stream(
        self,
        mapper: KeyValueMapper[K, V, Any] | ValueMapper[V, Any] | NameLike = None,
        named: NameLike = None,
    ) -> KStream[Any, V]:
        """The table's updates as a stream; a deleted key gives a null value.

        `KTable[K, V]` to `KStream[K, V]`, or to `KStream[K2, V]` with a mapper, as if `select_key(mapper)` followed: behind a
        windowed table `to_stream(lambda windowed, value: windowed.key)`. Source: Kafka Streams' `KTableImpl.toStream`.

        Args:
            mapper: Gives the new key, `mapper(key, value)` or `mapper(value)`; or the operator's name.
            named: Name of the operator.

        Raises:
            TopologyError: The function takes another number of arguments, or the name is taken.
        """
        selector = None
        if callable(mapper):
            selector, mapper = mapper, None
        name = operator_name("to_stream", mapper if named is None else named)
        port = self._graph.stateless(OperatorSpec(NodeKind.KTABLE_TOSTREAM, TableToStream), self._port, name)
        stream: KStream[Any, V] = KStream(self._graph, port)
        return stream if selector is None else stream.select_key(selector)

    def suppress(self, suppressed: Suppressed, named: NameLike = None) -> KTable[K, V]:
        """Holds updates back until their window closes, or for a time: see `Suppressed`.

        Raises:
            TopologyError: Until the window closes, but there are no windows; or the table is versioned.
        """
        name = operator_name("suppress", named)
        return self._table(*add_suppress(self._port, self._node, suppressed, name))

    def dropped(self, named: NameLike = None) -> KStream[Any, Any]:
        """What the operator that made this table dropped, with the reason in a header; see `KStream.dropped`."""
        return KStream(self._graph, add_dropped(self._graph, self._port, operator_name("dropped", named)))

    # Groups -----------------------------------------------------------------------------------------------------------

    @overload
    def group_by(
        self,
        selector: KeyValueMapper[K, V, tuple[K2 | None, V2 | None]],
        grouped: Grouped[K2, V2] | NameLike = None,
        named: NameLike | Grouped[K2, V2] = None,
        **option: Unpack[GroupedKeywords[K2, V2]],
    ) -> KGroupedTable[K2, V2]: ...

    @overload
    def group_by(
        self,
        selector: ValueMapper[V, tuple[K2 | None, V2 | None]],
        grouped: Grouped[K2, V2] | NameLike = None,
        named: NameLike | Grouped[K2, V2] = None,
        **option: Unpack[GroupedKeywords[K2, V2]],
    ) -> KGroupedTable[K2, V2]: ...

    def group_by(
        self,
        selector: functions.Function,
        grouped: Grouped[Any, Any] | NameLike = None,
        named: NameLike | Grouped[Any, Any] = None,
        **option: Any,
    ) -> KGroupedTable[Any, Any]:
        """Groups the rows anew: `selector(key, value)` gives the group's key and the value that counts there.

        A row whose group key or value is None is in no group. The table keeps its old values from here on, since a row
        that changes is first taken out of the group it was in.

        Args:
            selector: `selector(key, value)` or `selector(value)` gives a pair.
            grouped: Serdes and name of the repartition topic, or the name alone.
            named: Name of the operator that makes the key.
            **option: Fields of `Grouped`, given directly.
        """
        name, how = named_option("group_by", Grouped, named, grouped, option)
        fn = functions.key_value(selector, "group selector")
        self._node.send_old_values(True)
        supplier = partial(TableGroupBy, fn, self._node.versioned)
        key_type, value_type = pair_types(result_type(selector, self._port.key_serde, self._port.value_serde))
        port = self._graph.stateless(
            OperatorSpec(NodeKind.KTABLE_SELECT, supplier),
            self._port,
            name,
            new_key=True,
            new_value=True,
            key_type=key_type,
            value_type=value_type,
        )
        return KGroupedTable(self._graph, port, how)

    # For the operators around tables ------------------------------------------------------------------------------------

    @property
    def _key_serde(self) -> Serde:
        return self._graph.key_serde(self._port.key_serde)

    def _enable_old_values(self) -> None:
        """Makes the updates hold the value before; keeps a table above, if that is what it takes."""
        self._node.send_old_values(True)
