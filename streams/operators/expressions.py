"""Computes an expression for all rows of a step: as vectors, and in rows where these are unsure, by the definition, row by row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streams.errors import NoFieldsError
from streams.model.expressions import OF_RECORD, Col, Expression, Lit, OfRecord, Operation
from streams.model.operations import OF_VALUES, OPERATIONS, truth
from streams.operators import decimal_kernels as decimals
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, cell, encoded
from streams.operators.columnar import NULL_KEY, KeyColumn
from streams.operators.text_kernels import OF_TEXTS, part_of_split
from streams.serdes.json_scan import is_ascii
from streams.serdes.json_text import dumps, loads

# --- `Vector`: the kind and the value of each row, and the rows that only the definition can decide.
#
# A vector of one row is a constant, and matches vectors of any length. Read each array only in rows of its kind, such as `floats`
# where the kind is `FLOAT`. A row that is `unsure` has no value yet: the operation raises an error there, or its 64-bit integer,
# double or JSON text might differ from Python's result.

Bools: TypeAlias = npt.NDArray[np.bool_]

BOOL: Final = 4
OTHER: Final = 5
DECIMAL: Final = 6
"""Three more kinds, which cells of fields do not have. `BOOL` is 0 or 1 in `ints`. `OTHER` is any other JSON text, such as an
array; in a vector, `TEXT` is always a string. `DECIMAL` has its digits in `ints`: 1.25 is 125 with a scale of 2.
"""

_NO_SCALES: Final[npt.NDArray[np.int64]] = np.zeros(1, np.int64)

EXACT: Final = 2**53
"""As doubles, integers are exact up to this one."""


@dataclass(frozen=True, slots=True)
class Vector:
    """n values, or a single value for all rows.

    Attributes:
        kinds: uint8[n]: `ABSENT` (null), `INT`, `FLOAT`, `TEXT`, `BOOL`, `OTHER`, `DECIMAL`.
        ints: int64[n], the value where the kind is `INT` or `BOOL`, the digits where it is `DECIMAL`.
        floats: float64[n], the value where the kind is `FLOAT`.
        texts: binary[n], JSON text where the kind is `TEXT` or `OTHER`; None if no row has text.
        unsure: bool[n], whether the row has no value yet.
        scales: int64[n], the number of decimals where the kind is `DECIMAL`; else 0.
    """

    kinds: npt.NDArray[np.uint8]
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]
    texts: pa.BinaryArray | None
    unsure: Bools
    scales: npt.NDArray[np.int64] = field(default_factory=lambda: _NO_SCALES)

    def is_a(self, *kinds: int) -> Bools:
        """bool[n], whether the row's kind is one of these."""
        found: Bools = self.kinds == kinds[0]
        for kind in kinds[1:]:
            found = found | (self.kinds == kind)
        return found

    def numbers(self) -> npt.NDArray[np.float64]:
        """The numbers as doubles; integers are rounded as Python rounds them."""
        is_int = self.is_a(INT)
        return np.where(is_int, self.ints.astype(np.float64), self.floats) if is_int.any() else self.floats


def of_field(column: FieldColumn) -> Vector:
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


def of_constant(value: bool | int | float | str | Decimal | None) -> Vector:
    kind, whole, number, text = ABSENT, 0, 0.0, None
    unsure = False
    if isinstance(value, bool):
        kind, whole = BOOL, int(value)
    elif isinstance(value, int):
        kind, unsure = INT, not -(2**63) <= value < 2**63
        whole = 0 if unsure else value
    elif isinstance(value, float):
        kind, number = FLOAT, value
    elif isinstance(value, Decimal):
        return to_decimal(of_constant(f"{value:f}"))
    elif value is not None:
        kind, text = TEXT, pa.array([dumps(value)], pa.binary())
    return Vector(
        np.array([kind], np.uint8),
        np.array([whole], np.int64),
        np.array([number], np.float64),
        text,
        np.array([unsure], np.bool_),
    )


def of_bools(values: Bools, null: Bools, unsure: Bools) -> Vector:
    """A vector of booleans."""
    kinds = np.where(null, np.uint8(ABSENT), np.uint8(BOOL))
    return Vector(kinds, values.astype(np.int64), np.zeros(1), None, unsure)


def of_keys(keys: KeyColumn) -> FieldColumn:
    """The keys as a column of cells, encoded as JSON fields are."""
    distinct = _of_cells([encoded(None), *map(encoded, keys.objects)])
    return distinct.take(np.where(keys.codes == NULL_KEY, 0, keys.codes.astype(np.int64) + 1))


def of_times(timestamps: npt.NDArray[np.int64]) -> FieldColumn:
    """The records' timestamps as a column of integers, ms."""
    return FieldColumn(np.full(len(timestamps), INT, np.uint8), timestamps, np.zeros(len(timestamps)), None)


