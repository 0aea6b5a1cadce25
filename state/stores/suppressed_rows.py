"""The rows of `suppress` as in Kafka Streams' changelog: key, `BufferValue` of version 3 and the place in the buffer.

Source: `InMemoryTimeOrderedKeyValueChangeBuffer` of Kafka Streams 4.3.1. The value is that of `buffer_values`; the length of old is
-2 if old is equal to prior. Each record has the header `v` = 3.

A local row also has the place before its key, with the highest bit set (`PLACES_FROM`). So updates are in their order, and
separate from rows that releases before 1.0 wrote under `place ∥ key`, also in the changelog (`SUPPRESSED` in `spec`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, cell_bounds, sliced
from state.headers import encode_headers
from state.sorting import last_of_each
from state.stores.buffer_values import LENGTH, NULL, PLACE

Int64s = npt.NDArray[np.int64]

PLACES_FROM = -(2**63)
"""Added to a place before a local key."""
VERSION = encode_headers([("v", b"\x03")])
"""The headers of a record of the changelog."""
SAME_AS_PRIOR = -2


class UpdateParts(NamedTuple):
    """The positions of the parts of rows in the data of their column.

    Attributes:
        topic: Begin and end.
        headers: Begin and end, after the count. prior, old, new: Begin, end, and length as written.
        wrong: The rows whose lengths do not fit, so that their parts mean nothing.
    """

    topic: tuple[Int64s, Int64s]
    headers: tuple[Int64s, Int64s]
    prior: tuple[Int64s, Int64s, Int64s]
    old: tuple[Int64s, Int64s, Int64s]
    new: tuple[Int64s, Int64s, Int64s]
    wrong: npt.NDArray[np.bool_]


def update_parts(rows: BinaryColumn) -> UpdateParts:
    """The parts of n >= 1 rows; none is null."""
    data, bounds = np.frombuffer(rows.buffers()[2] or b"", np.uint8), cell_bounds(rows).astype(np.int64)
    begin, end = bounds[:-1], bounds[1:]
    wrong = end - begin < 20

    def number(at: Int64s) -> Int64s:
        nonlocal wrong
        wrong |= at + 4 > end
        return _numbers_at(data, np.where(wrong, 0, at))

    def part(at: Int64s, least: int = NULL) -> tuple[Int64s, Int64s, Int64s]:
        nonlocal wrong
        size = number(at)
        wrong |= size < least
        return at + 4, at + 4 + np.maximum(size, 0), size

    topic = part(begin + 16, 0)
    count = number(topic[1] + 4)
    first = topic[1] + 8
    behind = first.copy()
    for row in np.flatnonzero((count > 0) & ~wrong).tolist():
        behind[row] = _behind_headers(data, int(first[row]), int(end[row]), int(count[row]))
    wrong |= (count < 0) | (behind < 0)
    prior = part(behind)
    old = part(prior[1], SAME_AS_PRIOR)
    new = part(old[1])
    wrong |= new[1] + PLACE.size != end
    return UpdateParts(topic[:2], (first, behind), prior, old, new, wrong)


def _numbers_at(data: npt.NDArray[np.uint8], at: Int64s) -> Int64s:
    if len(data) < LENGTH.size:
        return np.zeros(len(at), np.int64)
    at = np.minimum(at, len(data) - LENGTH.size)
    numbers = np.zeros(len(at), np.uint32)
    for byte in range(LENGTH.size):
        numbers = numbers << np.uint32(8) | data[at + byte]
    return numbers.view(np.int32).astype(np.int64)


def _behind_headers(data: npt.NDArray[np.uint8], at: int, end: int, count: int) -> int:
    """The end of the headers; -1: they do not fit."""
    for field in range(2 * count):
        if at + LENGTH.size > end:
            return -1
        size = int.from_bytes(data[at : at + LENGTH.size].tobytes(), "big", signed=True)
        is_name = field % 2 == 0
        if size < (0 if is_name else NULL):
            return -1
        at += LENGTH.size + max(size, 0)
    return at if at <= end else -1


# --- Between local rows and records of the changelog.


def is_logged_as_kafka_streams(keys: BinaryColumn) -> npt.NDArray[np.bool_]:
    """Whether each local key, without the store's id, has the place in the form of this release."""
    first = pc.binary_slice(keys, 0, 1)
    found: npt.NDArray[np.bool_] = pc.greater_equal(first, pa.scalar(b"\x80", first.type)).to_numpy(
        zero_copy_only=False
    )
    return found


class LoggedUpdates(NamedTuple):
    """Changelog records as columns, with the local rows that they come from."""

    rows: Int64s
    keys: BinaryColumn
    values: BinaryColumn
    headers: pa.BinaryArray


def changelog_columns(keys: BinaryColumn, values: BinaryColumn) -> LoggedUpdates:
    """The records for local keys, without the store's id, and their values.

    If a key was deleted at one place and written at another, the record has the written value.
    """
    ours, valid = is_logged_as_kafka_streams(keys), values.is_valid().to_numpy(zero_copy_only=False)
    keys = pc.if_else(pa.array(ours), sliced(keys, PLACE.size), keys)
    order = np.argsort(valid, kind="stable")
    rows: Int64s = order[np.sort(last_of_each(keys.take(pa.array(order))))]
    at = pa.array(rows)
    headers = pa.array([None, VERSION], pa.binary()).take(pa.array((ours & valid)[rows].astype(np.int64)))
    return LoggedUpdates(rows, keys.take(at), values.take(at), headers)


def local_columns(
    keys: BinaryColumn, values: BinaryColumn, headers: pa.BinaryArray | None, places: dict[bytes, bytes]
) -> tuple[BinaryColumn, BinaryColumn]:
    """Local keys, without the store's id, and values for records of the changelog, in their order.

    Args:
        keys: Keys of the records.
        values: Their values.
        headers: Their headers.
        places: Key -> its place in the store; updated by the records.
    """
    cells, written = list[bytes](), list[bytes | None]()
    marks = [None] * len(keys) if headers is None else headers.to_pylist()
    for key, value, mark in zip(keys.to_pylist(), values.to_pylist(), marks, strict=True):
        before = places.pop(key, None)
        if before is not None:
            cells.append(before + key)
            written.append(None)
        if value is not None and mark is not None:
            place = places[key] = local_place(value[-PLACE.size :])
            cells.append(place + key)
            written.append(value)
        elif before is None:
            # A row of a release before 1.0, or its tombstone.
            cells.append(key)
            written.append(value)
    return pa.array(cells, pa.binary()), pa.array(written, pa.binary())


def local_place(place: bytes) -> bytes:
    """The place before a local key, made from the place at the end of a value."""
    return bytes((place[0] ^ 0x80,)) + place[1:]
