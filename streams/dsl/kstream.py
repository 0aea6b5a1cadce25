"""`KStream`: an unbounded sequence of independent records. Its joins are in `kstream_joins`.

Each method adds operators to the topology and returns the resulting stream; nothing runs yet. Functions of values may also
take the key first: `map_values(lambda value: ...)` or `map_values(lambda key, value: ...)`. They are called with nulls, too.
A record keeps its timestamp, its headers, and everything that a method does not change.

An option may be passed as an object, as its name alone, or as keywords of the method: `to("out", value_serde=JsonSerde())`. A
function with another signature raises a `TopologyError`, and so do an invalid name and a name that is taken. "Source" names the
origin of a rule; `docs/operators.md` has details.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, overload

from typing_extensions import TypedDict, Unpack

from streams.dsl import functions
from streams.dsl.arguments import name_and_stores, named_option, one_option, operator_name
from streams.dsl.facade import Facade
from streams.dsl.grouped import KGroupedStream
from streams.dsl.kstream_joins import StreamJoins
from streams.dsl.lake import LakeMixin
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.inferred_types import Type, check_fields, element_type, pair_types, result_type
from streams.dsl.nodes.processing import (
    EnrichOnError,
    EnrichOptions,
    OnError,
    add_deduplicate,
    add_dropped,
    add_enrich,
    add_process,
    add_process_values,
    add_sink,
)
from streams.dsl.nodes.stores import table_names
from streams.dsl.nodes.tables import add_table
from streams.dsl.options import (
    Grouped,
    GroupedKeywords,
    Groups,
    Materialized,
    MaterializedKeywords,
    Named,
    NameLike,
    Option,
    Produced,
    ProducedKeywords,
    Repartitioned,
    RepartitionedKeywords,
    Stored,
)
from streams.errors import TopologyError
from streams.model.expressions import Expression, ValueFields
from streams.model.record import RecordContext, TopicExtractor
from streams.model.typing import (
    K2,
    V2,
    K,
    KeyValueAction,
    KeyValueMapper,
    KeyValuePredicate,
    T,
    V,
    ValueAction,
    ValueMapper,
    ValuePredicate,
)
from streams.model.windows import Duration
from streams.operators.late import Branch, FlatMap, FlatMapValues, Map, PassThrough, Peek
from streams.operators.processor import Processor
from streams.serdes.base import Serde
from streams.topology.naming import numbered, stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import NodeSpec, OperatorSpec
from streams.topology.specs.streams import FilterSpec, MapValuesSpec, MergeSpec, SelectKeySpec

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


Results: TypeAlias = Sequence[V2] | Awaitable[Sequence[V2]]
OrFactory: TypeAlias = T | Callable[..., T]
OnFailure: TypeAlias = Literal["fail", "drop"] | Callable[[K, V, Exception], V2] | Callable[[V, Exception], V2]


class EnrichSettings(TypedDict, Generic[K, V, V2], total=False):
    """The settings of `KStream.enrich` besides `batch_size`."""

    concurrency: int | None
    timeout: Duration | None
    retries: int
    backoff: Duration
    on_error: OnFailure[K, V, V2]
    named: NameLike


class KStream(StreamJoins[K, V], LakeMixin, Generic[K, V]):
    """A stream of records, made by `StreamsBuilder.stream` and by methods of streams and tables.

    For example:

        flights = builder.stream("flights")
        late = flights.filter(lambda flight: flight["dep_delay"] > 60)
        late.select_key(lambda flight: flight["carrier"]).group_by_key().count().to_stream().to("late-by-carrier")
    """

    # Records one by one -------------------------------------------------------------------------------------------------

    @overload
    def filter(self, predicate: ValuePredicate[V], named: NameLike = None) -> KStream[K, V]: ...
    @overload
    def filter(self, predicate: KeyValuePredicate[K, V], named: NameLike = None) -> KStream[K, V]: ...
    def filter(self, predicate: functions.Function, named: NameLike = None) -> KStream[K, V]:
        """Keeps the records for which the predicate is true. Source: Kafka Streams' `KStreamFilter`."""
        return self._filter("filter", predicate, named, negate=False)

    @overload
    def filter_not(self, predicate: ValuePredicate[V], named: NameLike = None) -> KStream[K, V]: ...
    @overload
    def filter_not(self, predicate: KeyValuePredicate[K, V], named: NameLike = None) -> KStream[K, V]: ...
    def filter_not(self, predicate: functions.Function, named: NameLike = None) -> KStream[K, V]:
        """Removes the records for which the predicate is true. Source: Kafka Streams' `KStreamFilter`."""
        return self._filter("filter_not", predicate, named, negate=True)

    def _filter(self, method: str, predicate: functions.Function, named: NameLike, *, negate: bool) -> KStream[K, V]:
        expression = predicate if isinstance(predicate, Expression) else None
        check_fields(predicate, self._port.node, self._port.value_serde)
        return self._add(method, FilterSpec(functions.predicate_of_record(predicate), negate, expression), named)

    @overload
    def map(self, mapper: KeyValueMapper[K, V, tuple[K2 | None, V2]], named: NameLike = None) -> KStream[K2, V2]: ...
    @overload
    def map(self, mapper: ValueMapper[V, tuple[K2 | None, V2]], named: NameLike = None) -> KStream[K2, V2]: ...
    def map(self, mapper: functions.Function, named: NameLike = None) -> KStream[K2, V2]:
        """Maps each record to a new key and value: `mapper(key, value)` returns a pair. Prefer `map_values` if the key stays.

        Source: Kafka Streams' `KStreamMap`.
        """
        spec = OperatorSpec(NodeKind.KSTREAM_MAP, partial(Map, functions.key_value(mapper, "mapper")))
        made = pair_types(self._result_type(mapper))
        return self._add("map", spec, named, new_key=True, new_value=True, types=made)

    @overload
    def map_values(self, mapper: ValueMapper[V, V2], named: NameLike = None) -> KStream[K, V2]: ...
    @overload
    def map_values(self, mapper: KeyValueMapper[K, V, V2], named: NameLike = None) -> KStream[K, V2]: ...
    def map_values(self, mapper: functions.Function, named: NameLike = None) -> KStream[K, V2]:
        """Maps each value to a new one. The key and the task stay the same, so no repartition topic is needed.

        Source: Kafka Streams' `KStreamMapValues`.
        """
        made = mapper if isinstance(mapper, ValueFields | Expression) else None
        spec = MapValuesSpec(functions.of_record(mapper, "value mapper"), made)
        return self._add("map_values", spec, named, new_value=True, types=(None, self._result_type(mapper)))

    @overload
    def flat_map(
        self, mapper: KeyValueMapper[K, V, Iterable[tuple[K2 | None, V2]]], named: NameLike = None
    ) -> KStream[K2, V2]: ...
    @overload
    def flat_map(
        self, mapper: ValueMapper[V, Iterable[tuple[K2 | None, V2]]], named: NameLike = None
    ) -> KStream[K2, V2]: ...
    def flat_map(self, mapper: functions.Function, named: NameLike = None) -> KStream[K2, V2]:
        """Maps each record to any number of records: `mapper(key, value)` returns pairs of key and value.

        Source: Kafka Streams' `KStreamFlatMap`.
        """
        spec = OperatorSpec(
            NodeKind.KSTREAM_FLATMAP, partial(FlatMap, functions.key_value(mapper, "mapper")), several=True
        )
        made = pair_types(element_type(self._result_type(mapper)))
        return self._add("flat_map", spec, named, new_key=True, new_value=True, types=made)

    @overload
    def flat_map_values(self, mapper: ValueMapper[V, Iterable[V2]], named: NameLike = None) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(self, mapper: KeyValueMapper[K, V, Iterable[V2]], named: NameLike = None) -> KStream[K, V2]: ...
    def flat_map_values(self, mapper: functions.Function, named: NameLike = None) -> KStream[K, V2]:
        """Maps each value to any number of values; the key stays. Source: Kafka Streams' `KStreamFlatMapValues`."""
        fn = functions.key_value(mapper, "value mapper")
        spec = OperatorSpec(NodeKind.KSTREAM_FLATMAPVALUES, partial(FlatMapValues, fn), several=True)
        made = None, element_type(self._result_type(mapper))
        return self._add("flat_map_values", spec, named, new_value=True, types=made)

    @overload
    def select_key(self, selector: ValueMapper[V, K2 | None], named: NameLike = None) -> KStream[K2, V]: ...
    @overload
    def select_key(self, selector: KeyValueMapper[K, V, K2 | None], named: NameLike = None) -> KStream[K2, V]: ...
    def select_key(self, selector: functions.Function, named: NameLike = None) -> KStream[K2, V]:
        """Replaces each key. The new key may be null, but groups and joins drop null keys.

        Source: Kafka Streams' `KStreamImpl.selectKey`.
        """
        expression = selector if isinstance(selector, Expression | ValueFields) else None
        spec = SelectKeySpec(functions.of_record(selector, "key selector"), expression)
        return self._add("select_key", spec, named, new_key=True, types=(self._result_type(selector), None))

    @overload
    def peek(self, action: ValueAction[V], named: NameLike = None) -> KStream[K, V]: ...
    @overload
    def peek(self, action: KeyValueAction[K, V], named: NameLike = None) -> KStream[K, V]: ...
    def peek(self, action: functions.Function, named: NameLike = None) -> KStream[K, V]:
        """Calls a function for each record, at least once, and passes the record on unchanged.

        Source: Kafka Streams' `KStreamPeek`.
        """
        return self._add("peek", _peeking(NodeKind.KSTREAM_PEEK, functions.key_value(action, "action")), named)

    @overload
    def foreach(self, action: ValueAction[V], named: NameLike = None) -> None: ...
    @overload
    def foreach(self, action: KeyValueAction[K, V], named: NameLike = None) -> None: ...
    def foreach(self, action: functions.Function, named: NameLike = None) -> None:
        """Calls a function for each record, at least once; the stream ends here. Source: Kafka Streams' `foreach`."""
        self._add("foreach", _peeking(NodeKind.KSTREAM_FOREACH, functions.key_value(action, "action")), named)

    def print(self, label: str | None = None, named: NameLike = None) -> None:
        """Prints each record as `[label]: key, value`, on the machine where it is processed; the stream ends here."""
        action = partial(_print_record, label or self._port.node)
        self._add("print", _peeking(NodeKind.KSTREAM_PRINTER, action), named)

    def _add(
        self,
        method: str,
        spec: NodeSpec,
        named: NameLike,
        *,
        new_key: bool = False,
        new_value: bool = False,
        types: tuple[Type, Type] = (None, None),
    ) -> KStream[Any, Any]:
        name = operator_name(method, named)
        return self._stream(
            self._graph.stateless(spec, self._port, name, new_key=new_key, new_value=new_value, types=types)
        )

    def _result_type(self, fn: functions.Function) -> Type:
        """The type that a function returns, if known. Raises `TopologyError` if the function reads a field that does not exist."""
        check_fields(fn, self._port.node, self._port.value_serde)
        return result_type(fn, self._port.key_serde, self._port.value_serde)

    # fmt: off
    @overload
    def enrich(self, function: OrFactory[Callable[[list[V]], Results[V2]]],
               *, batch_size: int, **settings: Unpack[EnrichSettings[K, V, V2]]) -> KStream[K, V2]: ...
    @overload
    def enrich(self, function: OrFactory[Callable[[list[K], list[V]], Results[V2]]],
               *, batch_size: int, **settings: Unpack[EnrichSettings[K, V, V2]]) -> KStream[K, V2]: ...
    @overload
    def enrich(self, function: OrFactory[Callable[[V], Awaitable[V2]]],
               *, batch_size: None = None, **settings: Unpack[EnrichSettings[K, V, V2]]) -> KStream[K, V2]: ...
    @overload
    def enrich(self, function: OrFactory[Callable[[K, V], Awaitable[V2]]],
               *, batch_size: None = None, **settings: Unpack[EnrichSettings[K, V, V2]]) -> KStream[K, V2]: ...
    # fmt: on
    def enrich(
        self,
        function: functions.Function,
        *,
        batch_size: int | None = None,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        on_error: EnrichOnError = "fail",
        named: NameLike = None,
    ) -> KStream[Any, Any]:
        """Maps values by calls to another system, many values per call or many calls at a time (as KIP-311 and KIP-408 proposed).

        The function takes many values (with `batch_size`; may be `async def`) or one value (must be `async def`):

            def countries(ips: list[str]) -> list[str]:
                return geo.lookup_all(ips)

            async def country(ip: str) -> str:
                return await geo.lookup(ip)

            stream.enrich(countries, batch_size=500, retries=3)
            stream.enrich(country, concurrency=32, timeout=timedelta(seconds=2), on_error="drop")

        Keys and the order of records stay the same. Calls are made where records are read, before they are merged by time; after a
        stateful operator, the records first go through a repartition topic. A repeated step repeats its calls; the results of one
        attempt are committed.

        Args:
            function: `fn(values)` or `fn(keys, values)` returns a list with one result per value; without `batch_size`,
                `async fn(value)` or `async fn(key, value)` returns the result. If it is a class, each process makes one object, in
                the event loop of its calls, and calls the object, which can hold a client.
            batch_size: The largest number of values in a call; None: one value per call.
            concurrency: The largest number of simultaneous calls of an async function in a reader (topic-partition); None: 16.
            timeout: The longest time that an async call may take; None: 30 seconds.
            retries: How often to repeat a failed call. If a call for many values still fails, each value is tried alone.
            backoff: The wait before the first retry; it doubles before each further one, up to a minute.
            on_error: What to do when all calls for a record have failed. `"fail"`: the processing policy decides; `"drop"`: the
                record is dropped (`dropped()`; reasons `call_failed`, `timeout`); a `Retry`: it goes through retry topics and comes
                back; or a function `(value, error) -> value` or `(key, value, error) -> value`.
            named: Name of the operator, and of the repartition topic if one is needed; required with a `Retry`.
        """
        options = EnrichOptions(batch_size, concurrency, timeout, retries, backoff, on_error)
        return self._stream(add_enrich(self._graph, self._port, function, options, operator_name("enrich", named)))

    # fmt: off
    @overload
    def deduplicate(self, within: Duration, by: ValueMapper[V, Any] | None = None, grace: Duration = 0,
                    key_serde: Serde[K] | None = None, named: NameLike = None) -> KStream[K, V]: ...
    @overload
    def deduplicate(self, within: Duration, by: KeyValueMapper[K, V, Any], grace: Duration = 0,
                    key_serde: Serde[K] | None = None, named: NameLike = None) -> KStream[K, V]: ...
    # fmt: on
    def deduplicate(
        self,
        within: Duration,
        by: functions.Function | None = None,
        grace: Duration = 0,
        key_serde: Serde[K] | None = None,
        named: NameLike = None,
    ) -> KStream[K, V]:
        """Drops duplicates: records that repeat an earlier one, less than `within` before or after it in event time.

        With `within=10`, a record at 20 makes later ones with the same id from 11 to 29 duplicates.

        Args:
            within: Records at least this far apart are not duplicates.
            by: `by(value)` or `by(key, value)` returns an id, any JSON value, which duplicates share besides the key; None:
                records with the same key are duplicates. A record whose id is None always passes.
            grace: How late a record may be. A later record is dropped, because the records that it may repeat are no longer stored.
            key_serde: The serde of the key, if an operator has made the key.
            named: Name of the operator, its store and its repartition topic.
        """
        fn = None if by is None else functions.key_value(by, "id")
        name = operator_name("deduplicate", named)
        return self._stream(add_deduplicate(self._graph, self._port, within, fn, grace, key_serde, name))

    def merge(self, other: KStream[K2, V2], named: NameLike = None) -> KStream[K | K2, V | V2]:
        """Merges two streams of one builder. A task processes the oldest waiting record of both streams first.

        A record that is in both streams, for instance because one stream is a filtered copy of the other, is in the result twice.
        Merging a stream with itself raises `TopologyError`, where Kafka Streams returns the stream unchanged. Source: Kafka
        Streams' `KStreamImpl.merge`.
        """
        self._check_stream(other)
        if other._port.node == self._port.node:
            raise TopologyError(
                f"merge is given the stream of '{self._port.node}' and itself: leave it out. For each record twice, write "
                f"flat_map_values(lambda value: [value, value])."
            )
        name = operator_name("merge", named)
        return self._stream(self._graph.stateless(MergeSpec(), self._port, name, others=(other._port,)))

    def split(self, named: NameLike = None) -> BranchedKStream[K, V]:
        """Splits the stream into branches: each record goes to the first branch whose predicate is true (`BranchedKStream`).

        Source: Kafka Streams' `split` (KIP-418).
        """
        name = operator_name("split", named)
        return BranchedKStream(self._graph, self._port, name)

    def dropped(self, named: NameLike = None) -> KStream[Any, Any]:
        """Returns the records that the last operator of this stream dropped: late records, null keys, duplicates, ...

        Records are unchanged, except for two new headers: `__streams.dropped.reason` and `__streams.dropped.node`. Call this
        method on the result of a join, an aggregation, `deduplicate` or `enrich(on_error="drop")`:

            joined = clicks.left_join(views, joiner, windows)
            joined.dropped().to("late-clicks-and-views")

        An operator that never drops records raises a `TopologyError`.
        """
        return self._stream(add_dropped(self._graph, self._port, operator_name("dropped", named)))

    # Custom processors ------------------------------------------------------------------------------------------------

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        stores: str | Sequence[str] | Named = (),
        named: NameLike | Sequence[str] = None,
        *,
        on_error: OnError = "fail",
    ) -> KStream[K2, V2]:
        """Runs your own `Processor`, which may use state stores, schedule calls and change keys.

        Forwarded records may have new keys, so a later grouping or join goes through a repartition topic.

        Args:
            supplier: Returns a new processor on each call; a subclass of `Processor` is enough.
            stores: The name, or names, of stores added with `StreamsBuilder.add_state_store`.
            named: The node's name; required if two processors have the same input, and with a `Retry`. `Named` may also come
                before the stores, as in Java.
            on_error: What to do with a record for which the processor fails. `"fail"`: the processing policy decides, as for any
                function that raises; a `Retry`: the record goes through retry topics and comes back.

        Source: Kafka Streams' `process` (KIP-820), which has no retries.
        """
        name, used = name_and_stores("process", stores, named)
        return self._stream(add_process(self._graph, self._port, supplier, used, name, on_error))

    def process_values(
        self,
        supplier: Callable[[], Processor[K, V, K, V2]],
        stores: str | Sequence[str] | Named = (),
        named: NameLike | Sequence[str] = None,
        *,
        on_error: OnError = "fail",
    ) -> KStream[K, V2]:
        """Runs your own `Processor` that never changes keys, so no later operator needs a repartition topic.

        The arguments are as for `process`. Processing fails if the processor forwards a key other than the current record's.
        Source: Kafka Streams' `processValues` (KIP-820).
        """
        name, used = name_and_stores("process_values", stores, named)
        return self._stream(add_process_values(self._graph, self._port, supplier, used, name, on_error))

    # Topics -----------------------------------------------------------------------------------------------------------

    # fmt: off
    @overload
    def to(self, topic: str | Callable[[V], str], produced: Produced[K, V] | NameLike = None,
           **option: Unpack[ProducedKeywords[K, V]]) -> None: ...
    @overload
    def to(self, topic: Callable[[K, V], str] | Callable[[K, V, RecordContext], str],
           produced: Produced[K, V] | NameLike = None, **option: Unpack[ProducedKeywords[K, V]]) -> None: ...
    # fmt: on
    def to(self, topic: str | TopicExtractor[K, V], produced: Produced[K, V] | NameLike = None, **option: Any) -> None:
        """Writes the stream to a topic, or each record to the topic that `topic(key, value, record_context)` returns.

        The function may also take `(value)` or `(key, value)`. Nulls are written, too. The partition is Kafka's default, murmur2 of
        the key, unless `Produced` has a partitioner; of a windowed key, only the key without its window counts. Source: Kafka
        Streams' `SinkNode`, `TopicNameExtractor`.
        """
        how = one_option("to", Produced, produced, option)
        fixed = topic if isinstance(topic, str) else self._port.lineage
        name = how.name or self._graph.numbered(f"KSTREAM-SINK-{fixed}")
        add_sink(self._graph, name, topic, [self._port], how)

    def repartition(
        self, repartitioned: Repartitioned[K, V] | NameLike = None, **option: Unpack[RepartitionedKeywords[K, V]]
    ) -> KStream[K, V]:
        """Sends the stream through a repartition topic, `<application>-<name>-repartition`.

        Records, including nulls, do not change; the order between records of different tasks may change. Source: Kafka Streams'
        `repartition` (KIP-221), which drops null keys, as compat mode does.
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
        self, grouped: Groups[K, V] = None, **option: Unpack[GroupedKeywords[K, V]]
    ) -> KGroupedStream[K, V]:
        """Groups the records by their existing key; aggregations drop records with a null key.

        `Grouped` has serdes, and the name of the repartition topic if one is needed. Source: Kafka Streams' `groupByKey`.
        """
        return KGroupedStream(self._graph, self._port, one_option("group_by_key", Grouped, grouped, option), "key")

    # fmt: off
    @overload
    def group_by(self, selector: ValueMapper[V, K2 | None], grouped: Groups[K2, V] = None,
                 named: Groups[K2, V] = None, **option: Unpack[GroupedKeywords[K2, V]]) -> KGroupedStream[K2, V]: ...
    @overload
    def group_by(self, selector: KeyValueMapper[K, V, K2 | None], grouped: Groups[K2, V] = None,
                 named: Groups[K2, V] = None, **option: Unpack[GroupedKeywords[K2, V]]) -> KGroupedStream[K2, V]: ...
    # fmt: on
    def group_by(
        self, selector: functions.Function, grouped: Groups = None, named: Groups = None, **option: Any
    ) -> KGroupedStream[K2, V]:
        """Groups the records by a new key; aggregations drop records whose new key is None.

        `named` is the name of the operator that computes the key. `grouped` has the serdes, and the name of the repartition topic.
        Source: Kafka Streams' `groupBy`.
        """
        name, how = named_option("group_by", Grouped, named, grouped, option)
        rekeyed: KStream[K2, V] = self.select_key(selector, name)
        return KGroupedStream(self._graph, rekeyed._port, how, "by")

    # fmt: off
    @overload
    def to_table(self: KStream[K2, V2 | None], materialized: Stored[K2, V2] = None, named: Stored[K2, V2] = None,
                 **option: Unpack[MaterializedKeywords[K2, V2]]) -> KTable[K2, V2]: ...
    @overload
    def to_table(self, materialized: Stored[K, V] = None, named: Stored[K, V] = None,
                 **option: Unpack[MaterializedKeywords[K, V]]) -> KTable[K, V]: ...
    # fmt: on
    def to_table(
        self, materialized: Stored[Any, Any] = None, named: Stored[Any, Any] = None, **option: Any
    ) -> KTable[Any, Any]:
        """Turns the stream into a table with the last value of each key.

        A null value deletes the row; a record with a null key is dropped. The last record to arrive wins, whatever its timestamp,
        unless the table is versioned. Source: Kafka Streams' `KStreamToTable` (KIP-523).
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


