"""Serdes of the internal topics and stores of operators: table updates, foreign-key joins, and records that wait in a store."""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import Self

from state.headers import decode_headers, encode_headers
from state.stores.buffer_values import BUFFERED_KEY, BUFFERED_KEY_BYTES, LENGTH, buffered_record, buffered_value
from state.stores.spec import HASH_BYTES, NO_HASH, PARTITION_BYTES, SUBSCRIPTION_VERSIONS
from state.stores.unmatched_lists import TIME_SIDE, ListedRecord, local_value, records_in, split_row
from streams.model.record import (
    LEFT,
    Change,
    CombinedKey,
    Response,
    Subscription,
    UnmatchedKey,
    ValueAndHeaders,
    WaitingKey,
    WaitingRecord,
)
from streams.serdes.base import Headers, Serde, T, cannot_deserialize, cannot_serialize, kept_parts


class _Internal(Serde[T]):
    """A serde of the engine's own objects, all of one class."""

    __slots__ = ()
    holds: ClassVar[type[Any]]
    takes: ClassVar[str] = ""
    """A hint for an error about an object of another class."""

    def kept(self) -> Self:
        """The same serde, whose parts are the `kept` of its serdes."""
        return kept_parts(self)

    def serialize(self, topic: str, value: T | None, headers: Headers = None) -> bytes | None:
        """Bytes of an object of the class. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, self.holds):
            raise cannot_serialize(self, topic, value, self.takes)
        return self._bytes_of(topic, value, headers)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> T | None:
        """The object. Raises `SerdeError` for invalid bytes."""
        return None if data is None else self._object_of(topic, data, headers)

    @abstractmethod
    def _bytes_of(self, topic: str, value: Any, headers: Headers) -> bytes | None: ...

    @abstractmethod
    def _object_of(self, topic: str, data: bytes, headers: Headers) -> T: ...


_OLD, _NEW, _BOTH = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ChangeSerde(_Internal[Change]):
    """`new ∥ 0x01`, `old ∥ 0x00`, or `varint(length of new) ∥ new ∥ old ∥ 0x02` (`ChangedSerializer`, KIP-904).

    Attributes:
        inner: Serde of the values.
    """

    holds = Change

    inner: Serde

    def _bytes_of(self, topic: str, value: Change, headers: Headers) -> bytes:
        new = self.inner.serialize(topic, value.new, headers)
        old = self.inner.serialize(topic, value.old, headers)
        if new is not None and old is not None:
            return b"".join((_varint(len(new)), new, old, bytes((_BOTH,))))
        if new is not None:
            return new + bytes((_NEW,))
        if old is None:
            raise cannot_serialize(self, topic, value, "neither a new nor an old value")
        return old + bytes((_OLD,))

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> Change:
        kind = data[-1] if data else -1
        if kind == _BOTH:
            length, at = _read_varint(data)
            new, old = data[at : at + length], data[at + length : -1]
            return Change(self._read(topic, new, headers), self._read(topic, old, headers))
        if kind not in (_OLD, _NEW):
            raise cannot_deserialize(self, topic, data, "the last byte must be 0, 1 or 2")
        value = self._read(topic, data[:-1], headers)
        return Change(value, None) if kind == _NEW else Change(None, value)

    def _read(self, topic: str, data: bytes, headers: Headers) -> Any:
        return self.inner.deserialize(topic, data, headers)


def _varint(number: int) -> bytes:
    """Kafka's `ByteUtils.writeVarint`: zigzag (twice the number, if it is not negative), 7 bits a byte, lowest first."""
    out = bytearray()
    number *= 2
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes) -> tuple[int, int]:
    number = at = 0
    while True:
        number |= (data[at] & 0x7F) << (7 * at)
        at += 1
        if not data[at - 1] & 0x80:
            return number // 2, at


# --- Serdes of a foreign-key join: the messages between its tasks, and the keys of its subscription store.
#
# The formats are those of Kafka Streams' `SubscriptionWrapperSerde`, `SubscriptionResponseWrapperSerde` and `CombinedKeySchema`.
# The hash of the left value identifies a response to an outdated subscription.

_LENGTH = struct.Struct(">i")
_NO_VALUE = 0x40


