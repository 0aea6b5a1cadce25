"""Groups, and their aggregations: `KGroupedStream`, with and without windows; `CogroupedKStream`; `KGroupedTable`.

Aggregations take `named`, the name of the operator, and `materialized`, the name, serdes and settings of the store. Both are
optional, and a plain name is accepted for either. Records with a null key are dropped. The timestamp of a result is the largest
timestamp of its records. A function with another number of arguments raises a `TopologyError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl import functions
from streams.dsl.arguments import named_option
from streams.dsl.facade import Facade, path_of
from streams.dsl.nodes.aggregations import (
    NO_WINDOWS,
    Aggregation,
    Windowing,
    by_functions,
    counting,
    of_fields,
    reduction,
    segmented_store,
    windowing_of,
)
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.inferred_types import aggregate_type, list_of, serde_type
from streams.dsl.nodes.stores import key_value_store, table_names
from streams.dsl.nodes.stream_joins import common_key_serde
from streams.dsl.nodes.tables import TableNode, checked_top
from streams.dsl.options import Grouped, Materialized, Stored
from streams.errors import TopologyError
from streams.model.agg import agg
from streams.model.aggregates import Aggregate, Field
from streams.model.ownership import only_reads
from streams.model.record import Windowed
from streams.model.typing import (
    KR,
    Aggregator,
    Initializer,
    K,
    KeyAggregator,
    KeyMerger,
    Merger,
    R,
    Reducer,
    V,
    ValueMapper,
)
from streams.model.windows import EmitStrategy, GroupingWindows, SessionWindows, Windows, WindowsByStart
from streams.operators.aggregate.functions import AggregationFunctions, RowAggregates
from streams.operators.aggregate.top import TopAggregator, WithRanks
from streams.serdes.base import Serde
from streams.serdes.internal import ChangeSerde
from streams.serdes.json import JsonSerde, is_plain_json
from streams.serdes.primitives import BytesSerde, Int64Serde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.aggregations import OF_COGROUP, RANKS, AggregationSpec
from streams.topology.specs.base import Parameters
from streams.topology.specs.streams import MergeSpec
from streams.topology.specs.tables import GroupWindows, TableAggregateSpec, TableTopSpec

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


class Group:
    """The part of a grouped stream that aggregations need: its origin and its serdes.

    `how`, a part of names, is `"key"` if the stream is grouped by the existing key and `"by"` if it is grouped by a new one.
    """

    def __init__(self, graph: GraphBuilder, port: Port, grouped: Grouped, how: str) -> None:
        self.graph = graph
        self.grouped = grouped
        self.how = how
        self._port = port
        self._placed: Port | None = None

    @property
    def origin(self) -> str:
        """The name of the node that produces the records with their keys."""
        return self._port.node

    def placed_port(self, how: Materialized) -> tuple[Port, Serde]:
        """Returns a port where every record is in the task of its key, and the serde of these keys."""
        key_serde = self.graph.key_serde(self.grouped.key_serde, self._port.key_serde, how.key_serde)
        if self._placed is None:
            value_serde = self.graph.value_serde(self.grouped.value_serde, self._port.value_serde)
            self._placed = self.graph.colocated(self._port, self.grouped.name, key_serde, value_serde)
        return self._placed, key_serde

    def table(self, what: Aggregation, how: Materialized, name: str | None, windowing: Windowing) -> KTable:
        """Adds the stores and the operator of an aggregation, over all time or in windows."""
        from streams.dsl.ktable import KTable

        graph = self.graph
        what.check_values(self._port.node, self.grouped.value_serde or self._port.value_serde)
        port, key_serde = self.placed_port(how)
        own = (self.grouped.value_serde, self._port.value_serde) if what.keeps_type else ()
        value_serde = graph.value_serde(how.value_serde, what.value_serde, graph.serde_of_values(what.value_type), *own)
        parameters: Parameters = (("grouped", self.how), *windowing.parameters, *what.parameters)
        name, store = table_names(what.kind, port.lineage, name, how, parameters)
        stores = windowing.add_stores_of(graph, what, store, how, how.key_serde or key_serde, value_serde)
        operator, columns = windowing.supplier(what, stores, how), windowing.columns(what)
        spec = AggregationSpec(
            what.kind, windowing.windows, parameters, operator, columns, what.counts_distinct, caching=how.caching
        )
        table = graph.stateful(
            spec,
            port,
            name,
            stores=stores,
            input_key_serde=key_serde,
            key_serde=windowing.key_serde(key_serde),
            value_serde=value_serde,
        )
        return KTable(graph, table, store, from_stored=what.view)


def hidden(how: Materialized) -> Materialized:
    """The options for a store of accumulators, if the table's results may have a separate store with the name in `how`."""
    return replace(how, name=how.name and f"{how.name}-accumulators", value_serde=None)


