"""An update in the buffer of `suppress`, as bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from state.kafka.headers import decode_headers, encode_headers
from streams.model.record import Headers

HELD = struct.Struct(">qiiii")
NONE = -1
# Size of a buffered update besides its key and values: its place, its context (which Kafka Streams counts too), a row.
ROW_OVERHEAD = 100


def size_of(row: bytes, held: bytes) -> int:
    """The bytes that a buffered update counts for."""
    return len(row) + len(held) + ROW_OVERHEAD


@dataclass(frozen=True, slots=True)
class BufferedUpdate:
    """An update in the buffer: `timestamp(8) ∥ four lengths(4) ∥ prior ∥ old ∥ new ∥ headers`.

    Attributes:
        timestamp: Of the last update, ms.
        prior: The value before the first buffered update.
        old: The value before the last update.
        new: The value.
        headers: Of the last update.
    """

    timestamp: int
    prior: bytes | None
    old: bytes | None
    new: bytes | None
    headers: Headers

    def write(self) -> bytes:
        """The update as bytes."""
        headers = encode_headers(self.headers) if self.headers else None
        parts = (self.prior, self.old, self.new, headers)
        lengths = (NONE if part is None else len(part) for part in parts)
        return HELD.pack(self.timestamp, *lengths) + b"".join(part for part in parts if part is not None)

    @classmethod
    def read(cls, data: bytes) -> BufferedUpdate:
        """Reads an update from bytes."""
        timestamp, *lengths = HELD.unpack_from(data)
        parts: list[bytes | None] = []
        at = HELD.size
        for length in lengths:
            parts.append(None if length == NONE else data[at : at + length])
            at += max(0, length)
        prior, old, new, headers = parts
        return cls(timestamp, prior, old, new, tuple(decode_headers(headers)) if headers is not None else ())
