"""Serdes of records that wait in a store: unmatched rows of a stream join, and records of a stream-table join with grace."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from state.columns import decode_headers, encode_headers
from streams.model.waiting import WaitingKey, WaitingRecord
from streams.serdes.base import Headers, Serde, cannot_deserialize, cannot_serialize

_TIME_SIDE = struct.Struct(">qB")
_NUMBER = struct.Struct(">q")
_LENGTH = struct.Struct(">I")

TIME_SIDE_BYTES, NUMBER_BYTES = _TIME_SIDE.size, _NUMBER.size
"""Of what is in front of and behind the record's key in the key of a waiting record."""

HEAD_BYTES = 1 + _LENGTH.size
"""Of what is in front of the headers in the value of a waiting record."""


def waiting_head(side: int, headers: bytes) -> bytes:
    """The bytes of a `WaitingRecord` with these encoded headers, up to its value."""
    return b"".join((bytes((side,)), _LENGTH.pack(len(headers)), headers))


def split_waiting_record(cell: bytes) -> tuple[bytes, bytes]:
    """Encoded headers and value of a `WaitingRecord`."""
    end = HEAD_BYTES + _LENGTH.unpack_from(cell, 1)[0]
    return cell[HEAD_BYTES:end], cell[end:]


@dataclass(frozen=True, slots=True)
class WaitingKeySerde(Serde[WaitingKey]):
    """`time(8) ∥ side(1) ∥ key ∥ number(8)`: in the order of these."""

    def serialize(self, topic: str, value: WaitingKey | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `WaitingKey`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, WaitingKey):
            raise cannot_serialize(self, topic, value)
        return _TIME_SIDE.pack(value.time, value.side) + value.key + _NUMBER.pack(value.number)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> WaitingKey | None:
        """The `WaitingKey`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < _TIME_SIDE.size + _NUMBER.size:
            raise cannot_deserialize(self, topic, data, "cut off")
        time, side = _TIME_SIDE.unpack_from(data)
        (number,) = _NUMBER.unpack_from(data, len(data) - _NUMBER.size)
        return WaitingKey(time, side, data[_TIME_SIDE.size : -_NUMBER.size], number)


@dataclass(frozen=True, slots=True)
class WaitingSerde(Serde[WaitingRecord]):
    """`side(1) ∥ length of headers(4) ∥ headers ∥ value`; the value is never None.

    Attributes:
        right: Serde of values of side 0.
        left: Serde of values of side 1.
    """

    right: Serde
    left: Serde

    def serialize(self, topic: str, value: WaitingRecord | None, headers: Headers = None) -> bytes | None:
        """Bytes of a `WaitingRecord`. Raises `SerdeError` for anything else."""
        if value is None:
            return None
        if not isinstance(value, WaitingRecord):
            raise cannot_serialize(self, topic, value)
        data = (self.left if value.side else self.right).serialize(topic, value.value, value.headers)
        return waiting_head(value.side, encode_headers(value.headers)) + (data or b"")

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> WaitingRecord | None:
        """The `WaitingRecord`. Raises `SerdeError` if the bytes are too few."""
        if data is None:
            return None
        if len(data) < HEAD_BYTES:
            raise cannot_deserialize(self, topic, data, "cut off")
        header_cell, cell = split_waiting_record(data)
        own = tuple(decode_headers(header_cell))
        value = (self.left if data[0] else self.right).deserialize(topic, cell, own)
        return WaitingRecord(data[0], value, own, cell)
