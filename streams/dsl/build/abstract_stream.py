"""The bases of streams and tables, by which builders tell one from the other (`AbstractStream` in Kafka Streams).

The functions that build joins ask here whether the other side is a stream or a table: they cannot import `KStream` and `KTable`,
which import them.
"""

from __future__ import annotations

from streams.dsl.build.table_node import TableNode
from streams.dsl.facade import Facade


class AbstractStream(Facade):
    """Base of `KStream`, `KTable` and `GlobalKTable`: what belongs to one builder and can be joined."""


class StreamBase(AbstractStream):
    """Base of `KStream`."""


class TableBase(AbstractStream):
    """Base of `KTable`."""

    _node: TableNode
