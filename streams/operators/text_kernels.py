"""Functions of texts for whole columns, for those functions of `streams.model.text_functions` that JSON's bytes can decide.

A kernel takes texts that are ASCII, without escape sequences, so a character is a byte. Any other text is left to the definition,
which is called once for each distinct value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import cell_bounds, valid_rows
from streams.serdes.json_text import dumps


def _inner(texts: pa.BinaryArray) -> pa.BinaryArray:
    """The texts without their quotes."""
    return pc.binary_slice(texts, 1, -1)


def _quoted(inner: pa.BinaryArray) -> pa.BinaryArray:
    # A scalar made at import would import pandas with it, which a driver does not need.
    quote = pa.scalar(b'"')
    return pc.binary_join_element_wise(quote, inner, quote, pa.scalar(b""))


def _plain(constant: Any) -> bytes | None:
    """A text's bytes if it is ASCII and JSON writes it unchanged; None for others."""
    if not isinstance(constant, str) or not constant.isascii() or not constant:
        return None
    data = constant.encode()
    return data if dumps(constant) == b'"%b"' % data else None


def _lower(texts: pa.BinaryArray) -> pa.BinaryArray:
    return pc.ascii_lower(texts.cast(pa.string())).cast(pa.binary())


def _upper(texts: pa.BinaryArray) -> pa.BinaryArray:
    return pc.ascii_upper(texts.cast(pa.string())).cast(pa.binary())


def _length(texts: pa.BinaryArray) -> pa.Array:
    return pc.subtract(pc.binary_length(texts).cast(pa.int64()), 2)


def _replace(texts: pa.BinaryArray, old: Any, new: Any) -> pa.BinaryArray | None:
    given, instead = _plain(old), b"" if new == "" else _plain(new)
    return None if given is None or instead is None else pc.replace_substring(texts, given, instead)


def _slice(texts: pa.BinaryArray, start: Any, stop: Any) -> pa.BinaryArray | None:
    return _quoted(pc.binary_slice(_inner(texts), start, stop)) if 0 <= start <= stop else None


def containing(texts: pa.BinaryArray, part: bytes) -> npt.NDArray[np.bool_]:
    """bool[n], whether each text contains `part`, which is not empty.

    This searches all texts at once: `bytes.find` takes a third of the time of Arrow's `match_substring`.
    """
    found = np.zeros(len(texts), np.bool_)
    data = texts.buffers()[2]
    if data is None or not len(texts):
        return found
    bounds = cell_bounds(texts)
    whole = data.slice(int(bounds[0]), int(bounds[-1] - bounds[0])).to_pybytes()
    places = list[int]()
    at = whole.find(part)
    while at >= 0:
        places.append(at)
        at = whole.find(part, at + 1)
    starts = np.array(places, np.int64) + bounds[0]
    rows = np.searchsorted(bounds, starts, "right") - 1
    # Bytes at the end of a text and at the beginning of the next one are not a part of either.
    found[rows[starts + len(part) <= bounds[rows + 1]]] = True
    return found


def _contains(texts: pa.BinaryArray, part: Any) -> pa.BooleanArray | None:
    given = _plain(part)
    return None if given is None else pa.array(containing(texts, given), mask=~valid_rows(texts))


def _startswith(texts: pa.BinaryArray, start: Any) -> pa.BooleanArray | None:
    given = _plain(start)
    return None if given is None else pc.starts_with(texts, b'"' + given)


def _endswith(texts: pa.BinaryArray, end: Any) -> pa.BooleanArray | None:
    given = _plain(end)
    return None if given is None else pc.ends_with(texts, given + b'"')


_USUAL_TIME: Final = (
    r'^"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{3}|\.[0-9]{6})?Z?"$'
)
"""Matches times in UTC that Arrow reads as `streams.model.iso` does."""


def _read_iso(texts: pa.BinaryArray) -> pa.Int64Array | None:
    if not pc.all(pc.match_substring_regex(texts, _USUAL_TIME)).as_py():
        return None
    try:
        moments = pc.utf8_rtrim(_inner(texts).cast(pa.string()), "Z").cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        # Such a day does not exist: the definition raises the error.
        return None
    return pa.array(moments.cast(pa.int64()).fill_null(0).to_numpy() // 1000, mask=~valid_rows(texts))


# --- Regular expressions: Arrow has RE2, whose results are those of Python's `re` for texts in ASCII and patterns of these parts.
#
# A group must not be repeated (after an empty match the two keep different texts), and the wanted group must be part of every
# match, because Arrow returns an empty text for a group that has none. Python computes all other patterns.

_ESCAPED: Final = r"\\[dDwWsS]|\\[!-/:-@\[-`{-~]"
_PART: Final = re.compile(
    rf"(?:\((?:\?:)?|[)|^$])(?![*+?{{])|(?:{_ESCAPED}|\[\^?(?:{_ESCAPED}|[^\\\[\]])+\]|[ !-#%-'\-,/0-9:-=>@A-Z_`a-z~.])"
    r"(?:(?:[*+?]|\{\d+(?:,\d*)?\})\??)?"
)


@lru_cache(256)
def re2_pattern(pattern: str, group: int) -> str | None:
    """The pattern with names for its groups, `g1` and so on, as Arrow needs it. None if RE2 may have other results than Python."""
    parts, count, at = list[str](), 0, 0
    opened: list[int] = [0]
    around: list[int] = []
    divided: set[int] = set()
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None or not pattern.isascii():
            return None
        text, at = part[0], part.end()
        if text == "(":
            count += 1
            text = f"(?P<g{count}>"
            if count == group:
                around = list(opened)
            opened.append(count)
        elif text == "(?:":
            opened.append(-at)
        elif text == ")":
            opened.pop()
        elif text == "|":
            divided.add(opened[-1])
        parts.append(text)
    return None if divided.intersection(around) else f"(?P<g0>{''.join(parts)})"


def _regexp_extract(texts: pa.BinaryArray, pattern: Any, group: Any) -> pa.BinaryArray | None:
    translated = re2_pattern(pattern, group)
    if translated is None:
        return None
    try:
        found = pc.extract_regex(_inner(texts), translated)
    except pa.ArrowInvalid:
        return None
    return _quoted(pc.if_else(found.is_valid(), found.field(f"g{group}"), pa.scalar(None, pa.binary())))


OF_TEXTS: Final[dict[str, Callable[..., pa.Array | None]]] = {
    "lower": _lower,
    "upper": _upper,
    "length": _length,
    "replace": _replace,
    "slice": _slice,
    "contains": _contains,
    "startswith": _startswith,
    "endswith": _endswith,
    "read_iso": _read_iso,
    "regexp_extract": _regexp_extract,
}
"""Name of a function -> its kernel for JSON texts and constants. It returns None if it does not support the constants."""


def part_of_split(texts: pa.BinaryArray, separator: Any, index: int) -> pa.BinaryArray | None:
    """`text.split(separator)[index]`; null beyond the ends."""
    given = _plain(separator)
    if given is None:
        return None
    lists = pc.split_pattern(_inner(texts), given)
    starts, ends = lists.offsets.to_numpy()[:-1], lists.offsets.to_numpy()[1:]
    at = (ends if index < 0 else starts).astype(np.int64) + index
    return _quoted(lists.values.take(pa.array(at, mask=(at < starts) | (at >= ends))))
