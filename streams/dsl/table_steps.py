"""``filter`` and ``map_values`` of tables: a node that keeps nothing, or one with a store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from streams.dsl.graph_builder import GraphBuilder, Port
from streams.dsl.materialize import history_ms, is_kept, table_names, table_store
from streams.dsl.options import Materialized
from streams.dsl.table_node import TableNode
from streams.operators.processor import Processor
from streams.operators.table_filter import TableFilter
from streams.operators.table_map_values import TableMapValues
from streams.operators.views import FilterView, MapView, View
from streams.serdes.base import Serde
from streams.topology.graph import Parameters


def add_filter(
    port: Port,
    above: TableNode,
    predicate: Callable[[Any, Any], bool],
    negate: bool,
    name: str | None,
    how: Materialized,
) -> tuple[Port, TableNode]:
    """A filtered table. It leaves needless deletions out if the table above can tell old values for nothing."""
    knows_old = above.enable_old(False)
    supplier = partial(TableFilter, predicate, negate, knows_old=knows_old, versioned=above.versioned)

    def computed() -> View:
        return FilterView(above.view(), predicate, negate)

    value_serde = how.value_serde or port.value_serde
    return _add("KTABLE-FILTER", port, above, supplier, name, how, value_serde, computed)


def add_map_values(
    port: Port, above: TableNode, fn: Callable[[Any, Any], Any], name: str | None, how: Materialized
) -> tuple[Port, TableNode]:
    """A table with mapped values."""

    def computed() -> View:
        return MapView(above.view(), fn)

    return _add("KTABLE-MAPVALUES", port, above, partial(TableMapValues, fn), name, how, how.value_serde, computed)


def _add(
    kind: str,
    port: Port,
    above: TableNode,
    supplier: Callable[..., Processor],
    name: str | None,
    how: Materialized,
    value_serde: Serde | None,
    computed: Callable[[], View],
) -> tuple[Port, TableNode]:
    graph = above.graph
    if not is_kept(how):
        unkept = graph.stateless(kind, port, supplier, name, new_value=value_serde is not port.value_serde)
        return unkept, TableNode(graph, (unkept.node,), None, parents=(above,), computed=computed)
    name, store = table_names(kind, port.lineage, name, how, ())
    kept, store = keep_table(
        graph, kind, (port,), partial(supplier, caching=how.caching), name, store, how, graph.value_serde(value_serde)
    )
    return kept, TableNode(graph, (kept.node,), store, parents=(above,), history_ms=history_ms(how))


def keep_table(
    graph: GraphBuilder,
    kind: str,
    ports: tuple[Port, ...],
    supplier: Callable[..., Processor],
    name: str,
    store: str,
    how: Materialized,
    value_serde: Serde,
    parameters: Parameters = (),
) -> tuple[Port, str]:
    """Adds an operator that keeps its table in a store; the port behind it, and the store's name."""
    key_serde = graph.key_serde(ports[0].key_serde)
    graph.store(table_store(store, how), how.key_serde or key_serde, value_serde)
    port = graph.stateful(
        kind,
        ports[0],
        partial(supplier, store=store),
        name,
        others=ports[1:],
        stores=(store,),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=value_serde,
        parameters=parameters,
    )
    return port, store
