"""Scans JSON text byte by byte, for whole columns (numba): the ends of texts, literals and values, and `normal_json`.

Positions are unsigned: for signed ones numba would check for negative indices at every byte, which makes a scanner 2.5 times
slower. No value ends at position 0 of a column, so `UNSURE_AT` stands for "not certain": orjson, the reference, then decides.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, cell_bounds, data_and_bounds
from state.machine_code import VECTOR_BYTES
from state.numba_kernels import kernel, plain_bytes

Bytes: TypeAlias = npt.NDArray[np.uint8]

UNSURE_AT: Final = np.uint64(0)
_0, _1, _2, _3, _4, _5 = (np.uint64(number) for number in range(6))
_BLOCK = np.uint64(VECTOR_BYTES)


@kernel
def skip_space(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """Position of the next byte that is not a space."""
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += _1
    return at


@kernel
def _plain_end(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The first position from `at` on with a quote, a backslash or a control character, or an earlier position near the data's end.

    Most of what a scanner reads is the content of texts. Looking at whole blocks saves up to half of its time.
    """
    while at < end and at + _BLOCK <= len(data):
        plain = plain_bytes(data, at)
        at += plain
        if plain < _BLOCK:
            break
    return at


@kernel
def plain_text_end(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The position after the closing quote of a text without escapes whose content starts at `at`."""
    at = _plain_end(data, at, end)
    while at < end and data[at] != 34 and data[at] >= 32 and data[at] != 92:
        at += _1
    return at + _1 if at < end and data[at] == 34 else UNSURE_AT


@kernel
def text_end(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    r"""The position after the closing quote of a text whose content starts at `at`; escapes have one letter: " \ / b f n r t."""
    at = _plain_end(data, at, end)
    while at < end:
        byte = data[at]
        if byte == 34:
            return at + _1
        if byte < 32:
            return UNSURE_AT
        if byte == 92:
            at += _1
            if at >= end:
                return UNSURE_AT
            e = data[at]
            if not (e == 34 or e == 92 or e == 47 or e == 98 or e == 102 or e == 110 or e == 114 or e == 116):  # noqa: PLR1714
                return UNSURE_AT
        at += _1
    return UNSURE_AT


@kernel
def literal_end(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The position after true, false or null."""
    if end - at >= _4:
        a, b, c, d = data[at], data[at + _1], data[at + _1 + _1], data[at + _3]
        if (a == 116 and b == 114 and c == 117 and d == 101) or (a == 110 and b == 117 and c == 108 and d == 108):
            return at + _4
        if a == 102 and b == 97 and c == 108 and d == 115 and end - at > _4 and data[at + _4] == 101:
            return at + _5
    return UNSURE_AT


@kernel
def known_text_end(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The result of `text_end`, for text that is known to be JSON."""
    at = _plain_end(data, at, end)
    while at < end and data[at] != 34:
        at += _2 if data[at] == 92 else _1
    return at + _1


@kernel
def known_value_end(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The position after the value at `at`, for text that is known to be JSON."""
    if data[at] == 34:
        return known_text_end(data, at + _1, end)
    level = 0
    while at < end:
        byte = data[at]
        if byte == 34:
            at = known_text_end(data, at + _1, end)
            continue
        if byte == 123 or byte == 91:  # noqa: PLR1714
            level += 1
        elif byte == 125 or byte == 93:  # noqa: PLR1714
            if level == 0:
                return at
            level -= 1
        elif byte == 44 and level == 0:
            return at
        at += _1
    return at


# --- `normal_json`: text that orjson would write as it stands.
#
# A table reads values only to write them: bytes in, the same bytes out, unless there are spaces, escapes, repeated names or
# numbers in another notation. Reading them into Python objects and writing these again is most of the work of filling a table.
# A text is accepted only if it is certainly valid, and `orjson.dumps(orjson.loads(text)) == text`; everything else is read and
# written by orjson, which is the reference.
#
# Certain are: names and text without escapes, integers of up to 18 digits, fractions of up to 15 digits that are not smaller than
# 0.0001 (the shortest text of a float has at most 17 digits, so texts of up to 15 digits belong to one float each, and are the
# shortest), at most 32 levels, and objects of different names, at most 64 open at once.

_LEVELS: Final = 32
_NAMES: Final = 64
_MAX_INT: Final = np.uint64(18)
_MAX_FRACTION: Final = np.uint64(15)
_SMALL: Final = np.uint64(4)
_VALUE, _NAME, _END = 0, 1, 2
"""What comes next: a value, a name, or the end of a value."""


@kernel
def _digits_end(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    while at < end and data[at] >= 48 and data[at] <= 57:
        at += _1
    return at


@kernel
def _number_end(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The position after a number in orjson's own notation."""
    negative = data[at] == 45
    start = at + _1 if negative else at
    at = _digits_end(data, start, end)
    digits = at - start
    zero = digits == _1 and data[start] == 48
    if digits == _0 or digits > _MAX_INT or (data[start] == 48 and not zero):
        return UNSURE_AT
    if at < end and data[at] == 46:
        at = _fraction_end(data, at + _1, end, digits, zero, negative)
    elif zero and negative:
        return UNSURE_AT
    # An exponent is left to orjson.
    return UNSURE_AT if at < end and (data[at] == 101 or data[at] == 69) else at


@kernel
def _fraction_end(
    data: Bytes, start: Any, end: Any, digits: Any, zero: bool, negative: bool
) -> Any:  # pragma: no cover - compiled
    """The position after the digits of a fraction; the number has `digits` digits, or a `zero`, before the point."""
    at = _digits_end(data, start, end)
    if at == start or digits + (at - start) > _MAX_FRACTION:
        return UNSURE_AT
    first = start
    while first < at and data[first] == 48:
        first += _1
    if first == at:
        # Nothing but zeros: written as .0; the sign of zero is left to orjson.
        return UNSURE_AT if at - start > _1 or (zero and negative) else at
    small = zero and first - start >= _SMALL
    return UNSURE_AT if small or data[at - _1] == 48 else at


@kernel
def _is_new(
    data: Bytes, starts: Any, ends: Any, base: int, count: int, start: Any, end: Any
) -> bool:  # pragma: no cover - compiled
    """Whether data[start:end] differs from all names of the object so far."""
    for other in range(base, count):
        if ends[other] - starts[other] == end - start:
            same = True
            for i in range(end - start):
                if data[starts[other] + np.uint64(i)] != data[start + np.uint64(i)]:
                    same = False
                    break
            if same:
                return False
    return True


@kernel
def _rises(data: Bytes, starts: Any, ends: Any, last: int, start: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """Whether data[start:end] sorts after the last name of the object so far."""
    for i in range(min(ends[last] - starts[last], end - start)):
        before, now = data[starts[last] + np.uint64(i)], data[start + np.uint64(i)]
        if before != now:
            return before < now
    return ends[last] - starts[last] < end - start


@kernel
def _name_end(
    data: Bytes, at: Any, end: Any, starts: Any, ends: Any, base: int, count: int, in_order: bool
) -> Any:  # pragma: no cover - compiled
    """The position after the colon of a name at `at`, which is added to the names of its object, those from `base` to `count`."""
    if data[at] != 34 or count == _NAMES:
        return UNSURE_AT
    start = at + _1
    at = plain_text_end(data, start, end)
    if at == UNSURE_AT or at >= end or data[at] != 58:
        return UNSURE_AT
    if not _is_new(data, starts, ends, base, count, start, at - _1):
        return UNSURE_AT
    if in_order and count > base and not _rises(data, starts, ends, count - 1, start, at - _1):
        return UNSURE_AT
    starts[count], ends[count] = start, at - _1
    return at + _1


@kernel
def _is_normal(  # noqa: PLR0912 - one compiled loop; a call per value would cost more than the value
    data: Bytes, at: Any, end: Any, in_order: bool, open_levels: Any, open_names: Any
) -> bool:  # pragma: no cover - compiled
    """Whether data[at:end] is certainly JSON as orjson writes it."""
    objects, bases = open_levels[0], open_levels[1]
    starts, ends = open_names[0], open_names[1]
    level, names, state = -1, 0, _VALUE
    while at < end:
        byte = data[at]
        if state == _VALUE:
            state = _END
            if byte == 34:
                at = plain_text_end(data, at + _1, end)
            elif byte == 123 or byte == 91:  # noqa: PLR1714
                if level + 1 == _LEVELS:
                    return False
                level += 1
                objects[level], bases[level] = byte == 123, names
                at += _1
                if at < end and data[at] == byte + 2:
                    level -= 1
                    at += _1
                else:
                    state = _NAME if byte == 123 else _VALUE
            elif byte == 45 or (byte >= 48 and byte <= 57):
                at = _number_end(data, at, end)
            else:
                at = literal_end(data, at, end)
        elif state == _NAME:
            at = _name_end(data, at, end, starts, ends, bases[level], names, in_order)
            names, state = names + 1, _VALUE
        else:
            if level >= 0 and byte == 44:
                state = _NAME if objects[level] else _VALUE
            elif level >= 0 and byte == (125 if objects[level] else 93):
                names, level = bases[level], level - 1
            else:
                return False
            at += _1
        if at == UNSURE_AT:
            return False
    return state == _END and level < 0


@kernel
def _scan(
    data: Bytes, bounds: Any, valid: Any, in_order: bool, open_levels: Any, open_names: Any, normal: Any
) -> None:  # pragma: no cover - compiled
    """Fill `normal`.

    Two arrays are room to work in. `open_levels`, int64[2, _LEVELS], says of each open object or array whether it is an object, and
    the number of its first name. `open_names`, uint64[2, _NAMES], has the start and the end of each name of open objects.
    """
    for row in range(len(bounds) - 1):
        at, end = bounds[row], bounds[row + 1]
        # A null is None, and no value at all.
        if valid[row] and at < end and data[at] != 110:
            normal[row] = _is_normal(data, at, end, in_order, open_levels, open_names)


def normal_json(values: BinaryColumn, in_order: bool = False) -> npt.NDArray[np.bool_]:
    """Whether each value is JSON text exactly as orjson would write it; False for null and `null`, and if it is uncertain.

    Args:
        values: The texts.
        in_order: Whether the fields of objects also have to be in the order of their names.
    """
    normal = np.zeros(len(values), np.bool_)
    if not len(values) or not is_utf8(values):
        return normal
    data, bounds = data_and_bounds(values)
    open_levels, open_names = np.zeros((2, _LEVELS), np.int64), np.zeros((2, _NAMES), np.uint64)
    _scan(data, bounds, values.is_valid().to_numpy(zero_copy_only=False), in_order, open_levels, open_names, normal)
    return normal


def is_ascii(values: BinaryColumn) -> bool:
    """Whether all values are ASCII, as most are. For a few values, it takes a tenth of the time of Arrow's function for UTF-8."""
    data = values.buffers()[2]
    if data is None or not len(values):
        return True
    bounds = cell_bounds(values)
    return bool(np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]].max(initial=0) < 128)


def is_utf8(values: BinaryColumn) -> bool:
    """Whether every value is UTF-8."""
    if is_ascii(values):
        return True
    try:
        values.cast(pa.large_string() if pa.types.is_large_binary(values.type) else pa.string())
    except pa.ArrowInvalid:
        return False
    return True
