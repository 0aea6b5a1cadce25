"""`GlobalKTable`: a table of which every task has a full copy, so that streams can look up any key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic

from state.stores.spec import StoreKind
from streams.dsl.nodes.abstract_stream import AbstractStream
from streams.dsl.nodes.graph_builder import GraphBuilder
from streams.dsl.nodes.process import checked_supplier
from streams.errors import TopologyError
from streams.model.typing import K, V
from streams.operators.processor import Processor
from streams.operators.table.value_getter import StoreValueGetter, ValueGetter
from streams.topology.graph import GlobalTable, SourceNode, StoreNode


class GlobalKTable(AbstractStream, Generic[K, V]):
    """A topic read as a table by every process. Made by `StreamsBuilder.global_table`.

    A global table has no updates to process; streams join with it (`stream.join(table, joiner, key_selector=...)`). Streams
    and global tables are not synchronised by time: a record sees the topic as of the beginning of the record's step.
    Source: Kafka Streams' `GlobalKTable` (KIP-99).
    """

    def __init__(self, graph: GraphBuilder, table: GlobalTable) -> None:
        self._graph = graph
        self._table = table

    def _shown(self) -> str:
        return repr(self._table.source.topics[0])

    @property
    def store_name(self) -> str:
        """The name of the table's store, for interactive queries."""
        return self._table.store.name

    @property
    def _view(self) -> ValueGetter:
        return StoreValueGetter(self.store_name)


def add_global_store(
    graph: GraphBuilder, store: StoreNode, source: SourceNode, supplier: Callable[[], Processor], name: str | None
) -> None:
    """Adds a global store that a user's processor fills. Raises `TopologyError` if the store has windows or versions."""
    if store.spec.kind not in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE):
        raise TopologyError(
            f"The global store '{store.name}' must be a key-value store, not one of kind '{store.spec.kind.value}': nothing would "
            f"ever leave it, because global stores have no stream time."
        )
    unlogged = replace(store, spec=replace(store.spec, logged=False, changelog_config={}))
    name = name or f"GLOBAL-STORE-{source.topics[0]}"
    graph.topology.add_global(GlobalTable(name, source, unlogged, checked_supplier(supplier)))
