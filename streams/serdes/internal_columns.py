"""Many keys and values of `internal` at once, as columns.

Separate from the serdes, because a plan has those and must not import libraries of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import joined, numbers_at, packed, sliced
from state.stores.unmatched_lists import TIME_SIDE
from streams.model.record import LEFT, RIGHT
from streams.serdes.base import cannot_serialize
from streams.serdes.columns import write_all
from streams.serdes.internal import CombinedKeySerde, with_length

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


def unmatched_keys(times: Int64s, sides: Int64s, keys: pa.BinaryArray) -> pa.BinaryArray:
    """The bytes of each `UnmatchedKey`."""
    by_side = pa.array([bytes((side,)) for side in (RIGHT, LEFT)], pa.binary())
    return joined(packed(times), by_side.take(pa.array(sides)), keys)


def split_unmatched_keys(cells: pa.BinaryArray) -> tuple[Int64s, Int64s]:
    """The time and side of each `UnmatchedKey`."""
    # The eight bytes behind the first one end with the side.
    return numbers_at(cells, 0), numbers_at(cells, 1) & 0xFF


def keys_in(cells: pa.BinaryArray) -> pa.BinaryArray:
    """The keys of the records, from the bytes of each `UnmatchedKey`."""
    return sliced(cells, TIME_SIDE.size)
