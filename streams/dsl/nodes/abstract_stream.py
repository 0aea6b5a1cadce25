"""The base classes of streams and tables (`AbstractStream` in Kafka Streams).

The functions that build joins use these classes to distinguish streams from tables: `KStream` and `KTable` import those functions,
and so cannot be imported by them.
"""

from __future__ import annotations

from streams.dsl.facade import Facade
from streams.dsl.nodes.table_node import TableNode


class AbstractStream(Facade):
    """Base of `KStream`, `KTable` and `GlobalKTable`, which belong to one builder and can be joined."""


class StreamBase(AbstractStream):
    """Base of `KStream`."""


class TableBase(AbstractStream):
    """Base of `KTable`."""

    _node: TableNode
