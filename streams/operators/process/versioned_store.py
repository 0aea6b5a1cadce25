"""The versioned store of users: the result of `ctx.store(name)` for `Stores.versioned_key_value_store`."""

from __future__ import annotations

from typing import Generic

from streams.model.conversions import TimestampLike, to_timestamp_ms
from streams.model.record import ValueAndTimestamp
from streams.model.typing import K, V
from streams.operators.process.in_process import InProcess
from streams.operators.stores.versioned import TypedVersionedStore


class VersionedKeyValueStore(Generic[K, V]):
    """A store from key and time to the value valid then (Kafka Streams: `VersionedKeyValueStore`), within the history's length.

    Times are milliseconds, a `datetime`, or a `timedelta` since the epoch.

    Attributes:
        name: The store's name.
    """

    def __init__(self, name: str, store: TypedVersionedStore, in_process: InProcess) -> None:
        self.name = name
        self._store = store
        self._in_process = in_process

    def put(self, key: K, value: V | None, timestamp: TimestampLike | None = None) -> int:
        """Write a version; None = deleted from the timestamp on, which defaults to that of the current record."""
        return self._store.put(key, value, self._in_process.time_of_write(timestamp))

    def delete(self, key: K, timestamp: TimestampLike | None = None) -> ValueAndTimestamp[V] | None:
        """Delete a key from a time on; returns the value valid at that time, and its timestamp."""
        time = self._in_process.time_of_write(timestamp)
        old = self.get(key, time)
        self._store.put(key, None, time)
        return old

    def get(self, key: K, as_of: TimestampLike | None = None) -> ValueAndTimestamp[V] | None:
        """The newest value and its time, or those valid at `as_of`. None if there was none, or a deletion."""
        return self._store.get(key, None if as_of is None else to_timestamp_ms(as_of))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
