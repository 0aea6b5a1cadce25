"""`KStream`: an unbounded run of records; every record stands for itself.

Each method adds operators to the topology and gives the stream behind them; nothing runs. Functions of values may also
take the key first: `map_values(lambda value: ...)` or `map_values(lambda key, value: ...)`. A function of another
shape is a `TopologyError`, and so is a name that is taken. "Source" is where a rule comes from; `docs/operators.md` says more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from typing_extensions import Unpack

from streams.dsl import functions
from streams.dsl.arguments import named_option, names, one_option, operator_name
from streams.dsl.branched import BranchedKStream
from streams.dsl.build.dropped import add_dropped
from streams.dsl.build.materialize import table_names
from streams.dsl.build.process import add_process, add_process_values
from streams.dsl.build.table_source import add_table
from streams.dsl.grouped import KGroupedStream
from streams.dsl.kstream_enrich import EnrichMixin
from streams.dsl.kstream_extras import ExtrasMixin
from streams.dsl.kstream_joins import JoinMixin
from streams.dsl.kstream_records import RecordsMixin
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


class KStream(RecordsMixin[K, V], JoinMixin[K, V], ExtrasMixin[K, V], EnrichMixin[K, V], Generic[K, V]):
    """A stream of records. Made by `StreamsBuilder.stream` and by the methods of streams and tables.

    Example::

        flights = builder.stream("flights")
        late = flights.filter(lambda flight: flight["dep_delay"] > 60)
        late.select_key(lambda flight: flight["carrier"]).group_by_key().count().to_stream().to("late-by-carrier")
    """

    def merge(self, other: KStream[K2, V2], named: NameLike = None) -> KStream[K | K2, V | V2]:
        """The records of both streams, in the order in which a task takes them: the oldest that waits first.

        `KStream[K, V]` of two; nulls, time and headers stay.

        Raises:
            TopologyError: The other is of another builder, or no stream.

        Source: Kafka Streams' `KStreamImpl.merge`.
        """
        self._check_stream(other)
        name = operator_name("merge", named)
        port = self._graph.stateless(MergeSpec(), self._port, name, others=(other._port,))
        return self._stream(port)

    def split(self, named: NameLike = None) -> BranchedKStream[K, V]:
        """Sends each record to the first of several branches whose predicate holds; see `BranchedKStream`.

        Source: Kafka Streams' `split` (KIP-418).
        """
        name = operator_name("split", named)
        return BranchedKStream(self._graph, self._port, name, partial(KStream[K, V], self._graph))

    def dropped(self, named: NameLike = None) -> KStream[Any, Any]:
        """What the operator that made this stream dropped: late records, null keys, duplicates, ...

        Records are as they came, with the headers `__streams.dropped.reason` and `__streams.dropped.node`. Call it on what
        a join, an aggregation, `deduplicate` or `enrich(on_error="drop")` gave::

            joined = clicks.left_join(views, joiner, windows)
            joined.dropped().to("late-clicks-and-views")

        Raises:
            TopologyError: The operator drops nothing.
        """
        return self._stream(add_dropped(self._graph, self._port, operator_name("dropped", named)))

    # Processors of your own -------------------------------------------------------------------------------------------

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        stores: str | Sequence[str] = (),
        named: NameLike = None,
    ) -> KStream[K2, V2]:
        """Runs a `Processor` of yours, which may keep state, schedule calls and change keys.

        What the processor forwards may have new keys, so a grouping or join behind it goes through a repartition topic.

        Args:
            supplier: Makes a new processor on each call; a subclass of `Processor` will do.
            stores: Names of stores added with `StreamsBuilder.add_state_store`, or one name.
            named: Name of the node; needed where two processors have the same input.

        Raises:
            TopologyError: `supplier` makes no processors, or a store is unknown.

        Source: Kafka Streams' `process` (KIP-820).
        """
        name = operator_name("process", named)
        return self._stream(add_process(self._graph, self._port, supplier, names(stores), name))

    def process_values(
        self,
        supplier: Callable[[], Processor[K, V, K, V2]],
        stores: str | Sequence[str] = (),
        named: NameLike = None,
    ) -> KStream[K, V2]:
        """As `process`, for a processor that leaves the key as it is: nothing behind it needs a repartition topic.

        Processing fails where it forwards another key than that of the record in process.

        Raises:
            TopologyError: `supplier` makes no processors, or a store is unknown.

        Source: Kafka Streams' `processValues` (KIP-820).
        """
        name = operator_name("process_values", named)
        return self._stream(add_process_values(self._graph, self._port, supplier, names(stores), name))

    # To topics --------------------------------------------------------------------------------------------------------

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
        """Writes the stream to a topic, or each record to the one that `topic(key, value, record_context)` names.

        Nulls are written, with the record's time and headers. The partition is Kafka's own, by the key's murmur2, unless
        `Produced` says otherwise; windowed keys go by the key within.

        Args:
            topic: Name of the topic, or a function of `(value)`, `(key, value)` or `(key, value, record_context)`.
            produced: Serdes, partitioner and name of the sink, or the name alone.
            **option: Fields of `Produced`, given directly.

        Raises:
            TopologyError: An impossible topic name, or a function with another number of arguments.

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
        """Sends the stream through a topic of its own, `<application>-<name>-repartition`, and on from there.

        `KStream[K, V]` to the same; nulls, time and headers stay, the order between records of different tasks does not.
        Source: Kafka Streams' `repartition` (KIP-221), which drops null keys, as compat mode does.

        Args:
            repartitioned: Serdes, partitions and name of the topic, or the name alone.
            **option: Fields of `Repartitioned`, given directly.
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

    # Grouping, tables -------------------------------------------------------------------------------------------------

    def group_by_key(
        self, grouped: Grouped[K, V] | NameLike = None, **option: Unpack[GroupedKeywords[K, V]]
    ) -> KGroupedStream[K, V]:
        """Groups by the key that is there; aggregations drop null keys.

        `KStream[K, V]` to `KGroupedStream[K, V]`. Source: Kafka Streams' `groupByKey`.

        Args:
            grouped: Serdes, and the name of the repartition topic where one is needed, or the name alone.
            **option: Fields of `Grouped`, given directly.
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
        """Groups by a new key, `selector(value)` or `selector(key, value)`; aggregations drop those that are None.

        `KStream[K, V]` to `KGroupedStream[K2, V]`. Source: Kafka Streams' `groupBy`.

        Args:
            selector: Gives the new key.
            grouped: Serdes, and the name of the repartition topic where one is needed, or the name alone.
            named: Name of the operator that makes the key.
            **option: Fields of `Grouped`, given directly.
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
        """Reads the stream as updates of a table: the last value of each key, a null value deletes, a null key is dropped.

        `KStream[K, V]` to `KTable[K, V]`. The last one to come wins, whatever its time, unless the table is versioned.
        Source: Kafka Streams' `KStreamToTable` (KIP-523).

        Args:
            materialized: Name, serdes and settings of the store, or its name alone.
            named: Name of the operator.
            **option: Fields of `Materialized`, given directly.
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
