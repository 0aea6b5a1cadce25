"""Joins of two streams: a node and a store for each side, or one of both for a stream that is joined with itself."""

from __future__ import annotations

from functools import partial

from streams.dsl import functions
from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.dsl.build.materialize import join_store, waiting_store
from streams.dsl.options import StreamJoined
from streams.model.windows import JoinWindows
from streams.errors import TopologyError
from streams.operators.stateless.pass_through import PassThrough
from streams.operators.join.stream_self_join import StreamSelfJoin
from streams.operators.join.stream_stream_join import StreamStreamJoin
from streams.operators.table.value_getter import JoinKind
from streams.serdes.base import Serde, serde_identity
from streams.serdes.waiting import WaitingKeySerde, WaitingSerde
from streams.topology.graph import Parameters
from streams.topology.naming import stateful_name


def join_streams(
    graph: GraphBuilder,
    kind: JoinKind,
    left: Port,
    right: Port,
    joiner: functions.Function,
    windows: JoinWindows,
    how: StreamJoined,
) -> Port:
    """A processor and a store for each side, a store for those without a partner, then a merge."""
    key_serde = graph.key_serde(how.key_serde, left.key_serde, right.key_serde)
    value_serde = graph.value_serde(how.value_serde, left.value_serde)
    other_value_serde = graph.value_serde(how.other_value_serde, right.value_serde)
    left = graph.colocated(left, how.name and f"{how.name}-left", key_serde, value_serde)
    right = graph.colocated(right, how.name and f"{how.name}-right", key_serde, other_value_serde)
    key_serde = common_key_serde(graph, left, right, key_serde)

    parameters: Parameters = (
        ("before_ms", windows.before_ms),
        ("after_ms", windows.after_ms),
        ("grace_ms", windows.grace_ms),
        *((("kind", kind),) if kind != "inner" else ()),
    )
    base = how.name or stateful_name("KSTREAM-JOIN", left.lineage | right.lineage, (*parameters, *sides(left, right)))
    store_base = how.store_name or base
    if graph.optimize and left.node == right.node:
        values = (value_serde, other_value_serde)
        return _join_itself(graph, kind, left, key_serde, values, windows, how, base, store_base, parameters, joiner)
    this_store = graph.store(join_store(f"{store_base}-this-join-store", how, windows), key_serde, value_serde)
    other_store = graph.store(join_store(f"{store_base}-other-join-store", how, windows), key_serde, other_value_serde)
    stores: tuple[str, ...] = (this_store, other_store)
    unjoined = None
    if kind != "inner":
        spec = waiting_store(f"{store_base}-{kind}-shared-join-store", how)
        unjoined = graph.store(spec, WaitingKeySerde(), WaitingSerde(other_value_serde, value_serde))
        stores = (*stores, unjoined)
    operator = partial(
        StreamStreamJoin,
        state_name=f"{base}-merge",
        before_ms=windows.before_ms,
        after_ms=windows.after_ms,
        grace_ms=windows.grace_ms,
        joiner=functions.joiner(joiner),
        unjoined_store=unjoined,
        key_serde=key_serde,
    )
    add = partial(
        graph.stateful,
        stores=stores,
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=None,
        parameters=parameters,
    )
    left_outer, right_outer = kind != "inner", kind == "outer"
    on_left = partial(
        operator,
        this_store=this_store,
        other_store=other_store,
        is_left=True,
        outer=left_outer,
        other_outer=right_outer,
    )
    on_right = partial(
        operator,
        this_store=other_store,
        other_store=this_store,
        is_left=False,
        outer=right_outer,
        other_outer=left_outer,
    )
    joined = add("KSTREAM-JOINTHIS", left, on_left, f"{base}-this-join")
    joined_too = add("KSTREAM-JOINOTHER", right, on_right, f"{base}-other-join")
    return graph.stateless("KSTREAM-MERGE", joined, PassThrough, f"{base}-merge", others=(joined_too,))


def _join_itself(
    graph: GraphBuilder,
    kind: JoinKind,
    port: Port,
    key_serde: Serde,
    values: tuple[Serde, Serde],
    windows: JoinWindows,
    how: StreamJoined,
    base: str,
    store_base: str,
    parameters: Parameters,
    joiner: functions.Function,
) -> Port:
    """One node and one store for both sides (``single.store.self.join``)."""
    store = graph.store(join_store(f"{store_base}-this-join-store", how, windows), key_serde, values[0])
    stores: tuple[str, ...] = (store,)
    unjoined = None
    if kind != "inner":
        spec = waiting_store(f"{store_base}-{kind}-shared-join-store", how)
        unjoined = graph.store(spec, WaitingKeySerde(), WaitingSerde(*reversed(values)))
        stores = (*stores, unjoined)
    operator = partial(
        StreamSelfJoin,
        store,
        windows.before_ms,
        windows.after_ms,
        windows.grace_ms,
        functions.joiner(joiner),
        unjoined,
        key_serde,
        (kind == "outer", kind != "inner"),
    )
    return graph.stateful(
        "KSTREAM-JOINTHIS",
        port,
        operator,
        f"{base}-merge",
        stores=stores,
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=None,
        parameters=parameters,
    )


def common_key_serde(graph: GraphBuilder, left: Port, right: Port, asked: Serde) -> Serde:
    """The key serde of both sides; ``TopologyError`` if they differ: equal keys would lie in different tasks."""
    ours, theirs = graph.keyed_as(left, asked), graph.keyed_as(right, asked)
    if ours != theirs:
        raise TopologyError(
            f"'{left.node}' is keyed by {serde_identity(ours)} and '{right.node}' by {serde_identity(theirs)}: equal "
            f"keys would have different bytes and never meet. Read both with the same key serde, or re-key one with "
            f"select_key(...) and give the join that serde."
        )
    return ours


def sides(left: Port, right: Port) -> Parameters:
    """What tells ``a.join(b)`` from ``b.join(a)``."""
    return tuple(
        (side, "|".join((*port.lineage.topics, *port.lineage.through))) for side, port in (("l", left), ("r", right))
    )
