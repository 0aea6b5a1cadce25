"""`TopologyBuilder`: builds a topology of sources, processors and sinks, node by node (Kafka Streams' `Topology`).

This is the low-level entry to the Processor API. The user chooses every name. Nothing is repartitioned: records stay in the task
in which they were read, even if processors change their keys. A name that is taken or does not exist raises a `TopologyError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import names, one_option
from streams.dsl.builder import StreamsBuilder
from streams.dsl.calls import explain_wrong_arguments
from streams.dsl.nodes.graph_builder import Port
from streams.dsl.nodes.processing import add_sink, checked_supplier, split_stores
from streams.dsl.options import Consumed, ConsumedKeywords, ConsumedSettings, Produced, ProducedSettings
from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.operators.processor import Processor
from streams.topology.graph import ProcessorNode, StoreNode
from streams.topology.naming import check_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.streams import UserProcessorSpec
from streams.topology.topology import Topology


@explain_wrong_arguments
class TopologyBuilder(AnswersUnknownNames):
    """Builds a topology node by node.

    For example:

        builder = TopologyBuilder()
        builder.add_source("words", "lines")
        builder.add_processor("count", CountWords, ["words"])
        builder.add_state_store(Stores.key_value_store("counts", StringSerde(), Int64Serde()), ["count"])
        builder.add_sink("out", "counts", ["count"])
        topology = builder.build()

    Args:
        **settings: The settings of `StreamsBuilder`.
    """

    def __init__(self, **settings: Any) -> None:
        self._builder = StreamsBuilder(**settings)
        self._graph = self._builder._graph
        self._ports: dict[str, Port] = {}

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] | re.Pattern[str],
        consumed: Consumed[Any, Any] | None = None,
        **option: Unpack[ConsumedSettings[Any, Any]],
    ) -> TopologyBuilder:
        """Adds a node that reads topics, or all topics that match a pattern; no other source may read one of them."""
        self._check_free(name)
        how = one_option("add_source", Consumed, consumed, option)
        port = self._builder.stream(topics, replace(how, name=name))._port
        if port.node != name:
            raise TopologyError(
                f"The source '{port.node}' already reads a topic of '{name}': only one source can read a topic."
            )
        self._ports[name] = port
        return self

    def add_processor(
        self,
        name: str,
        supplier: Callable[[], Processor],
        parents: str | Sequence[str],
        stores: str | Sequence[str] = (),
    ) -> TopologyBuilder:
        """Adds a processor, which receives what its parents forward to all children, or to it by `ctx.forward(record, name)`.

        Args:
            name: The node's name.
            supplier: Returns a new processor on each call.
            parents: The name, or names, of sources and processors.
            stores: The name, or names, of stores that were added; `connect_processor_and_state_stores` connects more.
        """
        self._check_free(name)
        first, *others = self._above(name, parents)
        own, global_names = split_stores(self._graph, names(stores))
        key_serde = self._graph.key_serde(first.key_serde)
        made = self._graph.stateful(
            UserProcessorSpec(NodeKind.PROCESSOR, checked_supplier(supplier)),
            first,
            name,
            others=tuple(others),
            stores=own,
            global_stores=global_names,
            key_serde=key_serde,
        )
        self._ports[name] = replace(made, key_serde=None, value_serde=None)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | functions.Function,
        parents: str | Sequence[str],
        produced: Produced[Any, Any] | None = None,
        **option: Unpack[ProducedSettings[Any, Any]],
    ) -> TopologyBuilder:
        """Adds a node that writes to a topic, or each record to the topic that `topic(key, value, record_context)` returns."""
        self._check_free(name)
        how = one_option("add_sink", Produced, produced, option)
        add_sink(self._graph, name, topic, self._above(name, parents), how)
        return self

    def add_state_store(self, store: StoreNode, processors: str | Sequence[str] = ()) -> TopologyBuilder:
        """Adds a store made by `Stores`, and connects it to processors."""
        self._builder.add_state_store(store)
        for processor in names(processors):
            self.connect_processor_and_state_stores(processor, [store.name])
        return self

    def add_global_store(
        self,
        store: StoreNode,
        topic: str,
        supplier: Callable[[], Processor],
        consumed: Consumed[Any, Any] | None = None,
        **option: Unpack[ConsumedKeywords[Any, Any]],
    ) -> TopologyBuilder:
        """Adds a store that your own processor fills from a topic, as `StreamsBuilder.add_global_store` does."""
        self._builder.add_global_store(store, topic, supplier, consumed, **option)
        return self

    def connect_processor_and_state_stores(self, processor: str, stores: str | Sequence[str]) -> TopologyBuilder:
        """Connects a processor to stores that were added; processors that share a store run in the same task."""
        nodes = self._graph.topology.nodes
        node = nodes.get(processor)
        if not isinstance(node, ProcessorNode):
            raise TopologyError(
                f"'{processor}' is not a processor of this topology, so no store can be connected with it."
            )
        own, global_names = split_stores(self._graph, names(stores))
        if missing := [name for name in own if name not in self._graph.topology.stores]:
            raise TopologyError(f"The store '{missing[0]}' does not exist: add it with add_state_store(...) first.")
        nodes[processor] = replace(
            node,
            stores=tuple(dict.fromkeys((*node.stores, *own))),
            global_stores=tuple(dict.fromkeys((*node.global_stores, *global_names))),
        )
        return self

    def build(self) -> Topology:
        """Returns the topology as built so far; later calls of the builder do not change it."""
        return self._builder.build()

    def _check_free(self, name: str) -> None:
        if check_name(name) in self._graph.topology.nodes:
            raise TopologyError(f"Two nodes are called '{name}': every node needs a different name.")

    def _above(self, name: str, parents: str | Sequence[str]) -> list[Port]:
        above = names(parents)
        if not above:
            raise TopologyError(f"'{name}' needs a parent, from which its records come.")
        for parent in above:
            if parent not in self._ports:
                known = ", ".join(self._ports) or "none"
                raise TopologyError(f"'{name}' has the parent '{parent}', which does not exist. Known: {known}.")
        return [self._ports[parent] for parent in above]
