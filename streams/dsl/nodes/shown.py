"""A stream or a table in one line, for people: `'orders' → filter → map_values`."""

from __future__ import annotations

from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.topology.graph import InternalTopic, Node, SinkNode, SourceNode
from streams.topology.node_kind import NodeKind

_MOST = 6

_METHODS: dict[NodeKind, str | None] = {
    NodeKind.KSTREAM_FLATMAP: "flat_map",
    NodeKind.KSTREAM_FLATMAPVALUES: "flat_map_values",
    NodeKind.KSTREAM_MAPVALUES: "map_values",
    NodeKind.KSTREAM_KEY_SELECT: "select_key",
    NodeKind.KSTREAM_PROCESSOR: "process",
    NodeKind.KSTREAM_PROCESSVALUES: "process_values",
    NodeKind.KSTREAM_BRANCH: "split",
    NodeKind.KSTREAM_BRANCHCHILD: "branch",
    NodeKind.KSTREAM_TOTABLE: "to_table",
    NodeKind.KSTREAM_LEFTJOIN: "left_join",
    NodeKind.KSTREAM_JOINTHIS: "join",
    NodeKind.KSTREAM_JOINOTHER: "join",
    NodeKind.KSTREAM_JOINALL: "join_all",
    NodeKind.KSTREAM_ASOFTHIS: "as_of_join",
    NodeKind.KSTREAM_ASOFOTHER: "as_of_join",
    NodeKind.COGROUPKSTREAM_AGGREGATE: "cogroup",
    NodeKind.COGROUPKSTREAM_MERGE: "aggregate",
    NodeKind.KTABLE_SOURCE: None,
    NodeKind.KTABLE_MAPVALUES: "map_values",
    NodeKind.KTABLE_TRANSFORMVALUES: "transform_values",
    NodeKind.KTABLE_TOSTREAM: "to_stream",
    NodeKind.KTABLE_SELECT: "group_by",
    NodeKind.KTABLE_JOINTHIS: "join",
    NodeKind.KTABLE_JOINOTHER: "join",
    NodeKind.KTABLE_MERGE: "join",
    NodeKind.KTABLE_FK_JOIN_SUBSCRIPTION_REGISTRATION: None,
    NodeKind.KTABLE_FK_JOIN_SUBSCRIPTION_PROCESSOR: None,
    NodeKind.KTABLE_FK_JOIN_FOREIGN_PROCESSOR: None,
    NodeKind.KTABLE_FK_JOIN_RESPONSE: None,
    NodeKind.KTABLE_FK_JOIN_SUBSCRIPTION_RESPONSE_RESOLVER: None,
    NodeKind.KTABLE_FK_JOIN_OUTPUT: "join",
}
"""Kind of a node -> the method that adds it, where that is not the kind's last word; None: not the last node of its method."""


def way(graph: GraphBuilder, port: Port) -> str:
    """The topics that a stream comes from, and the methods called since."""
    steps = _steps(graph, port.node)
    shown = steps if len(steps) <= _MOST else ["…", *steps[-_MOST:]]
    return " → ".join([", ".join(map(repr, port.lineage.topics)), *shown])


def _steps(graph: GraphBuilder, name: str) -> list[str]:
    """The methods from the topic to a node, along the first parents."""
    steps: list[str | None] = []
    node: Node | None = graph.topology.nodes[name]
    while node is not None:
        step = _method(node)
        if steps[-1:] != [step]:
            steps.append(step)
        node = _above(graph, node)
    return [step for step in reversed(steps) if step is not None]


def _method(node: Node) -> str | None:
    if isinstance(node, SinkNode):
        return "repartition" if node.repartitions else None
    if isinstance(node, SourceNode):
        return None
    return _METHODS.get(node.kind, node.kind.value.rpartition("-")[2].lower())


def _above(graph: GraphBuilder, node: Node) -> Node | None:
    """The first parent; for the source of a repartition topic, the sink that writes the topic."""
    nodes = graph.topology.nodes
    if node.parents:
        return nodes[node.parents[0]]
    topics = (
        [topic for topic in node.topics if isinstance(topic, InternalTopic)] if isinstance(node, SourceNode) else []
    )
    return next((sink for sink in nodes.values() if isinstance(sink, SinkNode) and sink.topic in topics), None)
