"""Serdes of the internal topics and stores of operators: table updates, foreign-key joins, and records that wait in a store."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
from streams.serdes.base import Headers, Serde, cannot_deserialize, cannot_serialize, kept_parts

_OLD, _NEW, _BOTH = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ChangeSerde(Serde[Change]):
    """`new ∥ 0x01`, `old ∥ 0x00`, or `varint(length of new) ∥ new ∥ old ∥ 0x02` (`ChangedSerializer`, KIP-904).

    Attributes:
        inner: Serde of the values.
    """

    inner: Serde

    def kept(self) -> ChangeSerde:
        """The same serde, made of `kept` serdes."""
        return kept_parts(self)

    def serialize(self, topic: str, value: Change | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `Change`. Raises `SerdeError` for anything else, or if both values are None."""
        if value is None:
            return None
        if not isinstance(value, Change):
            raise cannot_serialize(self, topic, value)
        new = self.inner.serialize(topic, value.new, headers)
        old = self.inner.serialize(topic, value.old, headers)
        if new is not None and old is not None:
            return b"".join((_varint(len(new)), new, old, bytes((_BOTH,))))
        if new is not None:
            return new + bytes((_NEW,))
        if old is None:
            raise cannot_serialize(self, topic, value, "neither a new nor an old value")
        return old + bytes((_OLD,))

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Change | None:
        """The `Change`. Raises `SerdeError` for invalid bytes."""
        if data is None:
            return None
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
class SubscriptionSerde(Serde[Subscription]):
    """`version and flag(1) ∥ instruction(1) ∥ hash(16) or nothing ∥ primary key ∥ partition(4)`.

    This is version 1. Version 0 has no partition. It can be read, and is written if the partition is not known.

    Attributes:
        primary_key: Serde of the left table's keys.
    """

    primary_key: Serde

    def kept(self) -> SubscriptionSerde:
        """The same serde, made of `kept` serdes."""
        return kept_parts(self)

    def serialize(self, topic: str, value: Subscription | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `Subscription`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, Subscription):
            raise cannot_serialize(self, topic, value)
        key = self.primary_key.serialize(topic, value.primary_key, headers)
        if key is None:
            raise cannot_serialize(self, topic, value, "no primary key")
        return _subscription_cell(value, key)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Subscription | None:
        """The `Subscription`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
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
class ResponseSerde(Serde[Response]):
    """`version and flags(1) ∥ hash(16) or nothing ∥ right value or nothing`. The version is 0.

    Attributes:
        value: Serde of the right table's values.
    """

    value: Serde

    def kept(self) -> ResponseSerde:
        """The same serde, made of `kept` serdes."""
        return kept_parts(self)

    def serialize(self, topic: str, value: Response | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `Response`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, Response):
            raise cannot_serialize(self, topic, value)
        data = self.value.serialize(topic, value.value, headers)
        flags = (NO_HASH if value.hash is None else 0) | (_NO_VALUE if data is None else 0)
        return bytes((flags,)) + (value.hash or b"") + (data or b"")

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Response | None:
        """The `Response`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
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
        return with_length(data)

    def kept(self) -> CombinedKeySerde:
        """The same serde, made of `kept` serdes."""
        return kept_parts(self)

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


_NUMBER = struct.Struct(">q")
_HEADERS_LENGTH = struct.Struct(">I")

NUMBER_BYTES = _NUMBER.size
"""The number of bytes after the record's key in the key of a waiting record."""

_LARGEST = 2**31 - 1

_HEAD_BYTES = 1 + _HEADERS_LENGTH.size
"""The number of bytes before the headers in the value of a waiting record."""


