"""`KStream`: an unbounded sequence of records, each a fact of its own.

Each method adds operators to the topology and returns the stream behind them; nothing runs yet. Functions of values may also
take the key first: `map_values(lambda value: ...)` or `map_values(lambda key, value: ...)`. A function with another signature
raises a `TopologyError`, and so does a name that is taken. "Source" names the origin of a rule; `docs/operators.md` has details.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import named_option, names, one_option, operator_name
from streams.dsl.branched import BranchedKStream
from streams.dsl.grouped import KGroupedStream
from streams.dsl.kstream_enrich import EnrichMixin
from streams.dsl.kstream_extras import ExtrasMixin
from streams.dsl.kstream_joins import JoinMixin
from streams.dsl.kstream_records import RecordsMixin
from streams.dsl.lake.mixin import LakeMixin
from streams.dsl.nodes.dropped import add_dropped
from streams.dsl.nodes.graph_builder import Port
from streams.dsl.nodes.materialize import table_names
from streams.dsl.nodes.process import OnError, add_process, add_process_values
from streams.dsl.nodes.table_source import add_table
from streams.dsl.options import Grouped, Materialized, NameLike, Produced, Repartitioned
from streams.dsl.options.keywords import GroupedKeywords, MaterializedKeywords, ProducedKeywords, RepartitionedKeywords
from streams.model.record import RecordContext, TopicExtractor
from streams.model.typing import K2, V2, K, KeyValueMapper, V, ValueMapper
from streams.operators.processor import Processor
from streams.serdes.base import Serde
from streams.topology.graph import SinkNode
from streams.topology.naming import check_topic, stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.streams import MergeSpec

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


class KStream(RecordsMixin[K, V], JoinMixin[K, V], ExtrasMixin[K, V], EnrichMixin[K, V], LakeMixin, Generic[K, V]):
    """A stream of records, made by `StreamsBuilder.stream` and by methods of streams and tables.

    Example::

        flights = builder.stream("flights")
        late = flights.filter(lambda flight: flight["dep_delay"] > 60)
        late.select_key(lambda flight: flight["carrier"]).group_by_key().count().to_stream().to("late-by-carrier")
    """

    def merge(self, other: KStream[K2, V2], named: NameLike = None) -> KStream[K | K2, V | V2]:
        """Merges two streams into one. A task processes the oldest waiting record of both first.

        The result has the records of both, including nulls; timestamps and headers stay the same.

        Raises:
            TopologyError: `other` is no stream, or belongs to another builder.

        Source: Kafka Streams' `KStreamImpl.merge`.
        """
        self._check_stream(other)
        name = operator_name("merge", named)
        port = self._graph.stateless(MergeSpec(), self._port, name, others=(other._port,))
        return self._stream(port)

    def split(self, named: NameLike = None) -> BranchedKStream[K, V]:
        """Splits the stream into branches: each record goes to the first whose predicate is true; see `BranchedKStream`.

        Source: Kafka Streams' `split` (KIP-418).
        """
        name = operator_name("split", named)
        return BranchedKStream(self._graph, self._port, name, partial(KStream[K, V], self._graph))

    def dropped(self, named: NameLike = None) -> KStream[Any, Any]:
        """Returns the records that the last operator of this stream dropped: late records, null keys, duplicates, ...

        Records are unchanged, except for two new headers: `__streams.dropped.reason` and `__streams.dropped.node`. Call this
        method on the result of a join, an aggregation, `deduplicate` or `enrich(on_error="drop")`::

            joined = clicks.left_join(views, joiner, windows)
            joined.dropped().to("late-clicks-and-views")

        Raises:
            TopologyError: The operator never drops records.
        """
        return self._stream(add_dropped(self._graph, self._port, operator_name("dropped", named)))

    # Custom processors ------------------------------------------------------------------------------------------------

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        stores: str | Sequence[str] = (),
        named: NameLike = None,
        *,
        on_error: OnError = "fail",
    ) -> KStream[K2, V2]:
        """Runs your own `Processor`, which may use state stores, schedule calls and change keys.

        Forwarded records may have new keys, so a grouping or join behind the processor goes through a repartition topic.

        Args:
            supplier: Returns a new processor on each call; a subclass of `Processor` is enough.
            stores: The name, or names, of stores added with `StreamsBuilder.add_state_store`.
            named: The node's name; required if two processors have the same input, and with a `Retry`.
            on_error: What to do with a record that the processor fails on. `"fail"`: the processing policy decides, as for any
                function that raises; a `Retry`: the record goes through retry topics and comes back.

        Raises:
            TopologyError: `supplier` does not return processors, a store is unknown, or the retries have no name.

        Source: Kafka Streams' `process` (KIP-820); retries are ours.
        """
        name = operator_name("process", named)
        return self._stream(add_process(self._graph, self._port, supplier, names(stores), name, on_error))

    def process_values(
        self,
        supplier: Callable[[], Processor[K, V, K, V2]],
        stores: str | Sequence[str] = (),
        named: NameLike = None,
        *,
        on_error: OnError = "fail",
    ) -> KStream[K, V2]:
        """Runs your own `Processor` that never changes keys, so no operator behind it needs a repartition topic.

        Arguments are those of `process`. Processing fails if the processor forwards a key other than the current record's.

        Raises:
            TopologyError: `supplier` does not return processors, or a store is unknown.

        Source: Kafka Streams' `processValues` (KIP-820).
        """
        name = operator_name("process_values", named)
        return self._stream(add_process_values(self._graph, self._port, supplier, names(stores), name, on_error))

    # Topics -----------------------------------------------------------------------------------------------------------

    @overload
    def to(
        self,
        topic: str,
        produced: Produced[K, V] | NameLike = None,
        **option: Unpack[ProducedKeywords[K, V]],
    ) -> None: ...

    @overload
    def to(
        self,
        topic: Callable[[V], str],
        produced: Produced[K, V] | NameLike = None,
        **option: Unpack[ProducedKeywords[K, V]],
    ) -> None: ...

    @overload
    def to(
        self,
        topic: Callable[[K, V], str] | Callable[[K, V, RecordContext], str],
        produced: Produced[K, V] | NameLike = None,
        **option: Unpack[ProducedKeywords[K, V]],
    ) -> None: ...

    def to(self, topic: str | TopicExtractor[K, V], produced: Produced[K, V] | NameLike = None, **option: Any) -> None:
        """Writes the stream to a topic, or each record to the topic that `topic(key, value, record_context)` returns.

        Records keep their timestamps and headers; nulls are written, too. The partition is that of Kafka's default partitioner,
        murmur2 of the key, unless `Produced` has a partitioner; for windowed keys, the key without its window counts.

        Args:
            topic: The topic's name, or a function of `(value)`, `(key, value)` or `(key, value, record_context)`.
            produced: Serdes, partitioner and name of the sink; or just the name.
            **option: Fields of `Produced`, passed directly.

        Raises:
            TopologyError: The topic's name is invalid, or the function takes another number of arguments.

        Source: Kafka Streams' `SinkNode`, `TopicNameExtractor`.
        """
        how = one_option("to", Produced, produced, option)
        extractor = None if isinstance(topic, str) else functions.topic_extractor(topic)
        fixed = check_topic(topic) if isinstance(topic, str) else None
        name = how.name or self._graph.numbered(f"KSTREAM-SINK-{fixed or self._port.lineage}")
        self._graph.topology.add(
            SinkNode(
                name,
                (self._port.node,),
                fixed,
                extractor,
                self._graph.key_serde(cast("Serde | None", how.key_serde), self._port.key_serde),
                self._graph.value_serde(cast("Serde | None", how.value_serde), self._port.value_serde),
                how.partitioner,
            )
        )

    def repartition(
        self,
        repartitioned: Repartitioned[K, V] | NameLike = None,
        **option: Unpack[RepartitionedKeywords[K, V]],
    ) -> KStream[K, V]:
        """Sends the stream through a repartition topic, `<application>-<name>-repartition`.

        Records, including nulls, timestamps and headers, stay the same; the order between records of different tasks may change.
        Source: Kafka Streams' `repartition` (KIP-221), which drops null keys, as compat mode does.

        Args:
            repartitioned: Serdes, partitions and name of the topic; or just the name.
            **option: Fields of `Repartitioned`, passed directly.
        """
        how = one_option("repartition", Repartitioned, repartitioned, option)
        name = how.name or stateful_name("KSTREAM-REPARTITION", self._port.lineage, (("partitions", how.partitions),))
        key_serde = self._graph.key_serde(how.key_serde, self._port.key_serde)
        value_serde = self._graph.value_serde(how.value_serde, self._port.value_serde)
        port = self._graph.repartition(
            self._port,
            name,
            key_serde,
            value_serde,
            partitions=how.partitions,
            partitioner=how.partitioner,
            asked_for=True,
        )
        return self._stream(port)

    def _rows_port(self, named: NameLike) -> Port:
        return self._port

    # Groups and tables ------------------------------------------------------------------------------------------------

    def group_by_key(
        self, grouped: Grouped[K, V] | NameLike = None, **option: Unpack[GroupedKeywords[K, V]]
    ) -> KGroupedStream[K, V]:
        """Groups the records by their existing key; aggregations drop records with a null key.

        `KStream[K, V]` to `KGroupedStream[K, V]`. Source: Kafka Streams' `groupByKey`.

        Args:
            grouped: Serdes, and the name of the repartition topic if one is needed; or just the name.
            **option: Fields of `Grouped`, passed directly.
        """
        return KGroupedStream(self._graph, self._port, one_option("group_by_key", Grouped, grouped, option), "key")

    @overload
    def group_by(
        self,
        selector: ValueMapper[V, K2 | None],
        grouped: Grouped[K2, V] | NameLike = None,
        named: NameLike | Grouped[K2, V] = None,
        **option: Unpack[GroupedKeywords[K2, V]],
    ) -> KGroupedStream[K2, V]: ...

    @overload
    def group_by(
        self,
        selector: KeyValueMapper[K, V, K2 | None],
        grouped: Grouped[K2, V] | NameLike = None,
        named: NameLike | Grouped[K2, V] = None,
        **option: Unpack[GroupedKeywords[K2, V]],
    ) -> KGroupedStream[K2, V]: ...

    def group_by(
        self,
        selector: ValueMapper[V, K2 | None] | KeyValueMapper[K, V, K2 | None],
        grouped: Grouped[K2, V] | NameLike = None,
        named: NameLike | Grouped[K2, V] = None,
        **option: Any,
    ) -> KGroupedStream[K2, V]:
        """Groups the records by a new key; aggregations drop records whose new key is None.

        `KStream[K, V]` to `KGroupedStream[K2, V]`. Source: Kafka Streams' `groupBy`.

        Args:
            selector: `selector(value)` or `selector(key, value)` returns the new key.
            grouped: Serdes, and the name of the repartition topic if one is needed; or just the name.
            named: Name of the operator that computes the key.
            **option: Fields of `Grouped`, passed directly.
        """
        name, how = named_option("group_by", Grouped, named, grouped, option)
        rekeyed: KStream[K2, V] = self.select_key(selector, name)
        return KGroupedStream(self._graph, rekeyed._port, how, "by")

    @overload
    def to_table(
        self: KStream[K2, V2 | None],
        materialized: Materialized[K2, V2] | NameLike = None,
        named: NameLike | Materialized[K2, V2] = None,
        **option: Unpack[MaterializedKeywords[K2, V2]],
    ) -> KTable[K2, V2]: ...

    @overload
    def to_table(
        self,
        materialized: Materialized[K, V] | NameLike = None,
        named: NameLike | Materialized[K, V] = None,
        **option: Unpack[MaterializedKeywords[K, V]],
    ) -> KTable[K, V]: ...

    def to_table(
        self,
        materialized: Materialized[Any, Any] | NameLike = None,
        named: NameLike | Materialized[Any, Any] = None,
        **option: Any,
    ) -> KTable[Any, Any]:
        """Turns the stream into a table with the last value of each key.

        `KStream[K, V]` to `KTable[K, V]`. A null value deletes the row; a record with a null key is dropped. The last record to
        arrive wins, whatever its timestamp, unless the table is versioned. Source: Kafka Streams' `KStreamToTable` (KIP-523).

        Args:
            materialized: Name, serdes and settings of the store; or just its name.
            named: Name of the operator.
            **option: Fields of `Materialized`, passed directly.
        """
        from streams.dsl.ktable import KTable

        operator, how = named_option("to_table", Materialized, named, materialized, option)
        graph = self._graph
        key_serde = graph.key_serde(how.key_serde, self._port.key_serde)
        value_serde = graph.value_serde(how.value_serde, self._port.value_serde)
        port = graph.colocated(self._port, operator or how.name, key_serde, value_serde)
        key_serde = graph.keyed_as(port, key_serde)
        name, store = table_names(NodeKind.KSTREAM_TOTABLE, port.lineage, operator, how, ())
        table, node = add_table(graph, NodeKind.KSTREAM_TOTABLE, port, name, store, how, key_serde, value_serde)
        return KTable(graph, table, node=node)
