"""`join_all`: several streams joined within one window, a node and a store for each. Kafka Streams lacks it.

Nodes and stores are named after the user's names of the streams, so renaming a stream renames its store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.dsl import functions
from streams.dsl.nodes.abstract_stream import StreamBase
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import join_store
from streams.dsl.nodes.stream_join import common_key_serde, merged_sides
from streams.dsl.options import StreamJoined
from streams.errors import TopologyError
from streams.model.windows import JoinWindows
from streams.operators.join.options import JoinAll
from streams.serdes.base import Serde
from streams.topology.naming import check_name, stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.stream_joins import JoinAllSpec
from streams.wording import a_kind_of

FEWEST, MOST = 2, 8
"""How many other streams there may be; what more of them would make is rarely meant (see `KStream.join_all`)."""


def join_all_streams(
    graph: GraphBuilder,
    ports: Mapping[str, Port],
    joiner: functions.Function,
    windows: JoinWindows,
    how: StreamJoined,
    value_serdes: Mapping[str, Serde],
) -> Port:
    """Adds a processor and a store for each stream, then a merge; `ports` are in the order of the results, this stream first."""
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
    return merged_sides(graph, base, key_serde, tuple(stores), joined)


def check_names(this: str, others: Any) -> None:
    """Raises `TopologyError` unless the number of other streams is allowed, and each has a valid name of its own."""
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


def port_of(name: str, other: Any) -> Port:
    """The port of another stream. Raises `TopologyError` if it is a table."""
    if not isinstance(other, StreamBase):
        raise TopologyError(
            f"join_all joins streams, but '{name}' is {a_kind_of(other)}: join the result with it, or take its "
            f"to_stream()."
        )
    return other._port


def _check_options(
    windows: JoinWindows, how: StreamJoined, ports: Mapping[str, Port], value_serdes: Mapping[str, Serde]
) -> None:
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"join_all needs JoinWindows, not {windows!r}: give JoinWindows.of_time_difference_with_no_grace(...) or "
            f"..._and_grace(...)."
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
    this, *others = ports.values()
    lineage = this.lineage
    for other in others:
        lineage = lineage | other.lineage
    # Streams' names distinguish joins of the same topics; their order only affects the order of results.
    streams = {name: "|".join((*port.lineage.topics, *port.lineage.through)) for name, port in ports.items()}
    return stateful_name(NodeKind.KSTREAM_JOINALL, lineage, (*join.parameters, *sorted(streams.items())))
