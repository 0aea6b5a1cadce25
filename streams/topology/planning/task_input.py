"""The records that readers send to tasks: one `TaskInput` for each edge out of the head.

Records cross as raw bytes, as objects that head operators made, or as columns of the fields that a built-in aggregate reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from streams.serdes.base import Serde
from streams.serdes.json import is_plain_json
from streams.topology.graph import Graph, Node, ProcessorNode, SinkNode, SourceNode

Transport: TypeAlias = Literal["raw", "object", "columns"]


@dataclass(frozen=True, slots=True)
class TaskInput:
    """One edge out of the head, into a node that runs in the task.

    Attributes:
        index: The number within the sub-topology, which is part of each row.
        node: The receiving node: a stateful processor, one behind such a processor, or a sink.
        from_node: The sending node: a source or a node of the head.
        transport: `raw`: Kafka's bytes, unchanged; `object`: objects made by head operators, with the key written by
            `key_serde` and the value pickled; `columns`: the key as in `raw`, and only `fields` of the value.
        source: The source whose serdes read the bytes if `from_node` is a source; else None.
        key_serde: The serde of the key in transit; for `raw` and `columns`, the source's.
        fields: The dotted paths to decode, for `columns`.
        rows_of: The input whose rows this one reads. Several nodes that need columns of one source share the rows of the
            first of them, which then have the fields of all.
        keyed_by: Names of the operators in the head that have computed the key; empty: the key is the source's.
        by_partition: Whether rows go to the task of their source partition, whatever their key.
        repeatable: Whether every operator on the way has the same results in every attempt.
    """

    index: int
    node: str
    from_node: str
    transport: Transport
    source: str | None
    key_serde: Serde
    fields: tuple[str, ...] = ()
    rows_of: int = -1
    keyed_by: tuple[str, ...] = ()
    by_partition: bool = False
    repeatable: bool = True


def task_inputs(topology: Graph, nodes: dict[str, Node], head: frozenset[str]) -> tuple[TaskInput, ...]:
    """The inputs of a sub-topology's task, in the order of its nodes.

    Args:
        topology: The program.
        nodes: The nodes of the sub-topology, in run order.
        head: Those of its operators that run in the readers.
    """
    entries: list[TaskInput] = []
    for node in nodes.values():
        if node.name in head:
            continue
        for parent in node.parents:
            above = nodes[parent]
            if isinstance(above, SourceNode):
                entry = _from_source(len(entries), nodes, node, above)
                shared = (one.index for one in entries if (one.transport, one.source) == ("columns", entry.source))
                rows_of = next(shared, entry.index) if entry.transport == "columns" else entry.index
                entries.append(replace(entry, rows_of=rows_of))
            elif parent in head:
                serde = _key_serde(topology, nodes, node, above)
                entries.append(_from_head(len(entries), nodes, node, parent, serde))
    return tuple(entries)


def _from_head(index: int, nodes: dict[str, Node], node: Node, parent: str, key_serde: Serde) -> TaskInput:
    way = _way(nodes, parent)
    keyed_by = tuple(one.name for one in way if one.key_changing)
    return TaskInput(
        index,
        node.name,
        parent,
        "object",
        None,
        key_serde,
        rows_of=index,
        keyed_by=keyed_by,
        by_partition=bool(keyed_by) and isinstance(node, SinkNode),
        repeatable=all(one.spec.repeatable for one in way),
    )


def _way(nodes: dict[str, Node], name: str) -> list[ProcessorNode]:
    """The operators from the sources down to a node of the head."""
    node = nodes[name]
    if not isinstance(node, ProcessorNode):
        return []
    return [*(one for parent in node.parents for one in _way(nodes, parent)), node]


def _from_source(index: int, nodes: dict[str, Node], node: Node, source: SourceNode) -> TaskInput:
    projection = node.spec.projection if isinstance(node, ProcessorNode) else None
    # Columns are processed before the step's other records. A table that other nodes look up must not be updated before them,
    # nor may stream time advance early if a user's processor reads it or is scheduled by it.
    looked_up = any(other is not node and set(other.stores) & set(node.stores) for other in nodes.values())
    seen = any(isinstance(other, ProcessorNode) and other.spec.sees_stream_time for other in nodes.values())
    if projection is not None and is_plain_json(source.value_serde) and not looked_up and not seen:
        return TaskInput(index, node.name, source.name, "columns", source.name, source.key_serde, projection)
    return TaskInput(index, node.name, source.name, "raw", source.name, source.key_serde)


def _key_serde(topology: Graph, nodes: dict[str, Node], node: Node, above: Node) -> Serde:
    """The serde for keys of records from the head to `node`: the one named downstream, else the one known upstream."""
    known = above.key_serde if isinstance(above, ProcessorNode) else None
    return _asked_for(nodes, node) or known or topology.default_key_serde


def _asked_for(nodes: dict[str, Node], node: Node) -> Serde | None:
    if isinstance(node, SinkNode):
        return node.key_serde
    if isinstance(node, ProcessorNode):
        if node.input_key_serde is not None:
            return node.input_key_serde
        if node.stateless and not node.key_changing:
            below = (child for child in nodes.values() if node.name in child.parents)
            return next((serde for child in below if (serde := _asked_for(nodes, child)) is not None), None)
    return None
