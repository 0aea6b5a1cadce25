"""Typed stores of a sub-topology over the byte stores of a task."""

from __future__ import annotations

from typing import Any, Protocol

from state.stores.spec import StoreKind
from streams.operators.session_store import SessionStore
from streams.operators.stores import Codec, KeyValueStore, TimestampedKeyValueStore, TimestampedWindowStore, WindowStore
from streams.operators.versioned_store import VersionedStore
from streams.topology.graph import StoreNode
from streams.topology.plan import SubTopology

_TYPES: dict[StoreKind, type[Any]] = {
    StoreKind.KEY_VALUE: KeyValueStore,
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyValueStore,
    StoreKind.WINDOW: WindowStore,
    StoreKind.TIMESTAMPED_WINDOW: TimestampedWindowStore,
    StoreKind.SESSION: SessionStore,
    StoreKind.VERSIONED: VersionedStore,
}


class StoreProvider(Protocol):
    """What a task needs of `state.stores.task_store.TaskStore`."""

    def store(self, name: str) -> Any:
        """The byte store."""

    def expire(self, store: str, before_ms: int) -> None:
        """Rows with a time below `before_ms` can go."""


def typed_stores(sub: SubTopology, stores: StoreProvider, application_id: str) -> dict[str, Any]:
    """One typed store for each store of the sub-topology, by name.

    Serdes see the name of the changelog as topic, as in Kafka Streams.
    """
    return {name: typed_store(node, stores, f"{application_id}-{name}-changelog") for name, node in sub.stores.items()}


def typed_store(node: StoreNode, stores: StoreProvider, topic: str) -> Any:
    """The typed store over one byte store; its serdes see `topic`."""
    return _TYPES[node.spec.kind](stores.store(node.name), Codec(topic, node.key_serde, node.value_serde))
