"""The stores that processors get: the rows of the typed stores, with only the public methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from state.stores.codec import MAX_TIME
from streams.errors import TopologyError
from streams.model.record import Headers, Record, TimestampLike, ValueAndTimestamp, Window, Windowed, to_timestamp_ms
from streams.model.typing import K, V
from streams.serdes.base import Serde

if TYPE_CHECKING:
    # Programs import the users' classes, and need no libraries of columns.
    from streams.operators.stores.key_value import TypedVersionedStore
    from streams.operators.stores.window import TypedSessionStore


# --- The current record of a user's processor, shared by its context and its stores.


class InProcess:
    """The current record, or the time of a punctuation.

    Attributes:
        record: The record; None outside of `process`.
        time: The time of the punctuation, ms; None outside of a punctuation.
        changed_for: The last record for which the processor has changed state, or has forwarded. Frequent operations set it
            directly, because a call of `changes` would take longer than the rest.
    """

    __slots__ = ("changed_for", "record", "time")

    def __init__(self) -> None:
        self.record: Record | None = None
        self.time: int | None = None
        self.changed_for: Record | None = None

    def changes(self) -> None:
        """Notes that the processor changes state, or forwards a record, for the current record."""
        self.changed_for = self.record

    @property
    def has_changed(self) -> bool:
        """Whether the processor has changed state, or forwarded a record, for the current record."""
        return self.record is not None and self.changed_for is self.record

    @property
    def headers(self) -> Headers:
        """Headers of the record; none outside of `process`."""
        return () if self.record is None else self.record.headers

    @property
    def timestamp(self) -> int:
        """The default time of a store's write.

        Raises:
            TopologyError: There is no current record and no punctuation.
        """
        if self.record is not None:
            return self.record.timestamp
        if self.time is None:
            raise TopologyError(
                "A store is written to outside of process and of a punctuation, where no record gives the time: name it, as in "
                "put(key, value, timestamp=ctx.stream_time)."
            )
        return self.time

    def time_of_write(self, timestamp: TimestampLike | None) -> int:
        """The given time in ms; by default, the time of the current record or punctuation."""
        return self.timestamp if timestamp is None else to_timestamp_ms(timestamp)

    def at_time(self, callback: Callable[[int], object]) -> Callable[[int], None]:
        """Wraps the callback of a punctuation so that the punctuation's time is the current one during the call."""
        if not callable(callback):
            return callback  # refused when it is scheduled

        @wraps(callback)
        def call(time: int) -> None:
            self.time = time
            try:
                callback(time)
            finally:
                self.time = None

        return call


# --- The key-value stores of users: `ctx.store(name)` for `Stores.key_value_store` and `timestamped_key_value_store`.


class _Rows(Protocol):
    """The common interface of `TypedKeyValueStore` and `TypedTimestampedKeyValueStore`."""

    def get(self, key: Any) -> Any: ...
    def put(self, key: Any, value: Any, timestamp: int) -> None: ...
    def range(self, lower: Any, upper: Any, reverse: bool = False) -> Iterator[tuple[Any, Any]]: ...
    def prefix(self, prefix: bytes) -> Iterator[tuple[Any, Any]]: ...
    def all(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]: ...
    def count(self) -> int: ...


