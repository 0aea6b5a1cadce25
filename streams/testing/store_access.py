"""Access to the stores of a driver by name, with a method for each kind of store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from state.stores.spec import StoreKind
from streams.migration_hints import AnswersUnknownNames
from streams.model.record import ValueAndTimestamp
from streams.testing.known_topics import listed
from streams.testing.stores import (
    KINDS,
    DriverKeyValueStore,
    DriverSessionStore,
    DriverStore,
    DriverVersionedStore,
    DriverWindowStore,
    bare_value,
)

_KEY_VALUE = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE)
_WINDOW = (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW)
_GETTERS = {
    StoreKind.KEY_VALUE: "get_key_value_store",
    StoreKind.TIMESTAMPED_KEY_VALUE: "get_timestamped_key_value_store",
    StoreKind.WINDOW: "get_window_store",
    StoreKind.TIMESTAMPED_WINDOW: "get_timestamped_window_store",
    StoreKind.SESSION: "get_session_store",
    StoreKind.VERSIONED: "get_versioned_key_value_store",
}


class TaskStores(NamedTuple):
    """A store of all tasks.

    Attributes:
        kind: The store's kind.
        tasks: Functions that return the current store of each task.
        task_of: Returns the task of a key.
    """

    kind: StoreKind
    tasks: Sequence[Callable[[], Any]]
    task_of: Callable[[Any], int]


class StoreAccess(AnswersUnknownNames, ABC):
    """The stores of a driver by name, read-only. Timestamps have the same types as elsewhere in tests."""

    @abstractmethod
    def _store_names(self) -> Collection[str]: ...

    @abstractmethod
    def _task_stores(self, name: str) -> TaskStores: ...

    def get_store(self, name: str) -> Any:
        """Returns a store over all tasks, whose values have timestamps if the store has.

        Raises:
            KeyError: The topology has no such store.
        """
        return self._store(name, tuple(StoreKind), "get_store")

    def get_all_state_stores(self) -> dict[str, Any]:
        """Returns all stores by name, like `get_store`."""
        return {name: self.get_store(name) for name in sorted(self._store_names())}

    def get_key_value_store(self, name: str) -> DriverKeyValueStore[Any, Any]:
        """Returns a key-value store or the store of a table: key to value. Raises like `get_window_store`."""
        found: DriverKeyValueStore[Any, Any] = self._store(name, _KEY_VALUE, "get_key_value_store", bare_value)
        return found

    def get_timestamped_key_value_store(self, name: str) -> DriverKeyValueStore[Any, ValueAndTimestamp[Any]]:
        """Returns the store of a table: key to value and timestamp. Raises like `get_window_store`."""
        found: DriverKeyValueStore[Any, Any] = self._store(name, _KEY_VALUE[1:], "get_timestamped_key_value_store")
        return found

    def get_window_store(self, name: str) -> DriverWindowStore[Any, Any]:
        """Returns a window store or the store of a windowed table: key and start of the window to value.

        Raises:
            KeyError: The topology has no such store.
            TypeError: The store is of another kind.
        """
        found: DriverWindowStore[Any, Any] = self._store(name, _WINDOW, "get_window_store", bare_value)
        return found

    def get_timestamped_window_store(self, name: str) -> DriverWindowStore[Any, ValueAndTimestamp[Any]]:
        """Returns the store of a windowed table: key and window start to value and timestamp. Raises like `get_window_store`."""
        found: DriverWindowStore[Any, Any] = self._store(name, _WINDOW[1:], "get_timestamped_window_store")
        return found

    def get_session_store(self, name: str) -> DriverSessionStore[Any, Any]:
        """Returns a session store. Raises like `get_window_store`."""
        found: DriverSessionStore[Any, Any] = self._store(name, (StoreKind.SESSION,), "get_session_store")
        return found

    def get_versioned_key_value_store(self, name: str) -> DriverVersionedStore[Any, Any]:
        """Returns a versioned store, which has former values, too. Raises like `get_window_store`."""
        found: DriverVersionedStore[Any, Any] = self._store(
            name, (StoreKind.VERSIONED,), "get_versioned_key_value_store"
        )
        return found

    def get_versioned_store(self, name: str) -> DriverVersionedStore[Any, Any]:
        """Another name of `get_versioned_key_value_store`."""
        return self.get_versioned_key_value_store(name)

    def _store(
        self,
        name: str,
        kinds: Sequence[StoreKind],
        getter: str,
        value_of: Callable[[Any], Any] = lambda value: value,
    ) -> Any:
        if name not in self._store_names():
            raise KeyError(f"the topology has no store {name!r}: {listed(name, set(self._store_names()))}")
        kind, tasks, task_of = self._task_stores(name)
        if kind not in kinds:
            raise TypeError(f"{getter}({name!r}): the store is of another kind, use {_GETTERS[kind]}({name!r})")
        made: type[DriverStore[Any, Any]] = KINDS[kind]
        return made(name, tasks, task_of, value_of)
