"""Joins of a stream with a stream, a table or a global table: nodes, stores, and the check that both sides have one key serde."""

from __future__ import annotations

from streams.dsl import functions
from streams.dsl.global_table import GlobalKTable
from streams.dsl.nodes.abstract_stream import AbstractStream, StreamBase, TableBase
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import waiting_store
from streams.dsl.nodes.stream_join import common_key_serde, join_streams
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.options import Joined, StreamJoined
from streams.errors import TopologyError
from streams.model.windows import JoinWindows, to_ms
from streams.operators.table.value_getter import JoinKind
from streams.serdes.waiting import WaitingKeySerde, WaitingSerde
from streams.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from streams.topology.naming import stateful_name
from streams.topology.specs.stream_joins import GlobalTableJoinSpec, GraceTableJoinSpec, StreamTableJoinSpec
from streams.wording import described


def join_any(
    graph: GraphBuilder,
    kind: JoinKind,
    left: Port,
    other: AbstractStream,
    joiner: functions.Function,
    windows: object,
    how: StreamJoined | Joined,
    key_selector: functions.Function | None,
) -> Port:
    """Adds the join for the kind of the other side.

    Args:
        graph: The graph under construction.
        kind: Which sides have results without a match.
        left: The stream.
        other: The other side.
        joiner: The user's function.
        windows: The argument in the position of the windows.
        how: `StreamJoined` if the other side is a stream, else `Joined`.
        key_selector: The key to look up, for a global table.

    Raises:
        TopologyError: The arguments do not fit the kind of the other side.
    """
    if key_selector is not None and not isinstance(other, GlobalKTable):
        raise TopologyError(
            "key_selector is for global tables; a join with a stream or a table goes by key: select_key(...) first."
        )
    if isinstance(other, StreamBase):
        if not isinstance(windows, JoinWindows):
            raise TopologyError(
                f"A join of two streams needs JoinWindows, not {described(windows)}: give "
                f"JoinWindows.of_time_difference_with_no_grace(...) or ..._and_grace(...)."
            )
        assert isinstance(how, StreamJoined), "the facade chooses the option"
        return join_streams(graph, kind, left, other._port, joiner, windows, how)
    if windows is not None:
        raise TopologyError("A join with a table takes no windows: the table's value at the time of the record counts.")
    if kind == "outer":
        raise TopologyError("A stream has no outer join with a table: updates of the table alone give no result.")
    assert isinstance(how, Joined), "the facade chooses the option"
    if isinstance(other, GlobalKTable):
        if key_selector is None:
            raise TopologyError("A join with a global table needs key_selector=..., the key to look up of each record.")
        return _join_global(graph, kind, left, other, joiner, key_selector, how)
    assert isinstance(other, TableBase), "neither a stream nor a global table"
    return _join_table(graph, kind, left, other._port, other._node, joiner, how)


def _join_table(
    graph: GraphBuilder,
    kind: JoinKind,
    stream: Port,
    table_port: Port,
    table: TableNode,
    joiner: functions.Function,
    how: Joined,
) -> Port:
    """Adds a join in which each record of the stream looks up its key; updates of the table have no results."""
    _refuse_windowed(stream, table_port)
    grace_ms = _grace(table, table_port, how)
    key_serde = graph.key_serde(how.key_serde, stream.key_serde, table_port.key_serde)
    value_serde = graph.value_serde(how.value_serde, stream.value_serde)
    stream = graph.colocated(stream, how.name, key_serde, value_serde)
    key_serde = common_key_serde(graph, stream, table_port, key_serde)
    view = table.view()
    spec = StreamTableJoinSpec(view, functions.joiner(joiner), kind == "left")
    name = how.name or stateful_name(spec.kind, stream.lineage, (("table", table.store or table_port.node),))
    stores = view.stores
    if grace_ms is not None:
        spec = GraceTableJoinSpec(view, spec.joiner, spec.is_left_join, grace_ms, key_serde)
        buffer = waiting_store(f"{name}-buffer", StreamJoined())
        stores = (*stores, graph.store(buffer, WaitingKeySerde(), WaitingSerde(value_serde, value_serde)))
    return graph.stateful(
        spec,
        stream,
        name,
        stores=stores,
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=None,
    )


def _join_global(
    graph: GraphBuilder,
    kind: JoinKind,
    stream: Port,
    table: GlobalKTable,
    joiner: functions.Function,
    key_selector: functions.Function,
    how: Joined,
) -> Port:
    """Adds a join in which each record looks up a selected key; every task has the whole table, so no record moves."""
    store = table.store_name
    selector = functions.key_value(key_selector, "key selector")
    spec = GlobalTableJoinSpec(table._view, functions.global_joiner(joiner), kind == "left", selector)
    key_serde = graph.key_serde(how.key_serde, stream.key_serde)
    return graph.stateful(
        spec,
        stream,
        how.name or stateful_name(spec.kind, stream.lineage, (("global", store),)),
        stores=(),
        global_stores=(store,),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=None,
    )


def _grace(table: TableNode, port: Port, how: Joined) -> int | None:
    """How long records wait, ms; None: not at all. Raises `TopologyError` if the table is not versioned that far back."""
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


def _refuse_windowed(stream: Port, table: Port) -> None:
    if isinstance(table.key_serde, TimeWindowedSerde | SessionWindowedSerde):
        raise TopologyError(
            f"'{stream.node}' cannot look up the windowed table '{table.node}', whose rows belong to windows: "
            f"make a table of its updates first, windowed.to_stream().to_table(), and join with that."
        )
