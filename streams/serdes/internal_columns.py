"""Many keys and values of `internal` at once, as columns.

Apart from the serdes, which a plan has: it needs no libraries of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import constant, joined, numbers_at, packed, sliced
from streams.model.record import LEFT, RIGHT
from streams.serdes.base import cannot_serialize
from streams.serdes.columns import write_all
from streams.serdes.internal import (
    HEAD_BYTES,
    NUMBER_BYTES,
    TIME_SIDE_BYTES,
    CombinedKeySerde,
    split_waiting_record,
    waiting_head,
    with_length,
)

Int64s = npt.NDArray[np.int64]


def foreign_prefixes(serde: CombinedKeySerde, topic: str, keys: Sequence[Any]) -> list[bytes]:
    """`CombinedKeySerde.prefix` for many foreign keys."""
    cells = write_all(serde.foreign_key, topic, keys)
    if None in cells:
        raise cannot_serialize(serde, topic, keys[cells.index(None)], "no foreign key")
    return list(map(with_length, cast("list[bytes]", cells)))


def primary_keys(serde: CombinedKeySerde, topic: str, keys: Sequence[Any]) -> list[bytes]:
    """The bytes of many primary keys."""
    cells = write_all(serde.primary_key, topic, keys)
    if None in cells:
        raise cannot_serialize(serde, topic, keys[cells.index(None)], "no primary key")
    return cast("list[bytes]", cells)


_NO_HEADERS = constant(bytes(HEAD_BYTES - 1))
"""The length of no headers."""


def waiting_prefixes(times: Int64s, sides: Int64s, keys: pa.BinaryArray) -> pa.BinaryArray:
    """The first bytes of the keys of waiting records, without their numbers, which have `NUMBER_BYTES`."""
    by_side = pa.array([bytes((side,)) for side in (RIGHT, LEFT)], pa.binary())
    return joined(packed(times), by_side.take(pa.array(sides)), keys)


def waiting_keys(times: Int64s, sides: Int64s, keys: pa.BinaryArray, numbers: Int64s) -> pa.BinaryArray:
    """The bytes of each `WaitingKey`."""
    return joined(waiting_prefixes(times, sides, keys), packed(numbers))


def split_waiting_keys(cells: pa.BinaryArray) -> tuple[Int64s, Int64s]:
    """Time and side of each `WaitingKey`."""
    # The eight bytes behind the first one end with the side.
    return numbers_at(cells, 0), numbers_at(cells, 1) & 0xFF


def keys_in(cells: pa.BinaryArray) -> pa.BinaryArray:
    """The records' keys in the bytes of each `WaitingKey`."""
    return sliced(cells, TIME_SIDE_BYTES, NUMBER_BYTES)


def waiting_records(sides: Int64s, headers: Sequence[bytes | None] | None, values: pa.BinaryArray) -> pa.BinaryArray:
    """The bytes of each `WaitingRecord` with these encoded headers and values."""
    if headers is None:
        heads = pa.array([waiting_head(side, b"") for side in (RIGHT, LEFT)], pa.binary()).take(pa.array(sides))
    else:
        cells = zip(sides.tolist(), headers, strict=True)
        heads = pa.array([waiting_head(side, cell or b"") for side, cell in cells], pa.binary())
    return joined(heads, values)


def split_waiting_records(cells: pa.BinaryArray) -> tuple[list[bytes | None] | None, pa.BinaryArray]:
    """Encoded headers (None: no record has any) and value of each `WaitingRecord`."""
    if pc.all(pc.equal(pc.binary_slice(cells, 1, HEAD_BYTES), _NO_HEADERS)).as_py() is not False:
        return None, sliced(cells, HEAD_BYTES)
    split = list(map(split_waiting_record, cells.to_pylist()))
    return [headers or None for headers, _ in split], pa.array([data for _, data in split], pa.binary())
