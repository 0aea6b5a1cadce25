"""The serde of a grouped table's repartition topic: updates with their new and old values, in Kafka Streams' format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streams.model.record import Change
from streams.serdes.base import Headers, Serde, cannot_deserialize, cannot_serialize

_OLD, _NEW, _BOTH = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ChangeSerde(Serde[Change]):
    """`new ∥ 0x01`, `old ∥ 0x00`, or `varint(length of new) ∥ new ∥ old ∥ 0x02` (`ChangedSerializer`, KIP-904).

    Attributes:
        inner: Serde of the values.
    """

    inner: Serde

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
