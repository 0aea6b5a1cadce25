"""Grouped streams, the results of `group_by_key` and `group_by`, with and without windows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, overload

from streams.dsl import functions
from streams.dsl.aggregating import Aggregating, AggregatingByRecord, Name, Store
from streams.dsl.nodes.aggregation import Aggregation, by_functions, of_fields
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import table_names
from streams.dsl.nodes.result_types import aggregate_type
from streams.dsl.nodes.windowing import NO_WINDOWS, Windowing, windowing_of
from streams.dsl.options import Grouped, Materialized, NameLike
from streams.errors import TopologyError
from streams.model.aggregates import Aggregate
from streams.model.record import Windowed
from streams.model.typing import Aggregator, Initializer, K, KeyAggregator, KeyMerger, Merger, R, V
from streams.model.windows import EmitStrategy, GroupingWindows, SessionWindows, SlidingWindows, Windows
from streams.serdes.base import Serde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.base import Parameters

if TYPE_CHECKING:
    from streams.dsl.cogrouped import CogroupedKStream
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

    def placed_port(self, how: Materialized) -> tuple[Port, Serde]:
        """The port with every record in the task of its key, and the serde of those keys."""
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
        stores = windowing.add_stores(graph, store, how, how.key_serde or key_serde, value_serde)
        spec = AggregationSpec(
            what.kind,
            windowing.windows,
            parameters,
            windowing.supplier(what, stores, how),
            windowing.columns(what),
            caching=how.caching,
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


class KGroupedStream(AggregatingByRecord[K, V, K], Generic[K, V]):
    """A stream grouped by key, to aggregate into a table, to divide into windows, or to cogroup with others.

    Records with a null key or a null value are dropped (Kafka Streams' rule).
    """

    def __init__(self, graph: GraphBuilder, port: Port, grouped: Grouped, how: str) -> None:
        self._group = Group(graph, port, grouped, how)

    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    def windowed_by(self, windows: GroupingWindows) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Divides each group into windows: tumbling, hopping, sliding, session, calendar, or your own.

        Aggregations of the result return a `KTable[Windowed[K], V2]`.

        Raises:
            TopologyError: The argument is not a definition of windows.

        Source: Kafka Streams' `windowedBy`.
        """
        windowing = windowing_of(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._group, windowing)
        return TimeWindowedKStream(self._group, windowing)

    @overload
    def cogroup(self, aggregator: Aggregator[V, R]) -> CogroupedKStream[K, R]: ...

    @overload
    def cogroup(self, aggregator: KeyAggregator[K, V, R]) -> CogroupedKStream[K, R]: ...

    def cogroup(self, aggregator: Aggregator[V, R] | KeyAggregator[K, V, R]) -> CogroupedKStream[K, R]:
        """Begins an aggregation of several grouped streams into one table; see `CogroupedKStream`.

        `aggregator(value, aggregate)` or `aggregator(key, value, aggregate)` adds a record of this stream.
        Source: Kafka Streams' `cogroup` (KIP-150).
        """
        from streams.dsl.cogrouped import CogroupedKStream

        return CogroupedKStream(((self._group, functions.aggregator(aggregator)),))

    def _table(self, what: Aggregation, how: Materialized, name: str | None) -> KTable[K, Any]:
        return self._group.table(what, how, name, NO_WINDOWS)


class TimeWindowedKStream(AggregatingByRecord[K, V, Windowed[K]], Generic[K, V]):
    """A grouped stream divided into windows; its tables are keyed by `Windowed(key, Window(start, end))`.

    Records with a null key, and records that are too late for a window (its end plus grace has passed), are dropped; sliding
    windows also drop those with a null value.
    """

    def __init__(self, group: Group, windowing: Windowing) -> None:
        self._group = group
        self._windowing = windowing

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Emits each window's result with every update (the default), or once when the window closes.

        A window closes when stream time reaches its end plus grace; a sliding window closes when stream time has passed that.

        Raises:
            TopologyError: Emission on close is not possible because the windows never close.

        Source: Kafka Streams' `EmitStrategy` (KIP-825).
        """
        return TimeWindowedKStream(self._group, replace(self._windowing, emit=emit_of(strategy)))

    def _table(self, what: Aggregation, how: Materialized, name: str | None) -> KTable[Windowed[K], Any]:
        return self._group.table(what, how, name, self._windowing)


class SessionWindowedKStream(Aggregating[K, V, Windowed[K]], Generic[K, V]):
    """A grouped stream divided into sessions; its tables are keyed by `Windowed(key, Window(first, last))`.

    A record that connects two sessions merges them: downstream, both are deleted and the merged session follows.
    """

    def __init__(self, group: Group, windowing: Windowing) -> None:
        self._group = group
        self._windowing = windowing

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Emits each session's result with every update (the default), or once when the session closes.

        A session closes when stream time has passed its end by more than gap plus grace. Source: Kafka Streams'
        `EmitStrategy` (KIP-825).
        """
        return SessionWindowedKStream(self._group, replace(self._windowing, emit=emit_of(strategy)))

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        aggregator: Aggregator[V, R],
        merger: Merger[R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[Windowed[K], R]: ...

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        aggregator: Aggregator[V, R],
        merger: KeyMerger[K, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[Windowed[K], R]: ...

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        aggregator: KeyAggregator[K, V, R],
        merger: Merger[R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[Windowed[K], R]: ...

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        aggregator: KeyAggregator[K, V, R],
        merger: KeyMerger[K, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[Windowed[K], R]: ...

    @overload
    def aggregate(
        self, *, named: Name = None, materialized: Store = None, **built_in: Aggregate
    ) -> KTable[Windowed[K], dict[str, Any]]: ...

    def aggregate(  # type: ignore[misc]  # no built-in aggregate can have the name of an argument
        self,
        initializer: Initializer[R] | None = None,
        aggregator: Aggregator[V, R] | KeyAggregator[K, V, R] | None = None,
        merger: Merger[R] | KeyMerger[K, R] | None = None,
        named: Name = None,
        materialized: Store = None,
        **built_in: Aggregate,
    ) -> KTable[Windowed[K], Any]:
        """Aggregates the values of each session, with your own functions or with built-in aggregates.

        Args:
            initializer: Returns the aggregate before the first value.
            aggregator: `aggregator(value, aggregate)` or `aggregator(key, value, aggregate)` returns the new aggregate.
            merger: `merger(earlier, later)` or `merger(key, earlier, later)` returns the aggregate of two sessions that are
                merged. The initial aggregate is merged first.
            named: Name of the operator.
            materialized: Name, serdes and settings of the store.
            **built_in: As in `KGroupedStream.aggregate`.

        Raises:
            TopologyError: Neither or both forms are given, or a function has the wrong number of arguments.
        """
        given = (initializer is not None) + (aggregator is not None) + (merger is not None)
        if given not in (0, 3) or bool(given) == bool(built_in):
            raise TopologyError(
                "aggregate of sessions takes either an initializer, an aggregator and a merger, or built-in aggregates "
                "by name: aggregate(n=agg.count(), delay=agg.mean('delay'))."
            )
        if initializer is not None and aggregator is not None and merger is not None:
            what = by_functions(
                NodeKind.KSTREAM_AGGREGATE,
                functions.initializer(initializer),
                functions.aggregator(aggregator),
                functions.merger(merger),
                aggregate_type(initializer, aggregator, merger),
            )
        else:
            what = of_fields(built_in)
        return self._build("aggregate", what, named, materialized)

    def _table(self, what: Aggregation, how: Materialized, name: str | None) -> KTable[Windowed[K], Any]:
        return self._group.table(what, how, name, self._windowing)


def emit_of(strategy: EmitStrategy) -> EmitStrategy:
    """The emit strategy, checked."""
    if not isinstance(strategy, EmitStrategy):
        raise TopologyError(
            f"emit_strategy takes EmitStrategy.on_window_update() or EmitStrategy.on_window_close(), not {strategy!r}."
        )
    return strategy
