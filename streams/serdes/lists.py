"""Lists in the exact format of Kafka's `ListSerializer` (KIP-466).

The first byte distinguishes two forms. Entries of a fixed length follow one another, after the positions of the nulls; all other
entries follow their lengths, -1 for a null. The serde of the entries alone decides the form, so equal lists have equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streams.serdes.base import Headers, Serde, T, cannot_deserialize, cannot_serialize, check_serde
from streams.serdes.framing import framed, unframed
from streams.serdes.primitives import (
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    UuidSerde,
)

_INT = struct.Struct(">i")
_CONSTANT_SIZE, _VARIABLE_SIZE = 0, 1
# ListSerializer.FIXED_LENGTH_SERIALIZERS, which does not contain the one for Boolean.
_SIZES: dict[type, int] = {
    Int16Serde: 2,
    Int32Serde: 4,
    Int64Serde: 8,
    Float32Serde: 4,
    Float64Serde: 8,
    UuidSerde: 36,
}


@dataclass(frozen=True, slots=True)
class ListSerde(Serde[list[T]]):
    """A `list` of values of one serde; entries may be None.

    Attributes:
        inner: The serde of the entries.
    """

    inner: Serde[T]

    def __post_init__(self) -> None:
        check_serde(self.inner, "ListSerde(inner)")

    def serialize(self, topic: str, value: list[T] | None, headers: Headers = None) -> bytes | None:
        """The list's bytes. Raises `SerdeError` for anything but a list or a tuple of what `inner` takes."""
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise cannot_serialize(self, topic, value)
        entries = [self.inner.serialize(topic, entry, headers) for entry in value]
        if type(self.inner) in _SIZES:
            nulls = [at for at, entry in enumerate(entries) if entry is None]
            head = [bytes((_CONSTANT_SIZE,)), _INT.pack(len(nulls)), *map(_INT.pack, nulls)]
            return b"".join([*head, _INT.pack(len(entries)), *(entry for entry in entries if entry is not None)])
        return bytes((_VARIABLE_SIZE,)) + _INT.pack(len(entries)) + framed(entries)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> list[T] | None:
        """The list. Raises `SerdeError` for invalid bytes."""
        if data is None:
            return None
        constant = type(self.inner) in _SIZES
        if not data or data[0] != (_CONSTANT_SIZE if constant else _VARIABLE_SIZE):
            raise cannot_deserialize(self, topic, data, "another form than that of its entries' serde")
        try:
            entries = list(self._constant(data) if constant else self._variable(data))
        except (struct.error, ValueError) as error:
            raise cannot_deserialize(self, topic, data, error) from error
        # Entries may be None, but the types do not say so: otherwise every use of a list of texts would have to handle None.
        values: list[Any] = [self.inner.deserialize(topic, entry, headers) for entry in entries]
        return values

    def _constant(self, data: bytes) -> Iterator[bytes | None]:
        count, at = _INT.unpack_from(data, 1)[0], 1 + _INT.size
        nulls = set(struct.unpack_from(f">{max(count, 0)}i", data, at))
        at += count * _INT.size
        (length,) = _INT.unpack_from(data, at)
        at += _INT.size
        size = _SIZES[type(self.inner)]
        if len(data) != at + size * (length - len(nulls)):
            raise ValueError("its length does not fit the number of entries")
        for entry in range(length):
            if entry in nulls:
                yield None
            else:
                yield data[at : at + size]
                at += size

    def _variable(self, data: bytes) -> Iterator[bytes | None]:
        (length,) = _INT.unpack_from(data, 1)
        return unframed(data, 1 + _INT.size, length)
