"""`KTable`: the latest value of each key; each record updates one row. And `GlobalKTable`: every task has a full copy.

Functions of values may also take the key first, as for streams; they are not called for deletions. Results have the timestamp and
the headers of the update. Methods take `named`, the name of the operator, and `materialized`, the name, serdes and settings of the
store. Both are optional, and a plain name is accepted for either. The result of an operator without a name is not stored, but
computed from the tables above at each look-up.

The overloads of joins tell type checkers which types a joiner receives: in a left join the right value may be None, in an outer
join either value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeAlias, cast, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import named_option, names, operator_name
from streams.dsl.facade import AbstractStream, JoinCall
from streams.dsl.grouped import KGroupedTable
from streams.dsl.kstream import KStream
from streams.dsl.lake import LakeMixin, Mode
from streams.dsl.nodes.aggregations import kind_of
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.inferred_types import check_fields, pair_types, result_type
from streams.dsl.nodes.processing import add_dropped
from streams.dsl.nodes.stream_joins import join_global, join_table
from streams.dsl.nodes.table_joins import join_foreign_key, join_tables
from streams.dsl.nodes.tables import TableNode, add_filter, add_map_values, add_transform_values
from streams.dsl.options import Grouped, GroupedKeywords, Groups, Materialized, NameLike, Stored
from streams.dsl.suppressed import Suppressed, add_suppress, shared_windows
from streams.errors import TopologyError
from streams.model.expressions import Expression, ValueFields
from streams.model.record import Windowed
from streams.model.typing import (
    K2,
    KO,
    V2,
    VO,
    K,
    KeyValueJoiner,
    KeyValueMapper,
    KeyValuePredicate,
    R,
    V,
    ValueJoiner,
    ValueMapper,
    ValuePredicate,
)
from streams.operators.late import TableGroupBy, TableRanks, TableToStream
from streams.operators.processor import ValueTransformer
from streams.operators.table.value_getter import JoinKind
from streams.topology.graph import GlobalTable
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import OperatorSpec
from streams.wording import described

InGroup: TypeAlias = tuple[K2 | None, V2 | None] | None
"""Key and value of a row in its group. None, or a None in its place: the row belongs to no group."""


class KTable(LakeMixin, Generic[K, V]):
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
        from_stored: Callable[[Any], Any] | None = None,
        node: TableNode | None = None,
    ) -> None:
        self._graph = graph
        self._port = port
        self._node = node or TableNode(graph, (port.node,), store, from_stored=from_stored)

    @property
    def store_name(self) -> str | None:
        """The name of the table's store, for interactive queries and `streams state`; None if there is no store so far."""
        return self._node.store

    # Single rows ------------------------------------------------------------------------------------------------------

    @overload
    def filter(
        self, predicate: ValuePredicate[V], named: Stored[K, V] = None, materialized: Stored[K, V] = None
    ) -> KTable[K, V]: ...
    @overload
    def filter(
        self, predicate: KeyValuePredicate[K, V], named: Stored[K, V] = None, materialized: Stored[K, V] = None
    ) -> KTable[K, V]: ...
    def filter(
        self, predicate: functions.Function, named: Stored[K, V] = None, materialized: Stored[K, V] = None
    ) -> KTable[K, V]:
        """Keeps the rows for which the predicate is true; a row that no longer matches is deleted downstream.

        Source: Kafka Streams' `KTableFilter`.
        """
        return self._filter("filter", predicate, named, materialized, negate=False)

    @overload
    def filter_not(
        self, predicate: ValuePredicate[V], named: Stored[K, V] = None, materialized: Stored[K, V] = None
    ) -> KTable[K, V]: ...
    @overload
    def filter_not(
        self, predicate: KeyValuePredicate[K, V], named: Stored[K, V] = None, materialized: Stored[K, V] = None
    ) -> KTable[K, V]: ...
    def filter_not(
        self, predicate: functions.Function, named: Stored[K, V] = None, materialized: Stored[K, V] = None
    ) -> KTable[K, V]:
        """Removes the rows for which the predicate is true; otherwise like `filter`."""
        return self._filter("filter_not", predicate, named, materialized, negate=True)

    def _filter(
        self, method: str, predicate: functions.Function, named: object, materialized: object, *, negate: bool
    ) -> KTable[K, V]:
        check_fields(predicate, self._port.node, self._port.value_serde)
        name, how = named_option(method, Materialized, named, materialized)
        return self._table(*add_filter(self._port, self._node, functions.predicate(predicate), negate, name, how))

    @overload
    def map_values(
        self, mapper: ValueMapper[V, V2 | None], named: Stored[K, V2] = None, materialized: Stored[K, V2] = None
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self, mapper: KeyValueMapper[K, V, V2 | None], named: Stored[K, V2] = None, materialized: Stored[K, V2] = None
    ) -> KTable[K, V2]: ...
    def map_values(
        self, mapper: functions.Function, named: Stored[K, V2] = None, materialized: Stored[K, V2] = None
    ) -> KTable[K, V2]:
        """Maps the value of each row to a new one; if the mapper returns None, the row is deleted.

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
        named: Stored[K, V2] = None,
        materialized: Stored[K, V2] = None,
    ) -> KTable[K, V2]:
        """Maps the value of each row with your own `ValueTransformer`, which may use state stores.

        The transformer is called once for each update, including deletions.

        Args:
            supplier: Returns a new transformer on each call; a subclass of `ValueTransformer` is enough.
            stores: Names of stores added with `StreamsBuilder.add_state_store`.
            named: The node's name; required if two transformers have the same input.
            materialized: Name and settings of the result's store.

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
    def to_stream(self, mapper: functions.Function | NameLike = None, named: NameLike = None) -> KStream[Any, V]:
        """Returns the table's updates as a stream; a deletion is a record with a null value.

        With a mapper, keys are what `mapper(value)` or `mapper(key, value)` returns, as if `select_key(mapper)` followed. For a
        windowed table: `to_stream(lambda windowed, value: windowed.key)`. Source: Kafka Streams' `KTableImpl.toStream`.
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
        """Delays updates until their window closes, or for a time, as `Suppressed` describes. The table must not be versioned."""
        name = operator_name("suppress", named)
        return self._table(*add_suppress(self._port, self._node, suppressed, name))

    def dropped(self, named: NameLike = None) -> KStream[Any, Any]:
        """Returns the records that this table's operator dropped, with the reason in a header, as `KStream.dropped` does."""
        return KStream(self._graph, add_dropped(self._graph, self._port, operator_name("dropped", named)))

    # Groups -----------------------------------------------------------------------------------------------------------

    # fmt: off
    @overload
    def group_by(self, selector: Expression | ValueFields, grouped: Groups[Any, V] = None,
                 named: Groups[Any, V] = None, **option: Unpack[GroupedKeywords[Any, V]]) -> KGroupedTable[Any, V]: ...
    @overload
    def group_by(self, selector: KeyValueMapper[K, V, InGroup[K2, V2]], grouped: Groups[K2, V2] = None,
                 named: Groups[K2, V2] = None, **option: Unpack[GroupedKeywords[K2, V2]]) -> KGroupedTable[K2, V2]: ...
    @overload
    def group_by(self, selector: ValueMapper[V, InGroup[K2, V2]], grouped: Groups[K2, V2] = None,
                 named: Groups[K2, V2] = None, **option: Unpack[GroupedKeywords[K2, V2]]) -> KGroupedTable[K2, V2]: ...
    # fmt: on
    def group_by(
        self, selector: functions.Function, grouped: Groups = None, named: Groups = None, **option: Any
    ) -> KGroupedTable[Any, Any]:
        """Groups the rows by a new key: `selector(key, value)` returns the group's key and the value to aggregate.

        If the selector is an expression or `fields(...)`, it computes the key, and the value to aggregate is the whole row:
        `table.group_by(col("category"))`.

        A row belongs to no group if the selector returns None, or None for the group's key or the value. The table stores its rows
        from here on, because a row that changes must first be removed from its previous group. `grouped` has the serdes and the
        name of the repartition topic; `named` is the name of the operator that computes the key.
        """
        name, how = named_option("group_by", Grouped, named, grouped, option)
        row_stays = isinstance(selector, Expression | ValueFields)
        check_fields(selector, self._port.node, self._port.value_serde)
        of_key = functions.key_value(selector, "group selector")
        fn = functions.with_row(of_key) if row_stays else of_key
        self._node.send_old_values(True)
        spec = OperatorSpec(NodeKind.KTABLE_SELECT, partial(TableGroupBy, fn, self._node.versioned), several=True)
        kind = result_type(selector, self._port.key_serde, self._port.value_serde)
        types = (kind, None) if row_stays else pair_types(kind)
        port = self._graph.stateless(spec, self._port, name, new_key=True, new_value=not row_stays, types=types)
        return KGroupedTable(self._graph, port, how)

    # fmt: off
    @overload
    def group_by_window(self: KTable[Windowed[K2], V], selector: None = None,
                        grouped: Groups[int, V] = None, named: Groups[int, V] = None,
                        **option: Unpack[GroupedKeywords[int, V]]) -> KGroupedTable[Windowed[int], V]: ...
    @overload
    def group_by_window(self: KTable[Windowed[K2], V], selector: Expression | ValueFields,
                        grouped: Groups[Any, V] = None, named: Groups[Any, V] = None,
                        **option: Unpack[GroupedKeywords[Any, V]]) -> KGroupedTable[Windowed[Any], V]: ...
    @overload
    def group_by_window(self, selector: KeyValueMapper[K, V, InGroup[K2, V2]],
                        grouped: Groups[K2, V2] = None, named: Groups[K2, V2] = None,
                        **option: Unpack[GroupedKeywords[K2, V2]]) -> KGroupedTable[Windowed[K2], V2]: ...
    @overload
    def group_by_window(self, selector: ValueMapper[V, InGroup[K2, V2]],
                        grouped: Groups[K2, V2] = None, named: Groups[K2, V2] = None,
                        **option: Unpack[GroupedKeywords[K2, V2]]) -> KGroupedTable[Windowed[K2], V2]: ...
    # fmt: on
    def group_by_window(
        self, selector: functions.Function | None = None, grouped: Groups = None, named: Groups = None, **option: Any
    ) -> KGroupedTable[Any, Any]:
        """Groups the rows of a table of windows by their windows, to aggregate over the keys.

        For example, the products with the most sales in each hour:

            sold.map_values(...).group_by_window().top(1, by=col("n"), ties=True)

        The groups are windows, too: a result's key is `Windowed(group, window)`. Without a selector, each window is one group,
        named by its start in ms. With a selector, as in `group_by`, each window is divided into the selector's groups. Stream time
        is the largest timestamp of the updates that arrive here. When it reaches a window's end plus grace, further updates of the
        window are dropped as late, and the window's rows are deleted; `Materialized(retention=...)` keeps them longer. `grouped`
        has the serdes of the groups without windows, and of the values.

        Raises:
            TopologyError: The table has no windows, or windows that its keys do not share: sliding windows and sessions.
        """
        name, how = named_option("group_by_window", Grouped, named, grouped, option)
        windows = shared_windows(self._graph, self._port)
        row_stays = selector is None or isinstance(selector, Expression | ValueFields)
        check_fields(selector, self._port.node, self._port.value_serde)
        of_key = functions.start_of if selector is None else functions.key_value(selector, "group selector")
        fn = functions.in_window(functions.with_row(of_key) if row_stays else of_key)
        kind = int if selector is None else result_type(selector, self._port.key_serde, self._port.value_serde)
        types = (kind, None) if row_stays else pair_types(kind)
        self._node.send_old_values(True)
        spec = OperatorSpec(NodeKind.KTABLE_SELECT, partial(TableGroupBy, fn, self._node.versioned), several=True)
        port = self._graph.stateless(spec, self._port, name, new_key=True, new_value=not row_stays, types=types)
        inner = self._graph.key_serde(how.key_serde, port.key_serde)
        port = self._graph.keyed_by(port, kind_of(windows).key_serde(inner))
        return KGroupedTable(self._graph, port, replace(how, key_serde=None), windows)

    def explode(self, key: Callable[[K, int], Any] | NameLike = None, named: NameLike = None) -> KStream[Any, Any]:
        """Makes a row from each value of a table of lists, such as `top`'s, and returns the stream of updates of these rows.

        A row is updated when another value takes its position in the list, and deleted (a null value) when the list becomes
        shorter. `key(key, position)` returns the key of the row at a position, from 1 on. Without it, keys are `{"key": key,
        "position": 1}`; keys of windows also have the start and end of the window, in ms. A value that is not a list fails its
        record.
        """
        key_of: functions.Function = functions.place_of
        if callable(key):
            key_of, key = key, None
        name = operator_name("explode", key if named is None else named)
        kind = result_type(key_of)
        self._node.send_old_values(True)
        spec = OperatorSpec(NodeKind.KTABLE_EXPLODE, partial(TableRanks, key_of), one_by_one=True)
        port = self._graph.stateless(spec, self._port, name, new_key=True, new_value=True, types=(kind, None))
        return KStream(self._graph, port)

    # Joins --------------------------------------------------------------------------------------------------------------

    # fmt: off
    @overload
    def join(self, other: KTable[K, VO], joiner: ValueJoiner[V, VO, R | None],
             named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    @overload
    def join(self, other: KTable[K, VO], joiner: KeyValueJoiner[K, V, VO, R | None],
             named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    @overload
    def join(self, other: KTable[KO, VO], joiner: ValueJoiner[V, VO, R | None], named: Stored[K, R] = None,
             materialized: Stored[K, R] = None, *, foreign_key: ValueMapper[V, KO | None]) -> KTable[K, R]: ...
    @overload
    def join(self, other: KTable[KO, VO], joiner: ValueJoiner[V, VO, R | None], named: Stored[K, R] = None,
             materialized: Stored[K, R] = None, *, foreign_key: KeyValueMapper[K, V, KO | None]) -> KTable[K, R]: ...
    @overload
    def join(self, other: KTable[KO, VO], joiner: KeyValueJoiner[K, V, VO, R | None], named: Stored[K, R] = None,
             materialized: Stored[K, R] = None, *, foreign_key: Callable[..., KO | None]) -> KTable[K, R]: ...
    @overload
    def join(self, other: KTable[KO, VO], foreign_key: Callable[..., KO | None], joiner: Callable[..., R | None], /,
             named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    # fmt: on
    def join(
        self,
        other: Any,
        joiner: Any,
        *options: Any,
        foreign_key: Any = None,
        named: Any = None,
        materialized: Any = None,
    ) -> KTable[K, Any]:
        """Joins with another table, by key or by a foreign key; a row exists while both sides have one.

        The join of `KTable[K, V]` with `KTable[K, V2]` (by a foreign key: `KTable[K2, V2]`) is a `KTable[K, V3]`. A result has the
        larger timestamp of both sides; in a foreign-key join, an update of the right side has that update's timestamp. Source:
        Kafka Streams' `KTableKTableInnerJoin`, KIP-213.

        Args:
            other: The other table.
            joiner: `joiner(left, right)` or `joiner(key, left, right)`.
            *options: `named` and `materialized`, or one of them. If the first one is a function, it is the joiner, and the argument
                before it is the foreign key, as in Kafka Streams: `join(other, foreign_key, joiner)`.
            foreign_key: `foreign_key(value)` or `foreign_key(key, value)` returns the key of the other table's row to join with a
                row of this table; None: both tables have the same keys.
            named: Name of the join.
            materialized: Name and settings of the result's store.
        """
        return self._join("inner", other, joiner, options, foreign_key, named, materialized)

    # fmt: off
    @overload
    def left_join(self, other: KTable[K, VO], joiner: ValueJoiner[V, VO | None, R | None],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    @overload
    def left_join(self, other: KTable[K, VO], joiner: KeyValueJoiner[K, V, VO | None, R | None],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    @overload
    def left_join(self, other: KTable[KO, VO], joiner: ValueJoiner[V, VO | None, R | None], named: Stored[K, R] = None,
                  materialized: Stored[K, R] = None, *, foreign_key: ValueMapper[V, KO | None]) -> KTable[K, R]: ...
    @overload
    def left_join(self, other: KTable[KO, VO], joiner: ValueJoiner[V, VO | None, R | None],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None,
                  *, foreign_key: KeyValueMapper[K, V, KO | None]) -> KTable[K, R]: ...
    @overload
    def left_join(self, other: KTable[KO, VO], joiner: KeyValueJoiner[K, V, VO | None, R | None],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None,
                  *, foreign_key: Callable[..., KO | None]) -> KTable[K, R]: ...
    @overload
    def left_join(self, other: KTable[KO, VO], foreign_key: Callable[..., KO | None], joiner: Callable[..., R | None],
                  /, named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    # fmt: on
    def left_join(
        self,
        other: Any,
        joiner: Any,
        *options: Any,
        foreign_key: Any = None,
        named: Any = None,
        materialized: Any = None,
    ) -> KTable[K, Any]:
        """Joins like `join`, but every row of this table has a result; the joiner gets None if the other table has no match.

        With a foreign key, a row whose foreign key is None is joined with None (KIP-962). Source: Kafka Streams'
        `KTableKTableLeftJoin`, KIP-213.
        """
        return self._join("left", other, joiner, options, foreign_key, named, materialized)

    # fmt: off
    @overload
    def outer_join(self, other: KTable[K, VO], joiner: ValueJoiner[V | None, VO | None, R | None],
                   named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    @overload
    def outer_join(self, other: KTable[K, VO], joiner: KeyValueJoiner[K, V | None, VO | None, R | None],
                   named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    # fmt: on
    def outer_join(
        self, other: KTable[Any, Any], joiner: functions.Function, named: Stored = None, materialized: Stored = None
    ) -> KTable[K, Any]:
        """Joins by key like `join`, but a row exists while either side has one; the joiner gets None for the missing side.

        Source: Kafka Streams' `KTableKTableOuterJoin`.
        """
        return self._join("outer", other, joiner, (), None, named, materialized)

    def _join(
        self,
        kind: JoinKind,
        other: KTable[Any, Any],
        joiner: functions.Function,
        options: tuple[object, ...],
        foreign_key: functions.Function | None,
        named: object,
        materialized: object,
    ) -> KTable[K, Any]:
        if not isinstance(other, KTable) or other._graph is not self._graph:
            what = "another StreamsBuilder's" if isinstance(other, KTable) else f"{type(other).__name__}, no"
            raise TopologyError(f"A table joins with a KTable of its own StreamsBuilder; this is {what} table.")
        method = "join" if kind == "inner" else f"{kind}_join"
        if options and callable(options[0]):  # Kafka Streams' order
            if foreign_key is not None:
                raise TopologyError(f"{method}() is given foreign_key twice: as a keyword and before the joiner.")
            foreign_key, joiner, options = joiner, cast("functions.Function", options[0]), options[1:]
        left_over = (named, materialized)[len(options) :]
        if len(options) > 2 or (options and (named, materialized)[: len(options)] != (None,) * len(options)):
            raise TopologyError(
                f"{method}() takes a name and Materialized(...) after the functions, not all of "
                f"{', '.join(described(one) for one in (*options, named, materialized) if one is not None)}."
            )
        named, materialized = (*options, *left_over)
        name, how = named_option(method, Materialized, named, materialized)
        left, right = (self._port, self._node), (other._port, other._node)
        sides = self._port.value_serde, other._port.value_serde
        check_fields(joiner, self._port.node, *sides)
        check_fields(foreign_key, self._port.node, self._port.value_serde)
        made = result_type(joiner, self._port.key_serde, *sides)
        serde = self._graph.serde_of_values(made) if how.value_serde is None else None
        how, fn = replace(how, value_serde=how.value_serde or serde), functions.joiner(joiner)
        if foreign_key is None:
            port, node = join_tables(left, right, fn, kind, name, how)
        else:
            port, node = join_foreign_key(
                left, right, functions.key_value(foreign_key, "foreign key"), fn, kind, name, how
            )
        return self._table(replace(port, value_serde=port.value_serde or serde), node)

    def _joined_by(self, call: JoinCall) -> Port:
        call.check_by_key(self)
        how = call.table_option(call.windows, call.joined)
        return join_table(self._graph, call.kind, call.left, self._port, self._node, call.joiner, how)

    def _table(self, port: Port, node: TableNode) -> KTable[Any, Any]:
        """Returns the table that another node of the same graph produces."""
        return type(self)(self._graph, port, node=node)


class GlobalKTable(AbstractStream, Generic[K, V]):
    """A topic read as a table by every process. Made by `StreamsBuilder.global_table`.

    A global table has no updates to process; streams join with it (`stream.join(table, joiner, key_selector=...)`). Streams
    and global tables are not synchronised by time: a record sees the topic as of the beginning of the record's step.
    Source: Kafka Streams' `GlobalKTable` (KIP-99).
    """

    def __init__(self, graph: GraphBuilder, table: GlobalTable) -> None:
        self._graph = graph
        self._table = table

    def _shown(self) -> str:
        return repr(self._table.source.topics[0])

    @property
    def store_name(self) -> str:
        """The name of the table's store, for interactive queries."""
        return self._table.store.name

    def _joined_by(self, call: JoinCall) -> Port:
        joiner, key_selector, windows = call.joiner, call.key_selector, call.windows
        if key_selector is None and call.second_function:  # Kafka Streams' order
            joiner, key_selector, windows = call.second_function, joiner, None
        how = call.table_option(windows, call.joined)
        if key_selector is None:
            raise TopologyError(
                "A join with a global table needs key_selector=..., which returns the key to look up for a record."
            )
        return join_global(self._graph, call.kind, call.left, self.store_name, joiner, key_selector, how)
