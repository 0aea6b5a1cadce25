"""Decimals of whole columns, each as a 64-bit integer and its number of decimals: `19.90` is 1990 and 2.

Arrow's decimals have one scale per column, so 1.1 would become 1.10; here each number keeps its zeros, as a `Decimal` does. Numbers
that do not fit (more than 18 digits, an exponent, a negative zero) are left to the definition in `streams.model.operations`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

MOST_DIGITS: Final = 18
_TENS: Final = 10 ** np.arange(MOST_DIGITS + 1, dtype=np.int64)
_LARGEST: Final = np.iinfo(np.int64).max
_PLAIN: Final = r"^-?\d+(\.\d+)?$"


def of_texts(given: pa.BinaryArray) -> tuple[Int64s, Int64s, Bools]:
    """The integers, the numbers of decimals, and where a text is such a number; a null is not."""
    fits = pc.less_equal(pc.binary_length(given), MOST_DIGITS)
    plain = pc.and_(pc.match_substring_regex(given, _PLAIN), fits).fill_null(False)
    texts = pc.if_else(plain, given, pa.scalar(b"0")).cast(pa.string())
    points = pc.find_substring(texts, ".").to_numpy()
    scales = np.where(points < 0, 0, pc.binary_length(texts).to_numpy() - points - 1).astype(np.int64)
    numbers = pc.replace_substring(texts, ".", "").cast(pa.int64()).to_numpy()
    minus = pc.starts_with(texts, "-").to_numpy(zero_copy_only=False)
    return numbers, scales, plain.to_numpy(zero_copy_only=False) & ~(minus & (numbers == 0))


def to_texts(numbers: Int64s, scales: Int64s) -> pa.StringArray:
    """The texts of the numbers, as a `Decimal` is written without an exponent."""
    texts = pa.array(numbers).cast(pa.string())
    for scale in np.unique(scales[scales > 0]).tolist():
        digits = pc.utf8_lpad(pc.utf8_ltrim(texts, "-"), scale + 1, "0")
        whole, rest = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
        sign = pc.if_else(pa.array(numbers < 0), "-", "")
        made = pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), rest, ".")
        texts = pc.if_else(pa.array(scales == scale), made, texts)
    return texts


def aligned(a: Int64s, a_scales: Int64s, b: Int64s, b_scales: Int64s) -> tuple[Int64s, Int64s, Int64s, Bools]:
    """Both columns of integers for a common number of decimals, that number, and where an integer does not fit."""
    scales = np.maximum(a_scales, b_scales)
    left, left_wrong = _times_ten(a, scales - a_scales)
    right, right_wrong = _times_ten(b, scales - b_scales)
    return left, right, scales, left_wrong | right_wrong


def _times_ten(numbers: Int64s, times: Int64s) -> tuple[Int64s, Bools]:
    factors = _TENS[times]
    wrong: Any = (numbers > _LARGEST // factors) | (numbers < -(_LARGEST // factors))
    return numbers * factors, wrong
