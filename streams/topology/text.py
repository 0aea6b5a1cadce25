"""A topology as text: for `describe()`, and as a Mermaid flow chart."""

from __future__ import annotations

from collections.abc import Sequence

from streams.topology.graph import GlobalTable, Graph, Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.plan import SubTopology, plan_alone
from streams.topology.planning.sub_topologies import sub_topologies

# --- A topology as text, in the format of Kafka Streams' `TopologyDescription`, for which there are viewers.
#
# Sub-topologies are ordered by number, and nodes by how many are below them, most first, then by name (Kafka Streams' comparator).
# Children after an arrow are in the order in which they run. Only this order differs: in Kafka Streams, children and the stores of
# a node are in the order of Java's hashes.


def topology_text(topology: Graph) -> str:
    """The text, ending in an empty line."""
    groups = sub_topologies(topology)
    parts = [f"  Sub-topology: {index}\n{_sub_topology(topology, names)}\n" for index, names in enumerate(groups)]
    for index, table in enumerate(topology.global_tables.values(), len(groups)):
        parts.append(f"  Sub-topology: {index} for global store (will not generate tasks)\n{_global_table(table)}\n")
    return "Topologies:\n " + "".join(parts)


def short_text(graph: Graph) -> str:
    """One line, such as `2 sub-topologies: orders -> totals-repartition; totals-repartition -> totals (1 store)`."""
    groups = sub_topologies(graph)
    parts = "; ".join(_short(graph, names) for names in groups)
    tables = f"; global tables: {', '.join(graph.global_tables)}" if graph.global_tables else ""
    return f"{_counted(len(groups), 'sub-topology', 'sub-topologies')}: {parts}{tables}"


def _short(graph: Graph, names: Sequence[str]) -> str:
    nodes = [graph.nodes[name] for name in names]
    read = sorted({topic for node in nodes if isinstance(node, SourceNode) for topic in node.subscription})
    written = sorted({_written(node) for node in nodes if isinstance(node, SinkNode)})
    stores = {store for node in nodes for store in node.stores}
    text = ", ".join(read) + (f" -> {', '.join(written)}" if written else "")
    return f"{text} ({_counted(len(stores), 'store', 'stores')})" if stores else text


def _written(sink: SinkNode) -> str:
    return "topics chosen per record" if sink.topic is None else str(sink.topic)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _global_table(table: GlobalTable) -> str:
    source = table.source
    return (
        f"    Source: {source.name} (topics: [{', '.join(map(str, source.topics))}])\n      --> {table.name}\n"
        f"    Processor: {table.name} (stores: [{table.store.name}])\n      --> none\n      <-- {source.name}\n"
    )


def _sub_topology(topology: Graph, names: list[str]) -> str:
    children: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        for parent in topology.nodes[name].parents:
            children[parent].append(name)
    size: dict[str, int] = {}
    for name in reversed(names):  # children before parents
        size[name] = 1 + sum(size[child] for child in children[name])

    lines = []
    for name in sorted(names, key=lambda name: (-size[name], name)):
        lines.append(f"    {_headline(topology, name)}\n")
        if not isinstance(topology.nodes[name], SinkNode):
            lines.append(f"      --> {_listed(children[name])}\n")
        if not isinstance(topology.nodes[name], SourceNode):
            lines.append(f"      <-- {_listed(topology.nodes[name].parents)}\n")
    return "".join(lines)


def _headline(topology: Graph, name: str) -> str:
    node = topology.nodes[name]
    if isinstance(node, SourceNode):
        if node.pattern is not None:
            return f"Source: {name} (topics: {node.pattern.pattern})"
        return f"Source: {name} (topics: [{', '.join(node.subscription)}])"
    if isinstance(node, ProcessorNode):
        return f"Processor: {name} (stores: [{', '.join(node.stores)}])"
    if node.topic is None:
        extractor = getattr(node.topic_extractor, "__qualname__", type(node.topic_extractor).__qualname__)
        return f"Sink: {name} (extractor class: {extractor})"
    lake = next((f", {sink.target_text}" for sink in topology.lake_sinks.values() if sink.topic == node.topic), "")
    return f"Sink: {name} (topic: {node.topic}{lake})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


# --- A topology as a Mermaid flow chart, as GitHub draws it.
#
# Each sub-topology is a box with the readers (sources and head) and the tasks (operators that need order or state). The arrow
# from one to the other is the shuffle. Topics and stores are cylinders.


def mermaid(topology: Graph) -> str:
    """The chart's source, without a code fence; topics are named without the application's id."""
    lines = ["flowchart LR"]
    ids: dict[tuple[str, str], str] = {}
    for sub in plan_alone(topology).sub_topologies:
        lines += _box(topology, sub, ids)
    lines += _arrows(topology, ids)
    return "\n".join(lines) + "\n"


def _box(topology: Graph, sub: SubTopology, ids: dict[tuple[str, str], str]) -> list[str]:
    readers = [name for name in sub.nodes if isinstance(sub.nodes[name], SourceNode) or name in sub.head]
    tasks = [name for name in sub.nodes if name not in readers]
    lines = [f'  subgraph sub{sub.index}["{sub.index}: {_text(_plain(topology, sub))}"]']
    for part, names in (("readers", readers), ("tasks", tasks)):
        if not names:
            continue
        lines.append(f'    subgraph sub{sub.index}{part}["{part}"]')
        lines += [f"      {_id(ids, 'node', name)}{_shape(topology.nodes[name])}" for name in names]
        if part == "tasks":
            lines += [f'      {_id(ids, "store", store)}[("{_text(store)}")]' for store in sub.stores]
        lines.append("    end")
    lines.append("  end")
    return lines


def _plain(topology: Graph, sub: SubTopology) -> str:
    """The sub-topology's name without the application's id."""
    source = topology.nodes[sub.sources[0].name]
    assert isinstance(source, SourceNode)
    return source.subscription[0]


def _shape(node: Node) -> str:
    if isinstance(node, ProcessorNode):
        return f'["{_text(node.name)}"]'
    return f'(["{_text(node.name)}"])'


def _arrows(topology: Graph, ids: dict[tuple[str, str], str]) -> list[str]:
    lines = []
    for node in topology.nodes.values():
        here = ids["node", node.name]
        if isinstance(node, SourceNode):
            lines += [
                f"  {_topic(ids, str(topic))} --> {here}"
                for topic in (node.subscription if node.pattern is not None else node.topics)
            ]
        lines += [f"  {ids['node', parent]} --> {here}" for parent in node.parents]
        lines += [f"  {here} -.- {ids['store', store]}" for store in node.stores]
        if isinstance(node, SinkNode) and node.topic is not None:
            lines.append(f"  {here} --> {_topic(ids, str(node.topic))}")
    for sink in topology.lake_sinks.values():
        target = _id(ids, "lake", sink.name)
        lines.append(f'  {_topic(ids, str(sink.topic))} --> {target}[("{_text(sink.target_text)}")]')
    return lines


def _topic(ids: dict[tuple[str, str], str], topic: str) -> str:
    return f'{_id(ids, "topic", topic)}[("{_text(topic)}")]'


def _id(ids: dict[tuple[str, str], str], kind: str, name: str) -> str:
    return ids.setdefault((kind, name), f"{kind[0]}{len(ids)}")


def _text(name: str) -> str:
    return name.replace('"', "#quot;")