@dataclass(frozen=True, slots=True)
class SubscriptionSerde(_Internal[Subscription]):
    """`version and flag(1) ∥ instruction(1) ∥ hash(16) or nothing ∥ primary key ∥ partition(4)`.

    This is version 1. Version 0 has no partition. It can be read, and is written if the partition is not known.

    Attributes:
        primary_key: Serde of the left table's keys.
    """

    holds = Subscription

    primary_key: Serde

    def _bytes_of(self, topic: str, value: Subscription, headers: Headers) -> bytes:
        key = self.primary_key.serialize(topic, value.primary_key, headers)
        if key is None:
            raise cannot_serialize(self, topic, value, "no primary key")
        return _subscription_cell(value, key)

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> Subscription:
        version = data[0] & ~NO_HASH if data else 0
        if version not in SUBSCRIPTION_VERSIONS:
            raise cannot_deserialize(self, topic, data, f"version {version} of subscriptions is not known: 0 and 1 are")
        at = 2 if len(data) > 1 and data[0] & NO_HASH else 2 + HASH_BYTES
        end = len(data) - (PARTITION_BYTES if version else 0)
        if end < at:
            raise cannot_deserialize(self, topic, data, "cut off")
        partition = _LENGTH.unpack_from(data, end)[0] if version else None
        key = self.primary_key.deserialize(topic, data[at:end], headers)
        return Subscription(data[2:at] or None, data[1], key, partition)


@dataclass(frozen=True, slots=True)
class ResponseSerde(_Internal[Response]):
    """`version and flags(1) ∥ hash(16) or nothing ∥ right value or nothing`. The version is 0.

    Attributes:
        value: Serde of the right table's values.
    """

    holds = Response

    value: Serde

    def _bytes_of(self, topic: str, value: Response, headers: Headers) -> bytes:
        data = self.value.serialize(topic, value.value, headers)
        flags = (NO_HASH if value.hash is None else 0) | (_NO_VALUE if data is None else 0)
        return bytes((flags,)) + (value.hash or b"") + (data or b"")

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> Response:
        if data and (version := data[0] & ~(NO_HASH | _NO_VALUE)):
            raise cannot_deserialize(self, topic, data, f"version {version} of responses is not known: only 0 is")
        at = 1 if data and data[0] & NO_HASH else 1 + HASH_BYTES
        if len(data) < at:
            raise cannot_deserialize(self, topic, data, "cut off")
        value = None if data[0] & _NO_VALUE else self.value.deserialize(topic, data[at:], headers)
        return Response(data[1:at] or None, value)


def subscription_cells(asked: Iterable[Subscription], keys: Iterable[bytes]) -> list[bytes]:
    """The bytes of many subscriptions, the same as from `SubscriptionSerde`.

    Args:
        asked: The subscriptions.
        keys: The bytes of their primary keys.
    """
    return list(map(_subscription_cell, asked, keys))


def _subscription_cell(one: Subscription, key: bytes) -> bytes:
    flags = (NO_HASH if one.hash is None else 0) | (one.partition is not None)
    partition = b"" if one.partition is None else _LENGTH.pack(one.partition)
    return bytes((flags, one.instruction)) + (one.hash or b"") + key + partition


def subscription_hashes(cells: Iterable[bytes]) -> list[bytes | None]:
    """The hashes in many subscriptions."""
    return [None if cell[0] & NO_HASH else cell[2 : 2 + HASH_BYTES] for cell in cells]


def response_cells(hashes: Iterable[bytes | None], values: Iterable[bytes | None]) -> list[bytes]:
    """The bytes of many responses, the same as from `ResponseSerde`.

    Args:
        hashes: Their hashes.
        values: The bytes of the right values.
    """
    return [
        bytes(((NO_HASH if one is None else 0) | (_NO_VALUE if value is None else 0),)) + (one or b"") + (value or b"")
        for one, value in zip(hashes, values, strict=True)
    ]


def with_length(foreign_key: bytes) -> bytes:
    """The first bytes of the `CombinedKey` of every row that has a foreign key."""
    return _LENGTH.pack(len(foreign_key)) + foreign_key


