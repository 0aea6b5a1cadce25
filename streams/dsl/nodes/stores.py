"""Names and specifications of the stores of tables and joins, according to `Materialized` and `StreamJoined`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from state.stores.spec import RowFormat, StoreKind, StoreSpec
from streams.dsl.nodes.graph_builder import GraphBuilder
from streams.dsl.options import Materialized, StreamJoined
from streams.errors import TopologyError
from streams.model.windows import JoinWindows, to_ms
from streams.serdes.base import Serde
from streams.serdes.internal import UnmatchedKeySerde, UnmatchedSerde, WaitingKeySerde
from streams.topology.naming import Lineage, stateful_name
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import Parameters


def table_names(
    kind: NodeKind, lineage: Lineage, named: str | None, how: Materialized, parameters: Parameters
) -> tuple[str, str]:
    """The names of a table's node and store. A name that is not given is derived from the other one, or generated."""
    store = how.name
    if store is None:
        store = f"{named}-store" if named else stateful_name(f"{kind}-STATE-STORE", lineage, parameters)
    if named is None:
        named = f"{kind}-{how.name}" if how.name else stateful_name(kind, lineage, parameters)
    return named, store


def store_spec(
    name: str,
    kind: StoreKind,
    how: Materialized | StreamJoined,
    retention_ms: int | None = None,
    *,
    retain_duplicates: bool = False,
    rows: RowFormat | None = None,
) -> StoreSpec:
    """A store with the user's settings for its place and its changelog."""
    return StoreSpec(
        name,
        kind,
        retention_ms=retention_ms,
        persistent=how.persistent,
        logged=how.logging,
        changelog_config=dict(how.changelog_config),
        retain_duplicates=retain_duplicates,
        rows=rows,
    )


def key_value_store(name: str, how: Materialized) -> StoreSpec:
    """The store of a table without windows."""
    if how.retention is not None:
        raise TopologyError(
            f"The store '{name}' has no windows, so it has no retention: its rows stay until they are deleted."
        )
    if how.ttl is not None:
        raise TopologyError(
            f"The rows of '{name}' cannot expire: ttl is for tables that are read or made of a stream, and not for versioned "
            f"ones. Make one: table.to_stream().to_table(Materialized(ttl=...))."
        )
    if how.history_retention is not None:
        raise TopologyError(
            f"The aggregate '{name}' cannot have a versioned store: history_retention is for tables that are read, "
            f"made of a stream, filtered, mapped or joined. Turn it into such a table: aggregate.to_stream().to_table(...)."
        )
    return store_spec(name, StoreKind.TIMESTAMPED_KEY_VALUE, how)


def history_ms(how: Materialized) -> int | None:
    """How far back a versioned table can be read, ms; None: not versioned."""
    if how.history_retention is None:
        return None
    history = to_ms(how.history_retention, "history_retention")
    if history < 0:
        raise TopologyError(f"history_retention must not be negative, but is {history} ms.")
    return history


def is_materialized(how: Materialized) -> bool:
    """Whether the program asks for the store of a table that needs none."""
    asked = (how.name, how.history_retention, how.retention, how.ttl)
    return any(one is not None for one in asked)


def table_store(name: str, how: Materialized) -> StoreSpec:
    """The store of a table without windows: versioned, or with the last values only."""
    history = history_ms(how)
    if history is None or how.ttl is not None:
        return key_value_store(name, how)
    return store_spec(name, StoreKind.VERSIONED, how, history)


def lazy_store(
    graph: GraphBuilder, node: str, store: str, how: Materialized, key_serde: Serde, value_serde: Serde
) -> tuple[str | None, Callable[[], str]]:
    """The optional store of a table: its name if it exists from the start, and a function that adds it later."""
    make = partial(graph.materialize, node, table_store(store, how), key_serde, value_serde)
    return (make() if is_materialized(how) else None), make


def join_store(name: str, how: StreamJoined, windows: JoinWindows) -> StoreSpec:
    """The store of one side of a stream-stream join. It stores every record, including duplicates."""
    return store_spec(name, StoreKind.WINDOW, how, windows.keep_ms, retain_duplicates=True)


def waiting_store(name: str, how: StreamJoined) -> StoreSpec:
    """A store of deadlines, ordered by time."""
    return store_spec(name, StoreKind.KEY_VALUE, how, rows=RowFormat.WAITING)


def buffer_store(name: str, how: StreamJoined) -> StoreSpec:
    """The store of records that a join of a stream with a table holds back, ordered by time."""
    return store_spec(name, StoreKind.KEY_VALUE, how, rows=RowFormat.BUFFERED)


def unmatched_store(
    graph: GraphBuilder, name: str, how: StreamJoined, right: Serde, left: Serde, by_field: bool = False
) -> str:
    """Adds the store of the records of a stream join that have no match yet, with the serdes of their values.

    `by_field`: whether a field limits the time in which a record may find a match. The key then has that time, not the record's.
    """
    spec = store_spec(name, StoreKind.KEY_VALUE, how, rows=RowFormat.UNMATCHED)
    keys = WaitingKeySerde() if by_field else UnmatchedKeySerde()
    return graph.store(spec, keys, UnmatchedSerde(right, left))
