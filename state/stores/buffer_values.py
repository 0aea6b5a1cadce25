"""The value of a record in a buffer of Kafka Streams: `suppress`, and joins of a stream with a table with a grace period.

Source: `BufferValue` of version 3, `ProcessorRecordContext` and `RocksDBTimeOrderedKeyValueBuffer` of Kafka Streams 4.3.1. Big
endian: `timestamp(8) ∥ offset(8) ∥ topic ∥ partition(4) ∥ count of headers(4) ∥ headers ∥ prior ∥ old ∥ new ∥ place(8)`. Each part
of any size follows its length(4); -1: null.

Apart from `suppressed_rows`, which reads and writes columns of them: a plan needs no libraries of columns.
"""

from __future__ import annotations

import struct

from state.headers import decode_headers

PLACE = struct.Struct(">q")
LENGTH = struct.Struct(">i")
BUFFERED_KEY = struct.Struct(">bq")
"""0 and the time. The key of a row in a join's buffer begins with them; the record's key follows."""
BUFFERED_KEY_BYTES = BUFFERED_KEY.size + LENGTH.size
"""The length of a row's key without the record's key: 0 and the time before it, and a number after it."""
NULL = -1
UNKNOWN = -1
"""The offset and partition of a record, which nothing reads: an update may come from several records. A JVM accepts them."""
_HEAD = struct.Struct(">qqii")
"""Timestamp, offset, no topic, and partition."""


def buffered_value(timestamp: int, headers: bytes, value: bytes) -> bytes:
    """A record, with its encoded headers, as a join buffers it: neither prior nor old value, and place 0."""
    head = _HEAD.pack(timestamp, UNKNOWN, 0, UNKNOWN) + headers_part(headers)
    return head + struct.pack(">iii", NULL, NULL, len(value)) + value + PLACE.pack(0)


def buffered_record(row: bytes) -> tuple[int, bytes | None, bytes]:
    """The timestamp, the encoded headers and the value of a row. Raises `ValueError` if it is not a row."""
    try:
        (timestamp,) = PLACE.unpack_from(row)
        at = _behind(row, 2 * PLACE.size) + LENGTH.size
        (count,) = LENGTH.unpack_from(row, at)
        headers = end = at + LENGTH.size
        for _ in range(2 * count):
            end = _behind(row, end)
        value = _behind(row, _behind(row, end))
        behind = _behind(row, value)
    except struct.error as error:
        raise ValueError("cut off") from error
    if behind + PLACE.size != len(row):
        raise ValueError("the lengths inside it are not those of its parts")
    return timestamp, headers_in(row[headers:end]), row[value + LENGTH.size : behind]


def _behind(row: bytes, at: int) -> int:
    """Where a part ends whose length is at `at`."""
    return at + LENGTH.size + max(int(LENGTH.unpack_from(row, at)[0]), 0)


def headers_in(part: bytes) -> bytes | None:
    """The headers of a row, as `encode_headers` writes them: lengths in the other order of bytes."""
    return _other_lengths(part, ">i", "<i") if part else None


def headers_part(cell: bytes | None) -> bytes:
    """Encoded headers as in a row, with their count."""
    count = len(decode_headers(cell)) if cell else 0
    return LENGTH.pack(count) + (_other_lengths(cell, "<i", ">i") if cell else b"")


def _other_lengths(cell: bytes, before: str, after: str) -> bytes:
    parts, at = list[bytes](), 0
    while at < len(cell):
        (size,) = struct.unpack_from(before, cell, at)
        end = at + LENGTH.size + max(size, 0)
        parts += (struct.pack(after, size), cell[at + LENGTH.size : end])
        at = end
    return b"".join(parts)
