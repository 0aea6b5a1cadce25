"""Makes the users' view of each kind of store that an operator has."""

from __future__ import annotations

from typing import Any

from streams.operators.process.user_stores import (
    InProcess,
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedKeyValueStore,
    WindowStore,
)
from streams.operators.stores.key_value import TypedKeyValueStore, TypedTimestampedKeyValueStore, TypedVersionedStore
from streams.operators.stores.window import TypedSessionStore, TypedTimestampedWindowStore, TypedWindowStore


def user_store(name: str, store: Any, in_process: InProcess) -> Any:
    """The users' view of an operator's store; a global store already is one, and is returned unchanged."""
    made: Any = store
    match store:
        case TypedTimestampedKeyValueStore():
            made = TimestampedKeyValueStore(name, store, in_process)
        case TypedKeyValueStore():
            made = KeyValueStore(name, store, in_process)
        case TypedWindowStore():
            made = WindowStore(name, store, in_process)
        case TypedTimestampedWindowStore():
            made = TimestampedWindowStore(name, store, in_process)
        case TypedSessionStore():
            made = SessionStore(name, store, in_process)
        case TypedVersionedStore():
            made = VersionedKeyValueStore(name, store, in_process)
    return made
