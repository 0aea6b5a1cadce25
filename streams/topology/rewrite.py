"""Changes the topics of programs: replaces patterns by the topics that match, and renames outputs for a replay.

Kafka Streams looks for new topics while it runs. Here the topics are fixed when a run starts, because Spark logs their
partitions; a topic that is created later is read from the next start on. Nothing persistent (names, hashes, descriptions)
depends on which topics match.

A replay reads the same topics as the program that it repeats and writes to topics of its own. Topics that the program both
writes and reads are renamed on both sides. The tables and functions of lake sinks belong to the other program, so the rows of
a lake sink go to a topic, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from streams.errors import TopologyError
from streams.topology.graph import Graph, LakeSink, Node, ProcessorNode, SinkNode, SourceNode, Topic
from streams.topology.node_kind import NodeKind

G = TypeVar("G", bound=Graph)

_OUTSIDE = (NodeKind.KSTREAM_ENRICH, NodeKind.KSTREAM_FOREACH, NodeKind.KSTREAM_PEEK)


def has_patterns(topology: Graph) -> bool:
    """Whether any source reads a pattern."""
    return any(source.pattern is not None for source in topology.sources())


def matches(source: SourceNode, topic: str) -> bool:
    """Whether the source reads a pattern that the whole name of the topic matches."""
    return source.pattern is not None and source.pattern.fullmatch(topic) is not None


def with_matching_topics(topology: G, known: Iterable[str]) -> G:
    """The topology with the topics whose full names match its patterns, sorted by name."""
    if not has_patterns(topology):
        return topology
    names = sorted(name for name in set(known) if not name.startswith("__"))
    nodes: dict[str, Node] = {}
    for name, node in topology.nodes.items():
        nodes[name] = node
        if isinstance(node, SourceNode) and node.pattern is not None:
            matching = tuple(topic for topic in names if matches(node, topic))
            if not matching:
                raise TopologyError(
                    f"No topic matches {node.subscription[0]} of the source '{name}': create one, and start again. Patterns must "
                    f"match the whole name, and topics are looked for only at the start."
                )
            nodes[name] = replace(node, topics=matching)
    return replace(topology, nodes=nodes)


def with_own_outputs(topology: G, rename: Callable[[str], str]) -> G:
    """Returns the program with other output topics and without lake sinks. Its sources begin where the settings say.

    Topics of tables are read from their start, because a table without its older rows would be another table.
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
    """The topic of a lake sink's rows before it is renamed. Each row is a JSON object."""
    return f"{sink.name}-rows"


def calls_outside(topology: Graph) -> Iterator[str]:
    """Yields, for people, each effect that a program has apart from writing to topics, and that a replay would therefore repeat."""
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode) and node.kind in _OUTSIDE:
            yield f"{node.name} calls the program's function, with whatever it does to other systems"