def with_ranks(lists: KTable[Any, Any], field: str | None, by: Callable[[Any], Any], ties: bool) -> KTable[Any, Any]:
    """Adds ranks to the values of a table of lists, if `field` is given."""
    if field is None:
        return lists
    shown: KTable[Any, Any] = lists.map_values(WithRanks(field, by if ties else None))
    return shown


# --- The aggregations of both grouped and windowed streams.


class Aggregating(Facade, Generic[K, V, KR]):
    """Aggregations of a grouped stream. Each returns a table with keys of type `KR`: the stream's keys, or windows of them."""

    def __init__(self, group: Group, windowing: Windowing = NO_WINDOWS) -> None:
        self._group = group
        self._windowing = windowing

    def _shown(self) -> str:
        windows = self._windowing.windows
        return path_of(self._group.graph, self._group._port) + (f", {windows!r}" if windows is not None else "")

    def count(self, named: Stored[K, int] = None, materialized: Stored[K, int] = None) -> KTable[KR, int]:
        """Counts the records of each key, as a 64-bit integer.

        Null values are dropped in sliding windows and without windows. Source: Kafka Streams' `KStreamAggregate`.
        """
        return self._build("count", counting(Int64Serde()), named, materialized)

    def reduce(
        self, reducer: Reducer[V], named: Stored[K, V] = None, materialized: Stored[K, V] = None
    ) -> KTable[KR, V]:
        """Combines the values of each key with `reducer(aggregate, value)`; the first value becomes the first aggregate.

        If the reducer returns None, the key is deleted. Null values are dropped as by `count`. Source: Kafka Streams'
        `KStreamReduce`.
        """
        what = reduction(functions.reducer(reducer), functions.merger(reducer))
        return self._build("reduce", what, named, materialized)

    def sum(self, field: Field, named: Stored = None, materialized: Stored = None) -> KTable[KR, dict[str, Any]]:
        """Adds up a field or an expression; short for `aggregate(sum=agg.sum(field))`."""
        return self._build("sum", of_fields({"sum": agg.sum(field)}), named, materialized)

    def min(self, field: Field, named: Stored = None, materialized: Stored = None) -> KTable[KR, dict[str, Any]]:
        """Finds the smallest number in a field or an expression; short for `aggregate(min=agg.min(field))`."""
        return self._build("min", of_fields({"min": agg.min(field)}), named, materialized)

    def max(self, field: Field, named: Stored = None, materialized: Stored = None) -> KTable[KR, dict[str, Any]]:
        """Finds the largest number in a field or an expression; short for `aggregate(max=agg.max(field))`."""
        return self._build("max", of_fields({"max": agg.max(field)}), named, materialized)

    def mean(self, field: Field, named: Stored = None, materialized: Stored = None) -> KTable[KR, dict[str, Any]]:
        """Averages a field or an expression; short for `aggregate(mean=agg.mean(field))`."""
        return self._build("mean", of_fields({"mean": agg.mean(field)}), named, materialized)

    def top(
        self,
        n: int,
        by: ValueMapper[V, Any],
        largest: bool = True,
        named: Stored[K, list[V]] = None,
        materialized: Stored[K, list[V]] = None,
        *,
        ties: bool = False,
        rank: str | None = None,
    ) -> KTable[KR, list[V]]:
        """Ranks the values of each key (and window or session) and returns the best n as a list, best first.

        `by(value)` returns the score: a number, a text, a time (`datetime`, `date`, `time`, `timedelta`), or a tuple of these. A
        value whose score is None is not ranked. The best score is the largest one, or with `largest=False` the smallest. Among
        equal scores, the earlier value ranks higher. A record fails if its score has another type, or a type that cannot be
        compared with the other scores. The store holds the lists.

        With `ties=True`, the list also contains every value with the same score as the n-th one. `rank="field"` adds the rank to
        each value, which must be a JSON object. Ranks are 1 to n; with `ties=True`, a rank is 1 plus the number of better values,
        so that scores of 9, 7, 7 and 5 have the ranks 1, 2, 2 and 4 (SQL's ROW_NUMBER and RANK). The store does not contain the
        ranks.
        """
        best = TopAggregator(n, checked_top(n, by, rank), largest, ties)
        kind = list_of(serde_type(self._group.grouped.value_serde or self._group._port.value_serde))
        functions = AggregationFunctions(best, list, best.merge, built_in=only_reads(best.by))
        what = Aggregation(NodeKind.KSTREAM_AGGREGATE, functions, value_type=kind, whole=RANKS)
        return with_ranks(self._build("top", what, named, materialized), rank, best.by, ties)

    def _build(self, method: str, what: Aggregation, named: object, materialized: object) -> KTable[KR, Any]:
        name, how = named_option(method, Materialized, named, materialized)
        if what.view is not None and how.value_serde is not None and not is_plain_json(how.value_serde):
            raise TopologyError(
                "The store of built-in aggregates holds JSON: leave the value_serde out of Materialized."
            )
        return self._group.table(what, how, name, self._windowing)


