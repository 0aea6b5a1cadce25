"""Serdes of windowed keys, as Kafka Streams writes them to topics: the key, then the window's bounds as 8 bytes each.

What differs between the two: a reader of time windows must know their size, a session carries both bounds (end first).
Partitioning goes by the inner key, so that all windows of a key stay together (``WindowedStreamPartitioner``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Protocol

from streams.model.record import Window, Windowed
from streams.serdes.base import Headers, Serde, cannot_deserialize, cannot_serialize, serde_identity

_START = struct.Struct(">q")
_END_START = struct.Struct(">qq")
_MAX_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimeWindowedSerde:
    """``Windowed`` keys of tumbling and hopping windows: ``key ∥ start(8)``.

    Attributes:
        inner: serde of the key within.
        size_ms: the windows' size; where it is not known, ends are read as far in the future as can be.
    """

    inner: Serde
    size_ms: int | None = None

    def serialize(self, topic: str, value: Any, headers: Headers = None) -> bytes | None:
        """Key and start. Raises ``SerdeError`` for anything but a ``Windowed``."""
        if value is None:
            return None
        return self.serialize_base_key(topic, value, headers) + _START.pack(value.window.start)

    def serialize_base_key(self, topic: str, value: Any, headers: Headers = None) -> bytes:
        """The inner key's bytes: what a record is partitioned by."""
        return _base_key(self, self.inner, topic, value, headers)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Windowed | None:
        """Key and window. Raises ``SerdeError`` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < _START.size:
            raise cannot_deserialize(self, topic, data, "a window's start alone takes 8 bytes")
        (start,) = _START.unpack_from(data, len(data) - _START.size)
        end = _MAX_TIME if self.size_ms is None else start + self.size_ms
        return Windowed(self.inner.deserialize(topic, data[: -_START.size], headers), Window(start, end))


class _HasEnds(Protocol):
    """Windows that are known by their start."""

    def end_of(self, start: int) -> int:
        """End of the window that begins at ``start``."""
        ...


@dataclass(frozen=True, slots=True)
class CustomWindowedSerde:
    """``Windowed`` keys of windows whose ends only they themselves know: ``key ∥ start(8)``, as all time windows.

    Attributes:
        inner: serde of the key within.
        windows: gives the ends.
    """

    inner: Serde
    windows: _HasEnds

    def serialize(self, topic: str, value: Any, headers: Headers = None) -> bytes | None:
        """Key and start. Raises ``SerdeError`` for anything but a ``Windowed``."""
        return TimeWindowedSerde(self.inner).serialize(topic, value, headers)

    def serialize_base_key(self, topic: str, value: Any, headers: Headers = None) -> bytes:
        """The inner key's bytes: what a record is partitioned by."""
        return _base_key(self, self.inner, topic, value, headers)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Windowed | None:
        """Key and window. Raises ``SerdeError`` if the bytes are too few."""
        found = TimeWindowedSerde(self.inner).deserialize(topic, data, headers)
        if found is None:
            return None
        start = found.window.start
        return Windowed(found.key, Window(start, self.windows.end_of(start)))

    def identity(self) -> str:
        """The key's format, and which windows: windows of one's own say by their ``repr`` what they are."""
        return f"{type(self).__qualname__}(inner={serde_identity(self.inner)}, windows={self.windows!r})"


@dataclass(frozen=True, slots=True)
class SessionWindowedSerde:
    """``Windowed`` keys of sessions: ``key ∥ end(8) ∥ start(8)``."""

    inner: Serde

    def serialize(self, topic: str, value: Any, headers: Headers = None) -> bytes | None:
        """Key, end and start. Raises ``SerdeError`` for anything but a ``Windowed``."""
        if value is None:
            return None
        base = self.serialize_base_key(topic, value, headers)
        return base + _END_START.pack(value.window.end, value.window.start)

    def serialize_base_key(self, topic: str, value: Any, headers: Headers = None) -> bytes:
        """The inner key's bytes: what a record is partitioned by."""
        return _base_key(self, self.inner, topic, value, headers)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Windowed | None:
        """Key and window. Raises ``SerdeError`` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < _END_START.size:
            raise cannot_deserialize(self, topic, data, "a session's bounds alone take 16 bytes")
        end, start = _END_START.unpack_from(data, len(data) - _END_START.size)
        return Windowed(self.inner.deserialize(topic, data[: -_END_START.size], headers), Window(start, end))


def _base_key(serde: object, inner: Serde, topic: str, value: Any, headers: Headers) -> bytes:
    if not isinstance(value, Windowed):
        raise cannot_serialize(serde, topic, value)
    key = inner.serialize(topic, value.key, headers)
    if key is None:
        raise cannot_serialize(serde, topic, value, "a windowed key cannot be null")
    return key
