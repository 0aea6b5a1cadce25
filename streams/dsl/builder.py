"""`StreamsBuilder`: the start of every DSL topology.

Names that are invalid or taken, and topics that are already read in another way, raise a `TopologyError`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, overload

from typing_extensions import Unpack

from state.stores.spec import StoreKind
from streams.dsl.arguments import named_option, names, one_option, two_options
from streams.dsl.calls import explain_wrong_arguments
from streams.dsl.functions import timestamp_function
from streams.dsl.kstream import KStream
from streams.dsl.ktable import GlobalKTable, KTable
from streams.dsl.lake import is_path, last_part
from streams.dsl.nodes.graph_builder import GraphBuilder, Port, finalize
from streams.dsl.nodes.processing import checked_supplier
from streams.dsl.nodes.stores import key_value_store
from streams.dsl.nodes.tables import add_table
from streams.dsl.options import Consumed, ConsumedKeywords, ConsumedSettings, Extractor, Materialized, NameLike
from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP, CustomTimestampExtractor, TimestampExtractor
from streams.model.typing import K, V
from streams.operators.processor import Processor
from streams.operators.wrapped import ProcessorWrapper
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.keys import as_key
from streams.serdes.primitives import StringSerde
from streams.topology.graph import GivenRows, GlobalTable, Graph, InternalTopic, SourceNode, StoreNode
from streams.topology.graph.nodes import Ingest
from streams.topology.naming import check_name, check_topic, numbered, pattern_name
from streams.topology.node_kind import NodeKind
from streams.topology.plan import check_explicit_names, check_sources
from streams.topology.topology import Topology

PARTITIONS = 4
"""The default number of partitions of the internal topic of a source outside Kafka."""


@dataclass(frozen=True, slots=True)
class DeltaRead:
    """Reads a Delta table as a streaming DataFrame. The table is given by its path or URI, or by its name in Spark's catalog."""

    table: str
    is_path: bool
    change_feed: bool
    options: tuple[tuple[str, str], ...]

    def __call__(self, spark: Any) -> Any:
        """Returns the streaming DataFrame of the table's rows, or of its changes."""
        reader = spark.readStream.format("delta").options(**dict(self.options))
        if self.change_feed:
            reader = reader.option("readChangeFeed", "true")
        return reader.load(self.table) if self.is_path else reader.table(self.table)


