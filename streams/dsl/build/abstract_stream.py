"""The base classes of streams and tables (`AbstractStream` in Kafka Streams).

The functions that build joins use these classes to distinguish streams from tables: `KStream` and `KTable` import those functions,
and so cannot be imported by them.
"""

from __future__ import annotations

from streams.dsl.build.table_node import TableNode
from streams.dsl.facade import Facade


class AbstractStream(Facade):
    """Base of `KStream`, `KTable` and `GlobalKTable`, which belong to one builder and can be joined."""


class StreamBase(AbstractStream):
    """Base of `KStream`."""


class TableBase(AbstractStream):
    """Base of `KTable`."""

    _node: TableNode
