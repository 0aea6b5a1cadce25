"""Foreign-key joins of two tables: three parts in two sub-topologies, connected by a repartition topic in each direction.

```
left table  ──subscribe──▶ <name>-subscription-repartition ──▶ subscriptions ─┐
                                                               right table ──update──┴▶ <name>-response-repartition ──▶ result
```
The right part runs in the right table's sub-topology, the result in the left table's, so each can read its table's stores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import history_ms, lazy_store, table_names
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.options import Materialized
from streams.operators.table.value_getter import JoinKind
from streams.serdes.foreign_key import CombinedKeySerde, ResponseSerde, SubscriptionSerde
from streams.topology.naming import stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.streams import MergeSpec
from streams.topology.specs.table_joins import (
    ForeignKeyOutputSpec,
    ForeignKeyResultSpec,
    ForeignKeySubscribeSpec,
    ForeignKeySubscriptionsSpec,
    ForeignKeyUpdateSpec,
)

Table = tuple[Port, TableNode]


def join_foreign_key(
    left: Table,
    right: Table,
    extractor: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any, Any], Any],
    kind: JoinKind,
    name: str | None,
    how: Materialized,
) -> Table:
    """Adds the join, a table with the left table's keys. Both tables get stores."""
    (left_port, left_node), (right_port, right_node) = left, right
    graph = left_node.graph
    base = name or stateful_name("KTABLE-FK-JOIN", left_port.lineage | right_port.lineage, (("kind", kind),))
    left_key, right_key = graph.key_serde(left_port.key_serde), graph.key_serde(right_port.key_serde)
    left_value = graph.value_serde(left_port.value_serde)
    left_node.send_old_values(True)
    right_node.send_old_values(True)
    this = left_node.view()

    registration = f"{base}-subscription-registration"
    asking = ForeignKeySubscribeSpec(extractor, left_value, kind == "left", left_node.versioned)
    asked = graph.stateless(asking, left_port, registration, new_key=True, new_value=True)
    subscriptions = graph.repartition(asked, f"{base}-subscription", right_key, SubscriptionSerde(left_key))
    responses = _right_part(graph, base, subscriptions, right_port, right_node, left_key, how)
    right_value = graph.value_serde(right_port.value_serde)
    answered = graph.repartition(responses, f"{base}-response", left_key, ResponseSerde(right_value))
    joined = graph.stateful(
        ForeignKeyResultSpec(kind, this, left_value, joiner),
        answered,
        f"{base}-response-resolver",
        stores=this.stores,
        input_key_serde=left_key,
        key_serde=left_key,
        value_serde=how.value_serde,
    )
    return _output(graph, joined, base, registration, how)


def _right_part(
    graph: GraphBuilder,
    base: str,
    subscriptions: Port,
    right_port: Port,
    right_node: TableNode,
    left_key: Any,
    how: Materialized,
) -> Port:
    """Adds the part next to the right table: the store of subscriptions, and the nodes that answer them."""
    right_key = graph.key_serde(right_port.key_serde)
    keys, other = CombinedKeySerde(right_key, left_key), right_node.view()
    spec = StoreSpec(f"{base}-subscription-store", StoreKind.KEY_VALUE, persistent=how.persistent, logged=how.logging)
    store = graph.store(spec, keys, SubscriptionSerde(left_key))
    add = partial(graph.stateful, input_key_serde=right_key, key_serde=right_key, value_serde=None)
    answers = add(
        ForeignKeySubscriptionsSpec(other, keys),
        subscriptions,
        f"{base}-subscription-processor",
        stores=tuple(dict.fromkeys((store, *other.stores))),
    )
    updates = add(
        ForeignKeyUpdateSpec(keys, right_node.versioned),
        right_port,
        f"{base}-foreign-processor",
        stores=(store,),
    )
    merge = MergeSpec(NodeKind.KTABLE_FK_JOIN_RESPONSE)
    return graph.stateless(merge, answers, f"{base}-response", others=(updates,), new_key=True)


def _output(graph: GraphBuilder, joined: Port, base: str, registration: str, how: Materialized) -> Table:
    """Adds the resulting table, which has a store if it has a name or is looked up."""
    key_serde, value_serde = graph.key_serde(joined.key_serde), graph.value_serde(how.value_serde)
    spec = ForeignKeyOutputSpec(registration, caching=how.caching)
    name, store = table_names(spec.kind, joined.lineage, f"{base}-output", how, ())
    port = graph.stateful(
        spec,
        joined,
        name,
        stores=(),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=how.value_serde,
    )
    made, make = lazy_store(graph, name, store, how, how.key_serde or key_serde, value_serde)
    return port, TableNode(graph, (name,), made, make, history_ms=history_ms(how))
