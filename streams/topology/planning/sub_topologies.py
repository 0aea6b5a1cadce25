"""Connected components of a topology: the nodes that run together (Kafka Streams' `makeNodeGroups`).

Two nodes are connected by an edge, by a shared store, or as sources of the same topic. A sink and the source of the repartition
topic between them are not connected. Components are numbered in the order in which their first sources were declared, and so
follow the data. (Kafka Streams uses the order of the sources' names, which contain a counter: the same.)
"""

from __future__ import annotations

from streams.topology.graph import Graph, SourceNode


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
