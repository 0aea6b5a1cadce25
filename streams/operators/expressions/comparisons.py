"""Comparisons of vectors, equal to Python's: numbers with numbers, texts with texts, truth values with truth values.

Texts are compared as JSON text, whose bytes are in the order of the characters, unless a text has escape sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, TEXT
from streams.operators.expressions.vector import BOOL, EXACT, OTHER, Bools, Vector, chosen, escaped, of_bools

_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], str]]] = {
    "equal": (np.equal, "equal"),
    "not_equal": (np.not_equal, "not_equal"),
    "less": (np.less, "less"),
    "less_equal": (np.less_equal, "less_equal"),
    "greater": (np.greater, "greater"),
    "greater_equal": (np.greater_equal, "greater_equal"),
}
"""Comparisons of numbers, and Arrow's functions for texts."""


def compare(name: str, a: Vector, b: Vector) -> Vector:
    """One of the comparisons in `COMPARISONS`, by its name."""
    of_numbers, of_texts = _FUNCTIONS[name]
    null = (a.kinds == ABSENT) | (b.kinds == ABSENT)
    whole = a.is_a(INT, BOOL) & b.is_a(INT, BOOL) & (a.kinds == b.kinds)
    values = np.where(whole, of_numbers(a.ints, b.ints), False)
    sure = null | whole
    mixed = a.is_a(INT, FLOAT) & b.is_a(INT, FLOAT) & ~whole
    if mixed.any():
        values = np.where(mixed, of_numbers(a.numbers(), b.numbers()), values)
        # Python compares an integer with a double exactly.
        sure = sure | (mixed & _exact(a) & _exact(b))
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
    """Whether a value equals one of some constants."""
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
    """The smaller value; of equal ones the first."""
    return _better("less", a, b)


def greatest(a: Vector, b: Vector) -> Vector:
    """The larger value; of equal ones the first."""
    return _better("greater", a, b)


def _better(name: str, a: Vector, b: Vector) -> Vector:
    second = compare(name, b, a)
    found = chosen((second.ints == 1) & (second.kinds == BOOL), b, a)
    kinds = np.where(second.kinds == ABSENT, np.uint8(ABSENT), found.kinds)
    return Vector(kinds, found.ints, found.floats, found.texts, second.unsure)


def _compare_texts(name: str, function: str, a: Vector, b: Vector) -> Bools:
    left, right = _one_or_all(a), _one_or_all(b)
    if name not in ("equal", "not_equal"):
        # Without the quotes: the closing one would be compared with characters of a longer text.
        left, right = (pc.binary_slice(one, 1, -1) for one in (left, right))
    found = pc.call_function(function, [left, right])
    if isinstance(found, pa.Scalar):
        return np.array([bool(found.as_py())])
    values: Bools = found.fill_null(False).to_numpy(zero_copy_only=False)
    return values


def _one_or_all(a: Vector) -> Any:
    """The texts, or the one for all rows."""
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
