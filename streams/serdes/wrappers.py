"""Serdes around other serdes: of windowed keys, and `VersionedSerde` of values with a version.

Windowed keys are in Kafka Streams' format: the key, followed by the window's bounds as 8 bytes each. Time windows are written with
their start only, so a reader must know their size; sessions are written with both bounds (end first). Records are partitioned by
the inner key, so that all windows of a key stay together (`WindowedStreamPartitioner`).
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Self

from streams.errors import TopologyError
from streams.model.record import MAX_TIME, Window, Windowed
from streams.model.windows import Duration, Windows, to_ms
from streams.serdes.base import (
    Headers,
    Serde,
    T,
    cannot_deserialize,
    cannot_serialize,
    check_serde,
    kept_parts,
    serde_identity,
)

_START = struct.Struct(">q")
_END_START = struct.Struct(">qq")


class _WindowedKeys(Serde[Windowed[T]]):
    __slots__ = ()
    inner: Serde[T]

    def kept(self) -> Self:
        """The same serde around a `kept` serde."""
        return kept_parts(self)

    def serialize_base_key(self, topic: str, value: Windowed[T] | None, headers: Headers = None) -> bytes:
        """The inner key's bytes: what a record is partitioned by."""
        if not isinstance(value, Windowed):
            raise cannot_serialize(self, topic, value)
        key = self.inner.serialize(topic, value.key, headers)
        if key is None:
            raise cannot_serialize(self, topic, value, "a windowed key cannot be null")
        return key


class _ByStart(_WindowedKeys[T]):
    """`Windowed` keys without the windows' ends, `key ∥ start(8)`: a reader computes them."""

    __slots__ = ()

    @abstractmethod
    def _end(self, start: int) -> int:
        """The end of the window that begins at a time."""

    def serialize(self, topic: str, value: Windowed[T] | None, headers: Headers = None) -> bytes | None:
        """Key and start. Raises `SerdeError` for anything but a `Windowed`."""
        return (
            None if value is None else self.serialize_base_key(topic, value, headers) + _START.pack(value.window.start)
        )

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

    For example:

        TimeWindowedSerde(StringSerde(), timedelta(hours=1))

    Attributes:
        inner: The serde of the key without its window.
        size_ms: The windows' size; if not given, windows are read with the largest possible end. The constructor takes a
            `timedelta` or ms.

    Raises:
        TopologyError: `inner` is not a serde, or the size is negative.
    """

    inner: Serde[T]
    size_ms: int | None

    def __init__(self, inner: Serde[T], size_ms: Duration | None = None) -> None:
        check_serde(inner, "TimeWindowedSerde(inner)")
        size = None if size_ms is None else to_ms(size_ms, "The size of TimeWindowedSerde's windows")
        if size is not None and size < 0:
            raise TopologyError(f"TimeWindowedSerde(size_ms={size_ms!r}): the size of a window must not be negative.")
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
class SessionWindowedSerde(_WindowedKeys[T]):
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

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Windowed[T] | None:
        """Key and window. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < _END_START.size:
            raise cannot_deserialize(self, topic, data, "a session's bounds alone take 16 bytes")
        end, start = _END_START.unpack_from(data, len(data) - _END_START.size)
        key: Any = self.inner.deserialize(topic, data[: -_END_START.size], headers)
        return Windowed(key, Window(start, end))


# --- `VersionedSerde`: stored values with a version tag, and functions that convert old versions to new ones.
#
# State outlives the program: stores and changelogs have values that an older program wrote. `VersionedSerde` wraps the serde of a
# store's values, tags each written value with a version, and upcasts each value read, so that operators only ever see the newest
# form. Nothing is rewritten ahead of time: a row gets the new form when it is next written.
#
# Invariants: version 0 is the inner serde's format without a tag, so state from before the wrapper stays readable; the wrapper is
# not part of the topology hash, so a new version can use the old state; an older program refuses values of a newer one.

_TAG = b"\xff\xfeSTREAMS"
"""It cannot be a text (0xff is not UTF-8) or a registry's value (those begin with 0), and is longer than any number."""
_HIGHEST = 255

Upcaster = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class VersionedSerde(Serde[T]):
    """The bytes of `inner`, prefixed with `0xff 0xfe 'STREAMS' version(1)` from version 1 on.

    For example:

        def with_currency(order):                    # version 0 -> 1
            return {**order, "currency": "EUR"}

        def in_cents(order):                         # version 1 -> 2
            return {**order, "price": round(order["price"] * 100)}

        serde = VersionedSerde(JsonSerde(), version=2, upcasters={1: with_currency, 2: in_cents})
        Materialized(name="orders", value_serde=serde)

    Attributes:
        inner: The serde of the values themselves, the same for all versions.
        version: The version of written values, 0 to 255.
        upcasters: Version -> function that converts a value of the previous version to this one. Old functions may be
            removed once no older value is left.

    Raises:
        TopologyError: A version is out of range, or an upcaster is missing.
    """

    inner: Serde[T]
    version: int
    upcasters: Mapping[int, Upcaster] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_serde(self.inner, "VersionedSerde(inner)")
        if not 0 <= self.version <= _HIGHEST:
            raise TopologyError(f"VersionedSerde(version={self.version}): a version is a number from 0 to {_HIGHEST}.")
        known = sorted(self.upcasters)
        if known != list(range(self.version - len(known) + 1, self.version + 1)) or (known and known[0] < 1):
            raise TopologyError(
                f"VersionedSerde(version={self.version}) has upcasters to the versions {known}: give one to each version "
                f"from the oldest you still read, up to {self.version}, without gaps."
            )

    def kept(self) -> VersionedSerde[T]:
        """The same serde around a `kept` serde."""
        return kept_parts(self)

    def serialize(self, topic: str, value: T | None, headers: Headers = None) -> bytes | None:
        """The value, tagged with the version. Raises `SerdeError` as the inner serde does."""
        data = self.inner.serialize(topic, value, headers)
        # Version 0 has no tag, unless its bytes could be taken for one.
        if data is None or (self.version == 0 and not data.startswith(_TAG)):
            return data
        return b"".join((_TAG, bytes((self.version,)), data))

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> T | None:
        """The value in its newest form.

        Raises:
            SerdeError: A newer program wrote the value, or an upcaster is missing or has failed.
        """
        if data is None:
            return None
        version, inner = 0, data
        if data.startswith(_TAG) and len(data) > len(_TAG):
            version, inner = data[len(_TAG)], data[len(_TAG) + 1 :]
        if version > self.version:
            raise cannot_deserialize(
                self, topic, data, f"a newer program wrote it: version {version}, this one knows up to {self.version}"
            )
        value: Any = self.inner.deserialize(topic, inner, headers)
        for step in range(version + 1, self.version + 1):
            value = self._upcast(topic, data, value, step)
        newest: T | None = value
        return newest

    def _upcast(self, topic: str, data: bytes, value: Any, to: int) -> Any:
        if value is None:  # JSON's null
            return None
        upcaster = self.upcasters.get(to)
        if upcaster is None:
            raise cannot_deserialize(
                self, topic, data, f"it is of version {to - 1}, and no upcaster makes {to} of that"
            )
        try:
            return upcaster(value)
        except Exception as error:
            why = f"the upcaster to version {to} failed with {type(error).__name__}: {error}"
            raise cannot_deserialize(self, topic, data, why) from error

    def identity(self) -> str:
        """The identity of the inner serde, since all versions are one format of a store."""
        return serde_identity(self.inner)
