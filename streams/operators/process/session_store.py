"""The session store of users: the result of `ctx.store(name)` for `Stores.session_store`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, overload

from state.stores.codec import MAX_TIME
from streams.errors import TopologyError
from streams.model.conversions import TimestampLike, to_timestamp_ms
from streams.model.record import Window, Windowed
from streams.model.typing import K, V
from streams.operators.stores.session import TypedSessionStore


class SessionStore(Generic[K, V]):
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

    def __init__(self, name: str, store: TypedSessionStore) -> None:
        self.name = name
        self._store = store
        self._newest = -1

    @overload
    def put(self, session: Windowed[K], value: V | None, /) -> None: ...

    @overload
    def put(self, key: K, start: TimestampLike, end: TimestampLike, value: V | None, /) -> None: ...

    def put(self, session: Any, *arguments: Any) -> None:
        """Write a session's value; None deletes it. The session is a `Windowed` key, or key, start and end."""
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

    def remove(self, session: Windowed[K]) -> None:
        key, start, end = self._session(session)
        self._store.put(key, start, end, None)

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _session(self, session: Any) -> tuple[Any, int, int]:
        if not isinstance(session, Windowed):
            raise TopologyError(
                f"The store '{self.name}' takes a session as Windowed(key, Window(start, end)), not {session!r}."
            )
        return session.key, session.window.start, session.window.end
