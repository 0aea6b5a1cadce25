"""`filter`, `map_values` and `transform_values` of tables: nodes with an optional store."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streams.dsl import functions
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.materialize import history_ms, is_materialized, lazy_store, table_names, table_store
from streams.dsl.nodes.process import split_stores
from streams.dsl.nodes.result_types import Type
from streams.dsl.nodes.table_node import TableNode
from streams.dsl.options import Materialized
from streams.errors import TopologyError
from streams.operators.table.table_transform_values import ValueTransformer
from streams.operators.table.value_getter import FilterValueGetter, MapValueGetter, ValueGetter
from streams.serdes.base import Serde
from streams.topology.specs.base import CachingTableSpec, Parameters
from streams.topology.specs.tables import TableFilterSpec, TableMapValuesSpec, TransformValuesSpec


def add_filter(
    port: Port,
    above: TableNode,
    predicate: Callable[[Any, Any], bool],
    negate: bool,
    name: str | None,
    how: Materialized,
) -> tuple[Port, TableNode]:
    """Adds a filtered table. Needless deletions are left out if the table above has old values at no cost."""
    knows_old = above.send_old_values(False)
    spec = TableFilterSpec(
        predicate, negate, knows_old, above.old_values_are_exact, above.versioned, caching=how.caching
    )

    def computed() -> ValueGetter:
        return FilterValueGetter(above.view(), predicate, negate)

    value_serde = how.value_serde or port.value_serde
    return _add(spec, port, above, name, how, value_serde, computed)


def add_map_values(
    port: Port,
    above: TableNode,
    fn: Callable[[Any, Any], Any],
    name: str | None,
    how: Materialized,
    value_type: Type = None,
) -> tuple[Port, TableNode]:
    """Adds a table with mapped values; `value_type` is the type that the function returns, if known."""

    def computed() -> ValueGetter:
        return MapValueGetter(above.view(), fn)

    spec = TableMapValuesSpec(fn, caching=how.caching)
    derived = above.graph.serde_of_values(value_type)
    made, node = _add(spec, port, above, name, how, how.value_serde or derived, computed)
    # With a store, a row that appears and disappears within a step would be left out.
    node.forwards_all = node.store is None
    return made, node


def add_transform_values(
    port: Port,
    above: TableNode,
    supplier: Callable[[], ValueTransformer],
    stores: Sequence[str],
    name: str | None,
    how: Materialized,
) -> tuple[Port, TableNode]:
    """Adds a table whose values a transformer computes; it has a store if it has a name, is looked up, or must send old values."""
    if isinstance(supplier, ValueTransformer) or not callable(supplier):
        raise TopologyError(
            f"transform_values takes something that makes value transformers, such as the class or a lambda, not "
            f"{supplier!r}: every task needs one of its own."
        )
    graph = above.graph
    names, global_names = split_stores(graph, stores)
    spec = TransformValuesSpec(supplier, names, caching=how.caching)
    parameters: Parameters = tuple((f"store:{used}", True) for used in (*names, *global_names))
    name, store = table_names(spec.kind, port.lineage, name, how, parameters)
    key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(how.value_serde)
    made = graph.stateful(
        spec,
        port,
        name,
        stores=names,
        global_stores=global_names,
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=how.value_serde,
    )
    own_store, make = lazy_store(graph, name, store, how, how.key_serde or key_serde, value_serde)
    return made, TableNode(graph, (name,), own_store, make, parents=(above,), history_ms=history_ms(how))


def _add(
    spec: CachingTableSpec,
    port: Port,
    above: TableNode,
    name: str | None,
    how: Materialized,
    value_serde: Serde | None,
    computed: Callable[[], ValueGetter],
) -> tuple[Port, TableNode]:
    graph = above.graph
    if not is_materialized(how):
        computed_port = graph.stateless(spec, port, name, new_value=value_serde is not port.value_serde)
        computed_port = replace(computed_port, value_serde=value_serde)
        return computed_port, TableNode(graph, (computed_port.node,), None, parents=(above,), computed=computed)
    name, store = table_names(spec.kind, port.lineage, name, how, ())
    stored, store = add_stored(graph, spec, (port,), name, store, how, graph.value_serde(value_serde))
    return stored, TableNode(graph, (stored.node,), store, parents=(above,), history_ms=history_ms(how))


def add_stored(
    graph: GraphBuilder,
    spec: CachingTableSpec,
    ports: tuple[Port, ...],
    name: str,
    store: str,
    how: Materialized,
    value_serde: Serde,
) -> tuple[Port, str]:
    """Adds an operator whose table has a store; returns the port behind it, and the store's name."""
    key_serde = graph.key_serde(ports[0].key_serde)
    graph.store(table_store(store, how), how.key_serde or key_serde, value_serde)
    port = graph.stateful(
        spec,
        ports[0],
        name,
        others=ports[1:],
        stores=(store,),
        input_key_serde=key_serde,
        key_serde=key_serde,
        value_serde=value_serde,
    )
    return port, store


# --- `top`: the best n of each group, for streams (values are only added) and tables (rows change and are deleted).


class TopAggregator:
    """Puts a value into the ordered list of the best n; among equal scores the earlier one stays ahead.

    Args:
        n: The length of the list.
        by: `(value) -> score`; a value whose score is None is not ranked.
        largest: Whether the largest score is the best.
    """

    def __init__(self, n: int, by: Callable[[Any], Any], largest: bool) -> None:
        self.n = n
        self.by = by
        self.largest = largest

    def __call__(self, key: Any, value: Any, best: list[Any]) -> list[Any]:
        """The best rows with this one among them."""
        if value is None or self.by(value) is None:
            return best
        insort(best, value, key=self._rank)
        return best[: self.n]

    def merge(self, key: Any, earlier: list[Any], later: list[Any]) -> list[Any]:
        """The best n of two lists, for sessions that are merged."""
        return sorted((*earlier, *later), key=self._rank)[: self.n]

    def _rank(self, value: Any) -> Any:
        score = self.by(value)
        return -score if self.largest else score


def checked_top(n: int, by: functions.Function) -> Callable[[Any], Any]:
    """The score function, checked. Raises `TopologyError`."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise TopologyError(f"top takes how many rows there are to be, at least 1, not {n!r}.")
    return functions.value_only(by, "score")
