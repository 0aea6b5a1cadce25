"""Sub-topologies: the nodes that run together, their names, and the order in which they run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from streams.errors import TopologyMismatchError
from streams.topology.graph import Graph, SourceNode
from streams.topology.naming import fit_for_topic

# --- Connected components of a topology: the nodes that run together (Kafka Streams' `makeNodeGroups`).
#
# Two nodes are connected by an edge, by a shared store, or as sources of the same topic. A sink and the source of the repartition
# topic between them are not connected. Components are numbered in the order in which their first sources were declared, and so
# follow the data. (Kafka Streams uses the order of the sources' names, which contain a counter, with the same effect.)


def sub_topologies(topology: Graph) -> list[list[str]]:
    """The names of the nodes of each component, in the order of insertion (parents first)."""
    root = {name: name for name in topology.nodes}

    def find(name: str) -> str:
        while root[name] != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    meeting_point: dict[tuple[str, str], str] = {}
    for node in topology.nodes.values():
        for parent in node.parents:
            root[find(node.name)] = find(parent)
        shared = [("store", store) for store in node.stores]
        if isinstance(node, SourceNode):
            shared += [("topic", str(topic)) for topic in node.topics]
        for point in shared:
            root[find(node.name)] = find(meeting_point.setdefault(point, node.name))

    groups: dict[str, list[str]] = {}
    for name in topology.nodes:
        groups.setdefault(find(name), []).append(name)
    declared = {source.name: at for at, source in enumerate(topology.sources())}
    return sorted(groups.values(), key=lambda names: min(declared[name] for name in names if name in declared))


# --- The name of a sub-topology, which identifies everything persistent: commits topic, transactional ids, checkpoint, local state.
#
# A sub-topology is named after the smallest name of its topics, so the order of the program does not matter. If commits exist under
# the name of another of its topics, the sub-topology keeps that name, since the state was made under it.


def possible_names(sources: Iterable[SourceNode]) -> list[str]:
    """The names that a sub-topology may have, the usual one first."""
    return sorted({fit_for_topic(topic) for source in sources for topic in source.lasting_topics})


def sub_topology_name(sources: Iterable[SourceNode], known: Iterable[str]) -> str:
    """The name of a sub-topology: a known one if there is one."""
    names = possible_names(sources)
    return next((name for name in known if name in names), names[0])


def check_one_name(sources: Iterable[SourceNode], known: Collection[str]) -> None:
    """Checks that a sub-topology has run under at most one name."""
    names = possible_names(sources)
    found = [name for name in names if name in known]
    if len(found) > 1:
        raise TopologyMismatchError(
            f"the topics {', '.join(names)} are read by one sub-topology, but there are commits of {len(found)} that are called "
            f"after them: {', '.join(found)}, and no topology.json in the checkpoint folder to show which is this one's. "
            f"Nothing was written. Put the checkpoint's folder back, or run the program that they were written by, or give this "
            f"one an application id of its own. If all but one are left over from an old program, delete their commits topics."
        )


# --- The order in which the nodes of a sub-topology are built, called and flushed. It is that of the data, not of the program.
#
# Sources are ordered by their topics, and nodes below each source depth first. The order of declarations in a program therefore has
# no effect: two independent declarations may be swapped, and every result stays the same. Invariants: parents come before their
# children, and the children of one node in the order of the program (Kafka Streams' order).


def in_run_order(topology: Graph, names: Iterable[str]) -> list[str]:
    """The nodes of one sub-topology, each after its parents and after the earlier children of its parents."""
    wanted = list(names)
    children: dict[str, list[str]] = {name: [] for name in wanted}
    for name in wanted:
        for parent in topology.nodes[name].parents:
            children[parent].append(name)
    # Each node must come after its parents and, for each parent, after the child just before it.
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
        # A node that is not ready is tried again when the last node that it waits for has been placed.
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
