"""Joins of two streams: a node and a store for each side, or a single node and store for a self-join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streams.dsl import functions
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import join_store, waiting_store
from streams.dsl.options import StreamJoined
from streams.errors import TopologyError
from streams.model.windows import JoinWindows
from streams.operators.join.options import StreamJoin
from streams.operators.table.value_getter import JoinKind
from streams.serdes.base import Serde, serde_identity
from streams.serdes.waiting import WaitingKeySerde, WaitingSerde
from streams.topology.naming import stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import NodeSpec, Parameters
from streams.topology.specs.stream_joins import StreamJoinSpec, StreamSelfJoinSpec
from streams.topology.specs.streams import MergeSpec


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
    left, right, key_serde, values = colocated_sides(graph, left, right, how)
    join = StreamJoin(kind, windows, functions.joiner(joiner), key_serde)
    lineage = left.lineage | right.lineage
    base = how.name or stateful_name(NodeKind.KSTREAM_JOIN, lineage, (*join.parameters, *sides(left, right)))
    if graph.optimize and left.node == right.node:
        return _join_itself(graph, join, left, values, how, base)
    stores = [
        graph.store(join_store(f"{how.store_name or base}-{side}-join-store", how, windows), key_serde, serde)
        for side, serde in zip(("this", "other"), values, strict=True)
    ]
    stores += _outer_join_buffer(graph, join, values, how, base)

    return merged_sides(
        graph,
        base,
        key_serde,
        tuple(stores),
        [
            (f"{base}-{name}-join", port, StreamJoinSpec(join, is_left, state_name=f"{base}-merge"))
            for name, port, is_left in (("this", left, True), ("other", right, False))
        ],
    )


class ColocatedSides(NamedTuple):
    """Both sides of a join of streams, with the records of a key in one task.

    Attributes:
        left: The left stream.
        right: The right stream.
        key_serde: The serde of the keys of both.
        value_serdes: The serdes of the left and of the right values.
    """

    left: Port
    right: Port
    key_serde: Serde
    value_serdes: tuple[Serde, Serde]


def colocated_sides(graph: GraphBuilder, left: Port, right: Port, how: StreamJoined) -> ColocatedSides:
    """Brings the records of equal keys together, through repartition topics where a stream needs one."""
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
    """Adds a node for each side of a join, all over the same stores, and behind the nodes the merge of their results.

    Args:
        graph: The topology under construction.
        base: The name of the join.
        key_serde: The serde of the keys of all sides.
        stores: Names of the stores.
        joined: Name of the node, input and operator of each side.
    """
    first, *others = [
        graph.stateful(
            spec, port, name, stores=stores, input_key_serde=key_serde, key_serde=key_serde, value_serde=None
        )
        for name, port, spec in joined
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
        input_key_serde=join.key_serde,
        key_serde=join.key_serde,
        value_serde=None,
    )


def _outer_join_buffer(
    graph: GraphBuilder, join: StreamJoin, values: tuple[Serde, Serde], how: StreamJoined, base: str
) -> list[str]:
    """The store of records without a match so far; none for an inner join."""
    if join.join_kind == "inner":
        return []
    spec = waiting_store(f"{how.store_name or base}-{join.join_kind}-shared-join-store", how)
    return [graph.store(spec, WaitingKeySerde(), WaitingSerde(*reversed(values)))]


def common_key_serde(graph: GraphBuilder, left: Port, right: Port, asked: Serde) -> Serde:
    """The key serde of both sides. Raises `TopologyError` if they differ, because equal keys would be in different tasks."""
    ours, theirs = graph.keyed_as(left, asked), graph.keyed_as(right, asked)
    if ours != theirs:
        raise TopologyError(
            f"'{left.node}' is keyed by {serde_identity(ours)} and '{right.node}' by {serde_identity(theirs)}: equal "
            f"keys would have different bytes and never meet. Read both with the same key serde, or re-key one with "
            f"select_key(...) and give the join that serde."
        )
    return ours


def sides(left: Port, right: Port) -> Parameters:
    """The two sides, in order, for names: `a.join(b)` and `b.join(a)` are different joins."""
    return tuple(
        (side, "|".join((*port.lineage.topics, *port.lineage.through))) for side, port in (("l", left), ("r", right))
    )
