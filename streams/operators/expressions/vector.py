"""`Vector`: one value per row, with a kind for each, and the rows that only the definition can decide.

Vectors of one row stand for constants, and match vectors of any length. Arrays of values are meaningful only where the kind is
theirs. A row that is `unsure` has no value yet: an operation met a case in which 64-bit integers, doubles or JSON text might differ
from Python's values, or which is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn

Bools: TypeAlias = npt.NDArray[np.bool_]

BOOL: Final = 4
OTHER: Final = 5
"""Kinds besides those of a field's cells: a truth value, which `ints` has as 0 or 1; anything else that came as JSON text, such as
an array. `TEXT` is a text here, as JSON."""

EXACT: Final = 2**53
"""Up to here, integers are exact as doubles."""


@dataclass(frozen=True, slots=True)
class Vector:
    """n values, or one for all rows.

    Attributes:
        kinds: uint8[n]: `ABSENT` (null), `INT`, `FLOAT`, `TEXT`, `BOOL`, `OTHER`.
        ints: int64[n].
        floats: float64[n].
        texts: binary[n], JSON text, where the kind is `TEXT` or `OTHER`; None if no row has text.
        unsure: bool[n], rows without a value so far.
    """

    kinds: npt.NDArray[np.uint8]
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]
    texts: pa.BinaryArray | None
    unsure: Bools

    def is_a(self, *kinds: int) -> Bools:
        """Where the kind is one of these."""
        found: Bools = self.kinds == kinds[0]
        for kind in kinds[1:]:
            found = found | (self.kinds == kind)
        return found

    def numbers(self) -> npt.NDArray[np.float64]:
        """The numbers as doubles; integers are rounded as Python rounds them."""
        is_int = self.is_a(INT)
        return np.where(is_int, self.ints.astype(np.float64), self.floats) if is_int.any() else self.floats


def of_field(column: FieldColumn) -> Vector:
    """The values of a field."""
    unsure = np.zeros(1, np.bool_)
    if column.texts is None:
        return Vector(column.kinds, column.ints, column.floats, None, unsure)
    firsts = first_bytes(column.texts)
    is_text = column.kinds == TEXT
    is_bool = is_text & ((firsts == ord("t")) | (firsts == ord("f")))
    kinds = column.kinds.copy()
    kinds[is_text & (firsts != ord('"'))] = OTHER
    kinds[is_bool] = BOOL
    ints = np.where(is_bool, firsts == ord("t"), column.ints)
    return Vector(kinds, ints, column.floats, column.texts, unsure)


def of_constant(value: bool | int | float | str | None) -> Vector:
    """A vector of one row."""
    kind, whole, number, text = ABSENT, 0, 0.0, None
    unsure = False
    if isinstance(value, bool):
        kind, whole = BOOL, int(value)
    elif isinstance(value, int):
        kind, unsure = INT, not -(2**63) <= value < 2**63
        whole = 0 if unsure else value
    elif isinstance(value, float):
        kind, number = FLOAT, value
    elif value is not None:
        kind, text = TEXT, pa.array([orjson.dumps(value)], pa.binary())
    return Vector(
        np.array([kind], np.uint8),
        np.array([whole], np.int64),
        np.array([number], np.float64),
        text,
        np.array([unsure], np.bool_),
    )


def of_bools(values: Bools, null: Bools, unsure: Bools) -> Vector:
    """Truth values.

    Args:
        values: Where the result is true.
        null: Where it is null.
        unsure: Where it is not known.
    """
    kinds = np.where(null, np.uint8(ABSENT), np.uint8(BOOL))
    return Vector(kinds, values.astype(np.int64), np.zeros(1), None, unsure)


def to_field(vector: Vector, count: int) -> FieldColumn:
    """A field with the values; the rows that are unsure are null."""
    kinds = np.broadcast_to(vector.kinds, count).copy()
    kinds[np.broadcast_to(vector.unsure, count)] = ABSENT
    ints = np.broadcast_to(vector.ints, count)
    is_bool = kinds == BOOL
    is_text = (kinds == TEXT) | (kinds == OTHER)
    texts = None
    if is_text.any():
        texts = pc.if_else(pa.array(is_text), full(vector.texts, count), pa.scalar(None, pa.binary()))
    if is_bool.any():
        words = pc.if_else(pa.array(ints == 1), pa.scalar(b"true", pa.binary()), pa.scalar(b"false", pa.binary()))
        texts = pc.if_else(pa.array(is_bool), words, pa.scalar(None, pa.binary()) if texts is None else texts)
    kinds[is_bool | is_text] = TEXT
    floats = np.broadcast_to(vector.floats, count)
    return FieldColumn(kinds, np.where(kinds == INT, ints, 0), np.where(kinds == FLOAT, floats, 0.0), texts)


def chosen(first: Bools, one: Vector, other: Vector) -> Vector:
    """The rows of one vector where `first`, and of another elsewhere."""
    texts = None
    if one.texts is not None or other.texts is not None:
        count = np.broadcast_shapes(first.shape, one.kinds.shape, other.kinds.shape)[0]
        mask = pa.array(np.broadcast_to(first, count))
        texts = pc.if_else(mask, full(one.texts, count), full(other.texts, count))
    return Vector(
        np.where(first, one.kinds, other.kinds),
        np.where(first, one.ints, other.ints),
        np.where(first, one.floats, other.floats),
        texts,
        np.where(first, one.unsure, other.unsure),
    )


def full(texts: pa.BinaryArray | None, count: int) -> pa.BinaryArray:
    """The texts for `count` rows."""
    if texts is None:
        return pa.nulls(count, pa.binary())
    return texts if len(texts) == count else pa.array([texts[0].as_py()] * count, pa.binary())


def first_bytes(texts: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """The first byte of each text; 0 for none."""
    offsets, data = _buffers(texts)
    found = np.zeros(len(texts), np.uint8)
    some = offsets[1:] > offsets[:-1]
    found[some] = data[offsets[:-1][some]]
    return found


def escaped(texts: pa.BinaryArray) -> Bools:
    """Whether each JSON text has an escape sequence, so that equal texts may be written in several ways."""
    offsets, data = _buffers(texts)
    found = np.zeros(len(texts), np.bool_)
    if not len(texts):
        return found
    first = int(offsets[0])
    at = np.flatnonzero(data[first : int(offsets[-1])] == ord("\\")) + first
    found[np.searchsorted(offsets, at, "right") - 1] = True
    return found


def _buffers(texts: pa.BinaryArray) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    _, offsets, data = texts.buffers()
    where = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return where, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
