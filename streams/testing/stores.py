"""A store of the driver: the stores of all tasks as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from state.stores.codec import MAX_TIME


class DriverStore:
    """Reads a store over all tasks.

    Args:
        stores: Give the typed store of each task, as it is now.
        task_of: The task of a key.
    """

    def __init__(self, stores: Sequence[Callable[[], Any]], task_of: Callable[[Any], int]) -> None:
        self._stores = stores
        self._task_of = task_of

    def get(self, key: Any, as_of: int | None = None) -> Any:
        """What the task's store gives: a value, or value and timestamp; of a versioned store, as of a time in ms."""
        store = self._stores[self._task_of(key)]()
        return store.get(key) if as_of is None else store.get(key, as_of)

    def fetch(self, key: Any, start: int) -> Any:
        """One window of a key."""
        return self._stores[self._task_of(key)]().fetch(key, start)

    def find_sessions(self, key: Any, earliest_end: int = 0, latest_start: int = MAX_TIME) -> Iterator[tuple[Any, Any]]:
        """Sessions of a key with end >= earliest_end and start <= latest_start: window and value."""
        found: Iterator[tuple[Any, Any]] = self._stores[self._task_of(key)]().find_sessions(
            key, earliest_end, latest_start
        )
        return found

    def all(self) -> Iterator[tuple[Any, Any]]:
        """All rows of a key-value store, task by task."""
        for store in self._stores:
            yield from store().all()

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Any, int, Any]]:
        """All windows with time_from <= start <= time_to, task by task."""
        for store in self._stores:
            yield from store().fetch_all(time_from, time_to)
