"""Completes all nodes and stores of a topology: wraps processors, and decides where stores are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from streams.operators.wrapped import ProcessorWrapper, wrapped
from streams.topology.graph import (
    GlobalTable,
    Graph,
    InternalTopic,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    StoreNode,
)
from streams.topology.topology import Topology


def finalize(graph: Graph, wrapper: ProcessorWrapper | None, persistent: bool) -> Topology:
    """Returns the topology, which later calls of the builder do not change.

    Args:
        graph: The graph as built so far.
        wrapper: Wraps each processor, including the engine's. Wrappers see records, so nothing is processed as columns then.
        persistent: Whether stores without a setting of their own are on disk instead of in memory.
    """
    nodes, tables = _keeping_null_keys(graph), dict(graph.global_tables)
    if wrapper is not None:
        nodes = {name: _wrapped_node(node, wrapper) for name, node in nodes.items()}
        tables = {name: _wrapped_table(table, wrapper) for name, table in tables.items()}
    return Topology(
        graph.default_key_serde,
        graph.default_value_serde,
        nodes=nodes,
        stores={name: _decided(store, persistent) for name, store in graph.stores.items()},
        global_tables={name: replace(table, store=_decided(table.store, persistent)) for name, table in tables.items()},
        lake_sinks=dict(graph.lake_sinks),
        ingests=dict(graph.ingests),
    )


def _keeping_null_keys(graph: Graph) -> dict[str, Node]:
    """All nodes, with the repartitions marked that have a join of records without keys below, however far (as in Kafka Streams)."""
    nodes = dict(graph.nodes)
    above: set[str | InternalTopic] = set()  # the nodes and repartition topics that lead to such a join
    for node in reversed(graph.nodes.values()):
        if isinstance(node, SourceNode):
            above |= {topic for topic in node.topics if node.name in above and isinstance(topic, InternalTopic)}
        elif isinstance(node, SinkNode) and node.topic in above:
            above |= set(node.parents)
            nodes[node.name] = replace(node, keeps_null_keys=True)
        elif isinstance(node, ProcessorNode) and (node.name in above or node.spec.takes_null_keys):
            above |= set(node.parents)
    return nodes


def _wrapped_node(node: Node, wrapper: ProcessorWrapper) -> Node:
    if not isinstance(node, ProcessorNode):
        return node
    return replace(node, spec=node.spec.by_record(), wrapper=wrapper)


def _wrapped_table(table: GlobalTable, wrapper: ProcessorWrapper) -> GlobalTable:
    if table.supplier is None:
        return table
    return replace(table, supplier=partial(wrapped, wrapper, table.name, table.supplier))


def _decided(store: StoreNode, persistent: bool) -> StoreNode:
    if store.spec.persistent is not None:
        return store
    return replace(store, spec=replace(store.spec, persistent=persistent))
