"""Names and specifications of the stores behind tables and joins, as ``Materialized`` and ``StreamJoined`` say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from state.stores.spec import StoreKind, StoreSpec
from streams.dsl.graph_builder import GraphBuilder
from streams.dsl.options import Materialized, StreamJoined
from streams.dsl.windows import JoinWindows, TimeWindows, to_ms
from streams.errors import TopologyError
from streams.serdes.base import Serde
from streams.topology.graph import Parameters
from streams.topology.naming import Lineage, stateful_name


def table_names(
    kind: str, lineage: Lineage, named: str | None, how: Materialized, parameters: Parameters
) -> tuple[str, str]:
    """Names of a table's node and of its store: each as given, else after the other, else generated."""
    store = how.name
    if store is None:
        store = f"{named}-store" if named else stateful_name(f"{kind}-STATE-STORE", lineage, parameters)
    if named is None:
        named = f"{kind}-{how.name}" if how.name else stateful_name(kind, lineage, parameters)
    return named, store


def key_value_store(name: str, how: Materialized) -> StoreSpec:
    """The store of a table without windows."""
    if how.retention is not None:
        raise TopologyError(
            f"The store '{name}' has no windows, so it has no retention: its rows stay until they are deleted."
        )
    return StoreSpec(
        name,
        StoreKind.TIMESTAMPED_KEY_VALUE,
        persistent=how.persistent,
        logged=how.logging,
        changelog_config=dict(how.changelog_config),
    )


def lazy_store(
    graph: GraphBuilder, node: str, store: str, how: Materialized, key_serde: Serde, value_serde: Serde
) -> tuple[str | None, Callable[[], str]]:
    """The store of a table that may do without: its name if it has one from the start, and what makes it on demand."""
    make = partial(graph.materialize, node, key_value_store(store, how), key_serde, value_serde)
    return (make() if how.name is not None else None), make


def window_store(name: str, how: Materialized, windows: TimeWindows) -> StoreSpec:
    """The store of a windowed table. Raises ``TopologyError`` if it would forget windows that are still open."""
    needed = windows.size_ms + windows.grace_ms
    retention = needed if how.retention is None else to_ms(how.retention, "Retention")
    if retention < needed:
        raise TopologyError(
            f"The store '{name}' must keep its windows for at least their size plus grace, {windows.size_ms} + "
            f"{windows.grace_ms} ms, but its retention is {retention} ms: leave it out, or give it more."
        )
    return StoreSpec(
        name,
        StoreKind.TIMESTAMPED_WINDOW,
        retention_ms=retention,
        persistent=how.persistent,
        logged=how.logging,
        changelog_config=dict(how.changelog_config),
    )


def join_store(name: str, how: StreamJoined, windows: JoinWindows) -> StoreSpec:
    """The store of one side of a join of streams; it keeps every record, equal ones too."""
    return StoreSpec(
        name,
        StoreKind.WINDOW,
        retention_ms=windows.keep_ms,
        retain_duplicates=True,
        persistent=how.persistent,
        logged=how.logging,
        changelog_config=dict(how.changelog_config),
    )