def to_field(vector: Vector, count: int) -> FieldColumn:
    """A vector as a column of `count` cells; unsure rows are null."""
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
    """The rows of `one` where `first` is true, and of `other` elsewhere."""
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
        np.where(first, one.scales, other.scales),
    )


def full(texts: pa.BinaryArray | None, count: int) -> pa.BinaryArray:
    if texts is None:
        return pa.nulls(count, pa.binary())
    return texts if len(texts) == count else pa.array([texts[0].as_py()] * count, pa.binary())


def first_bytes(texts: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """The first byte of each text; 0 for an empty text."""
    offsets, data = _buffers(texts)
    found = np.zeros(len(texts), np.uint8)
    some = offsets[1:] > offsets[:-1]
    found[some] = data[offsets[:-1][some]]
    return found


def escaped(texts: pa.BinaryArray) -> Bools:
    """bool[n], whether a JSON text has an escape sequence. Such a text may equal a text with other bytes."""
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


# --- Arithmetic on vectors, with Python's results.
#
# Two integers have an integer result. If it needs more than 64 bits, Python computes it. Before an integer meets a double, it is
# rounded as Python rounds it. NumPy's division, floor and remainder of doubles follow Python's rules (`npy_divmod` is Python's
# `float_divmod`), even for the signs of zeros.

Int64s: TypeAlias = npt.NDArray[np.int64]
Whole: TypeAlias = Callable[[Int64s, Int64s], "tuple[Int64s, Bools]"]
"""An operation on integers. It returns the results, and bool[n]: whether it overflows or has no result."""

_LEAST = np.iinfo(np.int64).min
_FAR = 2.0**62


def _numeric(
    whole: Whole | None, doubles: Callable[..., Any], a: Vector, b: Vector, *, divides: bool = False
) -> Vector:
    """Applies an operation to numbers: `whole` to two integers, `doubles` to other pairs, and to all pairs if `whole` is None."""
    null = (a.kinds == ABSENT) | (b.kinds == ABSENT)
    both_ints = (a.kinds == INT) & (b.kinds == INT)
    simple = a.is_a(INT, FLOAT) & b.is_a(INT, FLOAT)
    unsure = a.unsure | b.unsure | ~(null | simple)
    ints: Int64s = np.zeros(1, np.int64)
    floats: npt.NDArray[np.float64] = np.zeros(1)
    with np.errstate(all="ignore"):
        if both_ints.any():
            if whole is None:
                far = _beyond(a.ints, EXACT) | _beyond(b.ints, EXACT)
                unsure = unsure | (both_ints & far)
            else:
                ints, wrong = whole(a.ints, b.ints)
                unsure = unsure | (both_ints & wrong)
        if whole is None or not both_ints.all():
            right = b.numbers()
            if divides:
                unsure = unsure | (simple & (right == 0))
            floats = doubles(a.numbers(), right)
    is_int = both_ints if whole is not None else np.zeros(1, np.bool_)
    kinds = np.where(null, np.uint8(ABSENT), np.where(is_int, np.uint8(INT), np.uint8(FLOAT)))
    return Vector(kinds, ints, floats, None, unsure)


def negative(a: Vector) -> Vector:
    """The negated number."""
    return _of_one(a, np.negative)


def absolute(a: Vector) -> Vector:
    return _of_one(a, np.abs)


def to_int(a: Vector) -> Vector:
    """The number without its fraction; Python converts texts."""
    with np.errstate(all="ignore"):
        ints = np.where(a.kinds == FLOAT, a.floats.astype(np.int64), a.ints)
    far = (a.kinds == FLOAT) & ~(np.abs(a.floats) < _FAR)
    null = a.kinds == ABSENT
    unsure = a.unsure | far | ~(null | a.is_a(INT, FLOAT))
    return Vector(np.where(null, np.uint8(ABSENT), np.uint8(INT)), ints, np.zeros(1), None, unsure)


def to_float(a: Vector) -> Vector:
    """The number as a double; Python converts texts."""
    null = a.kinds == ABSENT
    unsure = a.unsure | ~(null | a.is_a(INT, FLOAT))
    kinds = np.where(null, np.uint8(ABSENT), np.uint8(FLOAT))
    return Vector(kinds, np.zeros(1, np.int64), a.numbers(), None, unsure)


def _of_one(a: Vector, operation: Callable[..., Any]) -> Vector:
    numbers = a.is_a(INT, FLOAT, DECIMAL)
    unsure = a.unsure | ~((a.kinds == ABSENT) | numbers) | (a.is_a(INT, DECIMAL) & (a.ints == _LEAST))
    kinds = np.where(numbers, a.kinds, np.uint8(ABSENT))
    return Vector(kinds, operation(a.ints), operation(a.floats), None, unsure, a.scales)


def _beyond(ints: Int64s, limit: int) -> Bools:
    beyond: Bools = (ints > limit) | (ints < -limit)
    return beyond


def _add(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    found = a + b
    return found, ((a ^ found) & (b ^ found)) < 0


def _subtract(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    found = a - b
    return found, ((a ^ b) & (a ^ found)) < 0


def _multiply(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    # If the product of the doubles is below 2^62, the exact product is below 2^63.
    return a * b, np.abs(a.astype(np.float64) * b.astype(np.float64)) >= _FAR


def _floor_divide(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    return a // b, (b == 0) | ((a == _LEAST) & (b == -1))


def _remainder(a: Int64s, b: Int64s) -> tuple[Int64s, Bools]:
    return a % b, (b == 0) | (b == -1)


# --- Decimals, also with integers.


def _of_decimals(a: Vector, b: Vector) -> Bools:
    """bool[n], whether one operand is a `Decimal`, and the other a `Decimal` or an integer."""
    found: Bools = a.is_a(INT, DECIMAL) & b.is_a(INT, DECIMAL) & (a.is_a(DECIMAL) | b.is_a(DECIMAL))
    return found


def _with_decimals(whole: Whole, otherwise: Callable[[Vector, Vector], Vector], a: Vector, b: Vector) -> Vector:
    """The sum or difference of Decimals; `otherwise` computes rows without Decimals."""
    found, which = otherwise(a, b), _of_decimals(a, b)
    if not which.any():
        return found
    left, right, scales, too_large = decimals.aligned(a.ints, a.scales, b.ints, b.scales)
    with np.errstate(all="ignore"):
        ints, wrong = whole(left, right)
    return chosen(which, _decimals(ints, scales, a.unsure | b.unsure | too_large | wrong), found)


def _multiplied(a: Vector, b: Vector) -> Vector:
    found, which = _numeric(_multiply, np.multiply, a, b), _of_decimals(a, b)
    if not which.any():
        return found
    with np.errstate(all="ignore"):
        ints, wrong = _multiply(a.ints, b.ints)
    scales = a.scales + b.scales
    # Zero times a negative Decimal is -0, which no integer can hold.
    wrong = wrong | (scales > decimals.MOST_DIGITS) | ((ints == 0) & ((a.ints < 0) | (b.ints < 0)))
    return chosen(which, _decimals(ints, scales, a.unsure | b.unsure | wrong), found)


def _decimals(ints: Int64s, scales: Int64s, unsure: Bools) -> Vector:
    return Vector(np.array([DECIMAL], np.uint8), ints, np.zeros(1), None, unsure, scales)


def to_decimal(a: Vector) -> Vector:
    """The number, or the number that a text contains, as a `Decimal`."""
    count = np.broadcast_shapes(a.kinds.shape, a.unsure.shape)[0]
    is_text = np.broadcast_to(a.is_a(TEXT), count)
    texts = pc.if_else(pa.array(is_text), pc.binary_slice(full(a.texts, count), 1, -1), pa.scalar(None, pa.binary()))
    is_float = np.broadcast_to(a.is_a(FLOAT) & np.isfinite(a.floats), count)
    if is_float.any():
        texts = pc.if_else(pa.array(is_float), _float_texts(np.broadcast_to(a.floats, count)), texts)
    ints, scales, sure = decimals.of_texts(texts)
    is_int, is_decimal, null = a.is_a(INT), a.is_a(DECIMAL), a.kinds == ABSENT
    return Vector(
        np.where(null, np.uint8(ABSENT), np.uint8(DECIMAL)),
        np.where(is_int | is_decimal, a.ints, ints),
        np.zeros(1),
        None,
        a.unsure | ~(null | is_int | is_decimal | sure),
        np.where(is_int | is_decimal, a.scales, scales),
    )


def to_text(a: Vector) -> Vector:
    """An integer or a `Decimal` as text; texts stay the same."""
    count = np.broadcast_shapes(a.kinds.shape, a.unsure.shape)[0]
    numbers = np.broadcast_to(a.is_a(INT, DECIMAL), count)
    texts = full(a.texts, count)
    if numbers.any():
        made = decimals.to_texts(np.broadcast_to(np.where(numbers, a.ints, 0), count), np.broadcast_to(a.scales, count))
        quoted = pc.binary_join_element_wise("", made, "", '"').cast(pa.binary())
        texts = pc.if_else(pa.array(numbers), quoted, texts)
    null = a.kinds == ABSENT
    unsure = a.unsure | ~(null | a.is_a(INT, DECIMAL, TEXT))
    return Vector(np.where(null, np.uint8(ABSENT), np.uint8(TEXT)), np.zeros(1, np.int64), np.zeros(1), texts, unsure)


ARITHMETIC: Final[dict[str, Callable[[Vector, Vector], Vector]]] = {
    "add": partial(_with_decimals, _add, partial(_numeric, _add, np.add)),
    "subtract": partial(_with_decimals, _subtract, partial(_numeric, _subtract, np.subtract)),
    "multiply": _multiplied,
    "divide": partial(_numeric, None, np.divide, divides=True),
    "floor_divide": partial(_numeric, _floor_divide, np.floor_divide, divides=True),
    "remainder": partial(_numeric, _remainder, np.remainder, divides=True),
}
"""Name of an operation on two numbers -> its vectorised form."""


# --- Comparisons of vectors, with Python's results: numbers with numbers, texts with texts, booleans with booleans.
#
# Texts are compared by the bytes of their JSON, which have the order of the characters. If a text has an escape sequence, Python
# compares it.

_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], str]]] = {
    "equal": (np.equal, "equal"),
    "not_equal": (np.not_equal, "not_equal"),
    "less": (np.less, "less"),
    "less_equal": (np.less_equal, "less_equal"),
    "greater": (np.greater, "greater"),
    "greater_equal": (np.greater_equal, "greater_equal"),
}
"""Name of a comparison -> the function for numbers, and Arrow's function for texts."""


def compare(name: str, a: Vector, b: Vector) -> Vector:
    """Compares two vectors. `name` is a key of `COMPARISONS`."""
    of_numbers, of_texts = _FUNCTIONS[name]
    null = (a.kinds == ABSENT) | (b.kinds == ABSENT)
    whole = a.is_a(INT, BOOL) & b.is_a(INT, BOOL) & (a.kinds == b.kinds)
    values = np.where(whole, of_numbers(a.ints, b.ints), False)
    sure = null | whole
    mixed = a.is_a(INT, FLOAT) & b.is_a(INT, FLOAT) & ~whole
    if mixed.any():
        values = np.where(mixed, of_numbers(a.numbers(), b.numbers()), values)
        # Python compares an integer with a double exactly, so both must be exact as doubles.
        sure = sure | (mixed & _exact(a) & _exact(b))
    exact = _of_decimals(a, b)
    if exact.any():
        left, right, _, too_large = decimals.aligned(a.ints, a.scales, b.ints, b.scales)
        values = np.where(exact, of_numbers(left, right), values)
        sure = sure | (exact & ~too_large)
    texts = (a.kinds == TEXT) & (b.kinds == TEXT)
    if texts.any():
        plain = texts & ~_escaped(a) & ~_escaped(b)
        values = np.where(plain, _compare_texts(name, of_texts, a, b), values)
        sure = sure | plain
    if name in ("equal", "not_equal"):
        different = (a.is_a(TEXT) & b.is_a(INT, FLOAT, BOOL)) | (a.is_a(INT, FLOAT, BOOL) & b.is_a(TEXT))
        values = np.where(different, name == "not_equal", values)
        sure = sure | different
    return of_bools(values, null, a.unsure | b.unsure | ~sure)


def is_in(a: Vector, *candidates: Vector) -> Vector:
    """Whether a value equals one of several constants."""
    null = a.kinds == ABSENT
    values, sure = np.zeros(1, np.bool_), null
    is_text = a.kinds == TEXT
    texts = [one.texts[0].as_py() for one in candidates if one.texts is not None]
    if is_text.any():
        comparable = not any(b"\\" in text for text in texts)
        plain = is_text & ~_escaped(a) & comparable
        found = pc.is_in(a.texts, value_set=pa.array(texts, pa.binary())).to_numpy(zero_copy_only=False)
        values, sure = values | (plain & found), sure | plain
    others = ~is_text & (a.kinds != OTHER)
    unsure = a.unsure
    for candidate in candidates:
        equal = compare("equal", a, candidate)
        values = values | (others & (equal.ints == 1) & (equal.kinds == BOOL) & ~equal.unsure)
        unsure = unsure | (others & equal.unsure)
    return of_bools(values, null, unsure | ~(sure | others))


def least(a: Vector, b: Vector) -> Vector:
    """The smaller value, or the first operand if both are equal."""
    return _better("less", a, b)


def greatest(a: Vector, b: Vector) -> Vector:
    """The larger value, or the first operand if both are equal."""
    return _better("greater", a, b)


def _better(name: str, a: Vector, b: Vector) -> Vector:
    second = compare(name, b, a)
    found = chosen((second.ints == 1) & (second.kinds == BOOL), b, a)
    kinds = np.where(second.kinds == ABSENT, np.uint8(ABSENT), found.kinds)
    return Vector(kinds, found.ints, found.floats, found.texts, second.unsure, found.scales)


def _compare_texts(name: str, function: str, a: Vector, b: Vector) -> Bools:
    left, right = _one_or_all(a), _one_or_all(b)
    if name not in ("equal", "not_equal"):
        # Without quotes: the closing quote of "a" would otherwise be compared with the b of "ab".
        left, right = (pc.binary_slice(one, 1, -1) for one in (left, right))
    found = pc.call_function(function, [left, right])
    if isinstance(found, pa.Scalar):
        return np.array([bool(found.as_py())])
    values: Bools = found.fill_null(False).to_numpy(zero_copy_only=False)
    return values


def _one_or_all(a: Vector) -> Any:
    """The texts, or the single text for all rows."""
    assert a.texts is not None, "there are texts to compare"
    return a.texts if len(a.texts) > 1 else a.texts[0]


def _escaped(a: Vector) -> Bools:
    return np.zeros(1, np.bool_) if a.texts is None else escaped(a.texts)


def _exact(a: Vector) -> Bools:
    exact: Bools = a.is_a(FLOAT) | ((a.ints <= EXACT) & (a.ints >= -EXACT))
    return exact


COMPARISONS: Final[dict[str, Callable[[Vector, Vector], Vector]]] = {
    name: partial(compare, name) for name in _FUNCTIONS
}


# --- Three-valued logic on vectors, and the operations that deal with nulls.
#
# The definition computes the right operand only if the left one does not decide. So in `(col("n") == 0) | (1 / col("n") > 2)`, a
# row with n = 0 is sure, although its right operand divides by zero.


def both(a: Vector, b: Vector) -> Vector:
    return _combined(a, b, deciding=False)


def either(a: Vector, b: Vector) -> Vector:
    return _combined(a, b, deciding=True)


def _combined(a: Vector, b: Vector, *, deciding: bool) -> Vector:
    """Combines two booleans. An operand equal to `deciding` decides the result: false for `and`, true for `or`."""
    by_left, by_right = _is(a, deciding) & ~a.unsure, _is(b, deciding)
    null = (a.kinds == ABSENT) | (b.kinds == ABSENT)
    decided = by_left | by_right
    unsure = ~by_left & (a.unsure | b.unsure | ~(a.is_a(BOOL, ABSENT) & b.is_a(BOOL, ABSENT)))
    return of_bools(decided if deciding else ~decided, null & ~decided, unsure)


def opposite(a: Vector) -> Vector:
    return of_bools(a.ints == 0, a.kinds == ABSENT, a.unsure | ~a.is_a(BOOL, ABSENT))


def is_null(a: Vector) -> Vector:
    return of_bools(a.kinds == ABSENT, np.zeros(1, np.bool_), a.unsure)


def is_not_null(a: Vector) -> Vector:
    return of_bools(a.kinds != ABSENT, np.zeros(1, np.bool_), a.unsure)


def otherwise(a: Vector, b: Vector) -> Vector:
    return chosen((a.kinds != ABSENT) | a.unsure, a, b)


def case(*operands: Vector) -> Vector:
    """The value after the first true condition, or the last operand. Operands: condition, value, condition, value, ..., last."""
    *cases, found = operands
    for condition, value in reversed(list(zip(cases[::2], cases[1::2], strict=True))):
        found = chosen(_is(condition, True), value, found)
        unsure = condition.unsure | ~condition.is_a(BOOL, ABSENT)
        found = _unsure_where(found, unsure)
    return found


def _is(a: Vector, value: bool) -> Bools:
    found: Bools = a.is_a(BOOL) & (a.ints == int(value))
    return found


_Cell: TypeAlias = "tuple[int, int, float, bytes | None]"
"""A kind, an integer, a float and a JSON text, as `encoded` returns them."""

# --- Functions of one value and constants, such as `col("url").split("/")[3].lower()`. A chain of them is computed by its
# definition, once for each distinct value of the rows.

_NULL: Final = 0
_UNSURE: Final = 1
"""The first two results: for null, and for unsure rows. The results for the distinct values come after them."""


def of_distinct(function: Callable[[Any], Any], a: Vector) -> Vector:
    """Calls a function once for each distinct value. It must return None for None. If it raises an error, the rows are unsure."""
    count = np.broadcast_shapes(a.kinds.shape, a.unsure.shape)[0]
    kinds = np.broadcast_to(a.kinds, count)
    is_text, is_int = (kinds == TEXT) | (kinds == OTHER), kinds == INT
    places = np.where(kinds == ABSENT, _NULL, _UNSURE)
    cells: list[_Cell | None] = [encoded(None), None]
    if is_text.any():
        texts = pc.if_else(pa.array(is_text), full(a.texts, count), pa.scalar(None, pa.binary())).dictionary_encode()
        places[is_text] = len(cells) + texts.indices.drop_null().to_numpy()
        cells += [_of_cell(function, loads(text)) for text in texts.dictionary.to_pylist()]
    if is_int.any():
        ints, of_rows = np.unique(np.broadcast_to(a.ints, count)[is_int], return_inverse=True)
        places[is_int] = len(cells) + of_rows
        cells += [_of_cell(function, value) for value in ints.tolist()]
    places[np.broadcast_to(a.unsure, count)] = _UNSURE
    found = of_field(_of_cells([encoded(None) if one is None else one for one in cells]))
    unsure = np.array([one is None for one in cells])
    return Vector(
        found.kinds[places],
        found.ints[places],
        found.floats[places],
        None if found.texts is None else found.texts.take(pa.array(places)),
        unsure[places],
    )


def _of_cell(function: Callable[[Any], Any], value: Any) -> _Cell | None:
    """The encoded result; None after an error, which is raised again when the definition computes the row."""
    try:
        return encoded(function(value))
    except Exception:
        return None


def _of_cells(cells: list[_Cell]) -> FieldColumn:
    kinds, ints, floats, texts = zip(*cells, strict=True)
    return FieldColumn(
        np.array(kinds, np.uint8), np.array(ints, np.int64), np.array(floats, np.float64), pa.array(texts, pa.binary())
    )


def _chained(expression: Operation) -> tuple[Expression, Callable[[Any], Any]] | None:
    """The first operand of a chain of functions, and the chain as one function; None if a later operand is not a constant."""
    if expression.name not in OF_VALUES:
        return None
    value, *constants = expression.operands
    if not all(isinstance(one, Lit) for one in constants):
        return None
    step = partial(_of_value, expression.name, [one.value for one in constants if isinstance(one, Lit)])
    inner = _chained(value) if isinstance(value, Operation) else None
    if inner is None:
        return value, step
    first, before = inner
    return first, lambda given: step(before(given))


def _of_plain_texts(expression: Operation, frame: Frame) -> Vector | None:
    """Computes a function of texts from their bytes. Returns None if the bytes cannot decide all rows."""
    value, *rest = expression.operands or (None,)
    if not all(isinstance(one, Lit) for one in rest):
        return None
    constants = [one.value for one in rest if isinstance(one, Lit)]
    kernel = OF_TEXTS.get(expression.name)
    if expression.name == "item" and isinstance(value, Operation) and value.name == "split":
        value, separator = value.operands
        constants = [separator.value if isinstance(separator, Lit) else None, *constants]
        kernel = part_of_split
    if kernel is None or value is None:
        return None
    texts = _plain_texts(_vector(value, frame))
    found = None if texts is None else kernel(texts, *constants)
    return None if found is None else _of_array(found)


def _plain_texts(a: Vector) -> pa.BinaryArray | None:
    """The texts, if all values are null or texts in ASCII without escape sequences; otherwise None."""
    if a.texts is None or len(a.kinds) < 2 or a.unsure.any() or not a.is_a(TEXT, ABSENT).all():
        return None
    texts = pc.if_else(pa.array(a.kinds == TEXT), a.texts, pa.scalar(None, pa.binary()))
    return texts if is_ascii(texts) and not escaped(texts).any() else None


def _of_array(found: pa.Array) -> Vector:
    """A vector of texts, integers or booleans."""
    null = ~found.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(found.type):
        return of_bools(found.fill_null(False).to_numpy(zero_copy_only=False), null, np.zeros(1, np.bool_))
    is_text = pa.types.is_binary(found.type)
    kinds = np.where(null, np.uint8(ABSENT), np.uint8(TEXT if is_text else INT))
    ints = np.zeros(1, np.int64) if is_text else found.fill_null(0).to_numpy(zero_copy_only=False)
    return Vector(kinds, ints, np.zeros(1), found if is_text else None, np.zeros(1, np.bool_))


def _of_value(name: str, constants: list[Any], value: Any) -> Any:
    return OPERATIONS[name].of_values(value, *constants)


_HOUR_MS: Final = 3_600_000
_TIMES_MS: Final = 60_000_000_000_000
"""Times within this many milliseconds of 1970 are in the years 69 to 3871, which `datetime` supports."""


def hour_of_utc(a: Vector) -> Vector:
    null = a.kinds == ABSENT
    unsure = a.unsure | ~(null | (a.is_a(INT) & ~_beyond(a.ints, _TIMES_MS)))
    return Vector(np.where(null, np.uint8(ABSENT), np.uint8(INT)), a.ints // _HOUR_MS % 24, np.zeros(1), None, unsure)


_MINUTE_MS: Final = 60_000
_OF_MINUTES: Final = re.compile("(?:[^%]|%[YmdHM%])*")
"""Matches time formats that give the same text for all times of a minute."""


def _date_of_minutes(expression: Operation, frame: Frame) -> Vector | None:
    """Formats times in UTC without seconds, once for each minute. Returns None for any other operation."""
    if expression.name != "date_format":
        return None
    value, *rest = expression.operands
    pattern, zone = (one.value if isinstance(one, Lit) else None for one in rest)
    if zone != "UTC" or not isinstance(pattern, str) or _OF_MINUTES.fullmatch(pattern) is None:
        return None
    times = _vector(value, frame)
    minutes = replace(times, ints=times.ints // _MINUTE_MS * _MINUTE_MS)
    return of_distinct(partial(_of_value, "date_format", [pattern, zone]), minutes)


# --- Computes an expression for all rows of a step, first as vectors. Then the definition computes the rows that are unsure.
#
# The definition is `Expression.evaluate`. All errors come from it, so an error always has the same text, and belongs to its row.


@dataclass(slots=True)
class Frame:
    """The fields of n values.

    Attributes:
        count: n.
        fields: Columns by path. A missing path is a field that no value has.
        without_fields: bool[n], whether a value is a text, a number or the like; None if no value is.
        results: The operations computed so far, by their `id`.
    """

    count: int
    fields: Mapping[str, FieldColumn]
    without_fields: Bools | None = None
    _vectors: dict[str, Vector] = field(default_factory=dict)
    results: dict[int, tuple[Expression, Vector]] = field(default_factory=dict)

    def vector(self, path: str) -> Vector:
        if path not in self._vectors:
            column = self.fields.get(path)
            self._vectors[path] = of_constant(None) if column is None else of_field(column)
        return self._vectors[path]

    def take(self, rows: npt.NDArray[np.int64]) -> Frame:
        """The fields of these rows."""
        fields = {path: column.take(rows) for path, column in self.fields.items()}
        return Frame(len(rows), fields, None if self.without_fields is None else self.without_fields[rows])

    def read(self, row: int, path: str) -> Any:
        """Reads a field of one row. Raises `NoFieldsError`."""
        if self.without_fields is not None and self.without_fields[row] and path not in OF_RECORD:
            raise NoFieldsError(path)
        column = self.fields.get(path)
        return None if column is None else cell(column, row)


def computed(expression: Expression, frame: Frame, rows: Bools, failed: dict[int, Exception]) -> FieldColumn:
    """The results of an expression where `rows` (bool[n]) is true. A row's error is added to `failed`."""
    if isinstance(expression, Col) and frame.without_fields is None and expression.path in frame.fields:
        return frame.fields[expression.path]
    found = _vector(expression, frame)
    column = to_field(found, frame.count)
    return _with_values(column, _one_by_one(expression, frame, found.unsure & rows, failed))


def objects_of(columns: Mapping[str, FieldColumn], null: Bools) -> FieldColumn:
    """An object of the columns' cells for each row; null where `null` is true."""
    texts = object_texts({name: json_of(column) for name, column in columns.items()})
    texts = pc.if_else(pa.array(null), pa.scalar(None, pa.binary()), texts)
    nothing = np.zeros(len(null), np.int64)
    return FieldColumn(np.where(null, np.uint8(ABSENT), np.uint8(TEXT)), nothing, nothing.astype(np.float64), texts)


def object_texts(parts: Mapping[str, pa.BinaryArray], begin: pa.BinaryArray | None = None) -> pa.BinaryArray:
    """Joins JSON texts into a JSON object for each row. `begin` has the start of each object, up to the first name."""
    joined: list[Any] = [pa.scalar(b"{") if begin is None else begin]
    for name, texts in parts.items():
        joined += [pa.scalar((b"," if len(joined) > 1 else b"") + dumps(name) + b":"), texts]
    return pc.binary_join_element_wise(*joined, pa.scalar(b"}"), pa.scalar(b""))


def json_of(column: FieldColumn) -> pa.BinaryArray:
    """Each cell as JSON. Numbers that are not finite are written as Python's `json` does: NaN, Infinity, -Infinity."""
    is_text, is_int, is_float = (column.kinds == kind for kind in (TEXT, INT, FLOAT))
    if column.texts is not None and is_text.all():
        return column.texts
    found = pa.scalar(b"null", pa.binary())
    if column.texts is not None:
        found = pc.if_else(pa.array(is_text), column.texts, found)
    if is_int.any():
        found = pc.if_else(pa.array(is_int), pa.array(column.ints).cast(pa.string()).cast(pa.binary()), found)
    if is_float.any():
        found = pc.if_else(pa.array(is_float), _float_texts(column.floats), found)
    return pa.array([b"null"] * len(column.kinds), pa.binary()) if isinstance(found, pa.Scalar) else found


def _float_texts(floats: npt.NDArray[np.float64]) -> pa.BinaryArray:
    finite = np.isfinite(floats)
    texts = dumps(np.where(finite, floats, 0.0).tolist())[1:-1].split(b",")
    for row in np.flatnonzero(~finite).tolist():
        texts[row] = json.dumps(float(floats[row])).encode()
    return pa.array(texts, pa.binary())


def true_rows(expression: Expression, frame: Frame, rows: Bools, failed: dict[int, Exception]) -> Bools:
    """bool[n], whether an expression is true. The arguments are as for `computed`."""
    found = _vector(expression, frame)
    wrong = (found.kinds != BOOL) & (found.kinds != ABSENT)
    unsure = found.unsure | wrong
    true: Bools = np.broadcast_to((found.kinds == BOOL) & (found.ints == 1) & ~unsure, frame.count).copy()

    def decide(read: Callable[[str], Any]) -> bool | None:
        return truth(expression.evaluate(read))

    for row, value in _each(decide, frame, unsure & rows, failed):
        true[row] = value is True
    return true


def _vector(expression: Expression, frame: Frame) -> Vector:
    if isinstance(expression, Lit):
        return of_constant(expression.value)
    if isinstance(expression, Col):
        found = frame.vector(expression.path)
        return found if frame.without_fields is None else _unsure_where(found, frame.without_fields)
    if isinstance(expression, OfRecord):
        return frame.vector(expression.path)
    assert isinstance(expression, Operation), "there are no other expressions"
    # Several expressions may share an operation, such as a condition. It is computed once, unless its result has large texts.
    known = frame.results.get(id(expression))
    found = _result(expression, frame) if known is None else known[1]
    if found.texts is None:
        frame.results[id(expression)] = expression, found  # the expression stays, so no other one gets its id
    return found


def _result(expression: Operation, frame: Frame) -> Vector:
    if (one := _of_one_value(expression, frame)) is not None:
        return one
    vectorised = _VECTORISED.get(expression.name)
    if vectorised is None:
        return _unsure_where(of_constant(None), np.ones(1, np.bool_))
    return vectorised(*(_vector(operand, frame) for operand in expression.operands))


def _of_one_value(expression: Operation, frame: Frame) -> Vector | None:
    """A function of one value and constants; None for any other operation."""
    if expression.name == "hour" and repr(expression.operands[1]) == repr(Lit("UTC")):
        return hour_of_utc(_vector(expression.operands[0], frame))
    if (dates := _date_of_minutes(expression, frame)) is not None:
        return dates
    if (plain := _of_plain_texts(expression, frame)) is not None:
        return plain
    if (chained := _chained(expression)) is None:
        return None
    first, function = chained
    return of_distinct(function, _vector(first, frame))


_VECTORISED: Final[dict[str, Callable[..., Vector]]] = {
    **ARITHMETIC,
    **COMPARISONS,
    "is_in": is_in,
    "negative": negative,
    "absolute": absolute,
    "to_int": to_int,
    "to_float": to_float,
    "to_decimal": to_decimal,
    "to_text": to_text,
    "least": least,
    "greatest": greatest,
    "and": both,
    "or": either,
    "not": opposite,
    "is_null": is_null,
    "is_not_null": is_not_null,
    "otherwise": otherwise,
    "case": case,
}
"""Name of an operation -> its vectorised form; the definition computes operations that are missing here."""


def _unsure_where(vector: Vector, unsure: Bools) -> Vector:
    return replace(vector, unsure=vector.unsure | unsure)


def _one_by_one(expression: Expression, frame: Frame, rows: Bools, failed: dict[int, Exception]) -> dict[int, _Cell]:
    return dict(_each(lambda read: encoded(expression.evaluate(read)), frame, rows, failed))


def _each(
    evaluate: Callable[[Callable[[str], Any]], Any], frame: Frame, rows: Bools, failed: dict[int, Exception]
) -> list[tuple[int, Any]]:
    """Computes the rows where `rows` is true by the definition, one by one. Errors are added to `failed`."""
    found = []
    for row in np.flatnonzero(np.broadcast_to(rows, frame.count)).tolist():
        try:
            found.append((row, evaluate(partial(frame.read, row))))
        except Exception as error:
            failed[row] = error
    return found


def _with_values(column: FieldColumn, values: Mapping[int, _Cell]) -> FieldColumn:
    """Replaces the cells of some rows."""
    if not values:
        return column
    kinds, ints, floats = column.kinds.copy(), column.ints.copy(), column.floats.copy()
    texts: dict[int, bytes] = {}
    for row, value in values.items():
        kinds[row], ints[row], floats[row], text = value
        if text is not None:
            texts[row] = text
    if not texts:
        return FieldColumn(kinds, ints, floats, column.texts)
    mask = np.zeros(len(kinds), np.bool_)
    mask[list(texts)] = True
    before = pa.nulls(len(kinds), pa.binary()) if column.texts is None else column.texts
    by_row = pa.array([texts[row] for row in sorted(texts)], pa.binary())
    return FieldColumn(kinds, ints, floats, pc.replace_with_mask(before, pa.array(mask), by_row))