class _UsersStore(Generic[K, V]):
    """The base of all stores of users. `in_process` is None if nothing can be written."""

    def __init__(self, name: str, store: Any, in_process: Any = None) -> None:
        self.name = name
        self._store = store
        self._in_process: InProcess = in_process
        self._newest = -1
        """The newest time written, in stores whose rows expire."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ReadOnlyKeyValueStore(_UsersStore[K, V]):
    """A read-only store from key to value (Kafka Streams: `ReadOnlyKeyValueStore`).

    A range is in the order of the keys; texts are ordered by code points. `all` and `prefix_scan` are in the order of the keys'
    bytes, in which negative numbers follow the others. A scan reads the store as of its beginning, so rows may be written and
    deleted during the scan.

    Attributes:
        name: The store's name.
    """

    _store: _Rows

    def get(self, key: K) -> V | None:
        found: V | None = self._store.get(key)
        return found

    def range(self, lower: K | None = None, upper: K | None = None, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Rows with lower <= key <= upper, in the order of the keys; None = open.

        Raises:
            KeyOrderError: The bytes of the serde do not sort as such keys do: JSON, tuples, lists, Avro.
        """
        return self._store.range(lower, upper, reverse)

    def reverse_range(self, lower: K | None = None, upper: K | None = None) -> Iterator[tuple[K, V]]:
        return self._store.range(lower, upper, reverse=True)

    def all(self, reverse: bool = False) -> Iterator[tuple[K, V]]:
        return self._store.all(reverse)

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        return self._store.all(reverse=True)

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[K, V]]:
        """Rows whose key's bytes begin with the bytes of the prefix."""
        return self._store.prefix(_prefix_bytes(self.name, prefix, serde))

    def prefix(self, prefix: bytes) -> Iterator[tuple[K, V]]:
        return self._store.prefix(prefix)

    def approximate_num_entries(self) -> int:
        """The number of rows. It is exact here, but takes a scan of the store."""
        return self._store.count()


