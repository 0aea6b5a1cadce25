"""Makes results of `fields(...)` joins from the bytes of both values: the kernels that find and copy fields, and their caller."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from state.columns import BinaryColumn, binary_column, data_and_bounds, replaced
from state.numba_kernels import allocating_kernel, copy_bytes, kernel
from streams.model.expressions import JoinedFields
from streams.operators.columnar import EncodedValues, Int64s, OneByOne
from streams.operators.join.pairs import Bools
from streams.operators.join.taken_fields import ObjectPart, parts_of
from streams.serdes.columns import write_all
from streams.serdes.json import JsonSerde
from streams.serdes.json_scan import Bytes, known_text_end, known_value_end, normal_json
from streams.serdes.json_text import loads

# --- Makes new JSON objects from parts of other ones, for a whole column at once (numba).
#
# The values are JSON text as orjson writes it: without spaces, and with each name of an object once. So a field's text can be
# copied unchanged, and names are compared as they are written. Positions are unsigned, as in `streams.serdes.json_scan`.

CONSTANT, FIELD, EVERYTHING = 0, 1, 2
"""The kinds of parts of an object: a constant; a field of a value, or the whole value, under a new name; all fields of a value."""
KIND, SIDE, NAME, FIRST, LAST, COLUMNS = range(6)
"""The columns that describe a part: its kind, the side of its value, and three positions in the table of texts: of its name with a
colon, of the first text of its path or constant, and after the last text.
"""

_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)
_NULL: Final = np.uint64(4)
"""The length of `null` in bytes."""


@kernel
def _same(a: Bytes, start: Any, end: Any, b: Bytes, first: Any, last: Any) -> bool:  # pragma: no cover - compiled
    """Whether a[start:end] and b[first:last] are equal."""
    if end - start != last - first:
        return False
    at = _0
    while at < end - start and a[start + at] == b[first + at]:
        at += _1
    return bool(at == end - start)


@kernel
def _field(
    data: Bytes, start: Any, end: Any, names: Bytes, first: Any, last: Any
) -> tuple[Any, Any]:  # pragma: no cover - compiled
    """Start and end of the field named names[first:last] in the object data[start:end]; two zeros if there is none."""
    at = start + _1
    while at < end and data[at] == 34:
        name = at + _1
        at = known_text_end(data, name, end)
        value = at + _1
        if _same(data, name, at - _1, names, first, last):
            return value, known_value_end(data, value, end)
        at = known_value_end(data, value, end) + _1
    return _0, _0


@kernel
def _path(
    data: Bytes, start: Any, end: Any, texts: Bytes, bounds: Any, segments: Any
) -> tuple[Any, Any, bool]:  # pragma: no cover - compiled
    """Start and end of the value at a path within data[start:end] (zeros if there is none), and whether that is certain."""
    for segment in range(segments[0], segments[1]):
        if data[start] != 123:
            # A field of a value without fields is an error, and an array is indexed by number: both are left to the definition.
            return _0, _0, segment > segments[0] and data[start] != 91
        start, end = _field(data, start, end, texts, bounds[segment], bounds[segment + 1])
        if end == _0:
            return _0, _0, True
    return start, end, True


@kernel
def _is_repeated(
    data: Bytes, cells: Any, side: int, texts: Bytes, bounds: Any, parts: Any
) -> bool:  # pragma: no cover - compiled
    """Whether a field of a value that is copied as a whole has the name of another part, or of a field of the other value."""
    start, end = cells[side, 0], cells[side, 1]
    at = start + _1
    while at < end and data[at] == 34:
        name = at + _1
        at = known_text_end(data, name, end)
        for part in range(len(parts)):
            if parts[part, KIND] != EVERYTHING:
                text = parts[part, NAME]
                # Without the quotes and the colon.
                if _same(data, name, at - _1, texts, bounds[text] + _1, bounds[text + 1] - _2):
                    return True
            elif parts[part, SIDE] != side and cells[1 - side, 1] != _0:
                found = _field(data, cells[1 - side, 0], cells[1 - side, 1], data, name, at - _1)
                if found[1] != _0:
                    return True
        at = known_value_end(data, at + _1, end) + _1
    return False


@kernel
def _find_values(bounds: Any, pairs: Any, row: int, cells: Any) -> None:  # pragma: no cover - compiled
    """Start and end of both values of a pair; both 0 for a missing value."""
    for side in range(2):
        value = pairs[side, row]
        cells[side, 0] = bounds[value] if value >= 0 else _0
        cells[side, 1] = bounds[value + 1] if value >= 0 else _0


@allocating_kernel
def find(
    data: Bytes,
    bounds: Any,
    pairs: Any,
    texts: Bytes,
    text_bounds: Any,
    parts: Any,
    places: Any,
    sizes: Any,
    sure: Any,
) -> None:  # pragma: no cover - compiled
    """Finds the parts of each new object."""
    cells = np.zeros((2, 2), np.uint64)
    segments = np.zeros(2, np.int64)
    for row in range(len(sizes)):
        _find_values(bounds, pairs, row, cells)
        size, written = _2, 0
        for part in range(len(parts)):
            if not sure[row]:
                break
            kind, side = parts[part, KIND], parts[part, SIDE]
            if kind == EVERYTHING:
                if cells[side, 1] == _0:
                    continue
                if data[cells[side, 0]] != 123 or _is_repeated(data, cells, side, texts, text_bounds, parts):
                    sure[row] = False
                    break
                places[part, row, 0], places[part, row, 1] = cells[side, 0] + _1, cells[side, 1] - _1
                length = places[part, row, 1] - places[part, row, 0]
                size, written = size + length, written + (1 if length else 0)
                continue
            name = parts[part, NAME]
            size += text_bounds[name + 1] - text_bounds[name]
            written += 1
            if kind == CONSTANT:
                text = parts[part, FIRST]
                size += text_bounds[text + 1] - text_bounds[text]
                continue
            start, end = cells[side, 0], cells[side, 1]
            if end != _0:
                segments[0], segments[1] = parts[part, FIRST], parts[part, LAST]
                start, end, sure[row] = _path(data, start, end, texts, text_bounds, segments)
                places[part, row, 0], places[part, row, 1] = start, end
            size += end - start if end != _0 else _NULL
        sizes[row] = np.int64(size) + max(written - 1, 0)


@kernel
def _copy(source: Bytes, start: Any, end: Any, target: Bytes, at: Any) -> Any:  # pragma: no cover - compiled
    """Copies source[start:end] to `at`, and returns the position after it."""
    copy_bytes(target.ctypes.data + np.int64(at), source.ctypes.data + np.int64(start), np.int64(end - start))
    return at + (end - start)


@allocating_kernel
def write(
    data: Bytes, texts: Bytes, text_bounds: Any, parts: Any, places: Any, sure: Any, starts: Any, target: Bytes
) -> None:  # pragma: no cover - compiled
    """Writes the new objects that are certain."""
    null = np.array([110, 117, 108, 108], np.uint8)
    for row in range(len(sure)):
        if not sure[row]:
            continue
        begin = starts[row] + _1
        at = begin
        target[starts[row]] = 123
        for part in range(len(parts)):
            start, end = places[part, row, 0], places[part, row, 1]
            kind = parts[part, KIND]
            if kind == EVERYTHING and start == end:
                continue
            if at != begin:
                target[at] = 44
                at += _1
            if kind != EVERYTHING:
                name = parts[part, NAME]
                at = _copy(texts, text_bounds[name], text_bounds[name + 1], target, at)
            if kind == CONSTANT:
                text = parts[part, FIRST]
                at = _copy(texts, text_bounds[text], text_bounds[text + 1], target, at)
            elif end == _0:
                at = _copy(null, _0, _NULL, target, at)
            else:
                at = _copy(data, start, end, target, at)
        target[at] = 125


# --- Makes the results of `fields(left=..., right=...)` for all pairs of a step from the texts of fields, without decoding values.
#
# `JoinedFields` is the definition. If all parts are fields and constants, and both values are JSON that orjson would write
# unchanged, the new object's text is made of pieces of their texts; the definition computes all other pairs.

_MOST_BYTES = 2**31 - 1
"""The largest size of a column with 32-bit offsets, bytes."""


class JoinedObjects:
    """Makes the objects of a join.

    Args:
        fields: The definition.
        parts: The parts of an object (`parts_of`).
    """

    def __init__(self, fields: JoinedFields, parts: dict[str | int, ObjectPart]) -> None:
        self._fields = fields
        texts = list[bytes]()
        rows = [_row(name, part, texts) for name, part in parts.items()]
        self._parts = np.array(rows, np.int64).reshape(-1, COLUMNS)
        self._texts = np.frombuffer(b"".join(texts) or b" ", np.uint8)
        self._text_bounds = np.cumsum([0, *map(len, texts)]).astype(np.uint64)

    @classmethod
    def of(cls, fields: JoinedFields | None) -> JoinedObjects | None:
        """Returns None if `parts_of` returns None."""
        parts = parts_of(fields)
        return None if fields is None or parts is None else cls(fields, parts)

    def of_pairs(self, values: BinaryColumn, left: Int64s, right: Int64s, certain: Bools) -> EncodedValues:
        """Makes the objects of pairs.

        Raises:
            RecordError: `JoinedFields` raises it.
        """
        pairs = np.stack([left, right])
        known = certain | _normal(values, ~certain)
        sure: Bools = np.logical_and.reduce(known[pairs] | (pairs < 0), axis=0)
        made = self._made(values, pairs, sure)
        rows = np.flatnonzero(~sure)
        if len(rows):
            made = replaced(made, rows, self._defined(values, pairs[:, rows]))
        return EncodedValues(made, JsonSerde(), "", {})

    def of_one_side(self, values: BinaryColumn, is_left: Bools, *, certain: bool) -> EncodedValues:
        """Makes the objects of values without a partner.

        Raises:
            RecordError: `JoinedFields` raises it.
        """
        rows = np.arange(len(values))
        left, right = np.where(is_left, rows, -1), np.where(is_left, -1, rows)
        return self.of_pairs(values, left, right, np.full(len(values), certain))

    def _made(self, values: BinaryColumn, pairs: Int64s, sure: Bools) -> BinaryColumn:
        """The objects made from texts. Where that is not certain, the cell is empty, and `sure` becomes False."""
        data, bounds = data_and_bounds(values)
        places, sizes = np.zeros((len(self._parts), len(sure), 2), np.uint64), np.zeros(len(sure), np.int64)
        find(data, bounds, pairs, self._texts, self._text_bounds, self._parts, places, sizes, sure)
        ends = np.cumsum(np.append(0, np.where(sure, sizes, 0)))
        if ends[-1] > _MOST_BYTES:
            raise OneByOne("the results of a step have more than 2 GiB")
        target = np.empty(int(ends[-1]), np.uint8)
        write(data, self._texts, self._text_bounds, self._parts, places, sure, ends.astype(np.uint64), target)
        buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(target)]
        return pa.BinaryArray.from_buffers(pa.binary(), len(sure), buffers)

    def _defined(self, values: BinaryColumn, pairs: Int64s) -> BinaryColumn:
        sides = [_read(values, side) for side in pairs]
        return binary_column(write_all(JsonSerde(), "", list(map(self._fields, *sides))))


def _row(name: str | int, part: ObjectPart, texts: list[bytes]) -> list[int]:
    """Describes a part as a row of numbers for the kernels, and adds its texts to the table."""
    if isinstance(name, int):
        return [EVERYTHING, part.side, 0, 0, 0]
    own = len(texts)
    texts.append(orjson.dumps(name) + b":")
    if part.constant is not None:
        texts.append(part.constant)
        return [CONSTANT, 0, own, own + 1, own + 2]
    texts += [orjson.dumps(one)[1:-1] for one in part.path]
    return [FIELD, part.side, own, own + 1, len(texts)]


def _normal(values: BinaryColumn, asked: Bools) -> Bools:
    """The result of `normal_json` for the values in `asked`; False for the others."""
    normal = np.zeros(len(values), np.bool_)
    rows = np.flatnonzero(asked)
    if len(rows):
        normal[rows] = normal_json(values.take(pa.array(rows)))
    return normal


def _read(values: BinaryColumn, rows: Int64s) -> list[Any]:
    cells = values.take(pa.array(rows, mask=rows < 0)).to_pylist()
    return [None if cell is None else loads(cell) for cell in cells]
