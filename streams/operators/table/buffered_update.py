"""An update in the buffer of `suppress`, as bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from state.columns import decode_headers, encode_headers
from streams.model.record import Headers

HELD = struct.Struct(">qiiii")
NONE = -1
# The timestamp, offset and partition of a record, as Kafka Streams' buffer counts them.
_RECORD_BYTES = 8 + 8 + 4


@dataclass(frozen=True, slots=True)
class BufferedUpdate:
    """An update in the buffer: `timestamp(8) ∥ four lengths(4) ∥ prior ∥ old ∥ new ∥ headers ∥ topic`.

    Attributes:
        timestamp: Of the last update, ms.
        prior: The value before the first buffered update.
        old: The value before the last update.
        new: The value.
        headers: Of the last update.
        topic: The topic of the last update, if its length counts for the buffer's bounds; else empty.
    """

    timestamp: int
    prior: bytes | None
    old: bytes | None
    new: bytes | None
    headers: Headers
    topic: str = ""

    def bytes_in(self, row: bytes) -> int:
        """The bytes that the update counts for at this row, its place and key, as in Kafka Streams.

        Source: `InMemoryTimeOrderedKeyValueChangeBuffer`, `BufferValue` and `ProcessorRecordContext.residentMemorySizeEstimate`.
        """
        # One value that is both the prior and the old one counts once.
        values = (self.prior, None if self.old == self.prior else self.old, self.new)
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(row) + sum(len(value or b"") for value in values) + _RECORD_BYTES + len(self.topic) + headers

    def write(self) -> bytes:
        headers = encode_headers(self.headers) if self.headers else None
        parts = (self.prior, self.old, self.new, headers)
        lengths = (NONE if part is None else len(part) for part in parts)
        return HELD.pack(self.timestamp, *lengths) + b"".join(part or b"" for part in parts) + self.topic.encode()

    @classmethod
    def read(cls, data: bytes) -> BufferedUpdate:
        timestamp, *lengths = HELD.unpack_from(data)
        parts: list[bytes | None] = []
        at = HELD.size
        for length in lengths:
            parts.append(None if length == NONE else data[at : at + length])
            at += max(0, length)
        prior, old, new, headers = parts
        decoded = tuple(decode_headers(headers)) if headers is not None else ()
        return cls(timestamp, prior, old, new, decoded, data[at:].decode())
