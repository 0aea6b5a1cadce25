"""The order in which the nodes of a sub-topology are built, called and flushed: that of the data, not that of the program.

Sources are ordered by their topics, and nodes below each source depth first. The order of declarations in a program therefore has
no effect: two independent declarations may be swapped, and every result stays the same. Invariants: parents come before their
children, and the children of one node in the order of the program (Kafka Streams' order).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from streams.topology.graph import Graph, SourceNode


def in_run_order(topology: Graph, names: Iterable[str]) -> list[str]:
    """The nodes of one sub-topology, each after its parents and after the earlier children of its parents.

    Args:
        topology: The graph.
        names: The nodes.
    """
    wanted = list(names)
    children: dict[str, list[str]] = {name: [] for name in wanted}
    for name in wanted:
        for parent in topology.nodes[name].parents:
            children[parent].append(name)
    # The nodes that must come before a node: its parents, and under each of them the child just before it.
    before: dict[str, set[str]] = {name: set(topology.nodes[name].parents) for name in wanted}
    after: dict[str, list[str]] = {name: [] for name in wanted}
    for below in children.values():
        for elder, younger in pairwise(below):
            before[younger].add(elder)
            after[elder].append(younger)
    placed: dict[str, None] = {}
    stack = _sources(topology, wanted)[::-1]
    while stack:
        name = stack.pop()
        # A node that is not ready is looked at again when the last of these has been placed.
        if name not in placed and before[name] <= placed.keys():
            placed[name] = None
            stack += [*after[name][::-1], *children[name][::-1]]
    return list(placed)


def _sources(topology: Graph, names: Iterable[str]) -> list[str]:
    """The sources among the nodes, in the order of their topics."""
    sources = [node for name in names if isinstance(node := topology.nodes[name], SourceNode)]
    return [source.name for source in sorted(sources, key=_place)]


def _place(source: SourceNode) -> tuple[bool, tuple[str, ...]]:
    return source.retries, source.lasting_topics or source.subscription
