"""Joins of two tables by key: a node for each side, and a merge that may store the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from state.stores.spec import RowFormat, StoreKind, StoreSpec
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.stores import history_ms, is_materialized, lazy_store, table_names, table_store
from streams.dsl.nodes.stream_joins import common_key_serde, sides
from streams.dsl.nodes.tables import TableNode, add_stored, remember_passed_on
from streams.dsl.options import Materialized
from streams.operators.table.value_getter import JoinKind, JoinValueGetter, ValueGetter
from streams.serdes.base import Serde
from streams.serdes.internal import CombinedKeySerde, ResponseSerde, SubscriptionSerde
from streams.topology.graph import Graph
from streams.topology.naming import stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.joins import (
    ForeignKeyOutputSpec,
    ForeignKeyResultSpec,
    ForeignKeySubscribeSpec,
    ForeignKeySubscriptionsSpec,
    ForeignKeyUpdateSpec,
    TableJoinMergeSpec,
    TableJoinSpec,
)
from streams.topology.specs.streams import MergeSpec

Table = tuple[Port, TableNode]


def join_tables(
    left: Table,
    right: Table,
    joiner: Callable[[Any, Any, Any], Any],
    kind: JoinKind,
    name: str | None,
    how: Materialized,
) -> Table:
    """Adds a joined table. Source: Kafka Streams' `KTableImpl.doJoin`."""
    (left_port, left_node), (right_port, right_node) = left, right
    graph = left_node.graph
    key_serde = common_key_serde(graph, left_port, right_port, graph.key_serde(left_port.key_serde))
    views = _views(left_node, right_node, kind)
    lineage = left_port.lineage | right_port.lineage
    base = name or stateful_name("KTABLE-JOIN", lineage, (("kind", kind), *sides(left_port, right_port)))
    related = _are_related(graph.topology, (left_port.node, right_port.node), views)

    stores = tuple(dict.fromkeys((*views[0].stores, *views[1].stores)))
    this, that = (
        graph.stateful(
            TableJoinSpec(kind, is_left, other, joiner, node.versioned, related),
            port,
            f"{base}-{side}-join",
            stores=stores,
            key_serde=key_serde,
        )
        for (port, node), other, is_left, side in ((left, views[1], True, "this"), (right, views[0], False, "other"))
    )
    if is_materialized(how):
        return _stored(graph, (this, that), (left_node, right_node), base, how)

    def computed() -> ValueGetter:
        return JoinValueGetter(left_node.view(), right_node.view(), joiner, kind)

    # Without a store, or with one that only exists for old values, every update is forwarded at once.
    merged = graph.stateless(TableJoinMergeSpec(caching=False), this, base, others=(that,))
    serdes = how.key_serde or key_serde, graph.value_serde(how.value_serde)
    if related and kind == "inner":
        # One update may delete the rows of both sides. Neither side then forwards a deletion of the joined row.
        passed_on = remember_passed_on(graph, merged.node, how, serdes[0])
        graph.change_spec(merged.node, TableJoinMergeSpec(passed_on=passed_on, caching=False))
    make_store = partial(_remember_rows, graph, merged.node, table_store(f"{base}-store", how), *serdes)
    nodes, parents = (this.node, that.node, merged.node), (left_node, right_node)
    node = TableNode(graph, nodes, None, make_store, parents, computed, joined=True, related=related)
    return replace(merged, value_serde=how.value_serde), node


def _views(left: TableNode, right: TableNode, kind: JoinKind) -> tuple[ValueGetter, ValueGetter]:
    """The views for look-ups in both sides. A side whose rows may have no match sends old values, as in Kafka Streams."""
    if kind != "inner":
        left.send_old_values(True)
    if kind == "outer":
        right.send_old_values(True)
    return left.view(), right.view()


def _stored(
    graph: GraphBuilder, joined: tuple[Port, Port], parents: tuple[TableNode, ...], base: str, how: Materialized
) -> Table:
    """Adds the merge of a joined table that has a store."""
    this, that = joined
    spec = TableJoinMergeSpec(caching=how.caching)
    name, store = table_names(spec.kind, this.lineage | that.lineage, base, how, ())
    port, store = add_stored(graph, spec, joined, name, store, how, graph.value_serde(how.value_serde))
    nodes = (this.node, that.node, port.node)
    return port, TableNode(graph, nodes, store, parents=parents, history_ms=history_ms(how), joined=True)


def _remember_rows(graph: GraphBuilder, node: str, store: StoreSpec, key_serde: Serde, value_serde: Serde) -> str:
    """Adds a store of the rows that a joined table has forwarded, which are its old values in strict mode."""
    spec = graph.operator(node).spec
    assert isinstance(spec, TableJoinMergeSpec), "joins end in one"
    if spec.passed_on is not None:
        graph.remove_store(node, spec.passed_on)
    graph.change_spec(node, replace(spec, passed_on=None, only_strict=True))
    return graph.materialize(node, store, key_serde, value_serde)


