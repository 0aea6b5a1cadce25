"""Tuples of a fixed length with a serde for each entry, for keys of several fields."""

from __future__ import annotations

import struct
from typing import Any

from streams.serdes.base import (
    Headers,
    Serde,
    cannot_deserialize,
    cannot_serialize,
    check_serde,
    serde_identity,
)
from streams.serdes.framing import framed, unframed


class TupleSerde(Serde[tuple[Any, ...]]):
    """A `tuple` with one entry for each serde; entries may be None. Bytes: `length(4) ∥ entry` for each, -1 for None.

    Example::

        TupleSerde(StringSerde(), Int64Serde()).serialize("t", ("eu", 7))

    Raises:
        TopologyError: There is no serde, or an argument is no serde.
    """

    __slots__ = ("entries",)

    def __init__(self, *entries: Serde[Any]) -> None:
        for number, entry in enumerate(entries, 1):
            check_serde(entry, f"Entry {number} of TupleSerde")
        self.entries = entries

    def serialize(self, topic: str, value: tuple[Any, ...] | None, headers: Headers = None) -> bytes | None:
        """The tuple's bytes. Raises `SerdeError` for anything but a tuple of this length."""
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise cannot_serialize(self, topic, value)
        if len(value) != len(self.entries):
            raise cannot_serialize(self, topic, value, f"expected {len(self.entries)} entries, not {len(value)}")
        return framed(serde.serialize(topic, entry, headers) for serde, entry in zip(self.entries, value, strict=True))

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> tuple[Any, ...] | None:
        """The tuple. Raises `SerdeError` if the bytes have another number of entries."""
        if data is None:
            return None
        try:
            parts = list(unframed(data, 0, len(self.entries)))
        except (struct.error, ValueError) as error:
            raise cannot_deserialize(self, topic, data, error) from error
        return tuple(serde.deserialize(topic, part, headers) for serde, part in zip(self.entries, parts, strict=True))

    def identity(self) -> str:
        """The entries' formats, in order."""
        return f"TupleSerde({', '.join(map(serde_identity, self.entries))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TupleSerde) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"TupleSerde({', '.join(map(repr, self.entries))})"
