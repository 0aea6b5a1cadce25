"""Joins of a stream with other streams, a table or a global table: a node for each side that has updates, and their stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from state.stores.spec import StoreKind
from streams.dsl import functions
from streams.dsl.nodes.graph_builder import GraphBuilder, Port, lineage_of
from streams.dsl.nodes.stores import buffer_store, join_store, store_spec, unmatched_store
from streams.dsl.nodes.tables import TableNode
from streams.dsl.options import Joined, StreamJoined
from streams.errors import TopologyError
from streams.model.expressions import Expression, ValueFields
from streams.model.windows import Duration, JoinWindows, to_ms
from streams.operators.join.joins import AsOf, JoinAll, StreamJoin
from streams.operators.table.value_getter import JoinKind, StoreValueGetter
from streams.serdes.base import Serde, serde_identity
from streams.serdes.internal import BufferedKeySerde, BufferedSerde
from streams.serdes.wrappers import SessionWindowedSerde, TimeWindowedSerde
from streams.topology.naming import check_name, numbered, stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import NodeSpec, Parameters
from streams.topology.specs.joins import (
    AsOfJoinSpec,
    GlobalTableJoinSpec,
    GraceTableJoinSpec,
    JoinAllSpec,
    StreamJoinSpec,
    StreamSelfJoinSpec,
    StreamTableJoinSpec,
)
from streams.topology.specs.streams import MergeSpec

# --- Two streams: a node and a store for each side, or a single node and store for a self-join.

_SIDES: Mapping[JoinKind, tuple[str, str]] = {
    "inner": ("this", "other"),
    "left": ("this", "outer-other"),
    "outer": ("outer-this", "outer-other"),
}
"""The parts of the stores' names for this and the other stream, as in Kafka Streams' `KStreamImplJoin`."""


def join_streams(
    graph: GraphBuilder,
    kind: JoinKind,
    left: Port,
    right: Port,
    joiner: functions.Function,
    windows: JoinWindows,
    how: StreamJoined,
) -> Port:
    """Adds a processor and a store for each side, a store for records without a match, then a merge."""
    types = left.key_serde, left.value_serde, right.value_serde
    left, right, key_serde, values = colocated_sides(graph, left, right, how)
    join = StreamJoin(kind, windows, functions.joiner(joiner), key_serde)
    lineage = left.lineage | right.lineage
    base = how.name or stateful_name(NodeKind.KSTREAM_JOIN, lineage, (*join.parameters, *sides(left, right)))
    if graph.optimize and left.node == right.node and windows.bound is None:
        return graph.typed(_join_itself(graph, join, left, values, how, base), joiner, *types)
    stores = [
        graph.store(join_store(f"{how.store_name or base}-{side}-join-store", how, windows), key_serde, serde)
        for side, serde in zip(_SIDES[kind], values, strict=True)
    ]
    stores += _outer_join_buffer(graph, join, values, how, base)

    joined = [
        (f"{base}-{name}-join", port, StreamJoinSpec(join, is_left, state_name=f"{base}-merge"))
        for name, port, is_left in (("this", left, True), ("other", right, False))
    ]
    return graph.typed(merged_sides(graph, base, key_serde, tuple(stores), joined), joiner, *types)


class ColocatedSides(NamedTuple):
    """Both sides of a join of streams, with the records of a key in one task. `value_serdes` are left and right."""

    left: Port
    right: Port
    key_serde: Serde
    value_serdes: tuple[Serde, Serde]


def colocated_sides(graph: GraphBuilder, left: Port, right: Port, how: StreamJoined) -> ColocatedSides:
    """Brings records with equal keys into one task, through a repartition topic for each stream that needs one."""
    key_serde = graph.key_serde(how.key_serde, left.key_serde, right.key_serde)
    value_serde = graph.value_serde(how.value_serde, left.value_serde)
    other_value_serde = graph.value_serde(how.other_value_serde, right.value_serde)
    left = graph.colocated(left, how.name and f"{how.name}-left", key_serde, value_serde)
    right = graph.colocated(right, how.name and f"{how.name}-right", key_serde, other_value_serde)
    key_serde = common_key_serde(graph, left, right, key_serde)
    return ColocatedSides(left, right, key_serde, (value_serde, other_value_serde))


def merged_sides(
    graph: GraphBuilder,
    base: str,
    key_serde: Serde,
    stores: tuple[str, ...],
    joined: Sequence[tuple[str, Port, NodeSpec]],
) -> Port:
    """Adds a node (name, input, operator) for each side of a join, all over the same stores, and merges their results."""
    first, *others = [
        graph.stateful(spec, port, name, stores=stores, key_serde=key_serde) for name, port, spec in joined
    ]
    return graph.stateless(MergeSpec(), first, f"{base}-merge", others=tuple(others))


def _join_itself(
    graph: GraphBuilder, join: StreamJoin, port: Port, values: tuple[Serde, Serde], how: StreamJoined, base: str
) -> Port:
    """Adds one node and one store for both sides (`single.store.self.join`)."""
    spec = join_store(f"{how.store_name or base}-this-join-store", how, join.windows)
    store = graph.store(spec, join.key_serde, values[0])
    return graph.stateful(
        StreamSelfJoinSpec(join),
        port,
        f"{base}-merge",
        stores=(store, *_outer_join_buffer(graph, join, values, how, base)),
        key_serde=join.key_serde,
    )


def _outer_join_buffer(
    graph: GraphBuilder, join: StreamJoin, values: tuple[Serde, Serde], how: StreamJoined, base: str
) -> list[str]:
    """Adds the store of records without a match so far; an inner join has none."""
    if join.join_kind == "inner":
        return []
    left, right = values
    name = f"{how.store_name or base}-{join.join_kind}-shared-join-store"
    return [unmatched_store(graph, name, how, right, left, join.windows.bound is not None)]


def common_key_serde(graph: GraphBuilder, left: Port, right: Port, asked: Serde) -> Serde:
    """The key serde of both sides. Raises `TopologyError` if they differ, because equal keys would then be in different tasks."""
    ours, theirs = graph.keyed_as(left, asked), graph.keyed_as(right, asked)
    if ours != theirs:
        raise TopologyError(
            f"'{left.node}' is keyed by {serde_identity(ours)} and '{right.node}' by {serde_identity(theirs)}: equal "
            f"keys would have different bytes and never meet. Read both with the same key serde, or re-key one with "
            f"select_key(...) and give the join that serde."
        )
    return ours


def sides(left: Port, right: Port) -> Parameters:
    """The origins of both sides in order, for names: `a.join(b)` and `b.join(a)` are different joins."""
    return tuple(
        (side, "|".join((*port.lineage.topics, *port.lineage.through))) for side, port in (("l", left), ("r", right))
    )


# --- A stream with a table or a global table.


def join_table(
    graph: GraphBuilder,
    kind: JoinKind,
    stream: Port,
    table_port: Port,
    table: TableNode,
    joiner: functions.Function,
    how: Joined,
) -> Port:
    """Adds a join in which each record of the stream looks up its key; updates of the table alone have no results."""
    if isinstance(table_port.key_serde, TimeWindowedSerde | SessionWindowedSerde):
        raise TopologyError(
            f"'{stream.node}' cannot look up the windowed table '{table_port.node}', whose rows belong to windows: "
            f"make a table of its updates first, windowed.to_stream().to_table(), and join with that."
        )
    types = stream.key_serde, stream.value_serde, table_port.value_serde
    grace_ms = _grace(table, table_port, how)
    key_serde = graph.key_serde(how.key_serde, stream.key_serde, table_port.key_serde)
    value_serde = graph.value_serde(how.value_serde, stream.value_serde)
    stream = graph.colocated(stream, how.name, key_serde, value_serde)
    key_serde = common_key_serde(graph, stream, table_port, key_serde)
    view = table.view()
    spec = StreamTableJoinSpec(view, functions.joiner(joiner), kind == "left")
    parameters: Parameters = (("table", table.store or table_port.node),)
    if grace_ms is None:
        made = _look_up(graph, spec, stream, how.name, parameters, key_serde, stores=view.stores)
        return graph.typed(made, joiner, *types)
    name = how.name or stateful_name(spec.kind, stream.lineage, parameters)
    waits = GraceTableJoinSpec(view, spec.joiner, spec.is_left_join, grace_ms, key_serde)
    buffer = buffer_store(f"{name}-Buffer", StreamJoined())
    stores = (*view.stores, graph.store(buffer, BufferedKeySerde(), BufferedSerde(value_serde)))
    made = graph.stateful(waits, stream, name, stores=stores, key_serde=key_serde)
    return graph.typed(made, joiner, *types)


def join_global(
    graph: GraphBuilder,
    kind: JoinKind,
    stream: Port,
    store: str,
    joiner: functions.Function,
    key_selector: functions.Function,
    how: Joined,
) -> Port:
    """Adds a join in which each record looks up a selected key. Every task has the whole table, so no record moves."""
    selector = functions.key_value(key_selector, "key selector")
    expression = key_selector if isinstance(key_selector, Expression | ValueFields) else None
    table, adapted = StoreValueGetter(store), functions.global_joiner(joiner)
    spec = GlobalTableJoinSpec(table, adapted, kind == "left", selector, expression)
    key_serde = graph.key_serde(how.key_serde, stream.key_serde)
    made = _look_up(graph, spec, stream, how.name, (("global", store),), key_serde, global_stores=(store,))
    return graph.typed(made, joiner, stream.key_serde, None, stream.value_serde, None)


def _look_up(
    graph: GraphBuilder,
    spec: NodeSpec,
    stream: Port,
    name: str | None,
    parameters: Parameters,
    key_serde: Serde,
    stores: tuple[str, ...] = (),
    global_stores: tuple[str, ...] = (),
) -> Port:
    """Adds a join that has no state of its own.

    Joins with equal names are therefore numbered, like stateless nodes. The lineage of nodes below has the name without the number,
    so that the order of two equal joins does not affect the names of stores.
    """
    base = name or stateful_name(spec.kind, stream.lineage, parameters)
    node = name or numbered(base, graph.topology.nodes)
    port = graph.stateful(spec, stream, node, stores=stores, global_stores=global_stores, key_serde=key_serde)
    return replace(port, lineage=stream.lineage.behind(base))


def _grace(table: TableNode, port: Port, how: Joined) -> int | None:
    """How long records wait, ms; None: they do not wait. Raises `TopologyError` if the table is not versioned that far back."""
    if how.grace is None:
        return None
    grace_ms = to_ms(how.grace, "Joined(grace=...)")
    if table.history is None or not 0 <= grace_ms <= table.history:
        has = "it is not versioned" if table.history is None else f"its history_retention is {table.history} ms"
        raise TopologyError(
            f"A join with a grace of {grace_ms} ms needs a table that remembers at least that long, but of "
            f"'{port.node}' {has}: give it Materialized(history_retention=...)."
        )
    return grace_ms


# --- `join_all`: several streams within one window. There is a node and a store for each, named after the user's names for the
# streams.

FEWEST, MOST = 2, 8
"""The allowed numbers of other streams. With more streams, the number of results is rarely intended (`KStream.join_all`)."""


def join_all_streams(
    graph: GraphBuilder,
    ports: Mapping[str, Port],
    joiner: functions.Function,
    windows: JoinWindows,
    how: StreamJoined,
    value_serdes: Mapping[str, Serde],
) -> Port:
    """Adds a processor and a store for each stream, then a merge. `ports`, this stream first, give the order of results."""
    _check_options(windows, how, ports, value_serdes)
    asked = graph.key_serde(how.key_serde, *(port.key_serde for port in ports.values()))
    serdes = {name: graph.value_serde(value_serdes.get(name), port.value_serde) for name, port in ports.items()}
    ports = {
        name: graph.colocated(port, how.name and f"{how.name}-{name}", asked, serdes[name])
        for name, port in ports.items()
    }
    this, *others = ports.values()
    for other in others:
        key_serde = common_key_serde(graph, this, other, asked)

    join = JoinAll(tuple(ports), windows, functions.joiner_of_all(joiner))
    base = how.name or _generated_name(ports, join)
    stores = [
        graph.store(join_store(f"{how.store_name or base}-{name}-join-store", how, windows), key_serde, serde)
        for name, serde in serdes.items()
    ]
    joined = [
        (f"{base}-{name}-join", port, JoinAllSpec(join, name, state_name=f"{base}-merge"))
        for name, port in ports.items()
    ]
    return graph.typed(merged_sides(graph, base, key_serde, tuple(stores), joined), joiner)


def check_names(this: str, others: Any) -> None:
    """Raises `TopologyError` unless the number of other streams is allowed, and each stream has a valid name that no other has."""
    if not isinstance(others, Mapping) or not FEWEST <= len(others) <= MOST:
        found = f"{len(others)} of them" if isinstance(others, Mapping) else repr(others)
        raise TopologyError(
            f"join_all takes {FEWEST} to {MOST} other streams by name, such as {{'payment': payments, 'shipment': "
            f"shipments}}, not {found}. For one other stream there is join(...)."
        )
    for name in (this, *others):
        check_name(name)
    if this in others:
        raise TopologyError(
            f"Two streams of join_all are called '{this}', which is this stream's own name: give it another one with "
            f"this='...', or rename the other."
        )


def _check_options(
    windows: JoinWindows, how: StreamJoined, ports: Mapping[str, Port], value_serdes: Mapping[str, Serde]
) -> None:
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"join_all needs JoinWindows, not {windows!r}: give JoinWindows.of_time_difference_with_no_grace(...) or "
            f"..._and_grace(...)."
        )
    if windows.bound is not None:
        raise TopologyError(
            "join_all takes no JoinWindows.until(...): join two streams at a time, each with its own bound."
        )
    if windows.before_ms != windows.after_ms:
        raise TopologyError(
            f"join_all needs symmetric JoinWindows: all records of a combination lie within one time difference, so that "
            f"'before' ({windows.before_ms} ms) and 'after' ({windows.after_ms} ms) must be equal. For bounds of each pair, "
            f"join two streams at a time."
        )
    if not isinstance(how, StreamJoined):
        raise TopologyError(f"join_all takes StreamJoined(...), not {how!r}.")
    if how.value_serde is not None or how.other_value_serde is not None:
        raise TopologyError(
            "join_all takes value serdes by the names of the streams, value_serdes={'name': serde}, not in StreamJoined."
        )
    unknown = sorted(set(value_serdes) - set(ports))
    if unknown:
        raise TopologyError(
            f"value_serdes of join_all names {', '.join(map(repr, unknown))}, but the streams are called "
            f"{', '.join(map(repr, ports))}."
        )


def _generated_name(ports: Mapping[str, Port], join: JoinAll) -> str:
    lineage = lineage_of(*ports.values())
    # The names of the streams distinguish joins of the same topics. Their order only affects the order of results.
    streams = {name: "|".join((*port.lineage.topics, *port.lineage.through)) for name, port in ports.items()}
    return stateful_name(NodeKind.KSTREAM_JOINALL, lineage, (*join.parameters, *sorted(streams.items())))


# --- `as_of_join`: joins each record with the newest one of another stream.


def join_as_of(
    graph: GraphBuilder,
    left: Port,
    right: Port,
    joiner: functions.Function,
    within: Duration,
    grace: Duration,
    is_left_join: bool,
    how: StreamJoined,
) -> Port:
    """Adds a node for each side, a store of right records, a store of waiting left records, and a merge."""
    within_ms, grace_ms = _duration_ms(within, "as_of_join(within=...)"), _duration_ms(grace, "as_of_join(grace=...)")
    types = left.key_serde, left.value_serde, right.value_serde
    left, right, key_serde, values = colocated_sides(graph, left, right, how)
    join = AsOf(within_ms, grace_ms, is_left_join, functions.joiner(joiner), key_serde)
    lineage = left.lineage | right.lineage
    base = how.name or stateful_name("KSTREAM-ASOF", lineage, (*join.parameters, *sides(left, right)))
    stores = _as_of_stores(graph, join, how, how.store_name or base, values)
    joined = [
        (f"{base}-{name}-join", port, AsOfJoinSpec(join, is_left, state_name=f"{base}-merge"))
        for name, port, is_left in (("this", left, True), ("other", right, False))
    ]
    return graph.typed(merged_sides(graph, base, key_serde, stores, joined), joiner, *types)


def _as_of_stores(
    graph: GraphBuilder, join: AsOf, how: StreamJoined, base: str, values: tuple[Serde, Serde]
) -> tuple[str, str]:
    """Adds the store of right records, and the store of waiting left records; returns their names."""
    value_serde, other_value_serde = values
    # Even the latest left record that is accepted must find right records `within` before it.
    retention_ms = join.within_ms + join.grace_ms + 1
    right = store_spec(f"{base}-right-store", StoreKind.TIMESTAMPED_WINDOW, how, retention_ms)
    store = graph.store(right, join.key_serde, other_value_serde)
    return store, unmatched_store(graph, f"{base}-left-store", how, value_serde, value_serde)


def _duration_ms(given: Duration, what: str) -> int:
    found = to_ms(given, what)
    if found < 0:
        raise TopologyError(f"{what} must not be negative, but is {found} ms.")
    return found