@explain_wrong_arguments
class StreamsBuilder(AnswersUnknownNames):
    """Builds a topology, operator by operator.

    For example:

        builder = StreamsBuilder()
        builder.stream("words").group_by(lambda word: word).count().to_stream().to("counts")
        topology = builder.build()

    Args:
        default_key_serde: The serde for keys that have no named serde and none known from upstream; default: text.
        default_value_serde: The serde for values that have no named serde and none known from upstream; default: JSON.
        optimize: Whether a self-join uses one store instead of two (Kafka Streams' `topology.optimization=all`).
        ensure_explicit_naming: Whether `build` refuses generated names of stores and repartition topics (KIP-1111).
        persistent: Where stores are, unless `Materialized` or `StreamJoined` has a setting: True: in RocksDB; False: in
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
        graph = Graph(as_key(default_key_serde or StringSerde()), default_value_serde or JsonSerde())
        self._graph = GraphBuilder(graph, optimize)

    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        consumed: Consumed[K, V] | NameLike = None,
        **option: Unpack[ConsumedKeywords[K, V]],
    ) -> KStream[K, V]:
        """Reads one topic or several as a stream. Reading the same topics again in the same way returns the same source.

        A pattern, `re.compile("orders-.*")`, stands for all topics whose full names match. The pattern is resolved at each
        start; a topic that is created later is read from the next start on, beginning at its `offset_reset`.
        A topic that is already read in another way raises a `TopologyError`.

        `consumed` sets the serdes, the timestamps and the first offset. Its fields may also be passed as keywords:
        `stream("in", value_serde=JsonSerde())`.
        """
        how = one_option("stream", Consumed, consumed, option)
        if isinstance(topics, re.Pattern):
            return KStream(self._graph, self._pattern_source(topics, how))
        if not isinstance(topics, Iterable):
            raise TopologyError(f"stream() takes a topic's name, several names or a pattern, not {topics!r}.")
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        return KStream(self._graph, self._source(names, how))

    # fmt: off
    @overload
    def table(self, topic: str, consumed: Consumed[K, V] | Materialized[K, V] | NameLike = None,
              materialized: Materialized[Any, Any] | NameLike = None) -> KTable[K, V]: ...
    @overload
    def table(self, topic: str, consumed: Consumed[Any, Any] | Materialized[Any, Any] | NameLike = None,
              materialized: Materialized[Any, Any] | NameLike = None,
              **option: Unpack[ConsumedKeywords[K, V]]) -> KTable[K, V]: ...
    # fmt: on
    def table(self, topic: str, consumed: Any = None, materialized: Any = None, **option: Any) -> KTable[Any, Any]:
        """Reads a topic as a table: the last value of each key, by offset.

        A null value deletes the row; a record with a null key is dropped. An update with an older timestamp than the row still
        replaces it, unless the table is versioned (`Materialized(history_retention=...)`). Source: Kafka Streams' `KTableSource`.

        `consumed` sets the serdes, the timestamps and the first offset, or is just the table's name; its fields may be keywords.
        `materialized` has the name and the settings of the store. Its serdes read the topic if `consumed` has none.
        """
        graph = self._graph
        read, how = two_options("table", (Consumed, consumed), (Materialized, materialized), option)
        # As in Kafka Streams, the name is the table's, and the source's name adds a suffix.
        source_name = None if read.name is None else f"{read.name}-source"
        source = self._source((check_topic(topic),), replace(_with_serdes_of(how, read), name=source_name))
        key_serde = graph.key_serde(source.key_serde)
        value_serde = graph.value_serde(how.value_serde, source.value_serde)
        name = read.name or f"KTABLE-SOURCE-{topic}"
        store = how.name or f"{topic}-STATE-STORE"
        port, node = add_table(graph, NodeKind.KTABLE_SOURCE, source, name, store, how, key_serde, value_serde)
        return KTable(graph, port, node=node)

    # fmt: off
    @overload
    def global_table(self, topic: str, consumed: Consumed[K, V] | Materialized[K, V] | NameLike = None,
                     materialized: Materialized[Any, Any] | NameLike = None) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(self, topic: str, consumed: Consumed[Any, Any] | Materialized[Any, Any] | NameLike = None,
                     materialized: Materialized[Any, Any] | NameLike = None,
                     **option: Unpack[ConsumedKeywords[K, V]]) -> GlobalKTable[K, V]: ...
    # fmt: on
    def global_table(
        self, topic: str, consumed: Any = None, materialized: Any = None, **option: Any
    ) -> GlobalKTable[Any, Any]:
        """Reads a topic as a table, the last value of each key, with a full copy for every task.

        A null value deletes the row; a record with a null key is dropped. A stream can look up any key, so stream and table need
        not be keyed or partitioned alike. In return, each process stores the whole table. The arguments are as for `table`;
        nothing else may read the topic, and the table cannot be versioned.
        """
        read, how = two_options("global_table", (Consumed, consumed), (Materialized, materialized), option)
        source = self._global_source(topic, _with_serdes_of(how, read))
        # The topic itself is the changelog.
        spec = key_value_store(how.name or f"{topic}-STATE-STORE", replace(how, logging=False, changelog_config={}))
        store = StoreNode(spec, how.key_serde or source.key_serde, how.value_serde or source.value_serde)
        table = GlobalTable(read.name or f"KTABLE-SOURCE-{topic}", source, store)
        self._graph.topology.add_global(table)
        return GlobalKTable(self._graph, table)

    def global_table_from(
        self,
        frame: Any,
        named: str,
        *,
        key: str | Sequence[str],
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> GlobalKTable[Any, Any]:
        """Makes a table from the rows of a DataFrame or an Arrow table, with a full copy for every task.

        Each start compares the rows with the rows of the last start, and writes the differences to an internal topic before it
        reads any record: new rows, changed rows, and deletions of missing rows. Unchanged rows write nothing. The values of the
        records are the rows as JSON objects, with dates and times as ISO 8601 text (times with a zone in UTC). The driver holds all
        rows in memory.

        A start is refused, and nothing is written, if a key is null or occurs twice, or if JSON cannot represent a value: bytes,
        decimals, NaN.

        For example:

            countries = builder.global_table_from(pandas.read_csv("countries.csv"), "countries", key="code")
            orders.join(countries, col("country"), fields(left=["id"], country=col("right.name")))

        Args:
            frame: A DataFrame of pandas, Polars or Spark, a pyarrow Table, or any other object with Arrow columns; or
                `frame(spark)`, which makes it at each start.
            named: The name of the table, its store and its topic. Other serdes or columns of the key need another name.
            key: The column, or columns, of the key: one column as text, several as a JSON object.
            key_serde: The serde of keys, to replace the form above.
            value_serde: The serde of values; default: JSON. With `JsonSerde(Country)`, rows are read as countries.
        """
        columns, serde = _keys(key, key_serde)
        _check_rows(frame, named, columns)
        given = GivenRows(check_name(named), frame, columns, serde, value_serde or JsonSerde())
        source = SourceNode(f"{named}-source", (given.topic,), serde, given.value_serde, FAIL_ON_INVALID_TIMESTAMP)
        spec = key_value_store(named, Materialized(logging=False))
        table = GlobalTable(named, source, StoreNode(spec, serde, given.value_serde), given=given)
        self._graph.topology.add_global(table)
        return GlobalKTable(self._graph, table)

    def from_dataframe(
        self,
        frame: Callable[[Any], Any],
        named: str,
        *,
        key: str | Sequence[str] = (),
        timestamp: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        partitions: int = PARTITIONS,
    ) -> KStream[Any, Any]:
        """Reads the rows of a Spark DataFrame as a stream, each row exactly once.

        A separate query writes the rows to an internal topic, each batch once. A static DataFrame is one batch, which is read only
        once in the application's life. The values of the records are the rows as JSON objects.

        Args:
            frame: `frame(spark)` makes the DataFrame, streaming (`spark.readStream...`) or static, at each start. A batch that
                runs again must give the same rows, as it does from files, tables and Kafka.
            named: The source's name. Its internal topic, its commits and its checkpoint are named after it.
            key: The column, or columns, of the key: one column as text, several as a JSON object. Default: records without a key.
            timestamp: The column of the timestamp, a TIMESTAMP or ms since 1970. Default: the time of the batch.
            key_serde: The serde of keys, to replace the form above.
            value_serde: The serde of values; default: JSON.
            partitions: The number of partitions of the internal topic, fixed at the first start.
        """
        if not callable(frame):
            raise TopologyError(
                f"from_dataframe() takes a function that makes the DataFrame, such as lambda spark: spark.read.parquet('in'), "
                f"since there is no session yet; not {frame!r}."
            )
        return _add_ingest(
            self._graph, Ingest(named, partitions, frame, *_keys(key, key_serde), value_serde or JsonSerde(), timestamp)
        )

    def from_delta(
        self,
        table: str | os.PathLike[str],
        *,
        key: str | Sequence[str] = (),
        change_feed: bool = False,
        timestamp: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        partitions: int = PARTITIONS,
        options: Mapping[str, str] | None = None,
        named: str | None = None,
    ) -> KStream[Any, Any]:
        """Reads a Delta table as a stream: the rows it has at the first start, then all rows that are added, each exactly once.

        With `change_feed`, updates and deletions follow, too. An inserted row is a record, and so is a row after its update; a
        deleted row is a tombstone, so that `to_table()` has the table's rows. Updates must not change the columns of the key.
        Arguments that are not listed here are those of `from_dataframe`.

        Args:
            table: The table's path or URI, or its name in Spark's catalog. Without `change_feed`, rows may only be appended to it.
            key: The key's columns, as for `from_dataframe`; required with `change_feed`.
            change_feed: Whether to read Delta's change data feed, which the table must have (`delta.enableChangeDataFeed`).
            timestamp: The timestamp's column, as for `from_dataframe`; default with `change_feed`: the time of the commit.
            key_serde: The serde of keys, as for `from_dataframe`.
            value_serde: The serde of values, as for `from_dataframe`.
            partitions: The number of partitions, as for `from_dataframe`.
            options: Options of Delta's streaming source, such as `{"startingVersion": "7", "maxFilesPerTrigger": "100"}`.
            named: The source's name; default: `delta-` and the last part of the table's path or name.
        """
        text = os.fspath(table)
        if change_feed and not key:
            raise TopologyError(
                "from_delta(change_feed=True) needs key=...: a deletion is a record with a key and no value."
            )
        frame = DeltaRead(text, is_path(table), change_feed, tuple(sorted((options or {}).items())))
        keys, values = _keys(key, key_serde), value_serde or JsonSerde()
        name = named or f"delta-{last_part(text)}"
        made = Ingest(name, partitions, frame, *keys, values, timestamp, change_feed, delta=True)
        return _add_ingest(self._graph, made)

    def add_state_store(self, store: StoreNode) -> StreamsBuilder:
        """Adds a store for processors, made by `Stores`; `process(..., stores=[name])` connects it."""
        self._graph.topology.add_store(store)
        return self

    def add_read_only_state_store(
        self, name: str, topic: str, consumed: Consumed[K, V] | None = None, **option: Unpack[ConsumedSettings[K, V]]
    ) -> StreamsBuilder:
        """Adds a store with the contents of a topic that processors can look up, but not change (KIP-813).

        `process(..., stores=[name])` connects the store; the topic must have the same keys as the processor's stream.
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
        """Adds a store that your own processor fills from a topic, with a full copy for every task.

        The processor receives each record of the topic, including records with a null key, and writes to the store. It runs
        once for each copy of the store, and can neither forward records nor schedule calls. `process(..., stores=[name])`
        connects the store to a processor that reads it. A change of the filling processor does not rebuild existing contents: give
        the store a new name in that case.

        Args:
            store: A key-value store made by `Stores`, with or without timestamps.
            topic: The topic to read, which is also the store's changelog.
            supplier: Returns a new processor on each call.
            consumed: How the topic is read.
            named: The node's name.
            **option: Fields of `Consumed`, passed directly.

        Source: Kafka Streams' `StreamsBuilder.addGlobalStore`.
        """
        if callable(consumed) and not callable(supplier):
            supplier, consumed = consumed, supplier  # Java's order
        name, read = named_option("add_global_store", Consumed, named, consumed, option)
        _add_global_store(self._graph, store, self._global_source(topic, read), supplier, name)
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
            # The order in which a program lists the topics does not matter.
            topics=tuple(sorted(topics)),
            key_serde=self._graph.key_serde(consumed.key_serde),
            value_serde=self._graph.value_serde(consumed.value_serde),
            timestamp_extractor=_extractor(consumed.timestamp_extractor),
            offset_reset=consumed.reset_policy,
        )


