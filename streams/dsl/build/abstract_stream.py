"""The bases of streams and tables, by which one is known from the other while a topology is built (`AbstractStream` in Kafka Streams).

The functions that build joins ask here whether the other side is a stream or a table: they cannot import `KStream` and `KTable`,
which import them.
"""

from __future__ import annotations

from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.dsl.build.table_node import TableNode


class AbstractStream:
    """Base of `KStream`, `KTable` and `GlobalKTable`: what belongs to one builder and can be joined."""

    _graph: GraphBuilder


class StreamBase(AbstractStream):
    """Base of `KStream`."""

    _port: Port


class TableBase(AbstractStream):
    """Base of `KTable`."""

    _port: Port
    _node: TableNode
