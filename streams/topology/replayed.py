"""A program that reads the same topics as another one and writes to topics of its own: for replays beside the other one.

Topics that the program both writes and reads are renamed on both sides, so that a replay reads what it has written itself. Tables
and functions that a lake sink writes to would be the other program's, so the rows of a lake sink go to a topic, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from streams.errors import TopologyError
from streams.topology.graph import Graph, LakeSink, Node, ProcessorNode, SinkNode, SourceNode, Topic
from streams.topology.node_kind import NodeKind

G = TypeVar("G", bound=Graph)

_OUTSIDE = (NodeKind.KSTREAM_ENRICH, NodeKind.KSTREAM_FOREACH, NodeKind.KSTREAM_PEEK)


def with_own_outputs(topology: G, rename: Callable[[str], str]) -> G:
    """The program with other output topics and without lake sinks, whose sources begin where the application's settings say.

    Topics of tables are read from their start, because a table without its older rows would be another table.

    Raises:
        TopologyError: A record chooses its topic by a function, so which topics are written is unknown.
    """
    written = {sink.topic for sink in topology.sinks() if isinstance(sink.topic, str)}
    for sink in topology.sinks():
        if sink.topic is None:
            raise TopologyError(
                f"The sink '{sink.name}' writes to topics that a function chooses, so its records cannot be sent elsewhere: replay "
                f"a program that names its output topics."
            )
    tables = {
        parent
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and node.kind is NodeKind.KTABLE_SOURCE
        for parent in node.parents
    }

    lakes = {sink.topic: rows_topic(sink) for sink in topology.lake_sinks.values()}

    def renamed(topic: Topic) -> Topic:
        if topic in lakes:
            return rename(lakes[topic])
        return rename(topic) if isinstance(topic, str) and topic in written else topic

    nodes: dict[str, Node] = {}
    for name, node in topology.nodes.items():
        if isinstance(node, SinkNode) and node.topic is not None:
            nodes[name] = replace(node, topic=renamed(node.topic))
        elif isinstance(node, SourceNode):
            start = "earliest" if name in tables else None
            nodes[name] = replace(node, topics=tuple(map(renamed, node.topics)), offset_reset=start)
        else:
            nodes[name] = node
    return replace(topology, nodes=nodes, lake_sinks={})


def rows_topic(sink: LakeSink) -> str:
    """What the topic of a lake sink's rows is called, before it is renamed; each row is a JSON object."""
    return f"{sink.name}-rows"


def calls_outside(topology: Graph) -> Iterator[str]:
    """What a program does besides writing to topics, so that a replay does it again, too; for people."""
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode) and node.kind in _OUTSIDE:
            yield f"{node.name} calls the program's function, with whatever it does to other systems"
