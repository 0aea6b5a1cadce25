"""Serdes of a foreign-key join: the messages between its tasks, and the keys of its subscription store.

The formats follow Kafka Streams' `SubscriptionWrapperSerde`, `SubscriptionResponseWrapperSerde` and `CombinedKeySchema`, but only
this engine reads them. The hash of the left value identifies a response to an outdated subscription.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from streams.model.foreign_key import CombinedKey, Response, Subscription
from streams.serdes.base import Headers, Serde, cannot_deserialize, cannot_serialize
from streams.serdes.columns import write_all

_LENGTH = struct.Struct(">i")
_NO_HASH, _NO_VALUE = 0x80, 0x40
_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class SubscriptionSerde(Serde[Subscription]):
    """`flags(1) ∥ instruction(1) ∥ hash(16) or nothing ∥ primary key`.

    Attributes:
        primary_key: Serde of the left table's keys.
    """

    primary_key: Serde

    def serialize(self, topic: str, value: Subscription | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `Subscription`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, Subscription):
            raise cannot_serialize(self, topic, value)
        flags = _NO_HASH if value.hash is None else 0
        key = self.primary_key.serialize(topic, value.primary_key, headers)
        if key is None:
            raise cannot_serialize(self, topic, value, "no primary key")
        return bytes((flags, value.instruction)) + (value.hash or b"") + key

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Subscription | None:
        """The `Subscription`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        at = 2 if len(data) > 1 and data[0] & _NO_HASH else 2 + _HASH_BYTES
        if len(data) < at:
            raise cannot_deserialize(self, topic, data, "cut off")
        return Subscription(data[2:at] or None, data[1], self.primary_key.deserialize(topic, data[at:], headers))


@dataclass(frozen=True, slots=True)
class ResponseSerde(Serde[Response]):
    """`flags(1) ∥ hash(16) or nothing ∥ right value or nothing`.

    Attributes:
        value: Serde of the right table's values.
    """

    value: Serde

    def serialize(self, topic: str, value: Response | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `Response`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, Response):
            raise cannot_serialize(self, topic, value)
        data = self.value.serialize(topic, value.value, headers)
        flags = (_NO_HASH if value.hash is None else 0) | (_NO_VALUE if data is None else 0)
        return bytes((flags,)) + (value.hash or b"") + (data or b"")

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Response | None:
        """The `Response`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        at = 1 if data and data[0] & _NO_HASH else 1 + _HASH_BYTES
        if len(data) < at:
            raise cannot_deserialize(self, topic, data, "cut off")
        value = None if data[0] & _NO_VALUE else self.value.deserialize(topic, data[at:], headers)
        return Response(data[1:at] or None, value)


def subscription_cells(asked: Iterable[Subscription], keys: Iterable[bytes]) -> list[bytes]:
    """Many subscriptions as bytes, as from `SubscriptionSerde`.

    Args:
        asked: The subscriptions.
        keys: The bytes of their primary keys.
    """
    return [
        (bytes((_NO_HASH, one.instruction)) if one.hash is None else bytes((0, one.instruction)) + one.hash) + key
        for one, key in zip(asked, keys, strict=True)
    ]


def subscription_hashes(cells: Iterable[bytes]) -> list[bytes | None]:
    """The hashes in many subscriptions."""
    return [None if cell[0] & _NO_HASH else cell[2 : 2 + _HASH_BYTES] for cell in cells]


def response_cells(hashes: Iterable[bytes | None], values: Iterable[bytes | None]) -> list[bytes]:
    """Many responses as bytes, as from `ResponseSerde`.

    Args:
        hashes: Their hashes.
        values: The bytes of the right values.
    """
    return [
        bytes(((_NO_HASH if one is None else 0) | (_NO_VALUE if value is None else 0),)) + (one or b"") + (value or b"")
        for one, value in zip(hashes, values, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class CombinedKeySerde(Serde[CombinedKey]):
    """`length of foreign key(4) ∥ foreign key ∥ primary key`: all rows of a foreign key are adjacent.

    Attributes:
        foreign_key: Serde of the right table's keys.
        primary_key: Serde of the left table's keys.
    """

    foreign_key: Serde
    primary_key: Serde

    def prefix(self, topic: str, key: Any) -> bytes:
        """The common prefix of all rows of a foreign key."""
        data = self.foreign_key.serialize(topic, key)
        if data is None:
            raise cannot_serialize(self, topic, key, "no foreign key")
        return _LENGTH.pack(len(data)) + data

    def prefixes(self, topic: str, keys: Sequence[Any]) -> list[bytes]:
        """`prefix` for many keys."""
        cells = write_all(self.foreign_key, topic, keys)
        if None in cells:
            raise cannot_serialize(self, topic, keys[cells.index(None)], "no foreign key")
        return [_LENGTH.pack(len(cell)) + cell for cell in cast("list[bytes]", cells)]

    def primary_keys(self, topic: str, keys: Sequence[Any]) -> list[bytes]:
        """The bytes of many primary keys."""
        cells = write_all(self.primary_key, topic, keys)
        if None in cells:
            raise cannot_serialize(self, topic, keys[cells.index(None)], "no primary key")
        return cast("list[bytes]", cells)

    def serialize(self, topic: str, value: CombinedKey | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `CombinedKey`. Raises `SerdeError` for anything else."""
        if not isinstance(value, CombinedKey):
            raise cannot_serialize(self, topic, value)
        primary = self.primary_key.serialize(topic, value.primary, headers)
        if primary is None:
            raise cannot_serialize(self, topic, value, "no primary key")
        return self.prefix(topic, value.foreign) + primary

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> CombinedKey | None:
        """The `CombinedKey`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < _LENGTH.size or len(data) < (end := _LENGTH.size + _LENGTH.unpack_from(data)[0]):
            raise cannot_deserialize(self, topic, data, "cut off")
        foreign = self.foreign_key.deserialize(topic, data[_LENGTH.size : end], headers)
        return CombinedKey(foreign, self.primary_key.deserialize(topic, data[end:], headers))