@dataclass(frozen=True, slots=True)
class WaitingKeySerde(Serde[WaitingKey]):
    """`time(8) ∥ side(1) ∥ key ∥ number(8)`, which sorts by these parts in this order."""

    def kept(self) -> WaitingKeySerde:
        """The same serde, made of `kept` serdes."""
        return kept_parts(self)

    def serialize(self, topic: str, value: WaitingKey | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `WaitingKey`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, WaitingKey):
            raise cannot_serialize(self, topic, value)
        return TIME_SIDE.pack(value.time, value.side) + value.key + _NUMBER.pack(value.number)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> WaitingKey | None:
        """The `WaitingKey`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < TIME_SIDE.size + _NUMBER.size:
            raise cannot_deserialize(self, topic, data, "cut off")
        time, side = TIME_SIDE.unpack_from(data)
        (number,) = _NUMBER.unpack_from(data, len(data) - _NUMBER.size)
        return WaitingKey(time, side, data[TIME_SIDE.size : -_NUMBER.size], number)


@dataclass(frozen=True, slots=True)
class WaitingSerde(Serde[WaitingRecord]):
    """`side(1) ∥ length of headers(4) ∥ headers ∥ value`; the value is never None.

    Attributes:
        right: Serde of values of side 0.
        left: Serde of values of side 1.
    """

    right: Serde
    left: Serde

    def kept(self) -> WaitingSerde:
        """The same serde, made of `kept` serdes."""
        return kept_parts(self)

    def serialize(self, topic: str, value: WaitingRecord | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `WaitingRecord`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, WaitingRecord):
            raise cannot_serialize(self, topic, value)
        data = (self.left if value.side else self.right).serialize(topic, value.value, value.headers)
        own = encode_headers(value.headers)
        return b"".join((bytes((value.side,)), _HEADERS_LENGTH.pack(len(own)), own, data or b""))

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> WaitingRecord | None:
        """The `WaitingRecord`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < _HEAD_BYTES:
            raise cannot_deserialize(self, topic, data, "cut off")
        end = _HEAD_BYTES + _HEADERS_LENGTH.unpack_from(data, 1)[0]
        own, cell = tuple(decode_headers(data[_HEAD_BYTES:end])), data[end:]
        value = (self.left if data[0] else self.right).deserialize(topic, cell, own)
        return WaitingRecord(data[0], value, own, cell)


