"""Tables that are read from a topic or made from a stream, with a store from the start or once it is needed."""

from __future__ import annotations

from dataclasses import replace

from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import history_ms, key_value_store, lazy_store, waiting_store
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.options import Materialized, StreamJoined
from streams.errors import TopologyError
from streams.model.windows import to_ms
from streams.serdes.base import Serde
from streams.serdes.primitives import BytesSerde
from streams.serdes.waiting import WaitingKeySerde, WaitingSerde
from streams.topology.node_kind import NodeKind
from streams.topology.specs.tables import ExpiringTableSpec, TableSourceSpec


def add_table(
    graph: GraphBuilder,
    kind: NodeKind,
    port: Port,
    name: str,
    store: str,
    how: Materialized,
    key_serde: Serde,
    value_serde: Serde,
) -> tuple[Port, TableNode]:
    """Adds the table's operator behind a port whose records are in the tasks of their keys.

    Args:
        graph: The graph under construction.
        kind: Whether the table is read from a topic or made from a stream.
        port: The records.
        name: The operator's name.
        store: The store's name, if there will be one.
        how: The user's options.
        key_serde: The serde of the records' keys.
        value_serde: The serde of the records' values.
    """
    if how.ttl is not None:
        return _add_expiring(graph, kind, port, name, store, how, key_serde, value_serde)
    table = graph.stateful(
        TableSourceSpec(kind, caching=how.caching, versioned=history_ms(how) is not None),
        port,
        name,
        stores=(),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=value_serde,
    )
    made, make = lazy_store(graph, name, store, how, how.key_serde or key_serde, value_serde)
    return table, TableNode(graph, (name,), made, make, history_ms=history_ms(how))


def _add_expiring(
    graph: GraphBuilder,
    kind: NodeKind,
    port: Port,
    name: str,
    store: str,
    how: Materialized,
    key_serde: Serde,
    value_serde: Serde,
) -> tuple[Port, TableNode]:
    """Adds a table whose rows expire, with a store of rows and a store of deadlines from the start."""
    ttl_ms = to_ms(how.ttl or 0, "Materialized(ttl=...)")
    if ttl_ms <= 0 or how.history_retention is not None:
        raise TopologyError(
            f"The table '{name}' needs a ttl above zero and no history_retention, but has {ttl_ms} ms and "
            f"{how.history_retention}: rows either expire or are remembered."
        )
    rows = graph.store(key_value_store(store, replace(how, ttl=None)), how.key_serde or key_serde, value_serde)
    deadlines = waiting_store(f"{store}-deadlines", StreamJoined(logging=how.logging, persistent=how.persistent))
    deadline_store = graph.store(deadlines, WaitingKeySerde(), WaitingSerde(BytesSerde(), BytesSerde()))
    table = graph.stateful(
        ExpiringTableSpec(kind, key_serde, ttl_ms, caching=how.caching),
        port,
        name,
        stores=(rows, deadline_store),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=value_serde,
    )
    return table, TableNode(graph, (name,), rows)