@dataclass(frozen=True, slots=True)
class CombinedKeySerde(_Internal[CombinedKey]):
    """`length of foreign key(4) ∥ foreign key ∥ primary key`: all rows of a foreign key are adjacent.

    Attributes:
        foreign_key: Serde of the right table's keys.
        primary_key: Serde of the left table's keys.
    """

    holds = CombinedKey

    foreign_key: Serde
    primary_key: Serde

    def prefix(self, topic: str, key: Any) -> bytes:
        """The common prefix of all rows of a foreign key."""
        data = self.foreign_key.serialize(topic, key)
        if data is None:
            raise cannot_serialize(self, topic, key, "no foreign key")
        return with_length(data)

    def _bytes_of(self, topic: str, value: CombinedKey, headers: Headers) -> bytes:
        primary = self.primary_key.serialize(topic, value.primary, headers)
        if primary is None:
            raise cannot_serialize(self, topic, value, "no primary key")
        return self.prefix(topic, value.foreign) + primary

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> CombinedKey:
        if len(data) < _LENGTH.size or len(data) < (end := _LENGTH.size + _LENGTH.unpack_from(data)[0]):
            raise cannot_deserialize(self, topic, data, "cut off")
        foreign = self.foreign_key.deserialize(topic, data[_LENGTH.size : end], headers)
        return CombinedKey(foreign, self.primary_key.deserialize(topic, data[end:], headers))


_NUMBER = struct.Struct(">q")
_HEADERS_LENGTH = struct.Struct(">I")

NUMBER_BYTES = _NUMBER.size
"""The number of bytes after the record's key in the key of a waiting record."""

_LARGEST = 2**31 - 1

_HEAD_BYTES = 1 + _HEADERS_LENGTH.size
"""The number of bytes before the headers in the value of a waiting record."""


@dataclass(frozen=True, slots=True)
class WaitingKeySerde(_Internal[WaitingKey]):
    """`time(8) ∥ side(1) ∥ key ∥ number(8)`: in the order of these."""

    holds = WaitingKey

    def _bytes_of(self, topic: str, value: WaitingKey, headers: Headers) -> bytes:
        return TIME_SIDE.pack(value.time, value.side) + value.key + _NUMBER.pack(value.number)

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> WaitingKey:
        if len(data) < TIME_SIDE.size + _NUMBER.size:
            raise cannot_deserialize(self, topic, data, "cut off")
        time, side = TIME_SIDE.unpack_from(data)
        (number,) = _NUMBER.unpack_from(data, len(data) - _NUMBER.size)
        return WaitingKey(time, side, data[TIME_SIDE.size : -_NUMBER.size], number)


@dataclass(frozen=True, slots=True)
class WaitingSerde(_Internal[WaitingRecord]):
    """`side(1) ∥ length of headers(4) ∥ headers ∥ value`; the value is never None.

    Attributes:
        right: Serde of values of side 0.
        left: Serde of values of side 1.
    """

    holds = WaitingRecord

    right: Serde
    left: Serde

    def _bytes_of(self, topic: str, value: WaitingRecord, headers: Headers) -> bytes:
        data = (self.left if value.side else self.right).serialize(topic, value.value, value.headers)
        own = encode_headers(value.headers)
        return b"".join((bytes((value.side,)), _HEADERS_LENGTH.pack(len(own)), own, data or b""))

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> WaitingRecord:
        if len(data) < _HEAD_BYTES:
            raise cannot_deserialize(self, topic, data, "cut off")
        end = _HEAD_BYTES + _HEADERS_LENGTH.unpack_from(data, 1)[0]
        own, cell = tuple(decode_headers(data[_HEAD_BYTES:end])), data[end:]
        value = (self.left if data[0] else self.right).deserialize(topic, cell, own)
        return WaitingRecord(data[0], value, own, cell)


@dataclass(frozen=True, slots=True)
class HeadersSerde(_Internal[ValueAndHeaders[Any]]):
    """`length of headers(4) ∥ headers ∥ value`: the values of a store with headers (`state.stores.header_rows`).

    Attributes:
        inner: Serde of the value.
    """

    holds = ValueAndHeaders
    takes = "a store with headers takes ValueAndHeaders(value, headers)"

    inner: Serde

    def _bytes_of(self, topic: str, value: ValueAndHeaders[Any], headers: Headers) -> bytes | None:
        own, data = encode_headers(value.headers), self.inner.serialize(topic, value.value, value.headers)
        return None if data is None else LENGTH.pack(len(own)) + own + data

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> ValueAndHeaders[Any]:
        if len(data) < LENGTH.size:
            raise cannot_deserialize(self, topic, data, "cut off")
        cell, value = split_row(data)
        own = tuple(decode_headers(cell))
        return ValueAndHeaders(self.inner.deserialize(topic, value, own), own)


