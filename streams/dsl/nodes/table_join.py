"""Joins of two tables by key: a node for each side, and a merge that may store the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import history_ms, is_materialized, table_names, table_store
from streams.dsl.nodes.stream_join import common_key_serde, sides
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.nodes.table_steps import add_stored
from streams.dsl.options import Materialized
from streams.operators.table.value_getter import JoinKind, JoinValueGetter, ValueGetter
from streams.topology.graph import Graph
from streams.topology.naming import stateful_name
from streams.topology.specs.base import Parameters
from streams.topology.specs.table_joins import TableJoinMergeSpec, TableJoinSpec

Table = tuple[Port, TableNode]


def join_tables(
    left: Table,
    right: Table,
    joiner: Callable[[Any, Any, Any], Any],
    kind: JoinKind,
    name: str | None,
    how: Materialized,
) -> Table:
    """Adds a joined table. A table whose rows may be without a match sends its old values, as in Kafka Streams."""
    (left_port, left_node), (right_port, right_node) = left, right
    graph = left_node.graph
    key_serde = common_key_serde(graph, left_port, right_port, graph.key_serde(left_port.key_serde))
    if kind != "inner":
        left_node.send_old_values(True)
    if kind == "outer":
        right_node.send_old_values(True)
    views = left_node.view(), right_node.view()
    parameters: Parameters = (("kind", kind), *sides(left_port, right_port))
    base = name or stateful_name("KTABLE-JOIN", left_port.lineage | right_port.lineage, parameters)
    related = _are_related(graph.topology, (left_port.node, right_port.node), views)

    def side(table: Table, other: ValueGetter, is_left: bool) -> Port:
        port, node = table
        return graph.stateful(
            TableJoinSpec(kind, is_left, other, joiner, node.versioned, related),
            port,
            f"{base}-{'this' if is_left else 'other'}-join",
            stores=tuple(dict.fromkeys((*views[0].stores, *views[1].stores))),
            input_key_serde=key_serde,
            key_serde=key_serde,
            value_serde=None,
        )

    this, that = side(left, views[1], is_left=True), side(right, views[0], is_left=False)
    if is_materialized(how):
        return _stored(graph, (this, that), (left_node, right_node), base, how)

    def computed() -> ValueGetter:
        return JoinValueGetter(left_node.view(), right_node.view(), joiner, kind)

    # Without a store, or with one that exists only for old values, every update is forwarded at once.
    merged = graph.stateless(TableJoinMergeSpec(caching=False), this, base, others=(that,))
    serdes = how.key_serde or key_serde, graph.value_serde(how.value_serde)
    make_store = partial(graph.materialize, merged.node, table_store(f"{base}-store", how), *serdes)
    nodes, parents = (this.node, that.node, merged.node), (left_node, right_node)
    merged = replace(merged, value_serde=how.value_serde)
    return merged, TableNode(graph, nodes, None, make_store, parents, computed, joined=True, related=related)


def _stored(
    graph: GraphBuilder, joined: tuple[Port, Port], parents: tuple[TableNode, ...], base: str, how: Materialized
) -> Table:
    """The joined table, with a store."""
    this, that = joined
    spec = TableJoinMergeSpec(caching=how.caching)
    name, store = table_names(spec.kind, this.lineage | that.lineage, base, how, ())
    port, store = add_stored(graph, spec, joined, name, store, how, graph.value_serde(how.value_serde))
    nodes = (this.node, that.node, port.node)
    return port, TableNode(graph, nodes, store, parents=parents, history_ms=history_ms(how), joined=True)


def _are_related(topology: Graph, nodes: tuple[str, str], views: tuple[ValueGetter, ValueGetter]) -> bool:
    """Whether one update may change both tables: both derive from the same table, or one derives from the other."""
    shared = not set(views[0].stores).isdisjoint(views[1].stores)
    return shared or _made_of(topology, nodes[0], views[1]) or _made_of(topology, nodes[1], views[0])


def _made_of(topology: Graph, node: str, table: ValueGetter) -> bool:
    """Whether a node's table derives from another within the same task, so that one update changes both before the join."""
    filled_by = {next(name for name, one in topology.nodes.items() if store in one.stores) for store in table.stores}
    above, waiting = set[str](), [node]
    while waiting:
        above.add(name := waiting.pop())
        waiting.extend(topology.nodes[name].parents)
    return not above.isdisjoint(filled_by)
