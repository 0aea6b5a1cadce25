"""The window stores of users: the results of `ctx.store(name)` for `Stores.window_store` and `timestamped_window_store`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, overload

from state.stores.codec import MAX_TIME
from streams.errors import TopologyError
from streams.model.conversions import TimestampLike, to_timestamp_ms
from streams.model.record import ValueAndTimestamp
from streams.model.typing import K, V
from streams.operators.process.in_process import InProcess
from streams.operators.process.key_value_store import value_and_time
from streams.operators.stores.window import TypedTimestampedWindowStore, TypedWindowStore


class WindowStore(Generic[K, V]):
    """A store from key and window start to value (Kafka Streams: `WindowStore`).

    With `retain_duplicates` each `put` adds a row, and a key and start may have several. A row has the start of its window, not the
    end, because the store does not know the length of windows. Times are milliseconds, a `datetime`, or a `timedelta` since
    the epoch.

    Rows stay for the store's retention: windows that start before the largest start written minus the retention are deleted, a
    segment at a time.

    Attributes:
        name: The store's name.
    """

    def __init__(self, name: str, store: TypedWindowStore | TypedTimestampedWindowStore, in_process: InProcess) -> None:
        self.name = name
        self._store: Any = store
        self._in_process = in_process
        self._newest = -1

    def put(self, key: K, value: V | None, window_start: TimestampLike | None = None) -> None:
        """Write; None deletes (but has no effect with `retain_duplicates`)."""
        self._store.put(key, self._start(window_start), value)

    @overload
    def fetch(self, key: K, time: TimestampLike) -> V | None: ...

    @overload
    def fetch(self, key: K, time: TimestampLike, time_to: TimestampLike) -> Iterator[tuple[int, V]]: ...

    def fetch(
        self, key: K, time: TimestampLike, time_to: TimestampLike | None = None
    ) -> V | Iterator[tuple[int, V]] | None:
        """With one time, the value of the window that starts then; with two, the windows that start in between."""
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _start(self, window_start: TimestampLike | None) -> int:
        try:
            start = self._in_process.time_of_write(window_start)
        except TypeError:
            raise TopologyError(
                f"The store '{self.name}' takes put(key, value, window_start), and {window_start!r} is no time."
            ) from None
        if start < 0:
            raise TopologyError(f"The store '{self.name}' takes no window that starts before 1970: {start} ms.")
        self._newest = max(self._newest, start)
        return start


class TimestampedWindowStore(WindowStore[K, ValueAndTimestamp[V]], Generic[K, V]):
    """A store from key and window start to value and timestamp (Kafka Streams: `TimestampedWindowStore`), for a windowed table.

    Reads return a `ValueAndTimestamp`. Writes take one too, or a value, with its timestamp as an argument or by default that of the
    current record.
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


def _times(time_from: TimestampLike, time_to: TimestampLike) -> tuple[int, int]:
    return to_timestamp_ms(time_from), to_timestamp_ms(time_to)
