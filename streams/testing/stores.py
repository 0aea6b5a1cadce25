"""Stores of a driver, each over the stores of all tasks.

A key is looked up in its task; scans go task by task, each in the order of its store. What a test writes is committed like the
results of records, so that a restart restores it; nothing is forwarded.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeAlias, overload

from state.stores.codec import MAX_TIME
from state.stores.spec import StoreKind
from streams.migration_hints import AnswersUnknownNames
from streams.model.record import TimestampLike, ValueAndTimestamp, Window, Windowed, to_timestamp_ms
from streams.model.typing import K, V
from streams.operators.stores.codec import Codec
from streams.serdes.order import KeySpan
from streams.testing.topics import listed

Write: TypeAlias = Callable[[Any, Callable[[Any], None]], None]
"""Takes a key, and a function to call with the current store of the key's task."""


class DriverStore(AnswersUnknownNames, Generic[K, V]):
    """The common base of stores of all kinds.

    Args:
        name: The store's name.
        tasks: Functions that return the current store of each task.
        task_of: Returns the task of a key.
        value_of: Converts a stored value to the value to show.
        write: Changes the current store of a key's task; None: the store can only be read.
    """

    def __init__(
        self,
        name: str,
        tasks: Sequence[Callable[[], Any]],
        task_of: Callable[[Any], int],
        value_of: Callable[[Any], Any] = lambda value: value,
        write: Write | None = None,
    ) -> None:
        self.name = name
        self._tasks = tasks
        self._task_of = task_of
        self._value_of = value_of
        self._write = write

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _of(self, key: Any) -> Any:
        return self._tasks[self._task_of(key)]()

    def _scan(self, rows: Callable[[Any], Iterator[Any]], reverse: bool = False) -> Iterator[Any]:
        """The rows of every task's store, with the values to show: a row's value is the last of its fields."""
        for store in reversed(self._tasks) if reverse else self._tasks:
            yield from self._shown(rows(store()))

    def _shown(self, rows: Iterator[Any]) -> Iterator[Any]:
        return ((*row[:-1], self._value_of(row[-1])) for row in rows)

    def _change(self, key: Any, change: Callable[[Any], None]) -> None:
        if self._write is None:
            raise TypeError(f"{self!r} is that of a global table: pipe records into its topic")
        self._write(key, change)


