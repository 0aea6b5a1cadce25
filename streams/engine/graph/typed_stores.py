"""Typed stores of a sub-topology over the byte stores of a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from state.kafka.topics import NO_LIMIT, RECORD_OVERHEAD
from state.stores.spec import StoreKind
from streams.operators.operator import Mode
from streams.operators.stores.codec import Codec
from streams.operators.stores.key_value import TypedKeyValueStore, TypedTimestampedKeyValueStore, TypedVersionedStore
from streams.operators.stores.window import TypedSessionStore, TypedTimestampedWindowStore, TypedWindowStore
from streams.topology.graph import StoreNode
from streams.topology.plan import SubTopology

_TYPES: dict[StoreKind, type[Any]] = {
    StoreKind.KEY_VALUE: TypedKeyValueStore,
    StoreKind.TIMESTAMPED_KEY_VALUE: TypedTimestampedKeyValueStore,
    StoreKind.WINDOW: TypedWindowStore,
    StoreKind.TIMESTAMPED_WINDOW: TypedTimestampedWindowStore,
    StoreKind.SESSION: TypedSessionStore,
    StoreKind.VERSIONED: TypedVersionedStore,
}


_AROUND = RECORD_OVERHEAD + 24
"""Bytes of a changelog record apart from the row's key and value: Kafka's own, and the times of windows and versions."""


class StoreProvider(Protocol):
    """The part of `state.stores.task_store.TaskStore` that a task needs."""

    def store(self, name: str) -> Any: ...

    def discard(self) -> None: ...

    def expire(self, store: str, before_ms: int) -> None:
        """Removes rows with a time below `before_ms`."""


def typed_stores(
    sub: SubTopology,
    stores: StoreProvider,
    application_id: str,
    limits: Callable[[str], int] = lambda topic: NO_LIMIT,
    mode: Mode = "strict",
) -> dict[str, Any]:
    """Makes a typed store for each store of the sub-topology, by name.

    Serdes get the name of the changelog as topic, as in Kafka Streams. In compat mode, versioned stores forget the same rows as in
    Kafka Streams.
    """
    found = {}
    for name, node in sub.stores.items():
        topic = f"{application_id}-{name}-changelog"
        room = limits(topic) - _AROUND if node.spec.logged else NO_LIMIT
        made = found[name] = typed_store(node, stores, topic, room)
        if isinstance(made, TypedVersionedStore):
            made.forgets = mode == "compat"
    return found


def typed_store(node: StoreNode, stores: StoreProvider, topic: str, room: int = NO_LIMIT) -> Any:
    """Wraps one byte store in a typed one. Serdes get `topic`, and a row may have `room` bytes."""
    return _TYPES[node.spec.kind](stores.store(node.name), Codec(topic, node.key_serde, node.value_serde, room))