class GlobalKeyValueStore(ReadOnlyKeyValueStore[K, V]):
    """A global store as tasks see it. It is read-only, because a write would only change the copy of the task's process.

    The values of a timestamped store are `ValueAndTimestamp`.
    """

    def __getattr__(self, name: str) -> Any:
        if hasattr(KeyValueStore, name):
            raise TopologyError(f"The global store '{self.name}' can only be read here: its rows come from its topic.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


def typed_store_of(store: Any) -> Any:
    """The underlying store of a global store, for operators that look up many keys at once. Returns other stores unchanged."""
    return store._store if isinstance(store, GlobalKeyValueStore) else store


class KeyValueStore(ReadOnlyKeyValueStore[K, V]):
    """A store from key to value (Kafka Streams: `KeyValueStore`).

    A write without a timestamp has the timestamp of the current record, or the time of the punctuation, and so has the changelog
    record. Timestamps are milliseconds, a `datetime`, or a `timedelta` since the epoch.

    Example:
        >>> seen: KeyValueStore[str, int] = self.ctx.store("seen")
        >>> seen.put(record.key, (seen.get(record.key) or 0) + 1)
    """

    def put(self, key: K, value: V | None, timestamp: TimestampLike | None = None) -> None:
        in_process = self._in_process
        self._store.put(key, value, in_process.time_of_write(timestamp))
        in_process.changed_for = in_process.record

    def put_if_absent(self, key: K, value: V | None, timestamp: TimestampLike | None = None) -> V | None:
        """Write unless the key has a value. Returns the value that the key had, or None."""
        old = self.get(key)
        if old is None:
            self.put(key, value, timestamp)
        return old

    def put_all(
        self, entries: Mapping[K, V | None] | Iterable[tuple[K, V | None]], timestamp: TimestampLike | None = None
    ) -> None:
        """Write several rows, passed as a dictionary or as pairs of key and value."""
        for key, value in entries.items() if isinstance(entries, Mapping) else entries:
            self.put(key, value, timestamp)

    def delete(self, key: K, timestamp: TimestampLike | None = None) -> V | None:
        """Delete a row. Returns the value that it had, or None."""
        old = self.get(key)
        if old is not None:
            self.put(key, None, timestamp)
        return old


class TimestampedKeyValueStore(KeyValueStore[K, ValueAndTimestamp[V]], Generic[K, V]):
    """A store from key to value and timestamp (Kafka Streams: `TimestampedKeyValueStore`): the store of a table.

    Reads return a `ValueAndTimestamp`. Writes also accept one, or a value with a separate timestamp; default: the current record's.
    """

    def put(self, key: K, value: ValueAndTimestamp[V] | V | None, timestamp: TimestampLike | None = None) -> None:
        bare, time = value_and_time(value, timestamp)
        in_process = self._in_process
        self._store.put(key, bare, in_process.time_of_write(time))
        in_process.changed_for = in_process.record

    def put_if_absent(
        self, key: K, value: ValueAndTimestamp[V] | V | None, timestamp: TimestampLike | None = None
    ) -> ValueAndTimestamp[V] | None:
        """Write unless the key has a value. Returns the value and timestamp that the key had, or None."""
        old = self.get(key)
        if old is None:
            self.put(key, value, timestamp)
        return old


def value_and_time(value: Any, timestamp: TimestampLike | None) -> tuple[Any, TimestampLike | None]:
    """The bare value, and the timestamp from the argument or the value."""
    if not isinstance(value, ValueAndTimestamp):
        return value, timestamp
    return value.value, value.timestamp if timestamp is None else to_timestamp_ms(timestamp)


def _prefix_bytes(name: str, prefix: Any, serde: Serde[Any] | None) -> bytes:
    if serde is not None:
        return serde.serialize(name, prefix) or b""
    if isinstance(prefix, str):
        return prefix.encode()
    if not isinstance(prefix, bytes):
        raise TopologyError(
            f"prefix_scan of the store '{name}' takes bytes or text, not {prefix!r}: for other values give the serde that makes "
            f"their bytes, as in prefix_scan({prefix!r}, Int64Serde())."
        )
    return prefix


# --- The window stores of users: the results of `ctx.store(name)` for `Stores.window_store` and `timestamped_window_store`.


class WindowStore(_UsersStore[K, V]):
    """A store from key and window start to value (Kafka Streams: `WindowStore`).

    With `retain_duplicates` each `put` adds a row, and a key and start may have several rows. A row has the start of its window,
    but not the end, because the store does not know the length of windows. Times are milliseconds, a `datetime`, or a `timedelta`
    since the epoch.

    Rows stay for the store's retention: windows that start before the largest start written minus the retention are deleted, a
    segment at a time.

    Attributes:
        name: The store's name.
    """

    def put(self, key: K, value: V | None, window_start: TimestampLike | None = None) -> None:
        """Write a value; None deletes (but has no effect with `retain_duplicates`)."""
        self._store.put(key, self._start(window_start), value)
        self._in_process.changes()

    @overload
    def fetch(self, key: K, time: TimestampLike) -> V | None: ...
    @overload
    def fetch(self, key: K, time: TimestampLike, time_to: TimestampLike) -> Iterator[tuple[int, V]]: ...
    def fetch(
        self, key: K, time: TimestampLike, time_to: TimestampLike | None = None
    ) -> V | Iterator[tuple[int, V]] | None:
        """With one time, the value of the window that starts then. With two, the windows that start between them."""
        if time_to is not None:
            return self.fetch_range(key, time, time_to)
        found: V | None = self._store.fetch(key, to_timestamp_ms(time))
        return found

    def fetch_range(
        self, key: K, time_from: TimestampLike, time_to: TimestampLike, reverse: bool = False
    ) -> Iterator[tuple[int, V]]:
        """Start and value of a key's windows with time_from <= start <= time_to, the earliest first."""
        found: Iterator[tuple[int, V]] = self._store.fetch_range(key, *_times(time_from, time_to), reverse)
        return found

    def backward_fetch(self, key: K, time_from: TimestampLike, time_to: TimestampLike) -> Iterator[tuple[int, V]]:
        """Start and value of a key's windows with time_from <= start <= time_to, the latest first."""
        return self.fetch_range(key, time_from, time_to, reverse=True)

    def fetch_all(
        self, time_from: TimestampLike, time_to: TimestampLike, reverse: bool = False
    ) -> Iterator[tuple[K, int, V]]:
        """Key, start and value of all windows with time_from <= start <= time_to, by start, then by the keys' bytes."""
        found: Iterator[tuple[K, int, V]] = self._store.fetch_all(*_times(time_from, time_to), reverse)
        return found

    def backward_fetch_all(self, time_from: TimestampLike, time_to: TimestampLike) -> Iterator[tuple[K, int, V]]:
        return self.fetch_all(time_from, time_to, reverse=True)

    def all(self) -> Iterator[tuple[K, int, V]]:
        """Key, start and value of all windows, by start, then by the keys' bytes."""
        return self.fetch_all(0, MAX_TIME)

    def backward_all(self) -> Iterator[tuple[K, int, V]]:
        return self.fetch_all(0, MAX_TIME, reverse=True)

    def _start(self, window_start: TimestampLike | None) -> int:
        try:
            start = self._in_process.time_of_write(window_start)
        except TypeError:
            raise TopologyError(
                f"The store '{self.name}' takes put(key, value, window_start), and {window_start!r} is not a time."
            ) from None
        if start < 0:
            raise TopologyError(f"The store '{self.name}' takes no window that starts before 1970: {start} ms.")
        self._newest = max(self._newest, start)
        return start


class TimestampedWindowStore(WindowStore[K, ValueAndTimestamp[V]], Generic[K, V]):
    """A store from key and window start to value and timestamp (Kafka Streams: `TimestampedWindowStore`), for a windowed table.

    Reads return a `ValueAndTimestamp`. Writes also accept one, or a value with a separate timestamp; default: the current record's.
    """

    def put(
        self,
        key: K,
        value: ValueAndTimestamp[V] | V | None,
        window_start: TimestampLike | None = None,
        timestamp: TimestampLike | None = None,
    ) -> None:
        bare, time = value_and_time(value, timestamp)
        self._store.put(key, self._start(window_start), bare, self._in_process.time_of_write(time))
        self._in_process.changes()


def _times(time_from: TimestampLike, time_to: TimestampLike) -> tuple[int, int]:
    return to_timestamp_ms(time_from), to_timestamp_ms(time_to)


# --- The session store of users: the result of `ctx.store(name)` for `Stores.session_store`.


class SessionStore(_UsersStore[K, V]):
    """A store from key and session to value (Kafka Streams: `SessionStore`).

    A session is a `Window` of its first and last timestamp. Times are milliseconds, a `datetime`, or a `timedelta` since the epoch.

    Rows stay for the store's retention: sessions that end before the latest end written minus the retention are deleted, a
    segment at a time.

    Example:
        >>> sessions: SessionStore[str, int] = self.ctx.store("sessions")
        >>> sessions.put(Windowed(record.key, Window(record.timestamp, record.timestamp)), 1)

    Attributes:
        name: The store's name.
    """

    _store: TypedSessionStore

    @overload
    def put(self, session: Windowed[K], value: V | None, /) -> None: ...
    @overload
    def put(self, key: K, start: TimestampLike, end: TimestampLike, value: V | None, /) -> None: ...
    def put(self, session: Any, *arguments: Any) -> None:
        """Write a session's value; None deletes it. The session is a `Windowed` key, or a key, a start and an end."""
        if len(arguments) == 1:
            key, start, end = self._session(session)
            value = arguments[0]
        elif len(arguments) == 3:
            key, (start, end, value) = session, arguments
        else:
            raise TypeError(
                f"put takes (Windowed(key, Window(start, end)), value) or (key, start, end, value): {self!r}"
            )
        first, last = to_timestamp_ms(start), to_timestamp_ms(end)
        if not 0 <= first <= last:
            raise TopologyError(f"The store '{self.name}' takes no session from {first} to {last} ms.")
        self._newest = max(self._newest, last)
        self._store.put(key, first, last, value)
        self._in_process.changes()

    def remove(self, session: Windowed[K]) -> None:
        key, start, end = self._session(session)
        self._store.put(key, start, end, None)
        self._in_process.changes()

    @overload
    def fetch(self, key: K) -> Iterator[tuple[Window, V]]: ...
    @overload
    def fetch(self, key: K, start: TimestampLike, end: TimestampLike) -> V | None: ...
    def fetch(
        self, key: K, start: TimestampLike | None = None, end: TimestampLike | None = None
    ) -> V | Iterator[tuple[Window, V]] | None:
        """All sessions of a key with their values, by end; with start and end, the value of that one session."""
        if start is None or end is None:
            return self.find_sessions(key)
        return self.fetch_session(key, start, end)

    def backward_fetch(self, key: K) -> Iterator[tuple[Window, V]]:
        """All sessions of a key with their values, the latest first."""
        return self.find_sessions(key, reverse=True)

    def fetch_session(self, key: K, start: TimestampLike, end: TimestampLike) -> V | None:
        """The value of one session, or None."""
        found: V | None = self._store.fetch(key, to_timestamp_ms(start), to_timestamp_ms(end))
        return found

    def find_sessions(
        self,
        key: K,
        earliest_end: TimestampLike = 0,
        latest_start: TimestampLike = MAX_TIME,
        reverse: bool = False,
    ) -> Iterator[tuple[Window, V]]:
        """Sessions of a key with end >= earliest_end and start <= latest_start, by end, then start."""
        return self._store.find_sessions(key, to_timestamp_ms(earliest_end), to_timestamp_ms(latest_start), reverse)

    def backward_find_sessions(
        self, key: K, earliest_end: TimestampLike = 0, latest_start: TimestampLike = MAX_TIME
    ) -> Iterator[tuple[Window, V]]:
        return self.find_sessions(key, earliest_end, latest_start, reverse=True)

    def fetch_all(
        self, from_end: TimestampLike = 0, to_end: TimestampLike = MAX_TIME, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Sessions of all keys with from_end <= end <= to_end, by end, then start, then by the keys' bytes."""
        return self._store.fetch_all(to_timestamp_ms(from_end), to_timestamp_ms(to_end), reverse)

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """All sessions of all keys, by end, then start, then by the keys' bytes."""
        return self.fetch_all()

    def backward_all(self) -> Iterator[tuple[Windowed[K], V]]:
        return self.fetch_all(reverse=True)

    def _session(self, session: Any) -> tuple[Any, int, int]:
        if not isinstance(session, Windowed):
            raise TopologyError(
                f"The store '{self.name}' takes a session as Windowed(key, Window(start, end)), not {session!r}."
            )
        return session.key, session.window.start, session.window.end


# --- The versioned store of users: the result of `ctx.store(name)` for `Stores.versioned_key_value_store`.


class VersionedKeyValueStore(_UsersStore[K, V]):
    """A store from key and time to the value valid at that time (Kafka Streams: `VersionedKeyValueStore`), within its history.

    Times are milliseconds, a `datetime`, or a `timedelta` since the epoch.

    Attributes:
        name: The store's name.
    """

    _store: TypedVersionedStore

    def put(self, key: K, value: V | None, timestamp: TimestampLike | None = None) -> int:
        """Write a version that is valid from the timestamp on, by default the current record's; None deletes from then on."""
        valid_to = self._store.put(key, value, self._in_process.time_of_write(timestamp))
        self._in_process.changes()
        return valid_to

    def delete(self, key: K, timestamp: TimestampLike | None = None) -> ValueAndTimestamp[V] | None:
        """Delete a key from a time on. Returns the value valid at that time, and its timestamp."""
        time = self._in_process.time_of_write(timestamp)
        old = self.get(key, time)
        self._store.put(key, None, time)
        self._in_process.changes()
        return old

    def get(self, key: K, as_of: TimestampLike | None = None) -> ValueAndTimestamp[V] | None:
        """The newest value and its time, or those valid at `as_of`; None if there was no value, or it was deleted."""
        return self._store.get(key, None if as_of is None else to_timestamp_ms(as_of))