def _are_related(topology: Graph, nodes: tuple[str, str], views: tuple[ValueGetter, ValueGetter]) -> bool:
    """Whether one update may change both tables: both derive from the same table, or one derives from the other."""
    shared = not set(views[0].stores).isdisjoint(views[1].stores)
    return shared or _made_of(topology, nodes[0], views[1]) or _made_of(topology, nodes[1], views[0])


def _made_of(topology: Graph, node: str, table: ValueGetter) -> bool:
    """Whether the table at `node` derives from another one in the same task, so that one update changes both before the join."""
    filled_by = {next(name for name, one in topology.nodes.items() if store in one.stores) for store in table.stores}
    above, waiting = set[str](), [node]
    while waiting:
        above.add(name := waiting.pop())
        waiting.extend(topology.nodes[name].parents)
    return not above.isdisjoint(filled_by)


# --- Foreign-key joins of two tables: three parts in two sub-topologies, connected by a repartition topic in each direction.
#
# ```
# left table  ──subscribe──▶ <name>-subscription-repartition ──▶ subscriptions ─┐
#                                                                right table ──update──┴▶ <name>-response-repartition ──▶ result
# ```
# The right part runs in the right table's sub-topology, and the result in the left table's, so each can read its table's stores.


def join_foreign_key(
    left: Table,
    right: Table,
    extractor: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any, Any], Any],
    kind: JoinKind,
    name: str | None,
    how: Materialized,
) -> Table:
    """Adds the join, a table with the left table's keys. Both tables get stores."""
    (left_port, left_node), (right_port, right_node) = left, right
    graph = left_node.graph
    base = name or stateful_name("KTABLE-FK-JOIN", left_port.lineage | right_port.lineage, (("kind", kind),))
    left_key, right_key = graph.key_serde(left_port.key_serde), graph.key_serde(right_port.key_serde)
    left_value = graph.value_serde(left_port.value_serde)
    left_node.send_old_values(True)
    right_node.send_old_values(True)
    this = left_node.view()

    registration = f"{base}-subscription-registration"
    asking = ForeignKeySubscribeSpec(extractor, left_value, kind == "left", left_node.versioned)
    asked = graph.stateless(asking, left_port, registration, new_key=True, new_value=True)
    subscriptions = graph.repartition(asked, f"{base}-subscription", right_key, SubscriptionSerde(left_key))
    responses = _right_part(graph, base, subscriptions, right_port, right_node, left_key, how)
    right_value = graph.value_serde(right_port.value_serde)
    answered = graph.repartition(responses, f"{base}-response", left_key, ResponseSerde(right_value))
    joined = graph.stateful(
        ForeignKeyResultSpec(kind, this, left_value, joiner),
        answered,
        f"{base}-response-resolver",
        stores=this.stores,
        key_serde=left_key,
        value_serde=how.value_serde,
    )
    return _output(graph, joined, base, registration, how)


def _right_part(
    graph: GraphBuilder,
    base: str,
    subscriptions: Port,
    right_port: Port,
    right_node: TableNode,
    left_key: Any,
    how: Materialized,
) -> Port:
    """Adds the part next to the right table: the store of subscriptions, and the nodes that respond to them."""
    right_key = graph.key_serde(right_port.key_serde)
    keys, other = CombinedKeySerde(right_key, left_key), right_node.view()
    spec = StoreSpec(
        f"{base}-subscription-store",
        StoreKind.KEY_VALUE,
        persistent=how.persistent,
        logged=how.logging,
        rows=RowFormat.SUBSCRIPTION,
    )
    store = graph.store(spec, keys, SubscriptionSerde(left_key))
    add = partial(graph.stateful, input_key_serde=right_key, key_serde=right_key, value_serde=None)
    answers = add(
        ForeignKeySubscriptionsSpec(other, keys),
        subscriptions,
        f"{base}-subscription-processor",
        stores=tuple(dict.fromkeys((store, *other.stores))),
    )
    updates = add(
        ForeignKeyUpdateSpec(keys, right_node.versioned), right_port, f"{base}-foreign-processor", stores=(store,)
    )
    merge = MergeSpec(NodeKind.KTABLE_FK_JOIN_RESPONSE)
    return graph.stateless(merge, answers, f"{base}-response", others=(updates,), new_key=True)


def _output(graph: GraphBuilder, joined: Port, base: str, registration: str, how: Materialized) -> Table:
    """Adds the resulting table, which has a store if it has a name or is looked up."""
    key_serde, value_serde = graph.key_serde(joined.key_serde), graph.value_serde(how.value_serde)
    spec = ForeignKeyOutputSpec(registration, caching=how.caching)
    name, store = table_names(spec.kind, joined.lineage, f"{base}-output", how, ())
    port = graph.stateful(spec, joined, name, stores=(), key_serde=key_serde, value_serde=how.value_serde)
    made, make = lazy_store(graph, name, store, how, how.key_serde or key_serde, value_serde)
    return port, TableNode(graph, (name,), made, make, history_ms=history_ms(how))
