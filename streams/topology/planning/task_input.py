"""The records that readers send to tasks: one `TaskInput` for each edge out of the head.

Records are sent as raw bytes, as objects that head operators made, as columns of the fields that a built-in aggregate reads, or
with values that a reader has written as JSON, from columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from streams.serdes.base import Serde, serde_identity
from streams.topology.graph import Graph, Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.planning.column_head import ColumnHead, KeySerde

Transport: TypeAlias = Literal["raw", "object", "columns", "written"]


@dataclass(frozen=True, slots=True)
class TaskInput:
    """One edge out of the head, into a node that runs in the task.

    Attributes:
        index: The number within the sub-topology, which is part of each row.
        node: The receiving node: a stateful processor, a node after such a processor, or a sink.
        from_node: The sending node: a source or a node of the head.
        transport: `raw`: Kafka's bytes, unchanged; `object`: objects made by head operators, with the key written by
            `key_serde` and the value pickled; `columns`: the key as in `raw`, or written by `key_serde` if it is new, and only
            `fields` of the value; `written`: the key as in `columns`, and the value as JSON (`engine.reader.written_values`).
        source: The source whose serdes read the bytes (`raw`), or whose records the columns come from; None for objects.
        key_serde: The serde of the key in transit: the source's, if the key is the source's.
        fields: The dotted paths to decode, for `columns`.
        rows_of: The input whose rows this one reads. Several nodes that need columns of one node share the rows of the
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


def task_inputs(
    nodes: dict[str, Node], head: frozenset[str], columns: ColumnHead, key_serde: KeySerde
) -> tuple[TaskInput, ...]:
    """The inputs of a sub-topology's task, in the order of its nodes."""
    entries: list[TaskInput] = []
    steps = {step.node for step in columns.steps}
    for node in nodes.values():
        if node.name in head:
            continue
        for parent in node.parents:
            above = nodes[parent]
            if node.name in columns.aggregates or parent in steps:
                entries.append(_of_columns(entries, nodes, node, parent, columns, key_serde))
            elif isinstance(above, SourceNode):
                at = len(entries)
                entries.append(TaskInput(at, node.name, parent, "raw", parent, above.key_serde, rows_of=at))
            elif parent in head:
                entries.append(_from_head(len(entries), nodes, node, parent, key_serde(node, above)))
    return tuple(entries)


def inputs_without_shuffle(
    nodes: dict[str, Node],
    on_columns: frozenset[str],
    columns: ColumnHead,
    shuffled: Sequence[TaskInput],
    with_state: Collection[str],
) -> tuple[TaskInput, ...]:
    """The inputs of a task that reads its own partitions, where only operators on columns run before the task.

    Args:
        nodes: All nodes by name, in run order.
        on_columns: The operators on columns.
        columns: The part of the head that works on columns.
        shuffled: The inputs of a task that follows the whole head.
        with_state: The nodes from which records reach something with state.
    """
    serdes = {(one.node, one.from_node): one.key_serde for one in shuffled}
    found = task_inputs(nodes, on_columns, columns, lambda node, above: serdes[node.name, above.name])
    bytes_alone = ("raw", "written")
    return tuple(
        replace(one, by_partition=one.transport in bytes_alone and one.node not in with_state) for one in found
    )


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
    """The operators from the sources down to a node of the head, in run order."""
    way = {name}
    for node in reversed(nodes.values()):
        if node.name in way:
            way.update(node.parents)
    return [node for node in nodes.values() if node.name in way and isinstance(node, ProcessorNode)]


def _of_columns(
    entries: list[TaskInput],
    nodes: dict[str, Node],
    node: Node,
    parent: str,
    columns: ColumnHead,
    key_serde_of: KeySerde,
) -> TaskInput:
    source = nodes[columns.source_of(parent)]
    assert isinstance(source, SourceNode), "columns come from sources"
    keyed_by = tuple(one.name for one in _way(nodes, parent) if one.key_changing)
    key_serde = key_serde_of(node, nodes[parent]) if keyed_by else source.key_serde
    index = len(entries)
    if node.name not in columns.aggregates:
        by_partition = bool(keyed_by) and isinstance(node, SinkNode)
        return TaskInput(
            index,
            node.name,
            parent,
            "written",
            source.name,
            key_serde,
            rows_of=index,
            keyed_by=keyed_by,
            by_partition=by_partition,
        )
    assert isinstance(node, ProcessorNode), "sinks take whole values"
    rows = ("columns", parent, serde_identity(key_serde))
    shared = (one.index for one in entries if (one.transport, one.from_node, serde_identity(one.key_serde)) == rows)
    return TaskInput(
        index,
        node.name,
        parent,
        "columns",
        source.name,
        key_serde,
        node.spec.projection or (),
        rows_of=next(shared, index),
        keyed_by=keyed_by,
    )


def key_serde_of(topology: Graph, nodes: dict[str, Node], node: Node, above: Node) -> Serde:
    """The serde for keys of records from the head to `node`: the one named downstream, otherwise the one known upstream."""
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
