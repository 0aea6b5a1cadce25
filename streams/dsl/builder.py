"""`StreamsBuilder`: the start of every DSL topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast, overload

from typing_extensions import Unpack

from streams.dsl.arguments import named_option, one_option, two_options
from streams.dsl.functions import timestamp_function
from streams.dsl.global_table import GlobalKTable, add_global_store
from streams.dsl.kstream import KStream
from streams.dsl.ktable import KTable
from streams.dsl.nodes.finalize import finalize
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import key_value_store
from streams.dsl.nodes.table_source import add_table
from streams.dsl.options import Consumed, Extractor, Materialized, NameLike
from streams.dsl.options.keywords import ConsumedKeywords, ConsumedSettings
from streams.dsl.sources.dataframes import IngestMixin
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


class StreamsBuilder(IngestMixin, AnswersUnknownNames):
    """Builds a topology, operator by operator.

    Example::

        builder = StreamsBuilder()
        builder.stream("words").group_by(lambda word: word).count().to_stream().to("counts")
        topology = builder.build()

    Args:
        default_key_serde: The serde of keys for which none is named or known from upstream; default: text.
        default_value_serde: The same for values; default: JSON.
        optimize: Whether a self-join uses one store instead of two (Kafka Streams' `topology.optimization=all`).
        ensure_explicit_naming: Whether `build` refuses generated names of stores and repartition topics (KIP-1111).
        persistent: Where stores are, unless `Materialized` or `StreamJoined` says otherwise: True: in RocksDB; False: in
            memory (Kafka Streams' `dsl.store.suppliers.class`).
        processor_wrapper: `wrapper(node_name, processor)` returns the processor to run instead, such as a subclass of
            `WrappedProcessor` (KIP-1112). Built-in aggregates are then computed record by record.
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
        """Reads one topic or several as a stream. Reading the same topics again in the same way returns the same source.

        A pattern, `re.compile("orders-.*")`, stands for all topics whose full names match. The pattern is resolved at each
        start; a topic that is created later is read from the next start on, beginning where `offset_reset` says.

        Args:
            topics: A topic's name, several names, or a pattern.
            consumed: Serdes, timestamps and where to begin; or just the source's name.
            **option: Fields of `Consumed`, passed directly: `stream("in", value_serde=JsonSerde())`.

        Raises:
            TopologyError: There is no topic, a name is invalid, or a topic is already read in another way.
        """
        how = one_option("stream", Consumed, consumed, option)
        if isinstance(topics, re.Pattern):
            return KStream(self._graph, self._pattern_source(topics, how))
        if not isinstance(topics, Iterable):
            raise TopologyError(f"stream() takes a topic's name, several names or a pattern, not {topics!r}.")
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

        A null value deletes the row; a record with a null key is dropped. An update with an older timestamp than the row still
        replaces it, unless the table is versioned (`Materialized(history_retention=...)`).

        Args:
            topic: The topic's name.
            consumed: Serdes, timestamps and where to begin; or just the table's name.
            materialized: Name and settings of the store; or just its name. Its serdes read the topic if `consumed` has none.
            **option: Fields of `Consumed`, passed directly.

        Raises:
            TopologyError: A name is invalid, the topic is already read in another way, or settings contradict each other.

        Source: Kafka Streams' `KTableSource`.
        """
        graph = self._graph
        read, how = two_options("table", (Consumed, consumed), (Materialized, materialized), option)
        # As in Kafka Streams, the name is the table's; the source has the name with a suffix.
        source_name = None if read.name is None else f"{read.name}-source"
        source = self._source((check_topic(topic),), replace(_with_serdes_of(how, read), name=source_name))
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
        """Reads a topic as a table, the last value of each key, of which every task has a full copy.

        A null value deletes the row; a record with a null key is dropped. A stream can look up any key, so stream and table need
        not be keyed or partitioned alike; in return, each process stores the whole table.

        Args:
            topic: The topic's name.
            consumed: Serdes and timestamps; or just the table's name.
            materialized: Name and settings of the store; or just its name. Its serdes read the topic if `consumed` has none.
            **option: Fields of `Consumed`, passed directly.

        Raises:
            TopologyError: The topic is already read, or `history_retention` is set.
        """
        read, how = two_options("global_table", (Consumed, consumed), (Materialized, materialized), option)
        source = self._global_source(topic, _with_serdes_of(how, read))
        # The topic itself is the changelog.
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
        """Adds a store with the contents of a topic, for processors to look up (KIP-813); processors must not write to the store.

        `process(..., stores=[name])` connects the store; the topic must have the same keys as the processor's stream.

        Raises:
            TopologyError: A store of this name exists, or the topic is already read in another way.
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
        """Adds a store that your own processor fills from a topic, and of which every task has a full copy.

        The processor receives each record of the topic, including those with a null key, and writes to the store. The processor
        runs once for each copy of the store, and can neither forward records nor schedule calls. `process(..., stores=[name])`
        connects the store to a processor that reads it. Changing the filling processor does not rebuild existing contents: give
        the store a new name in that case.

        Args:
            store: A key-value store made by `Stores`, with or without timestamps.
            topic: The topic to read, which is also the store's changelog.
            supplier: Returns a new processor on each call.
            consumed: How the topic is read.
            named: The node's name.
            **option: Fields of `Consumed`, passed directly.

        Raises:
            TopologyError: The store is of another kind, a name is taken, or the topic is already read.

        Source: Kafka Streams' `StreamsBuilder.addGlobalStore`.
        """
        if callable(consumed) and not callable(supplier):
            supplier, consumed = consumed, supplier  # Java's order
        name, read = named_option("add_global_store", Consumed, named, consumed, option)
        add_global_store(self._graph, store, self._global_source(topic, read), supplier, name)
        return self

    def build(self) -> Topology:
        """Returns the topology as built so far; later calls of the builder do not change it.

        Raises:
            TopologyError: No topic is read, a split is incomplete, or a name is generated although `ensure_explicit_naming` is set.
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
            # The order in which a program lists the topics has no meaning.
            topics=tuple(sorted(topics)),
            key_serde=self._graph.key_serde(consumed.key_serde),
            value_serde=self._graph.value_serde(consumed.value_serde),
            timestamp_extractor=_extractor(consumed.timestamp_extractor),
            offset_reset=consumed.reset_policy,
        )


def _with_serdes_of(how: Materialized[Any, Any], read: Consumed[Any, Any]) -> Consumed[Any, Any]:
    """How a table's topic is read: what names no serde there has the store's, as in Kafka Streams."""
    keys, values = read.key_serde or how.key_serde, read.value_serde or how.value_serde
    return replace(read, key_serde=keys, value_serde=values)


def _extractor(given: Extractor) -> TimestampExtractor:
    """An extractor unchanged, or a function wrapped as one. A class passed instead of an object is an error of its own."""
    if isinstance(given, type):
        raise TopologyError(f"timestamp_extractor takes an object: {given.__name__}(), not {given.__name__}.")
    if hasattr(given, "extract"):
        return cast("TimestampExtractor", given)
    return CustomTimestampExtractor(timestamp_function(given))
