"""The headers of one record as bytes. They are not in `columns`, so a command that only asks Kafka something needs no Arrow."""

from __future__ import annotations

import struct
from collections.abc import Iterable

# Kafka specifies UTF-8 for names, but no broker checks: clients in C or Go write any bytes. Bytes that are not UTF-8 become lone
# surrogates in Python's text (PEP 383), and the same bytes again when written, so no such name can stop a record.
FOREIGN_BYTES = "surrogateescape"

Header = tuple[str, "bytes | None"]


def name_bytes(name: str) -> bytes:
    """A header's name in Kafka's bytes."""
    return name.encode(errors=FOREIGN_BYTES)


# --- Record headers as bytes: one cell of an Arrow column holds the header list of one record.
#
# Format, little endian, no padding, the headers one after the other in the order of the record: `int32 length of name ∥
# name (UTF-8) ∥ int32 length of value, -1 = null ∥ value`. Invariant: the compiled reader and writer
# (`kafka/native_*`) use the same format; tests compare them with these two functions. As in Kafka, names may repeat and their order
# matters. An empty header list is written as no headers at all, because Kafka does not distinguish the two.

_LENGTH = struct.Struct("<i")


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Encodes the header list of one record."""
    parts: list[bytes] = []
    for name, value in headers:
        encoded = name_bytes(name)
        parts += (_LENGTH.pack(len(encoded)), encoded)
        parts += (_LENGTH.pack(-1),) if value is None else (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


def decode_headers(cell: bytes | None) -> list[Header]:
    """Decodes one cell made by `encode_headers`; null means no headers."""
    headers: list[Header] = []
    at = 0
    data = cell or b""
    while at < len(data):
        name, at = _next_part(data, at)
        value, at = _next_part(data, at)
        if name is None:
            raise ValueError(f"encoded headers have a null name before byte {at} of {len(data)}: not a header cell")
        headers.append((name.decode(errors=FOREIGN_BYTES), value))
    return headers


def _next_part(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Reads one length-prefixed field at `at`. Returns the field, and the position of the next one."""
    start = at + _LENGTH.size
    if start > len(data):
        raise ValueError(f"encoded headers are cut off at byte {len(data)}: not a header cell")
    (length,) = _LENGTH.unpack_from(data, at)
    if length < 0:
        return None, start
    if start + length > len(data):
        raise ValueError(f"encoded headers are cut off at byte {len(data)}: not a header cell")
    return data[start : start + length], start + length
