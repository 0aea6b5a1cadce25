"""How each operator processes records: on columns, together as a batch, or one by one, and why not on columns.

Columns cost a fraction of a microsecond for each record and operator, records one by one several microseconds. The plan decides
(`planning.column_head`, `planning.units`), `ways` reads it, and `explained` makes text of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from streams.model.expressions import KEY, TIMESTAMP
from streams.serdes.json import is_plain_json
from streams.topology.graph import Graph, Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.plan import SubTopology, plan_alone, with_added_topics
from streams.topology.planning.repartitions import added_topics, crossings
from streams.topology.planning.units import why_single
from streams.topology.specs.aggregations import AggregationSpec

_READERS = "readers"
_TASKS = "tasks"


class Way(str, Enum):
    """How an operator processes the records of a step."""

    COLUMNS = "columns"
    TOGETHER = "records together"
    ONE_BY_ONE = "one by one"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class NodeWay:
    """How one node processes records.

    Attributes:
        node: The node's name.
        place: `readers` (before the shuffle) or `tasks`.
        way: How it processes records.
        remark: For a source on columns, the fields that it decodes; for slower ways, why they are not faster.
    """

    node: str
    place: str
    way: Way
    remark: str = ""


def ways(sub: SubTopology) -> list[NodeWay]:
    """The way of each node of a sub-topology: first the readers' nodes, then the tasks' nodes, in run order."""
    in_readers = [name for name, node in sub.nodes.items() if isinstance(node, SourceNode) or name in sub.head]
    in_tasks = [name for name in sub.nodes if name not in in_readers]
    return [
        *(_in_readers(sub, sub.nodes[name]) for name in in_readers),
        *(_in_tasks(sub, sub.nodes[name]) for name in in_tasks),
    ]


def why_not_live(sub: SubTopology) -> str | None:
    """Why live execution cannot run a sub-topology, whatever its topics are like; None if it can.

    It always can if the application began live, because its plan has repartition topics where records change their tasks.
    """
    for made_by, _, receiver in crossings(sub):
        return f"{made_by} makes keys before {receiver}, and {NO_TOPIC}"
    return None


NO_TOPIC = (
    "there is no repartition topic between them, since the application was first started in micro-batches: `streams rescale "
    "TARGET` adds it, and keeps the state"
)


def explained(topology: Graph) -> str:
    """Describes the ways of all nodes as text, and the repartition topics that live execution needs.

    Raises:
        TopologyError: The topology cannot be planned.
    """
    parts = []
    for sub in plan_alone(topology).sub_topologies:
        found = ways(sub)
        width = max(len(one.node) for one in found)
        live = "behind repartition topics" if why_not_live(sub) else "with as many tasks as partitions"
        parts.append(f"Sub-topology: {sub.index}\n  Can run live, {live}\n{''.join(_lines(found, width))}")
    if topics := added_topics(with_added_topics(topology, {})):
        begins = "Added repartition topics" if topology.repartitioned is not None else _ADDS
        parts.append("\n".join([begins, *(f"  {name}: {why}" for name, why in topics.items()), ""]))
    given = [table.given for table in topology.global_tables.values() if table.given is not None]
    if given:
        rows = (f"  {one.topic} <-- the rows of {one.text}, by {', '.join(one.key)}\n" for one in given)
        parts.append(f"Global tables that the program gives\n{''.join(rows)}")
    if topology.lake_sinks:
        sinks = (
            f"  {sink.topic} --> {sink.target_text} ({', '.join(sink.layout.names)})\n"
            for sink in topology.lake_sinks.values()
        )
        parts.append(f"Lake sinks\n{''.join(sinks)}")
    return "\n".join(parts)


_ADDS = "Repartition topics that a first start adds, unless it is with execution=micro-batch"


def _lines(found: list[NodeWay], width: int) -> Iterator[str]:
    place = None
    for one in found:
        if one.place != place:
            place = one.place
            yield f"  In {place}:\n"
        remark = f": {one.remark}" if one.remark else ""
        yield f"    {one.node:<{width}}  {one.way.value}{remark}\n"


def _in_readers(sub: SubTopology, node: Node) -> NodeWay:
    if isinstance(node, ProcessorNode):
        on_columns = any(step.node == node.name for step in sub.columns.steps)
        if on_columns:
            return NodeWay(node.name, _READERS, Way.COLUMNS)
        return NodeWay(node.name, _READERS, Way.ONE_BY_ONE, _why_no_columns(sub, node))
    children = sub.children(node.name)
    if any(child in sub.head and not _is_step(sub, child) for child in children):
        return NodeWay(node.name, _READERS, Way.ONE_BY_ONE, "operators in the readers take whole records")
    if any(entry.transport in ("columns", "written") and entry.source == node.name for entry in sub.entries):
        read = [path for path in sub.columns.paths[node.name] if path and path != TIMESTAMP]  # these are there anyway
        fields = ", ".join("keys" if path == KEY else path for path in read)
        return NodeWay(node.name, _READERS, Way.COLUMNS, f"decodes {fields}" if fields else "decodes no field")
    return NodeWay(node.name, _READERS, Way.BYTES, "the tasks decode the records")


def _is_step(sub: SubTopology, name: str) -> bool:
    return any(step.node == name for step in sub.columns.steps)


def _in_tasks(sub: SubTopology, node: Node) -> NodeWay:
    if node.name in sub.columns.aggregates:
        return NodeWay(node.name, _TASKS, Way.COLUMNS)
    if isinstance(node, SinkNode) and _takes_bytes(sub, node):
        return NodeWay(node.name, _TASKS, Way.BYTES, "the readers have written the values")
    unit = next(unit for unit in sub.units if node.name in unit.nodes)
    single = why_single(node)
    if unit.groups and node.name in sub.columns.scanning:
        return NodeWay(node.name, _TASKS, Way.COLUMNS, "of the texts that joins make")
    if unit.groups and single is None:
        return NodeWay(node.name, _TASKS, Way.TOGETHER, _why_only_together(sub, node))
    return NodeWay(node.name, _TASKS, Way.ONE_BY_ONE, single or unit.reason)


def _takes_bytes(sub: SubTopology, sink: SinkNode) -> bool:
    """Whether a sink writes values that readers have made from columns, without objects."""
    transports = {entry.transport for entry in sub.entries if entry.node == sink.name}
    alone = all(any(entry.from_node == parent for entry in sub.entries) for parent in sink.parents)
    unit = next(unit for unit in sub.units if sink.name in unit.nodes)
    together = bool(unit.groups) and sink.topic is not None and sink.partitioner is None
    return transports == {"written"} and alone and together and is_plain_json(sink.value_serde)


def _why_only_together(sub: SubTopology, node: Node) -> str:
    """Why an aggregation does not take columns, whether a join reads values, and when records go one by one after all."""
    if not isinstance(node, ProcessorNode):
        return ""
    why = _why_no_columns(sub, node) if isinstance(node.spec, AggregationSpec) else ""
    return "; ".join(filter(None, (why, node.spec.remark)))


def _why_no_columns(sub: SubTopology, node: Node) -> str:
    reason = sub.columns.reasons.get(node.name)
    return "" if reason is None else reason.told_by(node.name)