class DriverKeyValueStore(DriverStore[K, V]):
    """A store of a value per key."""

    def put(self, key: K, value: V | None, timestamp: TimestampLike = 0) -> None:
        """Writes a row; None deletes it. In a table's store, its timestamp is `timestamp`, or that of a `ValueAndTimestamp`."""
        held = value if isinstance(value, ValueAndTimestamp) else ValueAndTimestamp(value, to_timestamp_ms(timestamp))
        self._change(key, lambda store: store.put(key, held.value, held.timestamp))

    def put_all(self, rows: Iterable[tuple[K, V | None]]) -> None:
        """Writes many rows."""
        for key, value in rows:
            self.put(key, value)

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Writes a row unless the key has one; returns the key's earlier value."""
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def delete(self, key: K) -> V | None:
        """Deletes a row and returns its value."""
        before = self.get(key)
        self.put(key, None)
        return before

    def get(self, key: K) -> V | None:
        """The value, or None."""
        found: V | None = self._value_of(self._of(key).get(key))
        return found

    def range(self, lower: K | None = None, upper: K | None = None, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Rows with lower <= key <= upper, in the order of the keys; None: no bound. Raises `KeyOrderError`."""
        parts = [self._ranked(task(), lower, upper, reverse) for task in self._tasks]
        return self._shown(row for _, row in heapq.merge(*parts, key=itemgetter(0), reverse=reverse))

    @staticmethod
    def _ranked(store: Any, lower: K | None, upper: K | None, reverse: bool) -> Iterator[tuple[bytes, Any]]:
        codec: Codec = store.codec
        return ((codec.order.rank(codec.key(row[0])), row) for row in store.range(lower, upper, reverse))

    def reverse_range(self, lower: K | None = None, upper: K | None = None) -> Iterator[tuple[K, V]]:
        """The same rows as `range`, in reverse order."""
        return self.range(lower, upper, reverse=True)

    def all(self, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """All rows."""
        return self._scan(lambda store: store.all(reverse), reverse)

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """All rows, in reverse order."""
        return self.all(reverse=True)

    def prefix_scan(self, prefix: bytes | str) -> Iterator[tuple[K, V]]:
        """Rows whose keys' bytes start with the prefix; text is written as UTF-8."""
        data = prefix.encode() if isinstance(prefix, str) else prefix
        return self._scan(lambda store: store.prefix(data))

    def approximate_num_entries(self) -> int:
        """The number of rows."""
        return sum(1 for _ in self.all())


class DriverWindowStore(DriverStore[K, V]):
    """A store of a value per key and window; times are milliseconds, a `datetime`, or a `timedelta` since the epoch."""

    @overload
    def fetch(self, key: K, time: TimestampLike) -> V | None: ...
    @overload
    def fetch(self, key: K, time: TimestampLike, time_to: TimestampLike) -> Iterator[tuple[int, V]]: ...
    @overload
    def fetch(
        self, key: K, key_to: K, time_from: TimestampLike, time_to: TimestampLike, /
    ) -> Iterator[tuple[K, int, V]]: ...
    def fetch(self, key: K, time: Any, time_to: Any = None, last: Any = None) -> Any:
        """With one time, the value of the window that starts at it; with two, the windows that start between them.

        With two keys and two times, key, start and value of the windows of the keys between them, by start. Keys are in the order
        of `range`.
        """
        if last is not None:
            return _between(self.fetch_all(time_to, last), self._of(key).codec, key, time)
        if time_to is not None:
            return self.fetch_range(key, time, time_to)
        found: V | None = self._value_of(self._of(key).fetch(key, to_timestamp_ms(time)))
        return found

    def fetch_range(
        self, key: K, time_from: TimestampLike, time_to: TimestampLike, reverse: bool = False
    ) -> Iterator[tuple[int, V]]:
        """Start and value of a key's windows with time_from <= start <= time_to, the earliest first."""
        first, last = to_timestamp_ms(time_from), to_timestamp_ms(time_to)
        return self._shown(self._of(key).fetch_range(key, first, last, reverse))

    def fetch_all(
        self, time_from: TimestampLike, time_to: TimestampLike, reverse: bool = False
    ) -> Iterator[tuple[K, int, V]]:
        """Key, start and value of all windows with time_from <= start <= time_to, by start."""
        first, last = to_timestamp_ms(time_from), to_timestamp_ms(time_to)
        return self._scan(lambda store: store.fetch_all(first, last, reverse), reverse)

    def all(self) -> Iterator[tuple[K, int, V]]:
        """Key, start and value of all windows, by start."""
        return self.fetch_all(0, MAX_TIME)


class DriverSessionStore(DriverStore[K, V]):
    """A store of a value per key and session; times are milliseconds, a `datetime`, or a `timedelta` since the epoch."""

    def find_sessions(
        self, key: K, earliest_end: TimestampLike = 0, latest_start: TimestampLike = MAX_TIME
    ) -> Iterator[tuple[Window, V]]:
        """Sessions of a key with end >= earliest_end and start <= latest_start, by end, then start."""
        end, start = to_timestamp_ms(earliest_end), to_timestamp_ms(latest_start)
        found: Iterator[tuple[Window, V]] = self._of(key).find_sessions(key, end, start)
        return found

    @overload
    def fetch(self, key: K) -> Iterator[tuple[Window, V]]: ...
    @overload
    def fetch(self, key: K, key_to: K) -> Iterator[tuple[Windowed[K], V]]: ...
    def fetch(self, key: K, key_to: K | None = None) -> Iterator[tuple[Window, V]] | Iterator[tuple[Windowed[K], V]]:
        """All sessions of a key with their values; with two keys, the sessions of the keys between them, by end."""
        if key_to is None:
            return self.find_sessions(key)
        rows = ((session.key, session, value) for session, value in self.all())
        return ((session, value) for _, session, value in _between(rows, self._of(key).codec, key, key_to))

    def fetch_session(self, key: K, start: TimestampLike, end: TimestampLike) -> V | None:
        """The value of one session, or None."""
        found: V | None = self._of(key).fetch(key, to_timestamp_ms(start), to_timestamp_ms(end))
        return found

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """All sessions of all keys, by end."""
        return self._scan(lambda store: store.fetch_all(0, MAX_TIME))


class DriverVersionedStore(DriverStore[K, V]):
    """A store of each key's values over time."""

    def get(self, key: K, as_of: TimestampLike | None = None) -> ValueAndTimestamp[V] | None:
        """The newest value and its time, or the value valid at `as_of`. None if there was none, or if it was deleted."""
        time = None if as_of is None else to_timestamp_ms(as_of)
        found: ValueAndTimestamp[V] | None = self._of(key).get(key, time)
        return found


def _between(rows: Iterator[Any], codec: Codec, lower: Any, upper: Any) -> Iterator[Any]:
    """The rows whose first field, the key, is between two keys."""
    spans = codec.spans(lower, upper, reverse=False)
    return (row for row in rows if any(_holds(span, codec.key(row[0])) for span in spans))


def _holds(span: KeySpan, key: bytes) -> bool:
    return (span.lower is None or span.lower <= key) and (span.upper is None or key <= span.upper)


KINDS: Mapping[StoreKind, type[DriverStore[Any, Any]]] = {
    StoreKind.KEY_VALUE: DriverKeyValueStore,
    StoreKind.TIMESTAMPED_KEY_VALUE: DriverKeyValueStore,
    StoreKind.WINDOW: DriverWindowStore,
    StoreKind.TIMESTAMPED_WINDOW: DriverWindowStore,
    StoreKind.SESSION: DriverSessionStore,
    StoreKind.VERSIONED: DriverVersionedStore,
}


def bare_value(value: ValueAndTimestamp[V] | V | None) -> V | None:
    """The value without its timestamp."""
    return value.value if isinstance(value, ValueAndTimestamp) else value


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
        write: Changes the current store of a key's task; None: the store can only be read.
    """

    kind: StoreKind
    tasks: Sequence[Callable[[], Any]]
    task_of: Callable[[Any], int]
    write: Write | None = None


class DriverStores(AnswersUnknownNames, ABC):
    """The stores of a driver by name. Timestamps have the same types as elsewhere in tests."""

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
        """Returns a versioned store, which also has former values. Raises like `get_window_store`."""
        found: DriverVersionedStore[Any, Any] = self._store(
            name, (StoreKind.VERSIONED,), "get_versioned_key_value_store"
        )
        return found

    def get_versioned_store(self, name: str) -> DriverVersionedStore[Any, Any]:
        """Another name of `get_versioned_key_value_store`."""
        return self.get_versioned_key_value_store(name)

    def _store(
        self, name: str, kinds: Sequence[StoreKind], getter: str, value_of: Callable[[Any], Any] = lambda value: value
    ) -> Any:
        if name not in self._store_names():
            raise KeyError(f"the topology has no store {name!r}: {listed(name, set(self._store_names()))}")
        kind, tasks, task_of, write = self._task_stores(name)
        if kind not in kinds:
            raise TypeError(f"{getter}({name!r}): the store is of another kind, use {_GETTERS[kind]}({name!r})")
        made: type[DriverStore[Any, Any]] = KINDS[kind]
        return made(name, tasks, task_of, value_of, write)
