"""The graph that the DSL builds and the planner divides: frozen nodes, in the order in which they were added."""

from streams.topology.graph.graph import Graph
from streams.topology.graph.nodes import (
    DeltaTable,
    Failed,
    GivenRows,
    GlobalTable,
    InternalTopic,
    LakeSink,
    Node,
    ProcessorNode,
    RepartitionOptions,
    SinkNode,
    SourceNode,
    StoreNode,
    Topic,
    through_topic,
)

__all__ = [
    "DeltaTable",
    "Failed",
    "GivenRows",
    "GlobalTable",
    "Graph",
    "InternalTopic",
    "LakeSink",
    "Node",
    "ProcessorNode",
    "RepartitionOptions",
    "SinkNode",
    "SourceNode",
    "StoreNode",
    "Topic",
    "through_topic",
]
