"""Resolves patterns of topics once, at the start (Kafka Streams' `stream(Pattern)`).

Kafka Streams looks for new topics while it runs. Here the topics are fixed when a run starts, because Spark logs their
partitions; a topic that is created later is read from the next start on. Invariant: nothing persistent (names, hashes,
descriptions) depends on which topics match.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from streams.errors import TopologyError
from streams.topology.graph import Graph, Node, SourceNode

G = TypeVar("G", bound=Graph)


def has_patterns(topology: Graph) -> bool:
    """Whether any source reads a pattern."""
    return any(source.pattern is not None for source in topology.sources())


def matches(source: SourceNode, topic: str) -> bool:
    """Whether the source reads a pattern that the topic matches as a whole."""
    return source.pattern is not None and source.pattern.fullmatch(topic) is not None


def with_matching_topics(topology: G, known: Iterable[str]) -> G:
    """The topology with the topics whose full names match its patterns, sorted by name.

    Raises:
        TopologyError: No topic matches a pattern.
    """
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
                    f"match the whole name, and topics are looked for at the start only."
                )
            nodes[name] = replace(node, topics=matching)
    return replace(topology, nodes=nodes)
