"""One row of records that wait in a join of streams, as Kafka Streams has them: all records of a time, side and key.

Source: `TimestampedKeyAndJoinSideSerializer`, `LeftOrRightValueSerializer` and `ListSerializer` of Kafka Streams 4.3.1. Big endian:
key `time(8) ∥ side(1) ∥ key`, list `1 ∥ count(4)`, then for each record `length(4) ∥ side(1) ∥ value`, in the order of arrival, and
at least one.

Kafka Streams does not keep their headers. A local value has them in front: `length(4) ∥ headers ∥ list`. The headers are
`length(4) ∥ encoded headers` for each record, or nothing if no record has any. In the changelog they are the header `HEADERS` of
the row's record, at which Kafka Streams does not look.

Separate from `unmatched_rows`, which reads and writes columns of them, because a plan must not import libraries of columns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from state.headers import decode_headers

TIME_SIDE = struct.Struct(">qB")
"""The bytes before a record's key in the key of its row."""
HEADERS = "__streams.headers"
LENGTH = struct.Struct(">i")
LIST_HEAD = struct.Struct(">Bi")
LENGTHS_FOLLOW = 1
"""The first byte of a list whose values have different lengths (`SerializationStrategy.VARIABLE_SIZE`)."""
NO_HEADERS = bytes(LENGTH.size)


def local_value(side: int, values: Sequence[bytes], headers: Sequence[bytes | None]) -> bytes:
    """The local value of records with these encoded headers."""
    return with_headers(headers, LIST_HEAD.pack(LENGTHS_FOLLOW, len(values)) + _joined(bytes((side,)), values))


def with_headers(headers: Sequence[bytes | None], logged: bytes) -> bytes:
    """The local value of a list and its records' encoded headers."""
    cells = _joined(b"", [one or b"" for one in headers]) if any(headers) else b""
    return LENGTH.pack(len(cells)) + cells + logged


def _joined(before: bytes, parts: Sequence[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(before) + len(part)) + before + part for part in parts)


def split_row(row: bytes) -> tuple[bytes, bytes]:
    """The headers and the list of a local value."""
    end = LENGTH.size + LENGTH.unpack_from(row)[0]
    return row[LENGTH.size : end], row[end:]


class ListedRecord(NamedTuple):
    """A record in a local value: its side, value and encoded headers."""

    side: int
    value: bytes
    headers: bytes | None


def records_in(row: bytes) -> list[ListedRecord]:
    """The records in a local value. Raises `ValueError` if the bytes are not a local value."""
    if len(row) < LENGTH.size + LIST_HEAD.size:
        raise ValueError("cut off")
    headers, logged = split_row(row)
    parts = list(_parts(logged, LIST_HEAD.size))
    if not all(parts):
        raise ValueError("no record, or one without a side")
    cells = _header_cells(headers) if headers else [None] * len(parts)
    return [ListedRecord(part[0], part[1:], cell) for part, cell in zip(parts, cells, strict=True)]


def in_one_row(rows: Iterable[bytes]) -> bytes:
    """The local value with the records of all of these values, in order. All must be of one side."""
    sides, values, headers = zip(*(record for row in rows for record in records_in(row)), strict=True)
    return local_value(sides[0], values, headers)


def is_list_of(side: int, logged: bytes) -> bool:
    """Whether bytes are a list of at least one value of a side."""
    if len(logged) < LIST_HEAD.size:
        return False
    kind, count = LIST_HEAD.unpack_from(logged)
    try:
        parts = list(_parts(logged, LIST_HEAD.size))
    except ValueError:
        return False
    return kind == LENGTHS_FOLLOW and len(parts) == count > 0 and all(part[:1] == bytes((side,)) for part in parts)


def are_headers_of(logged: bytes, cells: bytes) -> bool:
    """Whether bytes are headers of the records of a list."""
    try:
        found = _header_cells(cells)
        for cell in found:
            decode_headers(cell)
    except ValueError:
        return False
    _, count = LIST_HEAD.unpack_from(logged)
    return len(found) == int(count)


def _header_cells(cells: bytes) -> list[bytes | None]:
    return [cell or None for cell in _parts(cells, 0)]


def _parts(data: bytes, at: int) -> Iterator[bytes]:
    """Parts that each follow their length. Raises `ValueError` if they do not fit."""
    while at < len(data):
        begin = at + LENGTH.size
        at = begin + (LENGTH.unpack_from(data, at)[0] if begin <= len(data) else -1)
        if not begin <= at <= len(data):
            raise ValueError("cut off")
        yield data[begin:at]
