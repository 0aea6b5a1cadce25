"""A topology as a Mermaid flow chart, as GitHub draws it.

Each sub-topology is a box with the readers (sources and head) and the tasks (operators that need order or state). The arrow
from one to the other is the shuffle. Topics and stores are cylinders.
"""

from __future__ import annotations

from streams.topology.graph import Graph, Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.plan import SubTopology, plan_alone


def mermaid(topology: Graph) -> str:
    """The chart's source, without a code fence; topics are named without the application's id."""
    lines = ["flowchart LR"]
    ids: dict[tuple[str, str], str] = {}
    for sub in plan_alone(topology).sub_topologies:
        lines += _sub_topology(topology, sub, ids)
    lines += _arrows(topology, ids)
    return "\n".join(lines) + "\n"


def _sub_topology(topology: Graph, sub: SubTopology, ids: dict[tuple[str, str], str]) -> list[str]:
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
