"""Operators of streams that Kafka Streams lacks: `deduplicate` and `as_of_join`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import waiting_store
from streams.dsl.nodes.stream_join import colocated_sides, merged_sides, sides
from streams.dsl.options import StreamJoined
from streams.errors import TopologyError
from streams.model.windows import Duration, to_ms
from streams.operators.join.options import AsOf
from streams.serdes.base import Serde
from streams.serdes.foreign_key import CombinedKeySerde
from streams.serdes.json import JsonSerde
from streams.serdes.waiting import WaitingKeySerde, WaitingSerde
from streams.topology.naming import stateful_name
from streams.topology.specs.stream_joins import AsOfJoinSpec
from streams.topology.specs.streams import DeduplicateSpec


def add_deduplicate(
    graph: GraphBuilder,
    port: Port,
    within: Duration,
    by: Callable[[Any, Any], Any] | None,
    grace: Duration,
    key_serde: Serde | None,
    name: str | None,
) -> Port:
    """Adds a node with a window store of the records that have passed."""
    within_ms, grace_ms = _positive(within, "deduplicate(within=...)"), _duration(grace, "deduplicate(grace=...)")
    key_serde = graph.key_serde(key_serde, port.key_serde)
    placed = graph.colocated(port, name, key_serde, graph.value_serde(port.value_serde))
    spec = DeduplicateSpec(within_ms, grace_ms, by)
    node = name or stateful_name(spec.kind, placed.lineage, spec.parameters)
    store_spec = StoreSpec(f"{node}-store", StoreKind.WINDOW, retention_ms=within_ms + grace_ms, persistent=None)
    store_key: Serde = key_serde if by is None else CombinedKeySerde(key_serde, JsonSerde())
    store = graph.store(store_spec, store_key, JsonSerde())
    return graph.stateful(
        spec,
        placed,
        node,
        stores=(store,),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=port.value_serde,
    )


def join_as_of(
    graph: GraphBuilder,
    left: Port,
    right: Port,
    joiner: Callable[[Any, Any, Any], Any],
    within: Duration,
    grace: Duration,
    is_left_join: bool,
    how: StreamJoined,
) -> Port:
    """Adds a node for each side, a store of right records, a store of waiting left records, and a merge."""
    within_ms, grace_ms = _duration(within, "as_of_join(within=...)"), _duration(grace, "as_of_join(grace=...)")
    left, right, key_serde, values = colocated_sides(graph, left, right, how)
    join = AsOf(within_ms, grace_ms, is_left_join, joiner, key_serde)
    lineage = left.lineage | right.lineage
    base = how.name or stateful_name("KSTREAM-ASOF", lineage, (*join.parameters, *sides(left, right)))
    stores = _as_of_stores(graph, join, how, how.store_name or base, values)

    return merged_sides(
        graph,
        base,
        key_serde,
        stores,
        [
            (f"{base}-{name}-join", port, AsOfJoinSpec(join, is_left, state_name=f"{base}-merge"))
            for name, port, is_left in (("this", left, True), ("other", right, False))
        ],
    )


def _as_of_stores(
    graph: GraphBuilder, join: AsOf, how: StreamJoined, base: str, values: tuple[Serde, Serde]
) -> tuple[str, str]:
    """The store of right records, and the store of waiting left records."""
    value_serde, other_value_serde = values
    right = StoreSpec(
        f"{base}-right-store",
        StoreKind.TIMESTAMPED_WINDOW,
        # Even the latest allowed left record must find right records `within` before it.
        retention_ms=join.within_ms + join.grace_ms + 1,
        persistent=how.persistent,
        logged=how.logging,
        changelog_config=dict(how.changelog_config),
    )
    store = graph.store(right, join.key_serde, other_value_serde)
    waiting = waiting_store(f"{base}-left-store", how)
    return store, graph.store(waiting, WaitingKeySerde(), WaitingSerde(value_serde, value_serde))


def _duration(given: Duration, what: str) -> int:
    found = to_ms(given, what)
    if found < 0:
        raise TopologyError(f"{what} must not be negative, but is {found} ms.")
    return found


def _positive(given: Duration, what: str) -> int:
    found = to_ms(given, what)
    if found <= 0:
        raise TopologyError(f"{what} must be larger than zero, not {found} ms.")
    return found
