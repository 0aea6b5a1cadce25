"""Joins of a stream with a stream or a table: nodes, stores, and the check that both sides lie in the same tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from streams.dsl import functions
from streams.dsl.graph_builder import GraphBuilder, Port
from streams.dsl.materialize import join_store
from streams.dsl.options import Joined, StreamJoined
from streams.dsl.windows import JoinWindows
from streams.errors import TopologyError
from streams.operators.pass_through import PassThrough
from streams.operators.stream_stream_join import StreamStreamJoin
from streams.operators.stream_table_join import StreamTableJoin
from streams.serdes.base import Serde, serde_identity
from streams.serdes.windowed import TimeWindowedSerde
from streams.topology.graph import Parameters
from streams.topology.naming import stateful_name

if TYPE_CHECKING:
    from streams.dsl.ktable import KTable


def join_stream(
    graph: GraphBuilder, left: Port, right: Port, joiner: functions.Function, windows: JoinWindows, how: StreamJoined
) -> Port:
    """Inner join of two streams: a processor and a store for each side, then a merge."""
    key_serde = graph.key_serde(how.key_serde, left.key_serde, right.key_serde)
    value_serde = graph.value_serde(how.value_serde, left.value_serde)
    other_value_serde = graph.value_serde(how.other_value_serde, right.value_serde)
    left = graph.colocated(left, how.name and f"{how.name}-left", key_serde, value_serde)
    right = graph.colocated(right, how.name and f"{how.name}-right", key_serde, other_value_serde)
    key_serde = _common_key_serde(graph, left, right, key_serde)

    parameters: Parameters = (
        ("before_ms", windows.before_ms),
        ("after_ms", windows.after_ms),
        ("grace_ms", windows.grace_ms),
    )
    base = how.name or stateful_name("KSTREAM-JOIN", left.lineage | right.lineage, (*parameters, *_sides(left, right)))
    store_base = how.store_name or base
    this_store = graph.store(join_store(f"{store_base}-this-join-store", how, windows), key_serde, value_serde)
    other_store = graph.store(join_store(f"{store_base}-other-join-store", how, windows), key_serde, other_value_serde)
    operator = partial(
        StreamStreamJoin,
        state_name=f"{base}-merge",
        before_ms=windows.before_ms,
        after_ms=windows.after_ms,
        grace_ms=windows.grace_ms,
        joiner=functions.joiner(joiner),
    )
    add = partial(
        graph.stateful,
        stores=(this_store, other_store),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=None,
        parameters=parameters,
    )
    on_left = partial(operator, this_store=this_store, other_store=other_store, is_left=True)
    on_right = partial(operator, this_store=other_store, other_store=this_store, is_left=False)
    joined = add("KSTREAM-JOINTHIS", left, on_left, f"{base}-this-join")
    joined_too = add("KSTREAM-JOINOTHER", right, on_right, f"{base}-other-join")
    return graph.stateless("KSTREAM-MERGE", joined, PassThrough, f"{base}-merge", others=(joined_too,))


def join_table(
    graph: GraphBuilder, stream: Port, table: KTable, joiner: functions.Function, how: Joined, *, left: bool
) -> Port:
    """Join of a stream with a table: each record of the stream looks its key up; updates of the table do nothing."""
    _refuse_windowed(stream, table)
    key_serde = graph.key_serde(how.key_serde, stream.key_serde, table._key_serde)
    stream = graph.colocated(stream, how.name, key_serde, graph.value_serde(how.value_serde, stream.value_serde))
    key_serde = _common_key_serde(graph, stream, table._port, key_serde)
    kind = "KSTREAM-LEFTJOIN" if left else "KSTREAM-JOIN"
    store = table._lookup_store()
    name = how.name or stateful_name(kind, stream.lineage, (("table", store),))
    joiner = _with_table_view(functions.joiner(joiner), table)
    return graph.stateful(
        kind,
        stream,
        partial(StreamTableJoin, store=store, joiner=joiner, left=left),
        name,
        stores=(store,),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=None,
    )


def _with_table_view(joiner: Any, table: KTable) -> Any:
    """The joiner, handed the table's values where its store holds accumulators (built-in aggregates)."""
    view = table._from_stored
    if view is None:
        return joiner
    return lambda key, left, right: joiner(key, left, view(right))


def _refuse_windowed(stream: Port, table: KTable) -> None:
    if isinstance(table._port.key_serde, TimeWindowedSerde):
        raise TopologyError(
            f"'{stream.node}' cannot look up the windowed table '{table._port.node}', whose rows are kept by window: "
            f"make a table of its updates first, windowed.to_stream().to_table(), and join with that."
        )


def _common_key_serde(graph: GraphBuilder, left: Port, right: Port, asked: Serde) -> Serde:
    """The key serde of both sides; ``TopologyError`` if they differ: equal keys would lie in different tasks."""
    ours, theirs = graph.keyed_as(left, asked), graph.keyed_as(right, asked)
    if ours != theirs:
        raise TopologyError(
            f"'{left.node}' is keyed by {serde_identity(ours)} and '{right.node}' by {serde_identity(theirs)}: equal "
            f"keys would have different bytes and never meet. Read both with the same key serde, or re-key one with "
            f"select_key(...) and give the join that serde."
        )
    return ours


def _sides(left: Port, right: Port) -> Parameters:
    """What tells ``a.join(b)`` from ``b.join(a)``."""
    return tuple(
        (side, "|".join((*port.lineage.topics, *port.lineage.through))) for side, port in (("l", left), ("r", right))
    )