def _with_serdes_of(how: Materialized[Any, Any], read: Consumed[Any, Any]) -> Consumed[Any, Any]:
    """Completes how a table's topic is read: serdes that are missing there are the store's, as in Kafka Streams."""
    keys, values = read.key_serde or how.key_serde, read.value_serde or how.value_serde
    return replace(read, key_serde=keys, value_serde=values)


def _extractor(given: Extractor) -> TimestampExtractor:
    """Returns an extractor unchanged, or wraps a function as one. Raises `TopologyError` for a class instead of an object."""
    if isinstance(given, type):
        raise TopologyError(f"timestamp_extractor takes an object: {given.__name__}(), not {given.__name__}.")
    if hasattr(given, "extract"):
        # A Java-style class has `extract(record, partition_time)`, without the time of the batch.
        as_in_java = len(inspect.signature(given.extract).parameters) < 3
        return (
            CustomTimestampExtractor(timestamp_function(given.extract))
            if as_in_java
            else cast("TimestampExtractor", given)
        )
    return CustomTimestampExtractor(timestamp_function(given))


def _add_global_store(
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


def _check_rows(frame: Any, named: str, columns: Sequence[str]) -> None:
    """Raises `TopologyError` if the frame is not a table, or no key is given."""
    if not columns:
        raise TopologyError(f"global_table_from(..., {named!r}) needs key=, the column or columns that identify a row.")
    if not callable(frame) and not hasattr(frame, "__arrow_c_stream__"):
        raise TopologyError(
            f"global_table_from() takes a DataFrame or an Arrow table, or a function that makes one, such as "
            f"lambda spark: spark.read.parquet('in'); not {frame!r:.200}."
        )


def _keys(key: str | Sequence[str], serde: Serde[Any] | None) -> tuple[tuple[str, ...], Serde[Any]]:
    columns = names(key)
    return columns, as_key(serde or (StringSerde() if len(columns) <= 1 else JsonSerde()))


def _add_ingest(graph: GraphBuilder, ingest: Ingest) -> KStream[Any, Any]:
    """Adds the source, and the internal topic from which the program reads it."""
    if ingest.partitions < 1:
        raise TopologyError(f"'{ingest.name}': an internal topic has at least one partition, not {ingest.partitions}.")
    topic = InternalTopic(check_name(ingest.name), ingest.partitions)
    graph.topology.add_ingest(ingest)
    source = SourceNode(
        f"{ingest.name}-source", (topic,), ingest.key_serde, ingest.value_serde, FAIL_ON_INVALID_TIMESTAMP
    )
    return KStream(graph, graph.source(source))
