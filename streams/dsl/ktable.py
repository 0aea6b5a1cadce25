"""``KTable``: the latest value of each key; a record is an update of it."""

from __future__ import annotations

from collections.abc import Callable

from streams.dsl.aggregating import AccumulatorView
from streams.dsl.graph_builder import GraphBuilder, Port
from streams.dsl.kstream import KStream
from streams.dsl.options import NameLike, plain_name
from streams.operators.table_to_stream import TableToStream
from streams.serdes.base import Serde


class KTable:
    """A table that changes over time. Made by ``StreamsBuilder.table``, ``KStream.to_table`` and aggregations.

    A table that is read or made of a stream keeps no state until something needs to look it up (a join) or it was given
    a name (``Materialized(name=...)``): until then its updates only pass through.
    """

    def __init__(
        self,
        graph: GraphBuilder,
        port: Port,
        store: str | None,
        materialize: Callable[[], str] | None = None,
        from_stored: AccumulatorView | None = None,
    ) -> None:
        self._graph = graph
        self._port = port
        self._store = store
        self._materialize = materialize
        self._from_stored = from_stored

    @property
    def store_name(self) -> str | None:
        """Its store, as interactive queries and ``streams state`` know it; None while it has none."""
        return self._store

    def to_stream(self, named: NameLike = None) -> KStream:
        """The table's updates as a stream; a deleted key gives a null value."""
        port = self._graph.stateless("KTABLE-TOSTREAM", self._port, TableToStream, plain_name(named))
        return KStream(self._graph, port)

    @property
    def _key_serde(self) -> Serde:
        return self._graph.key_serde(self._port.key_serde)

    def _lookup_store(self) -> str:
        """The store to look keys up in; made now if there was none."""
        if self._store is None:
            assert self._materialize is not None, "a table without a store knows how to make one"
            self._store = self._materialize()
        return self._store
