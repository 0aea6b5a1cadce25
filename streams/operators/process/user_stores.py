"""The conversion of an operator's typed store to a user's store: the same rows, with the public methods only."""

from __future__ import annotations

from typing import Any

from streams.operators.process.in_process import InProcess
from streams.operators.process.key_value_store import (
    KeyValueStore,
    TimestampedKeyValueStore,
)
from streams.operators.process.session_store import SessionStore
from streams.operators.process.versioned_store import VersionedKeyValueStore
from streams.operators.process.window_store import TimestampedWindowStore, WindowStore
from streams.operators.stores.key_value import TypedKeyValueStore, TypedTimestampedKeyValueStore
from streams.operators.stores.session import TypedSessionStore
from streams.operators.stores.versioned import TypedVersionedStore
from streams.operators.stores.window import TypedTimestampedWindowStore, TypedWindowStore


def user_store(name: str, store: Any, in_process: InProcess) -> Any:
    """The user's view of an operator's store; a global store already is one."""
    made: Any = store
    match store:
        case TypedKeyValueStore():
            made = KeyValueStore(name, store, in_process)
        case TypedTimestampedKeyValueStore():
            made = TimestampedKeyValueStore(name, store, in_process)
        case TypedWindowStore():
            made = WindowStore(name, store, in_process)
        case TypedTimestampedWindowStore():
            made = TimestampedWindowStore(name, store, in_process)
        case TypedSessionStore():
            made = SessionStore(name, store)
        case TypedVersionedStore():
            made = VersionedKeyValueStore(name, store, in_process)
    return made
