"""Cogrouping: aggregates several grouped streams, each with its own aggregator, into one table (KIP-150).

Every stream has an operator of its own. The operators share the store, and a pass-through node merges their updates. Built-in
aggregates do not apply, because each stream adds to the common aggregate in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

from streams.dsl import functions
from streams.dsl.arguments import named_option
from streams.dsl.group_facade import CogroupFacade
from streams.dsl.grouped import Group, KGroupedStream
from streams.dsl.nodes.aggregation import by_functions
from streams.dsl.nodes.materialize import table_names
from streams.dsl.nodes.result_types import aggregate_type
from streams.dsl.nodes.stream_join import common_key_serde
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.nodes.windowing import NO_WINDOWS, Windowing, windowing_of
from streams.dsl.options import Materialized, NameLike
from streams.errors import TopologyError
from streams.model.record import Windowed
from streams.model.typing import Aggregator, Initializer, K, KeyAggregator, KeyMerger, Merger, R, V
from streams.model.windows import GroupingWindows, SessionWindows, SlidingWindows, Windows
from streams.topology.node_kind import NodeKind
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.base import Parameters
from streams.topology.specs.streams import MergeSpec

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable

Parts: TypeAlias = tuple[tuple[Group, Callable[[Any, Any, Any], Any]], ...]


class CogroupedKStream(CogroupFacade, Generic[K, R]):
    """Grouped streams to be aggregated into one table, made by `KGroupedStream.cogroup`.

    Example::

        clicks.group_by_key().cogroup(add_click).cogroup(orders.group_by_key(), add_order).aggregate(dict)

    Records with a null key or a null value are dropped.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @overload
    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Aggregator[V, R]) -> CogroupedKStream[K, R]: ...

    @overload
    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: KeyAggregator[K, V, R]) -> CogroupedKStream[K, R]: ...

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Aggregator[V, R] | KeyAggregator[K, V, R]
    ) -> CogroupedKStream[K, R]:
        """Adds a stream; `aggregator(value, aggregate)` or `aggregator(key, value, aggregate)` adds a record to the aggregate.

        Raises:
            TopologyError: The argument is no grouped stream of this builder, or the function takes another number of arguments.
        """
        if not isinstance(grouped, KGroupedStream) or grouped._group.graph is not self._parts[0][0].graph:
            raise TopologyError("cogroup takes grouped streams of one StreamsBuilder.")
        return CogroupedKStream((*self._parts, (grouped._group, functions.aggregator(aggregator))))

    def aggregate(
        self,
        initializer: Initializer[R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[K, R]:
        """Aggregates all streams; `initializer` returns the aggregate before the first record of any stream.

        The result is a `KTable[K, V2]`, whose timestamps are the largest of the records'.

        Raises:
            TopologyError: The streams are keyed by different serdes.
        """
        return _table(self._parts, NO_WINDOWS, initializer, None, named, materialized)

    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedCogroupedKStream[K, R]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, R]: ...

    def windowed_by(
        self, windows: GroupingWindows
    ) -> TimeWindowedCogroupedKStream[K, R] | SessionWindowedCogroupedKStream[K, R]:
        """Divides the groups of all streams into the same windows.

        Raises:
            TopologyError: The argument is not a definition of windows.
        """
        windowing = windowing_of(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._parts, windowing)
        return TimeWindowedCogroupedKStream(self._parts, windowing)


class TimeWindowedCogroupedKStream(CogroupFacade, Generic[K, R]):
    """Cogrouped streams in windows; every stream has its own stream time (Kafka Streams' rule)."""

    def __init__(self, parts: Parts, windowing: Windowing) -> None:
        self._parts = parts
        self._windowing = windowing

    def aggregate(
        self,
        initializer: Initializer[R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[Windowed[K], R]:
        """Aggregates all streams into a table with a row for each key and window."""
        return _table(self._parts, self._windowing, initializer, None, named, materialized)


class SessionWindowedCogroupedKStream(CogroupFacade, Generic[K, R]):
    """Cogrouped streams in sessions; every stream has its own stream time (Kafka Streams' rule)."""

    def __init__(self, parts: Parts, windowing: Windowing) -> None:
        self._parts = parts
        self._windowing = windowing

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        merger: Merger[R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[Windowed[K], R]: ...

    @overload
    def aggregate(
        self,
        initializer: Initializer[R],
        merger: KeyMerger[K, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[Windowed[K], R]: ...

    def aggregate(
        self,
        initializer: Initializer[R],
        merger: Merger[R] | KeyMerger[K, R],
        named: NameLike | Materialized[K, R] = None,
        materialized: Materialized[K, R] | NameLike = None,
    ) -> KTable[Windowed[K], R]:
        """Aggregates all streams into a table of sessions; `merger(earlier, later)` or `merger(key, earlier, later)` merges two."""
        return _table(self._parts, self._windowing, initializer, functions.merger(merger), named, materialized)


def _table(
    parts: Parts,
    windowing: Windowing,
    initializer: Callable[[], Any],
    merger: Callable[[Any, Any, Any], Any] | None,
    named: object,
    materialized: object,
) -> KTable[Any, Any]:
    from streams.dsl.ktable import KTable

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
                AggregationSpec(kind, windowing.windows, parameters, supplier, caching=how.caching),
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
