"""`KTable.suppress`: the node, its buffer, and how long the windows above wait."""

from __future__ import annotations

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.suppressed import Suppressed
from streams.errors import TopologyError
from streams.model.windows import SessionWindows
from streams.operators.table.suppress import SuppressRules, SuppressValueGetter
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.primitives import BytesSerde
from streams.topology.graph import Graph, ProcessorNode
from streams.topology.naming import stateful_name
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.tables import SuppressSpec


def add_suppress(port: Port, above: TableNode, how: Suppressed, name: str | None) -> tuple[Port, TableNode]:
    """Adds the node and its stores. The table above must send old values, which readers see while an update is delayed."""
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
        # Which updates are delayed, since when, and what moves time here must not depend on how records are divided into steps.
        above.disable_caching()
    graph, rules = above.graph, _rules(above.graph.topology, port, how)
    if rules.by_window:
        _update_sessions_at_once(graph, port)
    key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(port.value_serde)
    spec = SuppressSpec(rules, key_serde, value_serde)
    name = name or stateful_name(spec.kind, port.lineage, spec.parameters)
    data = BytesSerde()
    buffer = graph.store(StoreSpec(f"{name}-store", StoreKind.KEY_VALUE, persistent=None), data, data)
    places = (
        None
        if rules.by_window
        else graph.store(StoreSpec(f"{name}-places", StoreKind.KEY_VALUE, persistent=None), data, data)
    )
    made = graph.stateful(
        spec,
        port,
        name,
        stores=(buffer,) if places is None else (buffer, places),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=value_serde,
    )

    def computed() -> ValueGetter:
        # Otherwise readers would see an update that is still in a cache above and has not reached this node.
        above.disable_caching()
        return SuppressValueGetter(above.view(), buffer, places, key_serde, value_serde)

    return made, TableNode(graph, (made.node,), None, parents=(above,), computed=computed)


def _rules(topology: Graph, port: Port, how: Suppressed) -> SuppressRules:
    wait_ms, inclusive = how.limit_ms, False
    if wait_ms is None:
        above = _windowed_above(topology, port.node).values()
        found = [windows for spec in above if (windows := spec.windows) is not None]
        if not found:
            raise TopologyError(
                f"'{port.node}' has no windows, so none of them closes: suppress it with Suppressed.until_time_limit(...), "
                f"or aggregate in windows first."
            )
        if any(not windows.closes for windows in found):
            raise TopologyError(f"The windows of '{port.node}' never close, so nothing would ever be emitted.")
        # The longest one, as in Kafka Streams (GraphGraceSearchUtil).
        wait_ms, inclusive = max((windows.wait_ms, windows.inclusive_end) for windows in found)
    buffer = how.buffer
    return SuppressRules(
        wait_ms, how.limit_ms is None, inclusive, buffer.max_records, buffer.max_bytes, buffer.emit_early is True
    )


def _windowed_above(topology: Graph, name: str) -> dict[str, AggregationSpec]:
    """The nearest windowed aggregations above, by the names of their nodes."""
    node = topology.nodes[name]
    if isinstance(node, ProcessorNode) and isinstance(node.spec, AggregationSpec) and node.spec.windows is not None:
        return {name: node.spec}
    found: dict[str, AggregationSpec] = {}
    for parent in node.parents:
        found |= _windowed_above(topology, parent)
    return found


def _update_sessions_at_once(graph: GraphBuilder, port: Port) -> None:
    """Disables the cache of session aggregations, because suppress delays their updates itself.

    A cache could remove a session that closes and is merged with a younger one within one step, so the result would depend on how
    records are divided into steps.
    """
    for name, spec in _windowed_above(graph.topology, port.node).items():
        if isinstance(spec.windows, SessionWindows):
            graph.change_spec(name, spec.without_caching())
