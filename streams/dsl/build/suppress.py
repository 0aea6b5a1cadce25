"""``KTable.suppress``: the node, its buffer, and how long the windows above wait."""

from __future__ import annotations

from functools import partial

from state.stores.spec import StoreKind, StoreSpec
from streams.model.custom_windows import UnlimitedWindows
from streams.dsl.build.graph_builder import GraphBuilder, Port
from streams.dsl.suppressed import Suppressed
from streams.dsl.build.table_node import TableNode
from streams.errors import TopologyError
from streams.operators.table.suppress import Suppress, SuppressRules, SuppressValueGetter
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.primitives import BytesSerde
from streams.topology.graph import Parameters, ProcessorNode, Topology
from streams.topology.naming import stateful_name

_WINDOWED = ("size_ms", "difference_ms", "gap_ms", "windows")


def add_suppress(port: Port, above: TableNode, how: Suppressed, name: str | None) -> tuple[Port, TableNode]:
    """The node and its stores. It needs the old values of the table above: they are what others see meanwhile."""
    if not isinstance(how, Suppressed):
        raise TopologyError(
            f"suppress takes Suppressed.until_window_closes() or Suppressed.until_time_limit(...), not {how!r}."
        )
    if above.versioned:
        raise TopologyError(
            f"'{port.node}' is a versioned table, which cannot be suppressed: what it holds back could not be seen as of "
            f"a time. Leave history_retention out."
        )
    above.send_old_values(True)
    if how.limit_ms is not None or above.filters_updates:
        # What is held back, since when, and what moves time on here must not depend on how records are cut into steps.
        above.disable_caching()
    graph, rules = above.graph, _rules(above.graph.topology, port, how)
    if rules.by_window:
        _update_sessions_at_once(graph, port)
    parameters: Parameters = (("until", "window_closes" if rules.by_window else "time_limit"), ("ms", rules.wait_ms))
    name = name or stateful_name("KTABLE-SUPPRESS", port.lineage, parameters)
    data = BytesSerde()
    buffer = graph.store(StoreSpec(f"{name}-store", StoreKind.KEY_VALUE, persistent=None), data, data)
    places = (
        None
        if rules.by_window
        else graph.store(StoreSpec(f"{name}-places", StoreKind.KEY_VALUE, persistent=None), data, data)
    )
    key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(port.value_serde)
    made = graph.stateful(
        "KTABLE-SUPPRESS",
        port,
        partial(Suppress, buffer, places, key_serde, value_serde, rules),
        name,
        stores=(buffer,) if places is None else (buffer, places),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=value_serde,
        parameters=parameters,
    )

    def computed() -> ValueGetter:
        # Else an update that lies in a cache above would be seen though it has not come here, to be held back.
        above.disable_caching()
        return SuppressValueGetter(above.view(), buffer, places, key_serde, value_serde)

    return made, TableNode(graph, (made.node,), None, parents=(above,), computed=computed)


def _rules(topology: Topology, port: Port, how: Suppressed) -> SuppressRules:
    wait_ms, inclusive = how.limit_ms, False
    if wait_ms is None:
        windowed = _windowed_above(topology, port.node)
        if not windowed:
            raise TopologyError(
                f"'{port.node}' has no windows, so none of them closes: suppress it with Suppressed.until_time_limit(...), "
                f"or aggregate in windows first."
            )
        if any(str(dict(node.parameters).get("windows")).startswith(UnlimitedWindows.__name__) for node in windowed):
            raise TopologyError(f"The windows of '{port.node}' never close, so nothing would ever be emitted.")
        # As Kafka Streams (GraphGraceSearchUtil): of several, the longest.
        wait_ms, inclusive = max(_wait(node) for node in windowed)
    buffer = how.buffer
    return SuppressRules(
        wait_ms, how.limit_ms is None, inclusive, buffer.max_records, buffer.max_bytes, buffer.emit_early is True
    )


def _windowed_above(topology: Topology, name: str) -> list[ProcessorNode]:
    """The nearest windowed aggregations above."""
    node = topology.nodes[name]
    if isinstance(node, ProcessorNode) and any(parameter in _WINDOWED for parameter, _ in node.parameters):
        return [node]
    return [found for parent in node.parents for found in _windowed_above(topology, parent)]


def _wait(node: ProcessorNode) -> tuple[int, bool]:
    """How long the windows of an aggregation wait for late records, ms, and whether their ends are inclusive."""
    parameters = dict(node.parameters)
    wait_ms = int(parameters["grace_ms"] or 0) + int(parameters.get("gap_ms") or 0)
    return wait_ms, "difference_ms" in parameters or "gap_ms" in parameters


def _update_sessions_at_once(graph: GraphBuilder, port: Port) -> None:
    """Switches the cache of session aggregations off: suppress holds their updates back itself.

    A session that closes and is merged with a younger one within one step would leave a cache before it left suppress, so
    its result would depend on how records are cut into steps.
    """
    for node in _windowed_above(graph.topology, port.node):
        if "gap_ms" in dict(node.parameters):
            graph.bind(node.name, caching=False)
