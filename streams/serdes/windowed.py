"""Serdes of windowed keys in Kafka Streams' format: the key, followed by the window's bounds as 8 bytes each.

Time windows are written with their start only, so a reader must know their size; sessions are written with both bounds (end first).
Records are partitioned by the inner key, so that all windows of a key stay together (`WindowedStreamPartitioner`).
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from streams.errors import TopologyError
from streams.model.record import Window, Windowed
from streams.model.times import MAX_TIME
from streams.model.windows import Duration, Windows, to_ms
from streams.serdes.base import Headers, Serde, T, cannot_deserialize, cannot_serialize, check_serde, serde_identity

_START = struct.Struct(">q")
_END_START = struct.Struct(">qq")


class _ByStart(Serde[Windowed[T]]):
    """`Windowed` keys without the windows' ends, `key ∥ start(8)`: a reader computes them."""

    __slots__ = ()
    inner: Serde[T]

    @abstractmethod
    def _end(self, start: int) -> int:
        """The end of the window that begins at a time."""

    def serialize(self, topic: str, value: Windowed[T] | None, headers: Headers = None) -> bytes | None:
        """Key and start. Raises `SerdeError` for anything but a `Windowed`."""
        return (
            None if value is None else self.serialize_base_key(topic, value, headers) + _START.pack(value.window.start)
        )

    def serialize_base_key(self, topic: str, value: Windowed[T] | None, headers: Headers = None) -> bytes:
        """The inner key's bytes: what a record is partitioned by."""
        return _base_key(self, self.inner, topic, value, headers)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Windowed[T] | None:
        """Key and window. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < _START.size:
            raise cannot_deserialize(self, topic, data, "a window's start alone takes 8 bytes")
        (start,) = _START.unpack_from(data, len(data) - _START.size)
        key: Any = self.inner.deserialize(topic, data[: -_START.size], headers)
        return Windowed(key, Window(start, self._end(start)))


@dataclass(frozen=True, slots=True, init=False)
class TimeWindowedSerde(_ByStart[T]):
    """`Windowed` keys of tumbling and hopping windows: `key ∥ start(8)`.

    Example::

        TimeWindowedSerde(StringSerde(), timedelta(hours=1))

    Attributes:
        inner: The serde of the key without its window.
        size_ms: The windows' size; if not given, windows are read with the largest possible end. The constructor takes a
            `timedelta` or ms.

    Raises:
        TopologyError: `inner` is no serde, or the size is negative.
    """

    inner: Serde[T]
    size_ms: int | None

    def __init__(self, inner: Serde[T], size_ms: Duration | None = None) -> None:
        check_serde(inner, "TimeWindowedSerde(inner)")
        size = None if size_ms is None else to_ms(size_ms, "The size of TimeWindowedSerde's windows")
        if size is not None and size < 0:
            raise TopologyError(f"TimeWindowedSerde(size_ms={size_ms!r}): the size of a window is not negative.")
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "size_ms", size)

    def _end(self, start: int) -> int:
        return MAX_TIME if self.size_ms is None else start + self.size_ms


@dataclass(frozen=True, slots=True)
class CustomWindowedSerde(_ByStart[T]):
    """`Windowed` keys of windows that compute their own ends: `key ∥ start(8)`, like all time windows.

    Attributes:
        inner: The serde of the key without its window.
        windows: The windows, which compute the ends.
    """

    inner: Serde[T]
    windows: Windows

    def _end(self, start: int) -> int:
        return self.windows.end_of(start)

    def identity(self) -> str:
        """The key's format and the windows; user-defined windows are identified by their `repr`."""
        return f"{type(self).__qualname__}(inner={serde_identity(self.inner)}, windows={self.windows!r})"


@dataclass(frozen=True, slots=True)
class SessionWindowedSerde(Serde[Windowed[T]]):
    """`Windowed` keys of sessions: `key ∥ end(8) ∥ start(8)`.

    Attributes:
        inner: The serde of the key without its window.
    """

    inner: Serde[T]

    def __post_init__(self) -> None:
        check_serde(self.inner, "SessionWindowedSerde(inner)")

    def serialize(self, topic: str, value: Windowed[T] | None, headers: Headers = None) -> bytes | None:
        """Key, end and start. Raises `SerdeError` for anything but a `Windowed`."""
        if value is None:
            return None
        base = self.serialize_base_key(topic, value, headers)
        return base + _END_START.pack(value.window.end, value.window.start)

    def serialize_base_key(self, topic: str, value: Windowed[T] | None, headers: Headers = None) -> bytes:
        """The inner key's bytes: what a record is partitioned by."""
        return _base_key(self, self.inner, topic, value, headers)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Windowed[T] | None:
        """Key and window. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < _END_START.size:
            raise cannot_deserialize(self, topic, data, "a session's bounds alone take 16 bytes")
        end, start = _END_START.unpack_from(data, len(data) - _END_START.size)
        key: Any = self.inner.deserialize(topic, data[: -_END_START.size], headers)
        return Windowed(key, Window(start, end))


def _base_key(serde: object, inner: Serde[T], topic: str, value: Windowed[T] | None, headers: Headers) -> bytes:
    if not isinstance(value, Windowed):
        raise cannot_serialize(serde, topic, value)
    key = inner.serialize(topic, value.key, headers)
    if key is None:
        raise cannot_serialize(serde, topic, value, "a windowed key cannot be null")
    return key
