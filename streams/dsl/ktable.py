"""`KTable`: the latest value of each key; each record updates one row.

Functions of values may also take the key first, as for streams. The result of an operator without a name is not stored, but
computed from the tables above at each look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import named_option, names, operator_name
from streams.dsl.grouped_table import KGroupedTable
from streams.dsl.kstream import KStream
from streams.dsl.ktable_joins import TableJoinMixin
from streams.dsl.lake.mixin import LakeMixin, Mode
from streams.dsl.nodes.dropped import add_dropped
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.result_types import check_fields, pair_types, result_type
from streams.dsl.nodes.suppress import add_suppress
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.nodes.table_steps import add_filter, add_map_values, add_transform_values
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


class KTable(TableJoinMixin[K, V], LakeMixin, Generic[K, V]):
    """A table that changes over time, made by `StreamsBuilder.table`, `KStream.to_table` and aggregations.

    A table that is read from a topic or made from a stream has a store only if a join looks rows up, if old values are needed
    (`group_by`, left and outer joins), or if the store has a name (`Materialized(name=...)`). Otherwise, updates only
    pass through.
    """

    _mode: ClassVar[Mode] = "upsert"

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
        """The name of the table's store, for interactive queries and `streams state`; None if there is no store so far."""
        return self._node.store

    # Single rows ------------------------------------------------------------------------------------------------------

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
        """Keeps the rows for which the predicate is true; a row that no longer matches is deleted downstream.

        `KTable[K, V]` to `KTable[K, V]`. The predicate is not called for deletions. Timestamp and headers are the update's.

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
        """Removes the rows for which the predicate is true; otherwise like `filter`.

        Source: Kafka Streams' `KTableFilter`.
        """
        return self._filter("filter_not", predicate, named, materialized, negate=True)

    def _filter(
        self, method: str, predicate: functions.Function, named: object, materialized: object, *, negate: bool
    ) -> KTable[K, V]:
        check_fields(predicate, self._port.node, self._port.value_serde)
        fn = functions.predicate(predicate)
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
        """Maps the value of each row to a new one; if the mapper returns None, the row is deleted.

        `KTable[K, V]` to `KTable[K, V2]`. The mapper is not called for deletions. Timestamp and headers are the update's.

        Raises:
            TopologyError: The function takes another number of arguments, or the name is taken.

        Source: Kafka Streams' `KTableMapValues`.
        """
        check_fields(mapper, self._port.node, self._port.value_serde)
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
        """Maps the value of each row with your own `ValueTransformer`, which may use state stores.

        `KTable[K, V]` to `KTable[K, V2]`. The transformer is called once for each update, including deletions. Timestamp and
        headers are the update's.

        Args:
            supplier: Returns a new transformer on each call; a subclass of `ValueTransformer` is enough.
            stores: Names of stores added with `StreamsBuilder.add_state_store`.
            named: The node's name; required if two transformers have the same input.
            materialized: Name and settings of the result's store.

        Raises:
            TopologyError: `supplier` does not return transformers, or a store is unknown.

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
        """Returns the table's updates as a stream; a deletion is a record with a null value.

        `KTable[K, V]` to `KStream[K, V]`; with a mapper to `KStream[K2, V]`, as if `select_key(mapper)` followed. For a
        windowed table: `to_stream(lambda windowed, value: windowed.key)`. Source: Kafka Streams' `KTableImpl.toStream`.

        Args:
            mapper: `mapper(key, value)` or `mapper(value)` returns the new key; or the operator's name.
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

    def _rows_port(self, named: NameLike) -> Port:
        spec = OperatorSpec(NodeKind.KTABLE_TOSTREAM, TableToStream)
        return self._graph.stateless(spec, self._port, f"{operator_name('to_delta', named)}-updates")

    def suppress(self, suppressed: Suppressed, named: NameLike = None) -> KTable[K, V]:
        """Delays updates until their window closes, or for a time; see `Suppressed`.

        Raises:
            TopologyError: The table has no windows whose close could be awaited, or is versioned.
        """
        name = operator_name("suppress", named)
        return self._table(*add_suppress(self._port, self._node, suppressed, name))

    def dropped(self, named: NameLike = None) -> KStream[Any, Any]:
        """Returns the records that this table's operator dropped, with the reason in a header; see `KStream.dropped`."""
        return KStream(self._graph, add_dropped(self._graph, self._port, operator_name("dropped", named)))

    # Groups -----------------------------------------------------------------------------------------------------------

    @overload
    def group_by(
        self,
        selector: KeyValueMapper[K, V, tuple[K2 | None, V2 | None] | None],
        grouped: Grouped[K2, V2] | NameLike = None,
        named: NameLike | Grouped[K2, V2] = None,
        **option: Unpack[GroupedKeywords[K2, V2]],
    ) -> KGroupedTable[K2, V2]: ...

    @overload
    def group_by(
        self,
        selector: ValueMapper[V, tuple[K2 | None, V2 | None] | None],
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
        """Groups the rows by a new key: `selector(key, value)` returns the group's key and the value to aggregate.

        A row for which the selector returns None, or a group key or value of None, belongs to no group. The
        table stores its rows from here on, because a row that changes must first be removed from its previous group.

        Args:
            selector: `selector(key, value)` or `selector(value)` returns a pair, or None.
            grouped: Serdes and name of the repartition topic; or just the name.
            named: Name of the operator that computes the key.
            **option: Fields of `Grouped`, passed directly.
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

    # For the other tables of a topology ---------------------------------------------------------------------------------

    @property
    def _key_serde(self) -> Serde:
        return self._graph.key_serde(self._port.key_serde)
