"""`StreamsBuilder`: where a topology begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast, overload

from typing_extensions import Unpack

from streams.dsl.arguments import named_option, one_option, two_options
from streams.dsl.build.finalize import finalize
from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.dsl.build.materialize import key_value_store
from streams.dsl.build.table_source import add_table
from streams.dsl.functions import timestamp_function
from streams.dsl.global_table import GlobalKTable, add_global_store
from streams.dsl.kstream import KStream
from streams.dsl.ktable import KTable
from streams.dsl.options import Consumed, Extractor, Materialized, NameLike
from streams.dsl.options.keywords import ConsumedKeywords, ConsumedSettings
from streams.errors import TopologyError
from streams.model.timestamps import CustomTimestampExtractor, TimestampExtractor
from streams.model.typing import K, V
from streams.operators.processor import Processor
from streams.operators.wrapped import ProcessorWrapper
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.spelling.answers import AnswersUnknownNames
from streams.topology.check import check_explicit_names, check_sources
from streams.topology.graph import GlobalTable, Graph, SourceNode, StoreNode
from streams.topology.naming import check_topic, numbered
from streams.topology.node_kind import NodeKind
from streams.topology.pattern_name import pattern_name
from streams.topology.topology import Topology


class StreamsBuilder(AnswersUnknownNames):
    """Builds a topology, operator by operator.

    Example::

        builder = StreamsBuilder()
        builder.stream("words").group_by(lambda word: word).count().to_stream().to("counts")
        topology = builder.build()

    Args:
        default_key_serde: Of keys whose serde is neither given nor known from upstream; text.
        default_value_serde: The same for values; JSON.
        optimize: Keep the records of a stream that is joined with itself in one store instead of two (Kafka Streams'
            `topology.optimization=all`).
        ensure_explicit_naming: Refuse to build while a store or a repartition topic has a generated name (KIP-1111).
        persistent: Where stores lie unless `Materialized` or `StreamJoined` says: True: in RocksDB; False: in memory
            (Kafka Streams' `dsl.store.suppliers.class`).
        processor_wrapper: `wrapper(name of the node, processor)` gives what runs in the place of each processor, such as a
            subclass of `WrappedProcessor` (KIP-1112). Built-in aggregates are then computed record by record.
    """

    def __init__(
        self,
        *,
        default_key_serde: Serde | None = None,
        default_value_serde: Serde | None = None,
        optimize: bool = False,
        ensure_explicit_naming: bool = False,
        persistent: bool = True,
        processor_wrapper: ProcessorWrapper | None = None,
    ) -> None:
        self._persistent, self._wrapper = persistent, processor_wrapper
        self._explicit_names = ensure_explicit_naming
        graph = Graph(default_key_serde or StringSerde(), default_value_serde or JsonSerde())
        self._graph = GraphBuilder(graph, optimize)

    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        consumed: Consumed[K, V] | NameLike = None,
        **option: Unpack[ConsumedKeywords[K, V]],
    ) -> KStream[K, V]:
        """Reads one topic or several as a stream. Reading the same topics again in the same way gives the same source.

        With a pattern, `re.compile("orders-.*")`, it reads all topics whose whole names match. Which ones these are is looked
        up at each start; a topic that is created later is read from the next start on, from where `offset_reset` says.

        Args:
            topics: Name of a topic, several names, or a pattern.
            consumed: Serdes, timestamps and where to begin, or the source's name alone.
            **option: Fields of `Consumed`, given directly: `stream("in", value_serde=JsonSerde())`.

        Raises:
            TopologyError: No topic, an impossible name, or a topic that is read already in another way.
        """
        how = one_option("stream", Consumed, consumed, option)
        if isinstance(topics, re.Pattern):
            return KStream(self._graph, self._pattern_source(topics, how))
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        return KStream(self._graph, self._source(names, how))

    @overload
    def table(
        self,
        topic: str,
        consumed: Consumed[K, V] | Materialized[K, V] | NameLike = None,
        materialized: Materialized[Any, Any] | Consumed[Any, Any] | NameLike = None,
    ) -> KTable[K, V]: ...

    @overload
    def table(
        self,
        topic: str,
        consumed: Consumed[Any, Any] | Materialized[Any, Any] | NameLike = None,
        materialized: Materialized[Any, Any] | Consumed[Any, Any] | NameLike = None,
        **option: Unpack[ConsumedKeywords[K, V]],
    ) -> KTable[K, V]: ...

    def table(
        self,
        topic: str,
        consumed: Consumed[Any, Any] | Materialized[Any, Any] | NameLike = None,
        materialized: Materialized[Any, Any] | Consumed[Any, Any] | NameLike = None,
        **option: Any,
    ) -> KTable[Any, Any]:
        """Reads a topic as a table: the last value of each key, by offset.

        A null value deletes, a record with a null key is dropped. An update that is older than the row still wins, unless the
        table is versioned (`Materialized(history_retention=...)`).

        Args:
            topic: Name of the topic.
            consumed: Serdes, timestamps and where to begin, or the table's name alone.
            materialized: Name and settings of the store, or its name alone.
            **option: Fields of `Consumed`, given directly.

        Raises:
            TopologyError: An impossible name, a topic that is read already in another way, or settings that do not fit.

        Source: Kafka Streams' `KTableSource`.
        """
        graph = self._graph
        read, how = two_options("table", (Consumed, consumed), (Materialized, materialized), option)
        # As in Kafka Streams, the given name is the table's; the source has it with an ending.
        source_name = None if read.name is None else f"{read.name}-source"
        source = self._source((check_topic(topic),), replace(read, name=source_name))
        key_serde = graph.key_serde(source.key_serde)
        value_serde = graph.value_serde(how.value_serde, source.value_serde)
        name = read.name or f"KTABLE-SOURCE-{topic}"
        store = how.name or f"{topic}-STATE-STORE"
        port, node = add_table(graph, NodeKind.KTABLE_SOURCE, source, name, store, how, key_serde, value_serde)
        return KTable(graph, port, node=node)

    @overload
    def global_table(
        self,
        topic: str,
        consumed: Consumed[K, V] | Materialized[K, V] | NameLike = None,
        materialized: Materialized[Any, Any] | Consumed[Any, Any] | NameLike = None,
    ) -> GlobalKTable[K, V]: ...

    @overload
    def global_table(
        self,
        topic: str,
        consumed: Consumed[Any, Any] | Materialized[Any, Any] | NameLike = None,
        materialized: Materialized[Any, Any] | Consumed[Any, Any] | NameLike = None,
        **option: Unpack[ConsumedKeywords[K, V]],
    ) -> GlobalKTable[K, V]: ...

    def global_table(
        self,
        topic: str,
        consumed: Consumed[Any, Any] | Materialized[Any, Any] | NameLike = None,
        materialized: Materialized[Any, Any] | Consumed[Any, Any] | NameLike = None,
        **option: Any,
    ) -> GlobalKTable[Any, Any]:
        """Reads a topic as a table that every task has as a whole: the last value of each key.

        A null value deletes, a record with a null key is dropped. Streams look any key up in it, so nothing needs to be
        keyed or partitioned alike; the price is that each process holds all of it.

        Args:
            topic: Name of the topic.
            consumed: Serdes and timestamps, or the table's name alone.
            materialized: Name and settings of the store, or its name alone.
            **option: Fields of `Consumed`, given directly.

        Raises:
            TopologyError: The topic is read already, or history_retention is asked for.
        """
        read, how = two_options("global_table", (Consumed, consumed), (Materialized, materialized), option)
        source = self._global_source(topic, read)
        # Its topic is its changelog.
        spec = key_value_store(how.name or f"{topic}-STATE-STORE", replace(how, logging=False, changelog_config={}))
        store = StoreNode(spec, how.key_serde or source.key_serde, how.value_serde or source.value_serde)
        table = GlobalTable(read.name or f"KTABLE-SOURCE-{topic}", source, store)
        self._graph.topology.add_global(table)
        return GlobalKTable(self._graph, table)

    def add_state_store(self, store: StoreNode) -> StreamsBuilder:
        """Adds a store for processors, made by `Stores`; `process(..., stores=[name])` connects it.

        Raises:
            TopologyError: A store of this name exists.
        """
        self._graph.topology.add_store(store)
        return self

    def add_read_only_state_store(
        self, name: str, topic: str, consumed: Consumed[K, V] | None = None, **option: Unpack[ConsumedSettings[K, V]]
    ) -> StreamsBuilder:
        """Adds a store that holds what a topic holds, for processors to look up (KIP-813); nobody should write to it.

        `process(..., stores=[name])` connects it; the topic must then be keyed as the processor's stream is.

        Raises:
            TopologyError: A store of this name exists, or the topic is read in another way.
        """
        read = one_option("add_read_only_state_store", Consumed, consumed, option)
        self.table(topic, read, Materialized(name=name, caching=False))
        return self

    def add_global_store(
        self,
        store: StoreNode,
        topic: str,
        supplier: Callable[[], Processor],
        consumed: Consumed[Any, Any] | NameLike = None,
        named: NameLike | Consumed[Any, Any] = None,
        **option: Unpack[ConsumedKeywords[Any, Any]],
    ) -> StreamsBuilder:
        """Adds a store that a processor of yours keeps from a topic, and that every task has as a whole.

        The processor gets each record of the topic, also those with a null key, and writes to this store; it forwards nothing
        and schedules nothing, and runs once for each copy of the store. `process(..., stores=[name])` connects the store to
        a processor that reads it. A changed processor does not change what is there: give the store a new name then.

        Args:
            store: A key-value store of `Stores`, with timestamps or without.
            topic: What to read; it is the store's changelog.
            supplier: Makes a new processor on each call.
            consumed: How the topic is read.
            named: Name of the node.
            **option: Fields of `Consumed`, given directly.

        Raises:
            TopologyError: Another kind of store, a name that is taken, or a topic that is read already.

        Source: Kafka Streams' `StreamsBuilder.addGlobalStore`.
        """
        name, read = named_option("add_global_store", Consumed, named, consumed, option)
        add_global_store(self._graph, store, self._global_source(topic, read), supplier, name)
        return self

    def build(self) -> Topology:
        """The topology as built so far; later calls do not change it.

        Raises:
            TopologyError: Nothing is read, a split was never ended, or a name was generated that must not be.
        """
        built = self._graph.topology
        if self._graph.open_splits:
            raise TopologyError(
                f"The split '{min(self._graph.open_splits)}' was never ended: end it with default_branch() or "
                f"no_default_branch()."
            )
        check_sources(built)
        if self._explicit_names:
            check_explicit_names(built)
        return finalize(built, self._wrapper, self._persistent)

    def _global_source(self, topic: str, consumed: Consumed) -> SourceNode:
        return self._source_node((check_topic(topic),), replace(consumed, name=f"{consumed.name or topic}-source"))

    def _source(self, topics: tuple[str, ...], consumed: Consumed) -> Port:
        if not topics or len(set(topics)) < len(topics):
            raise TopologyError(f"stream() takes one topic or several different ones, not {list(topics)}.")
        names = "-".join(sorted(check_topic(topic) for topic in topics))
        name = consumed.name or numbered(f"KSTREAM-SOURCE-{names}", self._graph.topology.nodes)
        return self._graph.source(self._source_node(topics, replace(consumed, name=name)))

    def _pattern_source(self, pattern: re.Pattern[str], consumed: Consumed) -> Port:
        if not isinstance(pattern.pattern, str) or not pattern.pattern:
            raise TopologyError(f"A pattern of topics must be of text, not {pattern!r}.")
        name = consumed.name or numbered(f"KSTREAM-SOURCE-{pattern_name(pattern)}", self._graph.topology.nodes)
        node = self._source_node((), replace(consumed, name=name))
        return self._graph.source(replace(node, pattern=pattern))

    def _source_node(self, topics: tuple[str, ...], consumed: Consumed) -> SourceNode:
        assert consumed.name is not None, "the caller names it"
        return SourceNode(
            name=consumed.name,
            # The order in which a program lists them means nothing.
            topics=tuple(sorted(topics)),
            key_serde=self._graph.key_serde(consumed.key_serde),
            value_serde=self._graph.value_serde(consumed.value_serde),
            timestamp_extractor=_extractor(consumed.timestamp_extractor),
            offset_reset=consumed.reset_policy,
        )


def _extractor(given: Extractor) -> TimestampExtractor:
    """An extractor as it is, a function wrapped; a class given instead of an object is told apart from both."""
    if isinstance(given, type):
        raise TopologyError(f"timestamp_extractor takes an object: {given.__name__}(), not {given.__name__}.")
    if hasattr(given, "extract"):
        return cast("TimestampExtractor", given)
    return CustomTimestampExtractor(timestamp_function(given))
