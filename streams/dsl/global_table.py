"""``GlobalKTable``: a table that every task has as a whole, so that streams may look up any key in it."""

from __future__ import annotations

from streams.dsl.graph_builder import GraphBuilder
from streams.operators.views import StoreView, View
from streams.topology.graph import GlobalTable


class GlobalKTable:
    """A topic read as a table by every process. Made by ``StreamsBuilder.global_table``.

    It has no updates to process: streams join with it (``stream.join(table, joiner, key_selector=...)``). It is not
    synchronised with streams by time: a record sees what the topic held when the record's step began. Source: Kafka
    Streams' ``GlobalKTable`` (KIP-99).
    """

    def __init__(self, graph: GraphBuilder, table: GlobalTable) -> None:
        self._graph = graph
        self._table = table

    @property
    def store_name(self) -> str:
        """Its store, as interactive queries know it."""
        return self._table.store.name

    @property
    def _view(self) -> View:
        return StoreView(self.store_name)
