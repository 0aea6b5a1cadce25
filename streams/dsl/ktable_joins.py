"""The part of `KTable` that joins it with another table, by key or by a foreign key.

The overloads tell type checkers which types a joiner receives: in a left join the right value may be None, in an outer join either
value. A row for which the joiner returns None does not exist.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast, overload

from streams.dsl import functions
from streams.dsl.arguments import named_option, takes
from streams.dsl.nodes.abstract_stream import TableBase
from streams.dsl.nodes.foreign_key_join import join_foreign_key
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.result_types import check_fields, result_type
from streams.dsl.nodes.table_join import join_tables
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.options import Materialized, Named, NameLike
from streams.errors import TopologyError
from streams.model.typing import KO, VO, K, KeyValueJoiner, KeyValueMapper, R, V, ValueJoiner, ValueMapper
from streams.operators.table.value_getter import JoinKind

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable

Name: TypeAlias = NameLike | Materialized[Any, Any]
Store: TypeAlias = Materialized[Any, Any] | NameLike


class TableJoinMixin(TableBase, Generic[K, V]):
    """Joins of a `KTable`."""

    def __init__(self, graph: GraphBuilder, port: Port, node: TableNode) -> None:
        self._graph = graph
        self._port = port
        self._node = node

    def _table(self, port: Port, node: TableNode) -> KTable[Any, Any]:
        """The table behind another node of the same graph."""
        table = cast("type[KTable[Any, Any]]", type(self))
        return table(self._graph, port, node=node)

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V, VO, R | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: KeyValueJoiner[K, V, VO, R | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: ValueJoiner[V, VO, R | None],
        foreign_key: ValueMapper[V, KO | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: KeyValueJoiner[K, V, VO, R | None],
        foreign_key: ValueMapper[V, KO | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: ValueJoiner[V, VO, R | None],
        foreign_key: KeyValueMapper[K, V, KO | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: KeyValueJoiner[K, V, VO, R | None],
        foreign_key: KeyValueMapper[K, V, KO | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        foreign_key: ValueMapper[V, KO | None],
        joiner: ValueJoiner[V, VO, R | None],
        /,
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        foreign_key: ValueMapper[V, KO | None],
        joiner: KeyValueJoiner[K, V, VO, R | None],
        /,
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        foreign_key: KeyValueMapper[K, V, KO | None],
        joiner: ValueJoiner[V, VO, R | None],
        /,
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        foreign_key: KeyValueMapper[K, V, KO | None],
        joiner: KeyValueJoiner[K, V, VO, R | None],
        /,
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    def join(
        self,
        other: KTable[Any, Any],
        joiner: functions.Function,
        *options: functions.Function | Named | Materialized[Any, Any] | str | None,
        foreign_key: functions.Function | None = None,
        named: Name = None,
        materialized: Store = None,
    ) -> KTable[K, Any]:
        """Joins with another table, by key or by a foreign key; a row exists while both sides have one.

        `KTable[K, V]` and `KTable[K, V2]` (by a foreign key: `KTable[K2, V2]`) to `KTable[K, V3]`. The timestamp is the larger
        one of both sides; in a foreign-key join, an update of the right side has that update's timestamp. Source: Kafka
        Streams' `KTableKTableInnerJoin`, KIP-213.

        Args:
            other: The other table.
            joiner: `joiner(left, right)` or `joiner(key, left, right)`.
            *options: `foreign_key`, `named` and `materialized` in this order, or any one of them. Kafka Streams' order,
                `join(other, foreign_key, joiner)`, is accepted if the functions' numbers of arguments tell them apart.
            foreign_key: `foreign_key(value)` or `foreign_key(key, value)` returns, for a row of this table, the key to look up
                in the other; None: both tables have the same keys.
            named: Name of the join.
            materialized: Name and settings of the result's store.

        Raises:
            TopologyError: It is unclear which function is the foreign key; the other is no table of this builder; or, without
                a foreign key, the other has keys of another serde.
        """
        return self._join("inner", other, joiner, options, foreign_key, named, materialized)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V, VO | None, R | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: KeyValueJoiner[K, V, VO | None, R | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: ValueJoiner[V, VO | None, R | None],
        foreign_key: ValueMapper[V, KO | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: KeyValueJoiner[K, V, VO | None, R | None],
        foreign_key: ValueMapper[V, KO | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: ValueJoiner[V, VO | None, R | None],
        foreign_key: KeyValueMapper[K, V, KO | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: KeyValueJoiner[K, V, VO | None, R | None],
        foreign_key: KeyValueMapper[K, V, KO | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        foreign_key: ValueMapper[V, KO | None],
        joiner: ValueJoiner[V, VO | None, R | None],
        /,
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        foreign_key: ValueMapper[V, KO | None],
        joiner: KeyValueJoiner[K, V, VO | None, R | None],
        /,
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        foreign_key: KeyValueMapper[K, V, KO | None],
        joiner: ValueJoiner[V, VO | None, R | None],
        /,
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        foreign_key: KeyValueMapper[K, V, KO | None],
        joiner: KeyValueJoiner[K, V, VO | None, R | None],
        /,
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    def left_join(
        self,
        other: KTable[Any, Any],
        joiner: functions.Function,
        *options: functions.Function | Named | Materialized[Any, Any] | str | None,
        foreign_key: functions.Function | None = None,
        named: Name = None,
        materialized: Store = None,
    ) -> KTable[K, Any]:
        """Joins like `join`, but every row of this table has a result; the joiner gets None if the other table has no match.

        With a foreign key, a row whose foreign key is None is joined with None (KIP-962). Source: Kafka Streams'
        `KTableKTableLeftJoin`, KIP-213.
        """
        return self._join("left", other, joiner, options, foreign_key, named, materialized)

    @overload
    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V | None, VO | None, R | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    @overload
    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: KeyValueJoiner[K, V | None, VO | None, R | None],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]: ...

    def outer_join(
        self,
        other: KTable[Any, Any],
        joiner: functions.Function,
        named: Name = None,
        materialized: Store = None,
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
        if not isinstance(other, TableBase) or other._graph is not self._graph:
            what = "another StreamsBuilder's" if isinstance(other, TableBase) else f"{type(other).__name__}, no"
            raise TopologyError(f"A table joins with a KTable of its own StreamsBuilder; this is {what} table.")
        method = "join" if kind == "inner" else f"{kind}_join"
        if options and (options[0] is None or callable(options[0])):
            function, *options_left = options
            options = tuple(options_left)
            if function is not None:
                joiner, foreign_key = _joiner_first(method, joiner, cast("functions.Function", function))
        name, how = named_option(method, Materialized, named, materialized, more=options)
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


def _joiner_first(
    method: str, one: functions.Function, other: functions.Function
) -> tuple[functions.Function, functions.Function]:
    """The joiner and the foreign key, which may come in the opposite order, as in Kafka Streams.

    A joiner takes two or three arguments, a foreign key one or two. Raises `TopologyError` if both take exactly two.
    """
    like_a_joiner = [takes(function, 3) - takes(function, 1) for function in (one, other)]
    if like_a_joiner == [0, 0] and not (takes(one, 3) or takes(other, 3)):
        raise TopologyError(
            f"{method}() cannot tell which function is the joiner and which the foreign key, since both take two arguments: "
            f"write {method}(other, joiner, foreign_key=...)."
        )
    return (other, one) if like_a_joiner[0] < like_a_joiner[1] else (one, other)