class AggregatingByRecord(Aggregating[K, V, KR]):
    """Aggregations that process one record after the other. Sessions also need a merger."""

    # fmt: off
    @overload
    def aggregate(self, initializer: Initializer[R], aggregator: Aggregator[V, R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[KR, R]: ...
    @overload
    def aggregate(self, initializer: Initializer[R], aggregator: KeyAggregator[K, V, R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[KR, R]: ...
    @overload
    def aggregate(self, *, named: Stored = None, materialized: Stored = None,
                  **built_in: Aggregate) -> KTable[KR, dict[str, Any]]: ...
    # fmt: on
    def aggregate(  # type: ignore[misc]  # no built-in aggregate can have the name of an argument
        self,
        initializer: Any = None,
        aggregator: Any = None,
        named: Any = None,
        materialized: Any = None,
        **built_in: Aggregate,
    ) -> KTable[KR, Any]:
        """Aggregates the values of each key, with your own functions or with built-in aggregates.

        For example:

            grouped.aggregate(lambda: 0, lambda value, total: total + value["price"])
            grouped.aggregate(flights=agg.count(), mean_delay=agg.mean("dep_delay"))

        `initializer()` returns the aggregate before the first value. `aggregator(value, aggregate)` or `aggregator(key, value,
        aggregate)` returns the new aggregate; None deletes the key. Built-in aggregates of `agg`, or objects of your own
        `Aggregate` class, are passed by their names in the result, which is a JSON object. The engine then parses only the fields
        that they read from JSON values.
        """
        _check_given("aggregate takes either an initializer and an aggregator", (initializer, aggregator), built_in)
        what = of_fields(built_in) if built_in else _by_own_functions(initializer, aggregator)
        return self._build("aggregate", what, named, materialized)


def _check_given(takes: str, own: tuple[object, ...], built_in: Mapping[str, Aggregate]) -> None:
    """Raises `TopologyError` unless either all of the user's own functions are given, or built-in aggregates."""
    given = sum(one is not None for one in own)
    if given not in (0, len(own)) or bool(given) == bool(built_in):
        raise TopologyError(
            f"{takes}, or built-in aggregates by name: aggregate(n=agg.count(), delay=agg.mean('delay'))."
        )


def _by_own_functions(
    initializer: functions.Function, aggregator: functions.Function, merger: functions.Function | None = None
) -> Aggregation:
    own = [one for one in (initializer, aggregator, merger) if one is not None]
    return by_functions(
        NodeKind.KSTREAM_AGGREGATE,
        functions.initializer(initializer),
        functions.aggregator(aggregator),
        functions.merger(merger) if merger else None,
        aggregate_type(*own),
    )


# --- Grouped streams, with and without windows.


class KGroupedStream(AggregatingByRecord[K, V, K], Generic[K, V]):
    """A stream grouped by key, to aggregate into a table, to divide into windows, or to cogroup with others.

    Records with a null value are dropped, too (Kafka Streams' rule).
    """

    def __init__(self, graph: GraphBuilder, port: Port, grouped: Grouped, how: str) -> None:
        super().__init__(Group(graph, port, grouped, how))

    @overload
    def windowed_by(self, windows: WindowsByStart) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(self, windows: GroupingWindows) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Divides each group into windows: tumbling, hopping, sliding, session, calendar, or your own.

        Aggregations of the result return a `KTable[Windowed[K], V2]`. Source: Kafka Streams' `windowedBy`.
        """
        windowing = windowing_of(windows)
        return (SessionWindowedKStream if windows.merges else TimeWindowedKStream)(self._group, windowing)

    @overload
    def cogroup(self, aggregator: Aggregator[V, R]) -> CogroupedKStream[K, R]: ...
    @overload
    def cogroup(self, aggregator: KeyAggregator[K, V, R]) -> CogroupedKStream[K, R]: ...
    def cogroup(self, aggregator: Aggregator[V, R] | KeyAggregator[K, V, R]) -> CogroupedKStream[K, R]:
        """Begins an aggregation of several grouped streams into one table; `CogroupedKStream` has an example.

        `aggregator(value, aggregate)` or `aggregator(key, value, aggregate)` adds a record of this stream.
        Source: Kafka Streams' `cogroup` (KIP-150).
        """
        return CogroupedKStream(((self._group, functions.aggregator(aggregator)),))


class TimeWindowedKStream(AggregatingByRecord[K, V, Windowed[K]], Generic[K, V]):
    """A grouped stream divided into windows; its tables are keyed by `Windowed(key, Window(start, end))`.

    A record is dropped from a window whose end plus grace has passed. Sliding windows also drop null values.
    """

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Emits each window's result with every update (the default), or once when the window closes.

        A window closes when stream time reaches its end plus grace; a sliding window closes when stream time has passed it.
        Windows that never close raise a `TopologyError`. Source: Kafka Streams' `EmitStrategy` (KIP-825).
        """
        return TimeWindowedKStream(self._group, replace(self._windowing, emit=_emit_of(strategy)))


class SessionWindowedKStream(Aggregating[K, V, Windowed[K]], Generic[K, V]):
    """A grouped stream divided into sessions; its tables are keyed by `Windowed(key, Window(first, last))`.

    A record that connects two sessions merges them. With a gap of 10, a record at 8 merges the sessions `[0, 0]` and `[15, 15]`:
    downstream, both are deleted, and `[0, 15]` follows.
    """

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Emits each session's result with every update (the default), or once when the session closes.

        A session closes when stream time has passed its end by more than gap plus grace. Source: Kafka Streams'
        `EmitStrategy` (KIP-825).
        """
        return SessionWindowedKStream(self._group, replace(self._windowing, emit=_emit_of(strategy)))

    # fmt: off
    @overload
    def aggregate(self, initializer: Initializer[R], aggregator: Aggregator[V, R], merger: Merger[R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[Windowed[K], R]: ...
    @overload
    def aggregate(self, initializer: Initializer[R], aggregator: Aggregator[V, R], merger: KeyMerger[K, R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[Windowed[K], R]: ...
    @overload
    def aggregate(self, initializer: Initializer[R], aggregator: KeyAggregator[K, V, R], merger: Merger[R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[Windowed[K], R]: ...
    @overload
    def aggregate(self, initializer: Initializer[R], aggregator: KeyAggregator[K, V, R], merger: KeyMerger[K, R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[Windowed[K], R]: ...
    @overload
    def aggregate(self, *, named: Stored = None, materialized: Stored = None,
                  **built_in: Aggregate) -> KTable[Windowed[K], dict[str, Any]]: ...
    # fmt: on
    def aggregate(  # type: ignore[misc]  # no built-in aggregate can have the name of an argument
        self,
        initializer: Any = None,
        aggregator: Any = None,
        merger: Any = None,
        named: Any = None,
        materialized: Any = None,
        **built_in: Aggregate,
    ) -> KTable[Windowed[K], Any]:
        """Aggregates the values of each session, with your own functions or with built-in aggregates.

        The arguments are as for `KGroupedStream.aggregate`, and a merger: `merger(earlier, later)` or `merger(key, earlier,
        later)` returns the aggregate of two merged sessions. The initial aggregate is merged first.
        """
        own = initializer, aggregator, merger
        _check_given("aggregate of sessions takes either an initializer, an aggregator and a merger", own, built_in)
        what = of_fields(built_in) if built_in else _by_own_functions(*own)
        return self._build("aggregate", what, named, materialized)


def _emit_of(strategy: EmitStrategy) -> EmitStrategy:
    """Returns the emit strategy. Raises `TopologyError` if it is something else."""
    if not isinstance(strategy, EmitStrategy):
        raise TopologyError(
            f"emit_strategy takes EmitStrategy.on_window_update() or EmitStrategy.on_window_close(), not {strategy!r}."
        )
    return strategy


# --- Cogrouping: aggregates several grouped streams, each with its own aggregator, into one table (KIP-150).
#
# Every stream has its own operator. The operators share the store, and a pass-through node merges their updates. Built-in
# aggregates do not apply, because each stream adds to the common aggregate in its own way.

Parts: TypeAlias = tuple[tuple[Group, Callable[[Any, Any, Any], Any]], ...]


class Cogrouped(Facade, Generic[K, R]):
    """Cogrouped streams, with or without windows; every stream has its own stream time (Kafka Streams' rule)."""

    def __init__(self, parts: Parts, windowing: Windowing = NO_WINDOWS) -> None:
        self._parts = parts
        self._windowing = windowing

    def _shown(self) -> str:
        return "; ".join(path_of(group.graph, group._port) for group, _ in self._parts)

    def _table(
        self, initializer: Callable[[], Any], merger: functions.Function | None, named: object, materialized: object
    ) -> KTable[Any, Any]:
        from streams.dsl.ktable import KTable

        parts, windowing = self._parts, self._windowing
        operator, how = named_option("aggregate", Materialized, named, materialized)
        start = functions.initializer(initializer)
        graph = parts[0][0].graph
        placed = [group.placed_port(how) for group, _ in parts]
        key_serde, lineage = placed[0][1], placed[0][0].lineage
        for port, _ in placed[1:]:
            key_serde, lineage = common_key_serde(graph, placed[0][0], port, key_serde), lineage | port.lineage
        value_serde = graph.value_serde(how.value_serde, graph.serde_of_values(aggregate_type(initializer)))
        groups: Parameters = tuple((f"grouped:{at}", group.how) for at, (group, _) in enumerate(parts))
        parameters: Parameters = (*groups, *windowing.parameters)
        kind = NodeKind.COGROUPKSTREAM_AGGREGATE
        name, store = table_names(kind, lineage, operator, how, parameters)
        stores = windowing.add_stores(graph, store, how, how.key_serde or key_serde, value_serde)
        ports = []
        for at, ((_, aggregator), (port, _)) in enumerate(zip(parts, placed, strict=True)):
            supplier = windowing.supplier(by_functions(kind, start, aggregator, merger), stores, how)
            ports.append(
                graph.stateful(
                    AggregationSpec(kind, windowing.windows, parameters, supplier, OF_COGROUP, caching=how.caching),
                    port,
                    f"{name}-{at}",
                    stores=stores,
                    input_key_serde=key_serde,
                    key_serde=windowing.key_serde(key_serde),
                    value_serde=value_serde,
                )
            )
        merged = graph.stateless(MergeSpec(NodeKind.COGROUPKSTREAM_MERGE), ports[0], name, others=tuple(ports[1:]))
        return KTable(graph, merged, node=TableNode(graph, tuple(port.node for port in ports), store))


class CogroupedKStream(Cogrouped[K, R]):
    """Grouped streams that are aggregated into one table, made by `KGroupedStream.cogroup`.

    For example:

        clicks.group_by_key().cogroup(add_click).cogroup(orders.group_by_key(), add_order).aggregate(dict)

    Records with a null value are dropped, too.
    """

    @overload
    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Aggregator[V, R]) -> CogroupedKStream[K, R]: ...
    @overload
    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: KeyAggregator[K, V, R]) -> CogroupedKStream[K, R]: ...
    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Aggregator[V, R] | KeyAggregator[K, V, R]
    ) -> CogroupedKStream[K, R]:
        """Adds a stream; `aggregator(value, aggregate)` or `aggregator(key, value, aggregate)` adds a record to the aggregate.

        A stream that the cogroup already contains raises `TopologyError`.
        """
        if not isinstance(grouped, KGroupedStream) or grouped._group.graph is not self._parts[0][0].graph:
            raise TopologyError("cogroup takes grouped streams of one StreamsBuilder.")
        if any(part.origin == grouped._group.origin for part, _ in self._parts):
            raise TopologyError(
                f"cogroup is given the grouped stream of '{grouped._group.origin}' twice, so each of its records would be added "
                f"twice (Kafka Streams would forget the first aggregator): do both in one aggregator."
            )
        return CogroupedKStream((*self._parts, (grouped._group, functions.aggregator(aggregator))))

    def aggregate(
        self, initializer: Initializer[R], named: Stored[K, R] = None, materialized: Stored[K, R] = None
    ) -> KTable[K, R]:
        """Aggregates all streams; `initializer` returns the aggregate before the first record of any stream.

        Streams whose keys have different serdes raise a `TopologyError`.
        """
        return self._table(initializer, None, named, materialized)

    @overload
    def windowed_by(self, windows: WindowsByStart) -> TimeWindowedCogroupedKStream[K, R]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, R]: ...
    def windowed_by(
        self, windows: GroupingWindows
    ) -> TimeWindowedCogroupedKStream[K, R] | SessionWindowedCogroupedKStream[K, R]:
        """Divides the groups of all streams into the same windows."""
        windowing = windowing_of(windows)
        kind = SessionWindowedCogroupedKStream if windows.merges else TimeWindowedCogroupedKStream
        return kind(self._parts, windowing)


class TimeWindowedCogroupedKStream(Cogrouped[K, R]):
    """Cogrouped streams in windows."""

    def aggregate(
        self, initializer: Initializer[R], named: Stored[K, R] = None, materialized: Stored[K, R] = None
    ) -> KTable[Windowed[K], R]:
        """Aggregates all streams into a table with a row for each key and window."""
        return self._table(initializer, None, named, materialized)


class SessionWindowedCogroupedKStream(Cogrouped[K, R]):
    """Cogrouped streams in sessions."""

    # fmt: off
    @overload
    def aggregate(self, initializer: Initializer[R], merger: Merger[R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[Windowed[K], R]: ...
    @overload
    def aggregate(self, initializer: Initializer[R], merger: KeyMerger[K, R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[Windowed[K], R]: ...
    # fmt: on
    def aggregate(
        self,
        initializer: Initializer[R],
        merger: Merger[R] | KeyMerger[K, R],
        named: Stored[K, R] = None,
        materialized: Stored[K, R] = None,
    ) -> KTable[Windowed[K], R]:
        """Aggregates all streams into a table of sessions.

        `merger(earlier, later)` or `merger(key, earlier, later)` returns the aggregate of two merged sessions.
        """
        return self._table(initializer, functions.merger(merger), named, materialized)


# --- `KGroupedTable`: the result of `KTable.group_by`, and its aggregations.


class KGroupedTable(Facade, Generic[K, V]):
    """A table whose rows are grouped by a new key, to aggregate into another table.

    A row that changes is first subtracted from its old group and then added to its new one, so every aggregation needs both
    functions. The rows go through a repartition topic, because a group may belong to another task than its rows.
    """

    def __init__(self, graph: GraphBuilder, port: Port, grouped: Grouped, windows: Windows | None = None) -> None:
        self._graph = graph
        self._port = port
        self._grouped = grouped
        self._windows = windows
        self._placed: Port | None = None

    def count(self, named: Stored[K, int] = None, materialized: Stored[K, int] = None) -> KTable[K, int]:
        """Counts the rows of each group, as a 64-bit integer; a group that loses its last row stays, with a count of 0.

        Source: Kafka Streams' `KTableAggregate`.
        """
        return self._table(
            "count", NodeKind.KTABLE_AGGREGATE, _zero, _plus_one, _minus_one, Int64Serde(), named, materialized
        )

    def reduce(
        self, adder: Reducer[V], subtractor: Reducer[V], named: Stored[K, V] = None, materialized: Stored[K, V] = None
    ) -> KTable[K, V]:
        """Combines the values of each group with `adder(aggregate, value)` and its inverse, `subtractor(aggregate, value)`.

        The first value of a group becomes its first aggregate. Source: Kafka Streams' `KTableReduce`.
        """
        add, subtract = functions.reducer(adder), functions.reducer(subtractor)
        return self._table(
            "reduce", NodeKind.KTABLE_REDUCE, None, add, subtract, self._value_serde, named, materialized
        )

    # fmt: off
    @overload
    def aggregate(self, initializer: Initializer[R], adder: Aggregator[V, R], subtractor: Aggregator[V, R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    @overload
    def aggregate(self, initializer: Initializer[R], adder: KeyAggregator[K, V, R], subtractor: KeyAggregator[K, V, R],
                  named: Stored[K, R] = None, materialized: Stored[K, R] = None) -> KTable[K, R]: ...
    @overload
    def aggregate(self, *, named: Stored = None, materialized: Stored = None,
                  **built_in: Aggregate) -> KTable[K, dict[str, Any]]: ...
    # fmt: on
    def aggregate(  # type: ignore[misc]  # no built-in aggregate can have the name of an argument
        self,
        initializer: Any = None,
        adder: Any = None,
        subtractor: Any = None,
        named: Any = None,
        materialized: Any = None,
        **built_in: Aggregate,
    ) -> KTable[K, Any]:
        """Aggregates the values of each group, with your own functions or with built-in aggregates.

        For example:

            rows.aggregate(lambda: 0, lambda value, total: total + value, lambda value, total: total - value)
            rows.aggregate(n=agg.count(), total=agg.sum("price"), mean=agg.mean("price"))

        `initializer()` returns the aggregate of an empty group. `adder(value, aggregate)` or `adder(key, value, aggregate)` adds a
        value and returns the aggregate; None deletes the group. `subtractor` reverses the adder. Built-in aggregates are count,
        sum, mean and quantile, with `where=`, and your own `Aggregate` classes that have `remove`. A group that loses its last row
        stays, with a count of 0 and null for the other aggregates.
        """
        own = initializer, adder, subtractor
        _check_given(
            "aggregate of a grouped table takes either an initializer, an adder and a subtractor", own, built_in
        )
        if built_in:
            return self._of_rows("aggregate", built_in, named, materialized)
        initial = functions.initializer(initializer)
        add, subtract = functions.aggregator(adder), functions.aggregator(subtractor)
        value_serde = self._graph.serde_of_values(aggregate_type(initializer, adder, subtractor))
        return self._table(
            "aggregate", NodeKind.KTABLE_AGGREGATE, initial, add, subtract, value_serde, named, materialized
        )

    def sum(self, field: Field, named: Stored = None, materialized: Stored = None) -> KTable[K, dict[str, Any]]:
        """Adds up a field or an expression over the rows; short for `aggregate(sum=agg.sum(field))`."""
        return self._of_rows("sum", {"sum": agg.sum(field)}, named, materialized)

    def mean(self, field: Field, named: Stored = None, materialized: Stored = None) -> KTable[K, dict[str, Any]]:
        """Averages a field or an expression over the rows; short for `aggregate(mean=agg.mean(field))`."""
        return self._of_rows("mean", {"mean": agg.mean(field)}, named, materialized)

    def _of_rows(
        self, method: str, aggregates: dict[str, Aggregate], named: object, materialized: object
    ) -> KTable[K, dict[str, Any]]:
        """Stores the accumulators, and adds the table of their results, which has a store of its own if it is named."""
        what = of_fields(aggregates)
        what.check_values(self._port.node, self._grouped.value_serde or self._port.value_serde)
        for one in aggregates.values():
            if not one.takes_back:
                raise TopologyError(
                    f"{one.text} cannot aggregate the rows of a grouped table, which change and leave: it cannot remove a "
                    f"value. agg.count, agg.sum, agg.mean and agg.quantile can; the rows with the largest or smallest values "
                    f"are in .top(1, by=...); a class of your own needs remove(accumulator, value)."
                )
        assert what.fields is not None, "they are fields"
        rows = RowAggregates(what.fields)
        name, how = named_option(method, Materialized, named, materialized)
        # A second store would not delete windows that have closed.
        of_windows = self._windows is not None
        stored = self._table(
            method,
            NodeKind.KTABLE_AGGREGATE,
            rows.initial,
            rows.add,
            rows.remove,
            JsonSerde(),
            None,
            replace(how, value_serde=None) if of_windows else hidden(how),
        )
        shown: KTable[K, dict[str, Any]] = stored.map_values(
            rows.result, name, how if how.name and not of_windows else None
        )
        return shown

    def top(
        self,
        n: int,
        by: ValueMapper[V, Any],
        largest: bool = True,
        named: Stored[K, list[V]] = None,
        materialized: Stored[K, list[V]] = None,
        *,
        ties: bool = False,
        rank: str | None = None,
    ) -> KTable[K, list[V]]:
        """Ranks the rows of each group and returns the values of the best n as a list, best first.

        The list follows every change of the rows. `by(value)` returns the score: a number, a text, a time (`datetime`, `date`,
        `time`, `timedelta`), or a tuple of these. A row whose score is None is not ranked. The best score is the largest one, or
        with `largest=False` the smallest. Rows with equal scores are ordered by the bytes of their values. A record fails if its
        score has another type, or a type that cannot be compared with the other scores of the group. The store holds the lists.
        A second store has all rows of a group in order of score, so that the next row moves up when one is deleted.
        `ties` and `rank` are those of `KGroupedStream.top`.
        """
        score = checked_top(n, by, rank)
        name, how = named_option("top", Materialized, named, materialized)
        return with_ranks(self._lists(n, score, largest, ties, name, how), rank, score, ties)

    def _lists(
        self,
        n: int,
        score: Callable[[Any], Any],
        largest: bool,
        ties: bool,
        operator_named: str | None,
        how: Materialized,
    ) -> KTable[K, Any]:
        from streams.dsl.ktable import KTable

        graph = self._graph
        groups, how = self._group_windows(how)
        placed, key_serde = self._placed_port(how)
        list_serde = graph.value_serde(how.value_serde, graph.serde_of_values(list_of(serde_type(self._value_serde))))
        spec = TableTopSpec(n, largest, score, key_serde, self._value_serde, ties, groups=groups, caching=how.caching)
        name, store = table_names(spec.kind, placed.lineage, operator_named, how, spec.parameters)
        graph.store(key_value_store(store, how), how.key_serde or key_serde, list_serde)
        rows = graph.store(
            StoreSpec(f"{store}-rows", StoreKind.KEY_VALUE, persistent=how.persistent, logged=how.logging),
            BytesSerde(),
            JsonSerde(),
        )
        stores = (store, rows, *self._open_windows(store, groups, how))
        port = graph.stateful(spec, placed, name, stores=stores, key_serde=key_serde, value_serde=list_serde)
        return KTable(graph, port, store)

    def _group_windows(self, how: Materialized) -> tuple[GroupWindows | None, Materialized]:
        """How long the store retains groups that are windows (None for other groups), and the other settings of the stores.

        Raises:
            TopologyError: The user's retention would delete windows that are still open.
        """
        windows = self._windows
        if windows is None:
            return None, how
        size_ms, grace_ms = windows.size_ms, windows.grace_ms
        why = f"their size plus grace, {size_ms} + {grace_ms} ms"
        spec = segmented_store("of the windows", StoreKind.WINDOW, how, size_ms + grace_ms, why, size_ms + grace_ms)
        assert spec.retention_ms is not None, "a window store has one"
        return GroupWindows(windows, spec.retention_ms - size_ms), replace(how, retention=None)

    def _open_windows(self, store: str, groups: GroupWindows | None, how: Materialized) -> tuple[str, ...]:
        """Adds the index of open windows if the groups are windows; returns its name."""
        if groups is None:
            return ()
        index = StoreSpec(f"{store}-open", StoreKind.KEY_VALUE, persistent=how.persistent, logged=how.logging)
        return (self._graph.store(index, BytesSerde(), BytesSerde()),)

    def _placed_port(self, how: Materialized) -> tuple[Port, Serde]:
        """Returns the port after the repartition topic, and the serde of the groups' keys."""
        graph = self._graph
        key_serde = graph.key_serde(self._grouped.key_serde, self._port.key_serde, how.key_serde)
        if self._placed is None:
            change_serde = ChangeSerde(self._value_serde)
            self._placed = graph.colocated(self._port, self._grouped.name, key_serde, change_serde)
        return self._placed, key_serde

    @property
    def _value_serde(self) -> Serde:
        return self._graph.value_serde(self._grouped.value_serde, self._port.value_serde)

    def _table(
        self,
        method: str,
        kind: NodeKind,
        initializer: Callable[[], Any] | None,
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        value_serde: Serde | None,
        named: object,
        materialized: object,
    ) -> KTable[K, Any]:
        from streams.dsl.ktable import KTable

        graph = self._graph
        operator, how = named_option(method, Materialized, named, materialized)
        groups, how = self._group_windows(how)
        kind = kind if groups is None else NodeKind.KTABLE_WINDOWAGGREGATE
        placed, key_serde = self._placed_port(how)
        stored_serde = graph.value_serde(how.value_serde, value_serde)
        spec = TableAggregateSpec(kind, initializer, adder, subtractor, groups=groups, caching=how.caching)
        name, store = table_names(kind, placed.lineage, operator, how, spec.parameters)
        graph.store(key_value_store(store, how), how.key_serde or key_serde, stored_serde)
        port = graph.stateful(
            spec,
            placed,
            name,
            stores=(store, *self._open_windows(store, groups, how)),
            key_serde=key_serde,
            value_serde=stored_serde,
        )
        return KTable(graph, port, store)


def _zero() -> int:
    return 0


def _plus_one(key: Any, value: Any, aggregate: int) -> int:
    return aggregate + 1


def _minus_one(key: Any, value: Any, aggregate: int) -> int:
    return aggregate - 1
