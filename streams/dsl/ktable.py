"""``KTable``: the latest value of each key; a record is an update of it.

Functions of values may also take the key first, as for streams. What an operator of a table is not given a name for, it
does not keep: it is computed from the tables above when somebody looks it up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from streams.dsl import functions
from streams.dsl.build.abstract_stream import TableBase
from streams.dsl.build.dropped import add_dropped
from streams.dsl.build.foreign_key_join import join_foreign_key
from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.dsl.build.result_types import pair_types, result_type
from streams.dsl.build.suppress import add_suppress
from streams.dsl.build.table_join import join_tables
from streams.dsl.build.table_node import TableNode
from streams.dsl.build.table_steps import add_filter, add_map_values, add_transform_values
from streams.dsl.grouped_table import KGroupedTable
from streams.dsl.kstream import KStream
from streams.dsl.options import Grouped, Materialized, NameLike, option, plain_name
from streams.dsl.suppressed import Suppressed
from streams.errors import TopologyError
from streams.operators.table.table_group_by import TableGroupBy
from streams.operators.table.table_to_stream import TableToStream
from streams.operators.table.table_transform_values import ValueTransformer
from streams.operators.table.value_getter import JoinKind
from streams.serdes.base import Serde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import OperatorSpec


class KTable(TableBase):
    """A table that changes over time. Made by ``StreamsBuilder.table``, ``KStream.to_table`` and aggregations.

    A table that is read or made of a stream keeps no state until something needs to look it up (a join), needs to know
    its old values (``group_by``, left and outer joins), or it was given a name (``Materialized(name=...)``): until then
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
        self._graph = graph
        self._port = port
        self._node = node or TableNode(
            graph, (port.node,), store, materialize, from_stored=from_stored, history_ms=history_ms
        )

    @property
    def store_name(self) -> str | None:
        """Its store, as interactive queries and ``streams state`` know it; None while it has none."""
        return self._node.store

    # Rows one by one --------------------------------------------------------------------------------------------------

    def filter(
        self, predicate: functions.Function, named: NameLike = None, materialized: Materialized | None = None
    ) -> KTable:
        """Keeps the rows for which the predicate holds; a row that ceases to match is deleted downstream.

        ``KTable[K, V]`` to ``KTable[K, V]``; deletions are not shown to the predicate. Time and headers: the update's.

        Raises:
            TopologyError: the function takes another number of arguments, or the name is taken.

        Source: Kafka Streams' ``KTableFilter``.
        """
        return self._filter(predicate, named, materialized, negate=False)

    def filter_not(
        self, predicate: functions.Function, named: NameLike = None, materialized: Materialized | None = None
    ) -> KTable:
        """Leaves out the rows for which the predicate holds; otherwise as ``filter``.

        Source: Kafka Streams' ``KTableFilter``.
        """
        return self._filter(predicate, named, materialized, negate=True)

    def _filter(
        self, predicate: functions.Function, named: NameLike, materialized: Materialized | None, *, negate: bool
    ) -> KTable:
        fn = functions.key_value(predicate, "predicate")
        port, node = add_filter(
            self._port, self._node, fn, negate, plain_name(named), option(materialized, Materialized)
        )
        return KTable(self._graph, port, node=node)

    def map_values(
        self, mapper: functions.Function, named: NameLike = None, materialized: Materialized | None = None
    ) -> KTable:
        """Makes a new value of each row's; not called for deletions. A None that it gives deletes the row.

        ``KTable[K, V]`` to ``KTable[K, V2]``. Time and headers: the update's.

        Raises:
            TopologyError: the function takes another number of arguments, or the name is taken.

        Source: Kafka Streams' ``KTableMapValues``.
        """
        fn = functions.key_value(mapper, "value mapper")
        port, node = add_map_values(self._port, self._node, fn, plain_name(named), option(materialized, Materialized))
        return KTable(self._graph, port, node=node)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer],
        stores: Sequence[str] = (),
        named: NameLike = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Makes a new value of each row's with a ``ValueTransformer`` of yours, which may keep state.

        ``KTable[K, V]`` to ``KTable[K, V2]``. It is called once for each update, also for deletions. Time and headers: the
        update's.

        Args:
            supplier: makes a new transformer on each call; a subclass of ``ValueTransformer`` will do.
            stores: names of stores added with ``StreamsBuilder.add_state_store``.
            named: name of the node; needed where two transformers have the same input.
            materialized: name and settings of the result's store.

        Raises:
            TopologyError: ``supplier`` makes no transformers, or a store is unknown.

        Source: Kafka Streams' ``KTableTransformValues``.
        """
        how = option(materialized, Materialized)
        port, node = add_transform_values(self._port, self._node, supplier, stores, plain_name(named), how)
        return KTable(self._graph, port, node=node)

    def to_stream(self, named: NameLike = None) -> KStream:
        """The table's updates as a stream; a deleted key gives a null value.

        ``KTable[K, V]`` to ``KStream[K, V]``. Source: Kafka Streams' ``KTableImpl.toStream``.
        """
        port = self._graph.stateless(
            OperatorSpec(NodeKind.KTABLE_TOSTREAM, TableToStream), self._port, plain_name(named)
        )
        return KStream(self._graph, port)

    def suppress(self, suppressed: Suppressed, named: NameLike = None) -> KTable:
        """Holds updates back until their window closes, or for a time: see ``Suppressed``.

        Raises:
            TopologyError: until the window closes, but there are no windows; or the table is versioned.
        """
        port, node = add_suppress(self._port, self._node, suppressed, plain_name(named))
        return KTable(self._graph, port, node=node)

    def dropped(self, named: NameLike = None) -> KStream:
        """What the operator that made this table dropped, with the reason in a header; see ``KStream.dropped``."""
        return KStream(self._graph, add_dropped(self._graph, self._port, plain_name(named)))

    # Groups -----------------------------------------------------------------------------------------------------------

    def group_by(
        self, selector: functions.Function, grouped: Grouped | None = None, named: NameLike = None
    ) -> KGroupedTable:
        """Groups the rows anew: ``selector(key, value)`` gives the group's key and the value that counts there.

        A row whose group key or value is None is in no group. The table keeps its old values from here on, since a row
        that changes is first taken out of the group it was in.
        """
        fn = functions.key_value(selector, "group selector")
        self._node.send_old_values(True)
        supplier = partial(TableGroupBy, fn, self._node.versioned)
        key_type, value_type = pair_types(result_type(selector, self._port.key_serde, self._port.value_serde))
        port = self._graph.stateless(
            OperatorSpec(NodeKind.KTABLE_SELECT, supplier),
            self._port,
            plain_name(named),
            new_key=True,
            new_value=True,
            key_type=key_type,
            value_type=value_type,
        )
        return KGroupedTable(self._graph, port, option(grouped, Grouped))

    # Joins ------------------------------------------------------------------------------------------------------------

    def join(
        self,
        other: KTable,
        joiner: functions.Function,
        foreign_key: functions.Function | None = None,
        named: NameLike = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Joins with another table, by key or by a foreign key; a row exists while both sides have one.

        ``KTable[K, V]`` and ``KTable[K, V2]`` (by a foreign key: ``KTable[K2, V2]``) to ``KTable[K, V3]``. Time: the larger
        of both sides'; by a foreign key, if the right side changed, its own. Source: Kafka Streams' ``KTableKTableInnerJoin``,
        KIP-213.

        Args:
            other: the other table.
            joiner: ``joiner(left, right)`` or ``joiner(key, left, right)``.
            foreign_key: gives of each row of this table the key to look up in the other, ``foreign_key(value)`` or
                ``foreign_key(key, value)``; None: both tables have the same keys.
            named: name of the join.
            materialized: name and settings of the result's store.

        Raises:
            TopologyError: the other is no table of this builder, or (without a foreign key) keyed by another serde.
        """
        return self._join(other, joiner, "inner", foreign_key, named, materialized)

    def left_join(
        self,
        other: KTable,
        joiner: functions.Function,
        foreign_key: functions.Function | None = None,
        named: NameLike = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """As ``join``, but every row of this table has one; the joiner gets None where the other has nothing.

        With a foreign key, a row whose foreign key is None is joined with None (KIP-962). Source: Kafka Streams'
        ``KTableKTableLeftJoin``, KIP-213.
        """
        return self._join(other, joiner, "left", foreign_key, named, materialized)

    def outer_join(
        self,
        other: KTable,
        joiner: functions.Function,
        named: NameLike = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """As ``join`` by key, but a row exists while either side has one; the joiner gets None for the other.

        Source: Kafka Streams' ``KTableKTableOuterJoin``.
        """
        return self._join(other, joiner, "outer", None, named, materialized)

    def _join(
        self,
        other: KTable,
        joiner: functions.Function,
        kind: JoinKind,
        foreign_key: functions.Function | None,
        named: NameLike,
        materialized: Materialized | None,
    ) -> KTable:
        if not isinstance(other, KTable) or other._graph is not self._graph:
            what = "another StreamsBuilder's" if isinstance(other, KTable) else f"{type(other).__name__}, no"
            raise TopologyError(f"A table joins with a KTable of its own StreamsBuilder; this is {what} table.")
        how, fn, name = option(materialized, Materialized), functions.joiner(joiner), plain_name(named)
        left, right = (self._port, self._node), (other._port, other._node)
        if foreign_key is None:
            port, node = join_tables(left, right, fn, kind, name, how)
            return KTable(self._graph, port, node=node)
        extractor = functions.key_value(foreign_key, "foreign key")
        port, node = join_foreign_key(left, right, extractor, fn, kind, name, how)
        return KTable(self._graph, port, node=node)

    # For the operators around tables ------------------------------------------------------------------------------------

    @property
    def _key_serde(self) -> Serde:
        return self._graph.key_serde(self._port.key_serde)

    def _enable_old_values(self) -> None:
        """Makes the updates hold the value before; keeps a table above, if that is what it takes."""
        self._node.send_old_values(True)