def _peeking(kind: NodeKind, action: Callable[[Any, Any], object]) -> OperatorSpec:
    return OperatorSpec(kind, partial(Peek, action))


def _print_record(label: str, key: Any, value: Any) -> None:
    print(f"[{label}]: {key}, {value}")


@dataclass(frozen=True, repr=False)
class Branched(Option, Generic[K, V]):
    """The name of a branch, and what to do with the branch's stream.

    Attributes:
        name: The branch's name in the resulting dict, after the split's name; default: its number, 0 for the default branch.
        function: Receives the branch's stream and returns the stream that takes its place in the dict.
        consumer: Receives the branch's stream, which is then left out of the dict.
    """

    name: str | None = None
    _: KW_ONLY
    function: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None
    consumer: Callable[[KStream[K, V]], object] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.function is not None and self.consumer is not None:
            raise TopologyError(
                "A branch has either a function or a consumer: Branched(function=...) or Branched(consumer=...)."
            )


class BranchedKeywords(TypedDict, Generic[K, V], total=False):
    """The fields of `Branched`."""

    name: str | None
    function: Callable[[KStream[K, V]], KStream[K, V] | None] | None
    consumer: Callable[[KStream[K, V]], object] | None


class BranchedKStream(Facade, Generic[K, V]):
    """A split under construction; `default_branch()` or `no_default_branch()` completes it.

    For example:

        branches = (
            flights.split()
            .branch(lambda flight: flight["dep_delay"] > 60, Branched("late"))
            .default_branch(Branched("on-time"))
        )
        branches["late"].to("late-flights")

    The dict's keys are the names of the branches, prefixed with the split's own name if it has one. Adding a branch to a complete
    split raises a `TopologyError`, and so does a name that another branch has. Source: Kafka Streams' `BranchedKStream` (KIP-418).
    """

    def __init__(self, graph: GraphBuilder, port: Port, name: str | None) -> None:
        self._graph = graph
        self._port = port
        self._prefix = name or ""
        self._name = name or numbered(f"KSTREAM-BRANCH-{port.lineage}", {*graph.topology.nodes, *graph.open_splits})
        self._predicates: list[Callable[[Any, Any], bool] | None] = []
        self._branches: list[tuple[str, Branched[K, V]]] = []
        self._ended = False
        graph.open_splits.add(self._name)

    # fmt: off
    @overload
    def branch(self, predicate: ValuePredicate[V], branched: Branched[K, V] | NameLike = None,
               **option: Unpack[BranchedKeywords[K, V]]) -> BranchedKStream[K, V]: ...
    @overload
    def branch(self, predicate: KeyValuePredicate[K, V], branched: Branched[K, V] | NameLike = None,
               **option: Unpack[BranchedKeywords[K, V]]) -> BranchedKStream[K, V]: ...
    # fmt: on
    def branch(
        self, predicate: functions.Function, branched: Branched[K, V] | NameLike = None, **option: Any
    ) -> BranchedKStream[K, V]:
        """Adds a branch for the records that match the predicate and no earlier branch."""
        how = one_option("branch", Branched, branched, option)
        check_fields(predicate, self._port.node, self._port.value_serde)
        return self._add(functions.predicate(predicate), how, str(len(self._branches) + 1))

    def default_branch(
        self, branched: Branched[K, V] | NameLike = None, **option: Unpack[BranchedKeywords[K, V]]
    ) -> dict[str, KStream[K, V]]:
        """Completes the split with a branch for the records that matched no other."""
        return self._add(None, one_option("default_branch", Branched, branched, option), "0")._end()

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Completes the split; records that matched no branch are left out."""
        return self._end()

    def _add(
        self, predicate: Callable[[Any, Any], bool] | None, branched: Branched[K, V], number: str
    ) -> BranchedKStream[K, V]:
        name = self._prefix + (branched.name or number)
        if self._ended or any(name == other for other, _ in self._branches):
            why = "it has ended" if self._ended else f"it has a branch '{name}' already"
            raise TopologyError(f"The split '{self._name}' cannot take another branch: {why}.")
        self._predicates.append(predicate)
        self._branches.append((name, branched))
        return self

    def _end(self) -> dict[str, KStream[K, V]]:
        if not self._branches or self._ended:
            raise TopologyError(f"The split '{self._name}' {'has ended already' if self._ended else 'has no branch'}.")
        self._ended = True
        self._graph.open_splits.discard(self._name)
        nodes = [f"{self._name}-{name.removeprefix(self._prefix)}" for name, _ in self._branches]
        # The names of the children are fixed before the children exist, because the operator sends records to them by name.
        port = self._graph.stateless(
            OperatorSpec(NodeKind.KSTREAM_BRANCH, partial(Branch, self._predicates, nodes)), self._port, self._name
        )
        streams: dict[str, KStream[K, V]] = {}
        for node, (name, branched) in zip(nodes, self._branches, strict=True):
            child = OperatorSpec(NodeKind.KSTREAM_BRANCHCHILD, PassThrough)
            stream: KStream[K, V] = KStream(self._graph, self._graph.stateless(child, port, node))
            if branched.consumer is not None:
                branched.consumer(stream)
                continue
            result = stream if branched.function is None else branched.function(stream)
            if result is not None:
                streams[name] = result
        return streams
