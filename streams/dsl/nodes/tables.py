"""A table under construction: its store, the tables it derives from, and whether its updates have old values.

A table has a store only if it has a name, is looked up, or its old values are needed (Kafka Streams:
`KTableImpl.enableSendingOldValues`, `valueGetterSupplier`). A filtered, mapped or joined table without a name has none: each
look-up computes it from the tables above. There are two exceptions, both in strict mode only:

* If both sides of a joined table derive from one table and its old values are needed, it has a store for these alone. A computed
  old value would never have been sent, because the same update has changed the other side. Compat mode accepts that.
* If old values are not needed, but a deletion must not be forwarded for a row that was never forwarded, the node remembers the keys
  of the rows that it has forwarded.

Such needs only become known when an operator below is added, so the node is then replaced in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from state.stores.spec import StoreKind
from streams.dsl import functions
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.inferred_types import Type
from streams.dsl.nodes.processing import split_stores
from streams.dsl.nodes.stores import (
    history_ms,
    is_materialized,
    key_value_store,
    lazy_store,
    store_spec,
    table_names,
    table_store,
    waiting_store,
)
from streams.dsl.options import Materialized, StreamJoined
from streams.errors import TopologyError
from streams.model.ownership import lending, only_reads
from streams.model.windows import to_ms
from streams.operators.processor import ValueTransformer
from streams.operators.table.value_getter import MapValueGetter, StoreValueGetter, ValueGetter
from streams.serdes.base import Serde
from streams.serdes.internal import WaitingKeySerde, WaitingSerde
from streams.serdes.primitives import BytesSerde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import CachingTableSpec, Parameters, TableSpec
from streams.topology.specs.tables import (
    ExpiringTableSpec,
    TableFilterSpec,
    TableMapValuesSpec,
    TableSourceSpec,
    TransformValuesSpec,
)


@dataclass
class TableNode:
    """A table under construction.

    Attributes:
        nodes: The names of the operators that can fill `Change.old`.
        store: The table's store; None if there is none so far.
        materialize: Adds a store (a computed table's store has the values that it has forwarded); None if no store can be added
            later.
        parents: The tables that this one derives from.
        computed: Makes the view for look-ups without a store; None: look-ups need the store.
        from_stored: Converts stored values to the table's values; None: they are equal.
        history_ms: How far back the table's own versioned store can look; None: not versioned.
        joined: Whether this is a join of two tables, whose old values are only known if the parents have stores.
        related: Whether this is a join whose sides derive from one table, or one side from the other.
        forwards_all: Whether every update of the table above is forwarded, whatever its value.
    """

    graph: GraphBuilder
    nodes: tuple[str, ...]
    store: str | None
    materialize: Callable[[], str] | None = None
    parents: tuple[TableNode, ...] = ()
    computed: Callable[[], ValueGetter] | None = None
    from_stored: Callable[[Any], Any] | None = None
    history_ms: int | None = None
    joined: bool = False
    related: bool = False
    forwards_all: bool = False
    _sends_old: bool = field(default=False, init=False)
    _remembers: bool = field(default=False, init=False)

    @property
    def versioned(self) -> bool:
        """Whether updates come from a versioned table, and so may be out of order (KIP-914)."""
        if self.store is not None:
            return self.history_ms is not None
        return any(parent.versioned for parent in self.parents)

    @property
    def history(self) -> int | None:
        """How far back rows can be looked up, ms; None: only the current rows."""
        if self.store is not None:
            return self.history_ms
        return self.parents[0].history if len(self.parents) == 1 and self.computed is not None else None

    def send_old_values(self, force: bool) -> bool:
        """Adds old values to updates, with `force` even if that adds a store to a table above. Returns whether it did."""
        if not self._sends_old and self._can_send_old(force):
            for name in self.nodes:
                self.graph.change_spec(name, self._spec(name).with_old_values())
            self._sends_old = True
        if force and self._sends_old:
            self._materialize_related()
        return self._sends_old

    def _materialize_related(self) -> None:
        if self.store is None and self.related:
            assert self.materialize is not None, "a join knows how to remember its rows"
            if not self._remembers:
                self.materialize()
            self._remembers = True
        elif self.store is None:
            for parent in self.parents:
                parent._materialize_related()

    @property
    def old_values_are_exact(self) -> bool:
        """Whether old values, if sent, are exactly the values that were forwarded before."""
        if self.store is not None or self._remembers:
            return True
        return not self.related and all(parent.old_values_are_exact for parent in self.parents)

    @property
    def filters_updates(self) -> bool:
        """Whether some updates of the parents are not forwarded, depending on their values."""
        return bool(self.parents) and (not self.forwards_all or self.parents[0].filters_updates)

    def _can_send_old(self, force: bool) -> bool:
        if not self.joined and self.store is not None:
            return True
        if self.joined or self.computed is not None:
            enabled = [parent.send_old_values(self.joined or force) for parent in self.parents]
            return all(enabled)
        if force:
            self.require_store()
        return force

    def require_store(self) -> str:
        """Returns the name of the table's store, which is added if there is none."""
        if self.store is None:
            assert self.materialize is not None, "a table without a store knows how to make one"
            self.store = self.materialize()
        return self.store

    def view(self) -> ValueGetter:
        """Returns the view in which operators look rows up."""
        if self.store is None and self.computed is not None:
            return self.computed()
        return StoreValueGetter(self.require_store(), self.from_stored, self.history_ms is not None)

    def disable_caching(self) -> None:
        """Disables the caches of this table and of its parents, so that each update is forwarded at once."""
        for name in self.nodes:
            self.graph.change_spec(name, self._spec(name).without_caching())
        for parent in self.parents:
            parent.disable_caching()

    def _spec(self, name: str) -> TableSpec:
        spec = self.graph.operator(name).spec
        assert isinstance(spec, TableSpec), "a table is filled by operators of tables"
        return spec


# --- Tables that are read from a topic or made from a stream, with a store from the start or once it is needed.


def add_table(
    graph: GraphBuilder,
    kind: NodeKind,
    port: Port,
    name: str,
    store: str,
    how: Materialized,
    key_serde: Serde,
    value_serde: Serde,
) -> tuple[Port, TableNode]:
    """Adds the table's operator after a port whose records are in the tasks of their keys.

    Rows that expire are in a store from the start, and their deadlines in a second store.
    """
    add = partial(graph.stateful, port=port, name=name, key_serde=key_serde, value_serde=value_serde)
    history, stored_key_serde = history_ms(how), how.key_serde or key_serde
    if how.ttl is None:
        table = add(TableSourceSpec(kind, caching=how.caching, versioned=history is not None))
        made, make = lazy_store(graph, name, store, how, stored_key_serde, value_serde)
        return table, TableNode(graph, (name,), made, make, history_ms=history)
    ttl_ms = to_ms(how.ttl, "Materialized(ttl=...)")
    if ttl_ms <= 0 or history is not None:
        raise TopologyError(
            f"The table '{name}' needs a ttl above zero and no history_retention, but has {ttl_ms} ms and "
            f"{how.history_retention}: rows either expire or are remembered."
        )
    rows = graph.store(key_value_store(store, replace(how, ttl=None)), stored_key_serde, value_serde)
    deadlines = waiting_store(f"{store}-deadlines", StreamJoined(logging=how.logging, persistent=how.persistent))
    deadline_store = graph.store(deadlines, WaitingKeySerde(), WaitingSerde(BytesSerde(), BytesSerde()))
    table = add(ExpiringTableSpec(kind, key_serde, ttl_ms, caching=how.caching), stores=(rows, deadline_store))
    return table, TableNode(graph, (name,), rows)


# --- `filter`, `map_values` and `transform_values` of tables: nodes with an optional store.


def add_filter(
    port: Port,
    above: TableNode,
    predicate: Callable[[Any, Any], bool],
    negate: bool,
    name: str | None,
    how: Materialized,
) -> tuple[Port, TableNode]:
    """Adds a filtered table. Unnecessary deletions are left out if the table above has old values without further stores."""
    knows_old = above.send_old_values(False)
    spec = TableFilterSpec(predicate, negate, knows_old, above.versioned, caching=how.caching)

    def computed() -> ValueGetter:
        return MapValueGetter(above.view(), partial(_value_if, lending(predicate), negate), reads=True)

    value_serde = how.value_serde or port.value_serde
    made, node = _add(spec, port, above, name, how, value_serde, computed)
    if node.store is None and knows_old and not above.old_values_are_exact:
        graph = above.graph
        store = remember_passed_on(graph, made.node, how, how.key_serde or graph.key_serde(port.key_serde))
        graph.change_spec(made.node, replace(spec, passed_on=store))
    return made, node


def remember_passed_on(graph: GraphBuilder, node: str, how: Materialized, key_serde: Serde) -> str:
    """Adds a store of the keys whose rows a table has forwarded, for a table without a store; returns the store's name."""
    spec = store_spec(f"{node}-passed-on", StoreKind.KEY_VALUE, how)
    return graph.materialize(node, spec, key_serde, BytesSerde())


def _value_if(predicate: Callable[[Any, Any], bool], negate: bool, key: Any, value: Any) -> Any:
    return value if bool(predicate(key, value)) is not negate else None


def add_map_values(
    port: Port,
    above: TableNode,
    fn: Callable[[Any, Any], Any],
    name: str | None,
    how: Materialized,
    value_type: Type = None,
) -> tuple[Port, TableNode]:
    """Adds a table with mapped values; `value_type` is the type that the function returns, if known."""

    def computed() -> ValueGetter:
        return MapValueGetter(above.view(), fn, only_reads(fn))

    spec = TableMapValuesSpec(fn, caching=how.caching)
    derived = above.graph.serde_of_values(value_type)
    made, node = _add(spec, port, above, name, how, how.value_serde or derived, computed)
    # With a store, a row that appears and disappears within a step would be left out.
    node.forwards_all = node.store is None
    return made, node


def add_transform_values(
    port: Port,
    above: TableNode,
    supplier: Callable[[], ValueTransformer],
    stores: Sequence[str],
    name: str | None,
    how: Materialized,
) -> tuple[Port, TableNode]:
    """Adds a table whose values a transformer computes. It has a store if it has a name, is looked up, or must send old values."""
    if isinstance(supplier, ValueTransformer) or not callable(supplier):
        raise TopologyError(
            f"transform_values takes a supplier of value transformers, such as the class or a lambda, not "
            f"{supplier!r}: every task needs one of its own."
        )
    graph = above.graph
    names, global_names = split_stores(graph, stores)
    spec = TransformValuesSpec(supplier, names, caching=how.caching)
    parameters: Parameters = tuple((f"store:{used}", True) for used in (*names, *global_names))
    name, store = table_names(spec.kind, port.lineage, name, how, parameters)
    key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(how.value_serde)
    made = graph.stateful(
        spec, port, name, stores=names, global_stores=global_names, key_serde=key_serde, value_serde=how.value_serde
    )
    own_store, make = lazy_store(graph, name, store, how, how.key_serde or key_serde, value_serde)
    return made, TableNode(graph, (name,), own_store, make, parents=(above,), history_ms=history_ms(how))


def _add(
    spec: CachingTableSpec,
    port: Port,
    above: TableNode,
    name: str | None,
    how: Materialized,
    value_serde: Serde | None,
    computed: Callable[[], ValueGetter],
) -> tuple[Port, TableNode]:
    graph = above.graph
    if not is_materialized(how):
        computed_port = graph.stateless(spec, port, name, new_value=value_serde is not port.value_serde)
        computed_port = replace(computed_port, value_serde=value_serde)
        return computed_port, TableNode(graph, (computed_port.node,), None, parents=(above,), computed=computed)
    name, store = table_names(spec.kind, port.lineage, name, how, ())
    stored, store = add_stored(graph, spec, (port,), name, store, how, graph.value_serde(value_serde))
    return stored, TableNode(graph, (stored.node,), store, parents=(above,), history_ms=history_ms(how))


def add_stored(
    graph: GraphBuilder,
    spec: CachingTableSpec,
    ports: tuple[Port, ...],
    name: str,
    store: str,
    how: Materialized,
    value_serde: Serde,
) -> tuple[Port, str]:
    """Adds an operator whose table has a store; returns its port, and the store's name."""
    key_serde = graph.key_serde(ports[0].key_serde)
    graph.store(table_store(store, how), how.key_serde or key_serde, value_serde)
    port = graph.stateful(
        spec, ports[0], name, others=ports[1:], stores=(store,), key_serde=key_serde, value_serde=value_serde
    )
    return port, store


# --- `top`: the best n of each group.


def checked_top(n: int, by: functions.Function, rank: str | None) -> Callable[[Any], Any]:
    """Checks all arguments and returns the score function. Raises `TopologyError`."""
    if rank is not None and (not isinstance(rank, str) or not rank):
        raise TopologyError(f"top(rank=...) takes the name of the field that gets the rank, not {rank!r}.")
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise TopologyError(f"top takes the number of rows, at least 1, not {n!r}.")
    return functions.value_only(by, "score")