@dataclass(frozen=True, slots=True)
class HeadersSerde(Serde[ValueAndHeaders[Any]]):
    """`length of headers(4) ∥ headers ∥ value`: the values of a store with headers (`state.stores.header_rows`).

    Attributes:
        inner: Serde of the value.
    """

    inner: Serde

    def kept(self) -> HeadersSerde:
        """The same over serdes that are kept."""
        return kept_parts(self)

    def serialize(self, topic: str, value: ValueAndHeaders[Any] | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `ValueAndHeaders`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, ValueAndHeaders):
            raise cannot_serialize(self, topic, value, "a store with headers takes ValueAndHeaders(value, headers)")
        own, data = encode_headers(value.headers), self.inner.serialize(topic, value.value, value.headers)
        return None if data is None else LENGTH.pack(len(own)) + own + data

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> ValueAndHeaders[Any] | None:
        """The `ValueAndHeaders`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < LENGTH.size:
            raise cannot_deserialize(self, topic, data, "cut off")
        cell, value = split_row(data)
        own = tuple(decode_headers(cell))
        return ValueAndHeaders(self.inner.deserialize(topic, value, own), own)


@dataclass(frozen=True, slots=True)
class BufferedKeySerde(Serde[WaitingKey]):
    """`0 ∥ time(8) ∥ key ∥ number(4)`, as Kafka Streams' `TimeFirstWindowKeySchema`; the number begins again at 2^31."""

    def kept(self) -> BufferedKeySerde:
        """The same over serdes that are kept."""
        return kept_parts(self)

    def serialize(self, topic: str, value: WaitingKey | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `WaitingKey`, which is of the left side. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, WaitingKey):
            raise cannot_serialize(self, topic, value)
        return BUFFERED_KEY.pack(0, value.time) + value.key + LENGTH.pack(value.number & _LARGEST)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> WaitingKey | None:
        """The `WaitingKey`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < BUFFERED_KEY_BYTES:
            raise cannot_deserialize(self, topic, data, "cut off")
        _, time = BUFFERED_KEY.unpack_from(data)
        (number,) = LENGTH.unpack_from(data, len(data) - LENGTH.size)
        return WaitingKey(time, LEFT, data[BUFFERED_KEY.size : -LENGTH.size], number)


@dataclass(frozen=True, slots=True)
class BufferedSerde(Serde[WaitingRecord]):
    """A record in the buffer of a stream-table join with a grace period (`state.stores.buffer_values`).

    Attributes:
        inner: Serde of the value, which is never None.
    """

    inner: Serde

    def kept(self) -> BufferedSerde:
        """The same over serdes that are kept."""
        return kept_parts(self)

    def serialize(self, topic: str, value: WaitingRecord | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `WaitingRecord`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, WaitingRecord):
            raise cannot_serialize(self, topic, value)
        data = self.inner.serialize(topic, value.value, value.headers) or b""
        return buffered_value(value.time, encode_headers(value.headers), data)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> WaitingRecord | None:
        """The `WaitingRecord`. Raises `SerdeError` for other bytes."""
        if data is None:
            return None
        try:
            time, cell, value = buffered_record(data)
        except ValueError as error:
            raise cannot_deserialize(self, topic, data, str(error)) from error
        own = tuple(decode_headers(cell))
        return WaitingRecord(LEFT, self.inner.deserialize(topic, value, own), own, value, time)


@dataclass(frozen=True, slots=True)
class UnmatchedKeySerde(Serde[UnmatchedKey]):
    """`time(8) ∥ side(1) ∥ key`, as Kafka Streams' `TimestampedKeyAndJoinSideSerde`."""

    def kept(self) -> UnmatchedKeySerde:
        """The same serde, made of `kept` serdes."""
        return kept_parts(self)

    def serialize(self, topic: str, value: UnmatchedKey | None, headers: Headers = None) -> bytes | None:
        """Bytes of an `UnmatchedKey`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, UnmatchedKey):
            raise cannot_serialize(self, topic, value)
        return TIME_SIDE.pack(value.time, value.side) + value.key

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> UnmatchedKey | None:
        """The `UnmatchedKey`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < TIME_SIDE.size:
            raise cannot_deserialize(self, topic, data, "cut off")
        time, side = TIME_SIDE.unpack_from(data)
        return UnmatchedKey(time, side, data[TIME_SIDE.size :])


@dataclass(frozen=True, slots=True)
class UnmatchedSerde(Serde[tuple[WaitingRecord, ...]]):
    """All records of a time, side and key that have no partner yet (`state.stores.unmatched_lists`).

    Attributes:
        right: Serde of values of side 0.
        left: Serde of values of side 1.
    """

    right: Serde
    left: Serde

    def kept(self) -> UnmatchedSerde:
        """The same serde, made of `kept` serdes."""
        return kept_parts(self)

    def serialize(self, topic: str, value: tuple[WaitingRecord, ...] | None, headers: Headers = None) -> bytes | None:
        """Bytes of one or more `WaitingRecord` of a side. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, tuple) or not value or not all(isinstance(one, WaitingRecord) for one in value):
            raise cannot_serialize(self, topic, value)
        side = value[0].side
        serde = self.left if side == LEFT else self.right
        cells = [serde.serialize(topic, one.value, one.headers) or b"" for one in value]
        return local_value(side, cells, [encode_headers(one.headers) or None for one in value])

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> tuple[WaitingRecord, ...] | None:
        """The records. Raises `SerdeError` for other bytes."""
        if data is None:
            return None
        try:
            found = records_in(data)
        except ValueError as error:
            raise cannot_deserialize(self, topic, data, str(error)) from error
        return tuple(self._read(topic, one) for one in found)

    def _read(self, topic: str, one: ListedRecord) -> WaitingRecord:
        own = tuple(decode_headers(one.headers))
        value = (self.left if one.side == LEFT else self.right).deserialize(topic, one.value, own)
        return WaitingRecord(one.side, value, own, one.value)
