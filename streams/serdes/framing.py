"""Entries one behind the other, each behind its length: the form that `ListSerde` and `TupleSerde` share.

Bytes: `length(4) ∥ entry` for each entry, big endian; a length of -1 is None (Kafka's `ListSerializer` for variable sizes).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

_LENGTH = struct.Struct(">i")
_NULL = -1


def framed(entries: Iterable[bytes | None]) -> bytes:
    """The entries, each behind its length."""
    out: list[bytes] = []
    for entry in entries:
        out += [_LENGTH.pack(_NULL)] if entry is None else [_LENGTH.pack(len(entry)), entry]
    return b"".join(out)


def unframed(data: bytes, at: int, count: int) -> Iterator[bytes | None]:
    """The `count` entries from offset `at` to the end. Raises `ValueError` or `struct.error` if the bytes do not fit."""
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size == _NULL:
            yield None
            continue
        if size < 0 or len(data) < at + size:
            raise ValueError("cut off")
        yield data[at : at + size]
        at += size
    if at != len(data):
        raise ValueError("more bytes than entries")
