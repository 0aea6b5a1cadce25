"""Columns of JSON texts, put together of the texts of their parts: orjson writes all numbers of a part at once.

Each number is thus written by orjson, as `JsonSerde` would write it, but no Python object is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from state.numba_kernels import kernel
from streams.operators.aggregate.columns.column_rows import FLOAT, INT
from streams.operators.aggregate.columns.number_fold import Numbers
from streams.operators.columnar import OneByOne

Bytes: TypeAlias = npt.NDArray[np.uint8]
Int64s: TypeAlias = npt.NDArray[np.int64]
_COMMA = ord(",")
_MOST_BYTES = 2**31 - 1


class Cells(NamedTuple):
    """Texts, one after the other in one buffer.

    Attributes:
        data: uint8[...], the buffer.
        starts: int64[n], where each text begins.
        ends: int64[n], where it ends.
    """

    data: Bytes
    starts: Int64s
    ends: Int64s


_NO_CELLS: Final = Cells(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))

Part: TypeAlias = "bytes | Cells"
"""A text that is the same in all rows, or one for each."""


def number_cells(numbers: Numbers) -> Cells:
    """Numbers as JSON, null where one is missing."""
    if not len(numbers.kinds):
        return _NO_CELLS
    if (numbers.kinds == INT).all():
        text = orjson.dumps(np.ascontiguousarray(numbers.ints), option=orjson.OPT_SERIALIZE_NUMPY)
    elif (numbers.kinds == FLOAT).all():
        text = orjson.dumps(np.ascontiguousarray(numbers.floats), option=orjson.OPT_SERIALIZE_NUMPY)
    else:
        text = orjson.dumps(numbers.to_list())
    data = np.frombuffer(text, np.uint8)
    commas = np.flatnonzero(data == _COMMA)
    return Cells(data, np.concatenate(([1], commas + 1)), np.concatenate((commas, [len(data) - 1])))


def value_cells(values: Sequence[Any]) -> Cells:
    """Any values as JSON."""
    if not values:
        return _NO_CELLS
    texts = [orjson.dumps(value) for value in values]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    data = np.frombuffer(b"".join(texts), np.uint8)
    return Cells(data, np.concatenate(([0], ends[:-1])), ends)


def joined(parts: Sequence[Part], count: int) -> pa.BinaryArray:
    """The texts of each row joined, as a column of `count` rows.

    Raises:
        OneByOne: The texts are too long for one column.
    """
    if not count:
        return pa.array([], pa.binary())
    lengths = np.full(count, sum(len(part) for part in parts if isinstance(part, bytes)), np.int64)
    for part in parts:
        if isinstance(part, Cells):
            lengths += part.ends - part.starts
    ends = np.cumsum(lengths)
    size = int(ends[-1])
    if size > _MOST_BYTES:
        raise OneByOne
    places, data = ends - lengths, np.empty(size, np.uint8)
    for part in parts:
        if isinstance(part, Cells):
            _copy_each(part.data, part.starts, part.ends, places, data)
        else:
            _copy_same(np.frombuffer(part, np.uint8), places, data)
    bounds = np.concatenate(([0], ends)).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])


@kernel
def _copy_each(source: Any, starts: Any, ends: Any, places: Any, target: Any) -> None:  # pragma: no cover - compiled
    """Copies each text to its place, and moves the place behind it."""
    for row in range(len(starts)):
        place = places[row]
        for at in range(starts[row], ends[row]):
            target[place] = source[at]
            place += 1
        places[row] = place


@kernel
def _copy_same(source: Any, places: Any, target: Any) -> None:  # pragma: no cover - compiled
    """Copies one text to all places, and moves the places behind it."""
    for row in range(len(places)):
        place = places[row]
        for at in range(len(source)):
            target[place] = source[at]
            place += 1
        places[row] = place
