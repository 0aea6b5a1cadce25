"""Grouped streams: what ``group_by_key`` and ``group_by`` give, and what becomes of it under windows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from streams.dsl.aggregating import Aggregating, Aggregation
from streams.dsl.graph_builder import GraphBuilder, Port
from streams.dsl.materialize import key_value_store, table_names, window_store
from streams.dsl.options import Grouped, Materialized
from streams.dsl.windows import TimeWindows
from streams.errors import TopologyError
from streams.operators.aggregate import StreamAggregate
from streams.operators.processor import Processor
from streams.operators.window_aggregate import WindowAggregate
from streams.serdes.base import Serde
from streams.serdes.windowed import TimeWindowedSerde
from streams.topology.graph import Parameters

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


class _Group:
    """A grouped stream as far as aggregations need it: where it comes from, and its serdes.

    ``how`` is ``"key"`` or ``"by"``: grouped by the key that was there, or by a new one. It goes into names.
    """

    def __init__(self, graph: GraphBuilder, port: Port, grouped: Grouped, how: str) -> None:
        self.graph = graph
        self.grouped = grouped
        self.how = how
        self._port = port
        self._placed: Port | None = None

    def _placed_port(self, how: Materialized) -> tuple[Port, Serde]:
        """The port with its records where their keys belong, and the serde of those keys."""
        key_serde = self.graph.key_serde(self.grouped.key_serde, self._port.key_serde, how.key_serde)
        if self._placed is None:
            value_serde = self.graph.value_serde(self.grouped.value_serde, self._port.value_serde)
            self._placed = self.graph.colocated(self._port, self.grouped.name, key_serde, value_serde)
        return self._placed, key_serde

    def table(self, what: Aggregation, how: Materialized, name: str | None, windows: TimeWindows | None) -> KTable:
        """Adds store and operator of an aggregation, over all time or in windows."""
        from streams.dsl.ktable import KTable

        graph = self.graph
        port, key_serde = self._placed_port(how)
        own = (self.grouped.value_serde, self._port.value_serde) if what.keeps_type else ()
        value_serde = graph.value_serde(how.value_serde, what.value_serde, *own)
        parameters: Parameters = (("grouped", self.how), *_parameters(windows), *what.parameters)
        name, store = table_names(what.kind, port.lineage, name, how, parameters)
        spec = key_value_store(store, how) if windows is None else window_store(store, how, windows)
        graph.store(spec, how.key_serde or key_serde, value_serde)
        table = graph.stateful(
            what.kind,
            port,
            _supplier(what, store, windows, how.caching),
            name,
            stores=(store,),
            input_key_serde=key_serde,
            key_serde=key_serde if windows is None else TimeWindowedSerde(key_serde, windows.size_ms),
            value_serde=value_serde,
            projection=what.projection,
            parameters=parameters,
        )
        return KTable(graph, table, store, from_stored=what.view)


def _parameters(windows: TimeWindows | None) -> Parameters:
    if windows is None:
        return ()
    return (("size_ms", windows.size_ms), ("advance_ms", windows.advance_ms), ("grace_ms", windows.grace_ms))


def _supplier(what: Aggregation, store: str, windows: TimeWindows | None, caching: bool) -> Callable[[], Processor]:
    if what.aggregator is None:
        # Brings numba along, which takes longer to import than all the rest of the DSL.
        from streams.operators.column_aggregate import ColumnAggregate

        return partial(ColumnAggregate, store, what.built_in, windows, caching=caching)
    if windows is None:
        return partial(StreamAggregate, store, what.initializer, what.aggregator, caching=caching)
    return partial(WindowAggregate, store, windows, what.initializer, what.aggregator, caching=caching)


class KGroupedStream(Aggregating):
    """A stream grouped by key: aggregate it into a table, or divide it into windows first.

    Records with a null key or a null value take no part (Kafka Streams' rule).
    """

    def __init__(self, graph: GraphBuilder, port: Port, grouped: Grouped, how: str) -> None:
        self._group = _Group(graph, port, grouped, how)

    def windowed_by(self, windows: TimeWindows) -> TimeWindowedKStream:
        """Divides each group into tumbling or hopping windows."""
        if not isinstance(windows, TimeWindows):
            raise TopologyError(f"windowed_by takes TimeWindows, not {type(windows).__name__}.")
        return TimeWindowedKStream(self._group, windows)

    def _table(self, what: Aggregation, how: Materialized, name: str | None) -> KTable:
        return self._group.table(what, how, name, None)


class TimeWindowedKStream(Aggregating):
    """A grouped stream divided into windows; its tables are keyed by ``Windowed(key, Window(start, end))``.

    Records with a null key, or too late for a window (its end plus grace has passed), take no part in it.
    """

    def __init__(self, group: _Group, windows: TimeWindows) -> None:
        self._group = group
        self._windows = windows

    def _table(self, what: Aggregation, how: Materialized, name: str | None) -> KTable:
        return self._group.table(what, how, name, self._windows)
