"""``KStream``: an unbounded run of records; every record stands for itself.

Each method adds operators to the topology and gives the stream behind them; nothing runs. Functions of values may also
take the key first: ``map_values(lambda value: ...)`` or ``map_values(lambda key, value: ...)``. A function of another
shape is a ``TopologyError``, and so is a name that is taken. "Source" is where a rule comes from; `docs/semantics.md` says more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from streams.dsl import functions
from streams.dsl.branched import BranchedKStream
from streams.dsl.build.dropped import add_dropped
from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.dsl.build.materialize import table_names
from streams.dsl.build.process import add_process, add_process_values
from streams.dsl.build.result_types import Type, element_type, pair_types, result_type
from streams.dsl.build.table_source import add_table
from streams.dsl.enrich_mixin import EnrichMixin
from streams.dsl.grouped import KGroupedStream
from streams.dsl.kstream_joins import JoinMixin
from streams.dsl.options import Grouped, Materialized, NameLike, Produced, Repartitioned, option, plain_name
from streams.operators.processor import AnyProcessor, Processor
from streams.operators.stateless.filter import Filter
from streams.operators.stateless.flat_map import FlatMap, FlatMapValues
from streams.operators.stateless.map import Map, SelectKey
from streams.operators.stateless.map_values import MapValues
from streams.operators.stateless.peek import Peek
from streams.topology.graph import SinkNode
from streams.topology.naming import check_topic, stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import OperatorSpec
from streams.topology.specs.streams import MergeSpec

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


class KStream(JoinMixin, EnrichMixin):
    """A stream of records. Made by ``StreamsBuilder.stream`` and by the methods of streams and tables.

    Example::

        flights = builder.stream("flights")
        late = flights.filter(lambda flight: flight["dep_delay"] > 60)
        late.select_key(lambda flight: flight["carrier"]).group_by_key().count().to_stream().to("late-by-carrier")
    """

    def __init__(self, graph: GraphBuilder, port: Port) -> None:
        self._graph = graph
        self._port = port

    # Records one by one -----------------------------------------------------------------------------------------------

    def filter(self, predicate: functions.Function, named: NameLike = None) -> KStream:
        """Keeps the records for which the predicate holds.

        ``KStream[K, V]`` to ``KStream[K, V]``; nulls go to the predicate, time and headers stay.
        Source: Kafka Streams' ``KStreamFilter``.
        """
        return self._filter(predicate, named, negate=False)

    def filter_not(self, predicate: functions.Function, named: NameLike = None) -> KStream:
        """Leaves out the records for which the predicate holds.

        ``KStream[K, V]`` to ``KStream[K, V]``; nulls go to the predicate, time and headers stay.
        Source: Kafka Streams' ``KStreamFilter``.
        """
        return self._filter(predicate, named, negate=True)

    def _filter(self, predicate: functions.Function, named: NameLike, *, negate: bool) -> KStream:
        fn = functions.key_value(predicate, "predicate")
        return self._then(NodeKind.KSTREAM_FILTER, partial(Filter, fn, negate), named)

    def map(self, mapper: functions.Function, named: NameLike = None) -> KStream:
        """Makes a new key and value: ``mapper(key, value)`` gives a pair. Prefer ``map_values`` where the key stays.

        ``KStream[K, V]`` to ``KStream[K2, V2]``; nulls go to the mapper, time and headers stay.
        Source: Kafka Streams' ``KStreamMap``.
        """
        fn = functions.key_value(mapper, "mapper")
        made = pair_types(self._result_type(mapper))
        return self._then(NodeKind.KSTREAM_MAP, partial(Map, fn), named, new_key=True, new_value=True, types=made)

    def map_values(self, mapper: functions.Function, named: NameLike = None) -> KStream:
        """Makes a new value; the key stays, and with it the task.

        ``KStream[K, V]`` to ``KStream[K, V2]``; nulls go to the mapper, time and headers stay.
        Source: Kafka Streams' ``KStreamMapValues``.
        """
        fn = functions.key_value(mapper, "value mapper")
        made = (None, self._result_type(mapper))
        return self._then(NodeKind.KSTREAM_MAPVALUES, partial(MapValues, fn), named, new_value=True, types=made)

    def flat_map(self, mapper: functions.Function, named: NameLike = None) -> KStream:
        """Makes any number of records of one: ``mapper(key, value)`` gives pairs of key and value.

        ``KStream[K, V]`` to ``KStream[K2, V2]``; all have the record's time and headers.
        Source: Kafka Streams' ``KStreamFlatMap``.
        """
        fn = functions.key_value(mapper, "mapper")
        made = pair_types(element_type(self._result_type(mapper)))
        return self._then(
            NodeKind.KSTREAM_FLATMAP, partial(FlatMap, fn), named, new_key=True, new_value=True, types=made
        )

    def flat_map_values(self, mapper: functions.Function, named: NameLike = None) -> KStream:
        """Makes any number of values of one; the key stays.

        ``KStream[K, V]`` to ``KStream[K, V2]``; all have the record's time and headers.
        Source: Kafka Streams' ``KStreamFlatMapValues``.
        """
        fn = functions.key_value(mapper, "value mapper")
        made = (None, element_type(self._result_type(mapper)))
        return self._then(NodeKind.KSTREAM_FLATMAPVALUES, partial(FlatMapValues, fn), named, new_value=True, types=made)

    def select_key(self, selector: functions.Function, named: NameLike = None) -> KStream:
        """Makes a new key; the value stays.

        ``KStream[K, V]`` to ``KStream[K2, V]``; a null key is allowed until something groups or joins by it. Time and headers stay.
        Source: Kafka Streams' ``KStreamImpl.selectKey``.
        """
        fn = functions.key_value(selector, "key selector")
        made = (self._result_type(selector), None)
        return self._then(NodeKind.KSTREAM_KEY_SELECT, partial(SelectKey, fn), named, new_key=True, types=made)

    def peek(self, action: functions.Function, named: NameLike = None) -> KStream:
        """Shows each record to a function, at least once each, and passes it on unchanged.

        ``KStream[K, V]`` to the same. Source: Kafka Streams' ``KStreamPeek``.
        """
        return self._then(NodeKind.KSTREAM_PEEK, partial(Peek, functions.key_value(action, "action")), named)

    def foreach(self, action: functions.Function, named: NameLike = None) -> None:
        """Shows each record to a function, at least once each; the stream ends here. Source: Kafka Streams' ``foreach``."""
        self._then(NodeKind.KSTREAM_FOREACH, partial(Peek, functions.key_value(action, "action")), named)

    def print(self, label: str | None = None, named: NameLike = None) -> None:
        """Prints each record as ``[label]: key, value``, on the machine where it is processed; the stream ends here."""
        action = partial(_print_record, label or self._port.node)
        self._then(NodeKind.KSTREAM_PRINTER, partial(Peek, action), named)

    def merge(self, other: KStream, named: NameLike = None) -> KStream:
        """The records of both streams, in the order in which a task takes them: the oldest that waits first.

        ``KStream[K, V]`` of two; nulls, time and headers stay.

        Raises:
            TopologyError: the other is of another builder, or no stream.

        Source: Kafka Streams' ``KStreamImpl.merge``.
        """
        self._check_stream(other)
        port = self._graph.stateless(MergeSpec(), self._port, plain_name(named), others=(other._port,))
        return KStream(self._graph, port)

    def split(self, named: NameLike = None) -> BranchedKStream:
        """Sends each record to the first of several branches whose predicate holds; see ``BranchedKStream``.

        Source: Kafka Streams' ``split`` (KIP-418).
        """
        return BranchedKStream(self._graph, self._port, plain_name(named), partial(KStream, self._graph))

    def dropped(self, named: NameLike = None) -> KStream:
        """What the operator that made this stream dropped: late records, null keys, duplicates, ...

        Records are as they came, with the headers ``__streams.dropped.reason`` and ``__streams.dropped.node``. Call it on what
        a join, an aggregation, ``deduplicate`` or ``enrich(on_error="drop")`` gave::

            joined = clicks.left_join(views, joiner, windows)
            joined.dropped().to("late-clicks-and-views")

        Raises:
            TopologyError: the operator drops nothing.
        """
        return KStream(self._graph, add_dropped(self._graph, self._port, plain_name(named)))

    def _result_type(self, fn: functions.Function) -> Type:
        """What a function of key and value returns, as far as that is known."""
        return result_type(fn, self._port.key_serde, self._port.value_serde)

    def _then(
        self,
        kind: NodeKind,
        supplier: Callable[[], AnyProcessor],
        named: NameLike,
        *,
        new_key: bool = False,
        new_value: bool = False,
        types: tuple[Type, Type] = (None, None),
    ) -> KStream:
        port = self._graph.stateless(
            OperatorSpec(kind, supplier),
            self._port,
            plain_name(named),
            new_key=new_key,
            new_value=new_value,
            key_type=types[0],
            value_type=types[1],
        )
        return KStream(self._graph, port)

    # Processors of your own -------------------------------------------------------------------------------------------

    def process(self, supplier: Callable[[], Processor], stores: Sequence[str] = (), named: NameLike = None) -> KStream:
        """Runs a ``Processor`` of yours, which may keep state, schedule calls and change keys.

        Args:
            supplier: makes a new processor on each call; a subclass of ``Processor`` will do.
            stores: names of stores added with ``StreamsBuilder.add_state_store``.
            named: name of the node; needed where two processors have the same input.

        What it forwards may be keyed anew, so a grouping or join behind it puts records right by a repartition topic.
        """
        return KStream(self._graph, add_process(self._graph, self._port, supplier, stores, plain_name(named)))

    def process_values(
        self, supplier: Callable[[], Processor], stores: Sequence[str] = (), named: NameLike = None
    ) -> KStream:
        """The same for a processor that leaves the key as it is: nothing behind it needs a repartition topic.

        Processing fails where it forwards another key than that of the record in process.

        Raises:
            TopologyError: ``supplier`` makes no processors, or a store is unknown.

        Source: Kafka Streams' ``processValues`` (KIP-820).
        """
        port = add_process_values(self._graph, self._port, supplier, stores, plain_name(named))
        return KStream(self._graph, port)

    # To topics --------------------------------------------------------------------------------------------------------

    def to(self, topic: str | functions.Function, produced: Produced | None = None) -> None:
        """Writes the stream to a topic, or each record to the one that ``topic(key, value, record_context)`` names.

        Nulls are written, with the record's time and headers. The partition is Kafka's own, by the key's murmur2, unless
        ``Produced`` says otherwise; windowed keys go by the key within.

        Raises:
            TopologyError: an impossible topic name, or a function with another number of arguments.

        Source: Kafka Streams' ``SinkNode``, ``TopicNameExtractor``.
        """
        produced = option(produced, Produced)
        extractor = None if isinstance(topic, str) else functions.topic_extractor(topic)
        fixed = check_topic(topic) if isinstance(topic, str) else None
        name = produced.name or self._graph.numbered(f"KSTREAM-SINK-{fixed or self._port.lineage}")
        self._graph.topology.add(
            SinkNode(
                name,
                (self._port.node,),
                fixed,
                extractor,
                self._graph.key_serde(produced.key_serde, self._port.key_serde),
                self._graph.value_serde(produced.value_serde, self._port.value_serde),
                produced.partitioner,
            )
        )

    def repartition(self, repartitioned: Repartitioned | None = None) -> KStream:
        """Sends the stream through a topic of its own, ``<application>-<name>-repartition``, and on from there.

        ``KStream[K, V]`` to the same; nulls, time and headers stay, the order between records of different tasks does not.
        Source: Kafka Streams' ``repartition`` (KIP-221), which drops null keys, as compat mode does.
        """
        how = option(repartitioned, Repartitioned)
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
        return KStream(self._graph, port)

    # Grouping, tables -------------------------------------------------------------------------------------------------

    def group_by_key(self, grouped: Grouped | None = None) -> KGroupedStream:
        """Groups by the key that is there; aggregations drop null keys.

        ``KStream[K, V]`` to ``KGroupedStream[K, V]``. Source: Kafka Streams' ``groupByKey``.
        """
        return KGroupedStream(self._graph, self._port, option(grouped, Grouped), "key")

    def group_by(
        self, selector: functions.Function, grouped: Grouped | None = None, named: NameLike = None
    ) -> KGroupedStream:
        """Groups by a new key, ``selector(value)`` or ``selector(key, value)``; aggregations drop those that are None.

        ``KStream[K, V]`` to ``KGroupedStream[K2, V]``. Source: Kafka Streams' ``groupBy``.
        """
        rekeyed = self.select_key(selector, named)
        return KGroupedStream(self._graph, rekeyed._port, option(grouped, Grouped), "by")

    def to_table(self, materialized: Materialized | None = None, named: NameLike = None) -> KTable:
        """Reads the stream as updates of a table: the last value of each key, a null value deletes, a null key is dropped.

        ``KStream[K, V]`` to ``KTable[K, V]``. The last one to come wins, whatever its time, unless the table is versioned.
        Source: Kafka Streams' ``KStreamToTable`` (KIP-523).
        """
        from streams.dsl.ktable import KTable

        how = option(materialized, Materialized)
        graph = self._graph
        key_serde = graph.key_serde(how.key_serde, self._port.key_serde)
        value_serde = graph.value_serde(how.value_serde, self._port.value_serde)
        port = graph.colocated(self._port, plain_name(named) or how.name, key_serde, value_serde)
        key_serde = graph.keyed_as(port, key_serde)
        name, store = table_names(NodeKind.KSTREAM_TOTABLE, port.lineage, plain_name(named), how, ())
        table, node = add_table(graph, NodeKind.KSTREAM_TOTABLE, port, name, store, how, key_serde, value_serde)
        return KTable(graph, table, node=node)


def _print_record(label: str, key: Any, value: Any) -> None:
    print(f"[{label}]: {key}, {value}")