@dataclass(frozen=True, slots=True)
class BufferedKeySerde(_Internal[WaitingKey]):
    """`0 ∥ time(8) ∥ key ∥ number(4)`, as Kafka Streams' `TimeFirstWindowKeySchema`; the number begins again at 2^31."""

    holds = WaitingKey

    def _bytes_of(self, topic: str, value: WaitingKey, headers: Headers) -> bytes:
        return BUFFERED_KEY.pack(0, value.time) + value.key + LENGTH.pack(value.number & _LARGEST)

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> WaitingKey:
        if len(data) < BUFFERED_KEY_BYTES:
            raise cannot_deserialize(self, topic, data, "cut off")
        _, time = BUFFERED_KEY.unpack_from(data)
        (number,) = LENGTH.unpack_from(data, len(data) - LENGTH.size)
        return WaitingKey(time, LEFT, data[BUFFERED_KEY.size : -LENGTH.size], number)


@dataclass(frozen=True, slots=True)
class BufferedSerde(_Internal[WaitingRecord]):
    """A record in the buffer of a stream-table join with a grace period (`state.stores.buffer_values`).

    Attributes:
        inner: Serde of the value, which is never None.
    """

    holds = WaitingRecord

    inner: Serde

    def _bytes_of(self, topic: str, value: WaitingRecord, headers: Headers) -> bytes:
        data = self.inner.serialize(topic, value.value, value.headers) or b""
        return buffered_value(value.time, encode_headers(value.headers), data)

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> WaitingRecord:
        try:
            time, cell, value = buffered_record(data)
        except ValueError as error:
            raise cannot_deserialize(self, topic, data, str(error)) from error
        own = tuple(decode_headers(cell))
        return WaitingRecord(LEFT, self.inner.deserialize(topic, value, own), own, value, time)


@dataclass(frozen=True, slots=True)
class UnmatchedKeySerde(_Internal[UnmatchedKey]):
    """`time(8) ∥ side(1) ∥ key`, as Kafka Streams' `TimestampedKeyAndJoinSideSerde`."""

    holds = UnmatchedKey

    def _bytes_of(self, topic: str, value: UnmatchedKey, headers: Headers) -> bytes:
        return TIME_SIDE.pack(value.time, value.side) + value.key

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> UnmatchedKey:
        if len(data) < TIME_SIDE.size:
            raise cannot_deserialize(self, topic, data, "cut off")
        time, side = TIME_SIDE.unpack_from(data)
        return UnmatchedKey(time, side, data[TIME_SIDE.size :])


@dataclass(frozen=True, slots=True)
class UnmatchedSerde(_Internal[tuple[WaitingRecord, ...]]):
    """All records of a time, side and key that have no partner yet (`state.stores.unmatched_lists`).

    Attributes:
        right: Serde of values of side 0.
        left: Serde of values of side 1.
    """

    holds = tuple

    right: Serde
    left: Serde

    def _bytes_of(self, topic: str, value: tuple[WaitingRecord, ...], headers: Headers) -> bytes:
        """Of one or more records of a side."""
        if not value or not all(isinstance(one, WaitingRecord) for one in value):
            raise cannot_serialize(self, topic, value)
        side = value[0].side
        serde = self.left if side == LEFT else self.right
        cells = [serde.serialize(topic, one.value, one.headers) or b"" for one in value]
        return local_value(side, cells, [encode_headers(one.headers) or None for one in value])

    def _object_of(self, topic: str, data: bytes, headers: Headers) -> tuple[WaitingRecord, ...]:
        try:
            found = records_in(data)
        except ValueError as error:
            raise cannot_deserialize(self, topic, data, str(error)) from error
        return tuple(self._read(topic, one) for one in found)

    def _read(self, topic: str, one: ListedRecord) -> WaitingRecord:
        own = tuple(decode_headers(one.headers))
        value = (self.left if one.side == LEFT else self.right).deserialize(topic, one.value, own)
        return WaitingRecord(one.side, value, own, one.value)
