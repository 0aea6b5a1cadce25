"""`dropped()`: the side stream of the records that an operator dropped."""

from __future__ import annotations

from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.errors import TopologyError
from streams.operators.stateless import PassThrough
from streams.serdes.base import Serde
from streams.topology.graph import ProcessorNode, SourceNode
from streams.topology.naming import stateless_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import OperatorSpec


def add_dropped(graph: GraphBuilder, port: Port, name: str | None) -> Port:
    """Adds a node that receives the records dropped by the operator behind `port`.

    Raises:
        TopologyError: The operator never drops records.
    """
    nodes = _dropping(graph, port)
    for node in nodes:
        # An operator on columns has no records to forward.
        graph.change_spec(node.name, node.spec.by_record())
    spec = OperatorSpec(NodeKind.KSTREAM_DROPPED, PassThrough)
    name = name or stateless_name(spec.kind, port.lineage, graph.topology.nodes)
    graph.topology.add(
        ProcessorNode(
            name=name,
            spec=spec,
            parents=tuple(node.name for node in nodes),
            key_serde=(key_serde := _key_serde(graph, nodes[0])),
            value_serde=(value_serde := _value_serde(graph, nodes)),
            takes_dropped=True,
        )
    )
    # A stateless operator drops records in the reader, and may drop other records in another attempt.
    in_head = port.in_head and all(node.stateless for node in nodes)
    repeatable = all(node.spec.repeatable for node in nodes)
    # The dropped record is in the task of the operator's input, whatever new keys the operator makes.
    needs_repartition = any(node.name in graph.inputs_to_repartition for node in nodes)
    return Port(name, key_serde, value_serde, port.lineage, in_head, needs_repartition, repeatable)


def _dropping(graph: GraphBuilder, port: Port) -> list[ProcessorNode]:
    """The operator that made the port; for a join or cogroup, the operators of all sides."""
    made = graph.topology.nodes[port.node]
    names = made.spec.dropped_by(made.name, made.parents) if isinstance(made, ProcessorNode) else ()
    found = [graph.topology.nodes[name] for name in names]
    nodes = [node for node in found if isinstance(node, ProcessorNode) and (node.spec.drops or not node.stateless)]
    if not nodes:
        raise TopologyError(
            f"'{port.node}' drops nothing: ask what a join, an aggregation, a table, deduplicate() or enrich(on_error='drop') "
            f"gave, right behind it."
        )
    return nodes


def _key_serde(graph: GraphBuilder, node: ProcessorNode) -> Serde | None:
    """The serde of an operator's input keys."""
    if node.input_key_serde is not None:
        return node.input_key_serde
    if not node.key_changing:
        return node.key_serde
    above = graph.topology.nodes[node.parents[0]]
    return above.key_serde if isinstance(above, ProcessorNode | SourceNode) else None


def _value_serde(graph: GraphBuilder, nodes: list[ProcessorNode]) -> Serde | None:
    """The serde of the operators' input values; None if it is unknown or differs between them."""
    above = [graph.topology.nodes[parent] for node in nodes for parent in node.parents]
    serdes = [node.value_serde if isinstance(node, ProcessorNode | SourceNode) else None for node in above]
    return serdes[0] if all(serde == serdes[0] for serde in serdes) else None
