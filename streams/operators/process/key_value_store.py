"""The key-value stores of users: `ctx.store(name)` for `Stores.key_value_store` and `timestamped_key_value_store`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol

from streams.errors import TopologyError
from streams.model.conversions import TimestampLike, to_timestamp_ms
from streams.model.record import ValueAndTimestamp
from streams.model.typing import K, V
from streams.operators.process.in_process import InProcess
from streams.serdes.base import Serde


class _Rows(Protocol):
    """The common interface of `TypedKeyValueStore` and `TypedTimestampedKeyValueStore`."""

    def get(self, key: Any) -> Any: ...
    def put(self, key: Any, value: Any, timestamp: int) -> None: ...
    def range(self, lower: Any, upper: Any, reverse: bool = False) -> Iterator[tuple[Any, Any]]: ...
    def prefix(self, prefix: bytes) -> Iterator[tuple[Any, Any]]: ...
    def all(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]: ...
    def count(self) -> int: ...


class ReadOnlyKeyValueStore(Generic[K, V]):
    """A read-only store from key to value (Kafka Streams: `ReadOnlyKeyValueStore`).

    Scans go in the order of the keys' bytes, which for text is that of its code points and for the number serdes that of numbers
    >= 0. A scan reads the store as of its beginning, so rows may be written and deleted meanwhile.

    Attributes:
        name: The store's name.
    """

    def __init__(self, name: str, store: _Rows) -> None:
        self.name = name
        self._store = store

    def get(self, key: K) -> V | None:
        found: V | None = self._store.get(key)
        return found

    def range(self, lower: K | None = None, upper: K | None = None, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Rows with lower <= key <= upper; None = open."""
        return self._store.range(lower, upper, reverse)

    def reverse_range(self, lower: K | None = None, upper: K | None = None) -> Iterator[tuple[K, V]]:
        return self._store.range(lower, upper, reverse=True)

    def all(self, reverse: bool = False) -> Iterator[tuple[K, V]]:
        return self._store.all(reverse)

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        return self._store.all(reverse=True)

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[K, V]]:
        """Rows whose keys' bytes start with those of the prefix."""
        return self._store.prefix(_prefix_bytes(self.name, prefix, serde))

    def prefix(self, prefix: bytes) -> Iterator[tuple[K, V]]:
        return self._store.prefix(prefix)

    def approximate_num_entries(self) -> int:
        """The number of rows; exact here, at the cost of a scan of the store."""
        return self._store.count()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class GlobalKeyValueStore(ReadOnlyKeyValueStore[K, V]):
    """A global store as seen by tasks: read-only, because a write would change only the copy of the task's process.

    The values of a timestamped one are `ValueAndTimestamp`.
    """

    def __getattr__(self, name: str) -> Any:
        if hasattr(KeyValueStore, name):
            raise TopologyError(f"The global store '{self.name}' can only be read here: it holds what its topic says.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


def typed_store_of(store: Any) -> Any:
    """The store behind a global one, for operators that look up the keys of many records at once; others are given back."""
    return store._store if isinstance(store, GlobalKeyValueStore) else store


class KeyValueStore(ReadOnlyKeyValueStore[K, V]):
    """A store from key to value (Kafka Streams: `KeyValueStore`).

    A write without a timestamp gets that of the current record, or the time of the punctuation. The timestamp becomes that of
    the changelog record; timestamps are milliseconds, a `datetime`, or a `timedelta` since the epoch.

    Example:
        >>> seen: KeyValueStore[str, int] = self.ctx.store("seen")
        >>> seen.put(record.key, (seen.get(record.key) or 0) + 1)
    """

    def __init__(self, name: str, store: _Rows, in_process: InProcess) -> None:
        super().__init__(name, store)
        self._in_process = in_process

    def put(self, key: K, value: V | None, timestamp: TimestampLike | None = None) -> None:
        self._store.put(key, value, self._in_process.time_of_write(timestamp))

    def put_if_absent(self, key: K, value: V | None, timestamp: TimestampLike | None = None) -> V | None:
        """Write unless the key has a value; returns the value that the key had, None if there was none."""
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
        """Delete a row; returns the value that it had, None if there was none."""
        old = self.get(key)
        if old is not None:
            self.put(key, None, timestamp)
        return old


class TimestampedKeyValueStore(KeyValueStore[K, ValueAndTimestamp[V]], Generic[K, V]):
    """A store from key to value and timestamp (Kafka Streams: `TimestampedKeyValueStore`): the store of a table.

    Reads return a `ValueAndTimestamp`. Writes take one too, or a value, with its timestamp as an argument or by default that of the
    current record.
    """

    def put(self, key: K, value: ValueAndTimestamp[V] | V | None, timestamp: TimestampLike | None = None) -> None:
        bare, time = value_and_time(value, timestamp)
        self._store.put(key, bare, self._in_process.time_of_write(time))

    def put_if_absent(
        self, key: K, value: ValueAndTimestamp[V] | V | None, timestamp: TimestampLike | None = None
    ) -> ValueAndTimestamp[V] | None:
        """Write unless the key has a value; returns the value and timestamp that the key had, None if there was none."""
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
