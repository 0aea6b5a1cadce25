"""The declared fields of JSON values as columns. A scanner reads most objects, and the serde reads everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import FEW_CELLS, rows_where, valid_rows
from state.numba_kernels import copy_bytes, kernel
from streams.model.paths import first_and_rest, name_in_path, names_of
from streams.model.record import has_fields, pick
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, FieldValues, encoded
from streams.operators.columnar import ColumnarBatch, unread_json
from streams.operators.expressions import Frame
from streams.serdes.json_scan import UNSURE_AT, Bytes, is_utf8, literal_end, plain_text_end, skip_space, text_end
from streams.serdes.json_text import loads

# --- Finds declared fields in JSON objects, for a whole column of values at once (numba).
#
# Reading 160-byte objects into Python objects with a JSON library costs more than all other work of the reader. The scanner accepts
# a row only if it is certain that the row is valid JSON, and that it has understood it. Such a row is an object of numbers,
# strings, true, false and null, of flat arrays of these, and of nested objects of the same kind. Everything else (arrays of
# objects, unicode escapes, very long numbers, malformed text) gets the status `UNSURE`, and the serde reads it. The serde and
# `pick` are the definition.
#
# Numbers with a fraction are exact: a mantissa up to 2^53 is multiplied or divided by a power of ten up to 10^22, which rounds only
# once (Clinger's fast path). Positions are unsigned. For signed ones, numba would check for negative indices at every byte, which
# made the scanner 2.5 times slower.

SURE: Final = 0
UNSURE: Final = 1

_STOP: Final = 255
_MAX_DIGITS: Final = 18
_MAX_DEPTH: Final = 16
_POW10 = 10.0 ** np.arange(23)
_0, _1, _3 = np.uint64(0), np.uint64(1), np.uint64(3)


@kernel
def _digits(data: Bytes, at: Any, end: Any, mantissa: int) -> tuple[int, Any]:  # pragma: no cover - compiled
    """Appends up to `_MAX_DIGITS` more digits to the mantissa. Returns it, and the position after the digits."""
    last = at + np.uint64(_MAX_DIGITS)
    while at < end and at < last and data[at] >= 48 and data[at] <= 57:
        mantissa = mantissa * 10 + np.int64(data[at] - 48)
        at += _1
    return mantissa, at


@kernel
def _exponent(data: Bytes, at: Any, end: Any) -> tuple[int, Any]:  # pragma: no cover - compiled
    """Returns the exponent after an e, and the position after it. An exponent out of range is returned as 99."""
    minus = at < end and data[at] == 45
    if at < end and (data[at] == 45 or data[at] == 43):
        at += _1
    number, behind = _digits(data, at, end, np.int64(0))
    if behind == at or behind - at > _3:
        return 99, behind
    return -number if minus else number, behind


@kernel
def _number(data: Bytes, at: Any, end: Any) -> tuple[int, int, float, Any]:  # pragma: no cover - compiled
    """Returns the kind (`INT`, `FLOAT` or `_STOP`), the integer, the number, and the position after it."""
    negative = data[at] == 45
    if negative:
        at += _1
    mantissa, behind = _digits(data, at, end, np.int64(0))
    digits = behind - at
    if digits == _0 or (digits > _1 and data[at] == 48):
        return _STOP, mantissa, 0.0, behind
    more = behind < end and data[behind] >= 46 and data[behind] != 47 and data[behind] != 93 and data[behind] != 125
    if not more:
        # "-0" is left to the serde, which decides whether it is an integer.
        return _STOP if negative and mantissa == 0 else INT, -mantissa if negative else mantissa, 0.0, behind
    at = behind
    exponent = 0
    if data[at] == 46:
        at += _1
        # At most 18 digits are read. One more would remain unread, and make the row unsure.
        mantissa, behind = _digits(data, at, min(end, at + np.uint64(_MAX_DIGITS) - digits), mantissa)
        exponent = -np.int64(behind - at)
        if behind == at:
            return _STOP, mantissa, 0.0, at
        at = behind
    if at < end and (data[at] == 101 or data[at] == 69):
        written, at = _exponent(data, at + _1, end)
        exponent += written
    if mantissa > 9007199254740992 or exponent < -22 or exponent > 22:
        return _STOP, mantissa, 0.0, at
    number = mantissa * _POW10[exponent] if exponent >= 0 else mantissa / _POW10[-exponent]
    return FLOAT, np.int64(0), -number if negative else number, at


@kernel
def _scalar(data: Bytes, at: Any, end: Any) -> tuple[int, int, float, Any]:  # pragma: no cover - compiled
    """Returns the kind, the integer, the number, and the position after a value that is neither an object nor an array."""
    first = data[at]
    if first == 45 or (first >= 48 and first <= 57):
        kind, whole, number, at = _number(data, at, end)
        return kind, whole, number, UNSURE_AT if kind == _STOP else at
    if first == 34:
        return TEXT, np.int64(0), 0.0, text_end(data, at + _1, end)
    return ABSENT if first == 110 else TEXT, np.int64(0), 0.0, literal_end(data, at, end)


@kernel
def _name(data: Bytes, start: Any, end: Any, names: Bytes, name_offsets: Any) -> int:  # pragma: no cover - compiled
    """The index of the declared name that equals data[start:end], or -1 if there is none."""
    length = end - start
    for name in range(len(name_offsets) - 1):
        begin = name_offsets[name]
        if name_offsets[name + 1] - begin == length:
            i = _0
            while i < length and data[start + i] == names[begin + i]:
                i += _1
            if i == length:
                return name
    return -1


@kernel
def _put(
    cells: Any, field: int, row: int, kind: int, whole: int, number: float, begin: Any, at: Any
) -> None:  # pragma: no cover - compiled
    kinds, ints, floats, starts, ends = cells
    kinds[field, row] = kind
    if kind == INT:
        ints[field, row] = whole
    elif kind == FLOAT:
        floats[field, row] = number
    elif kind == TEXT:
        starts[field, row] = np.int64(begin)
        ends[field, row] = np.int64(at)


@kernel
def _clear(kinds: Any, name: int, name_of: Any, row: int) -> None:  # pragma: no cover - compiled
    """Empties the cells of a name: if it is repeated in an object, the last one wins, as in every JSON library."""
    for field in range(len(name_of)):
        if name_of[field] == name:
            kinds[field, row] = ABSENT


@kernel
def _array(
    data: Bytes, at: Any, end: Any, name: int, name_of: Any, elements: Any, row: int, cells: Any
) -> Any:  # pragma: no cover - compiled
    """Returns the position after an array of scalars whose content starts at `at`. Fills the cells of its declared elements."""
    at = skip_space(data, at, end)
    if at < end and data[at] == 93:
        return at + _1
    index = 0
    while at < end:
        begin = at
        kind, whole, number, at = _scalar(data, at, end)
        if at == UNSURE_AT:
            return UNSURE_AT
        if name >= 0:
            for field in range(len(elements)):
                if name_of[field] == name and elements[field] == index:
                    _put(cells, field, row, kind, whole, number, begin, at)
        at = skip_space(data, at, end)
        if at >= end:
            return UNSURE_AT
        if data[at] == 93:
            return at + _1
        if data[at] != 44:
            return UNSURE_AT
        at = skip_space(data, at + _1, end)
        index += 1
    return UNSURE_AT


@kernel
def _value_start(data: Bytes, at: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The position of a field's value. `at` is the position after its name, or `UNSURE_AT`, which is then returned."""
    if at == UNSURE_AT:
        return UNSURE_AT
    at = skip_space(data, at, end)
    if at >= end or data[at] != 58:
        return UNSURE_AT
    at = skip_space(data, at + _1, end)
    return at if at < end else UNSURE_AT


@kernel
def _reads_elements(name: int, name_of: Any, elements: Any) -> bool:  # pragma: no cover - compiled
    """Whether a declared field is an element of the array of this name. `name` is -1 for a name that is not declared."""
    for field in range(len(elements)):  # noqa: SIM110 - a generator would not be compiled
        if name_of[field] == name and elements[field] >= 0:
            return True
    return False


@kernel
def _object(  # noqa: PLR0911, PLR0912 - one compiled loop, like `scan`
    data: Bytes, at: Any, end: Any, name: int, name_of: Any, elements: Any, row: int, cells: Any
) -> Any:  # pragma: no cover - compiled
    """The position after an object of scalars, arrays of scalars and such objects, whose content starts at `at`. Fills no cells."""
    if _reads_elements(name, name_of, elements):
        return UNSURE_AT
    depth, opened = 1, True
    while at < end:
        at = skip_space(data, at, end)
        if at >= end:
            return UNSURE_AT
        if opened and data[at] == 125:
            at += _1
            depth -= 1
        elif data[at] != 34:
            return UNSURE_AT
        else:
            at = _value_start(data, plain_text_end(data, at + _1, end), end)
            if at == UNSURE_AT:
                return UNSURE_AT
            if data[at] == 123:
                depth += 1
                if depth > _MAX_DEPTH:
                    return UNSURE_AT
                opened = True
                at += _1
                continue
            of_array = data[at] == 91
            at = (
                _array(data, at + _1, end, -1, name_of, elements, row, cells) if of_array else _scalar(data, at, end)[3]
            )
            if at == UNSURE_AT:
                return UNSURE_AT
        opened = False
        at = skip_space(data, at, end)
        while depth > 0 and at < end and data[at] == 125:
            depth -= 1
            at = skip_space(data, at + _1, end) if depth > 0 else at + _1
        if depth == 0:
            return at
        if at >= end or data[at] != 44:
            return UNSURE_AT
        at += _1
    return UNSURE_AT


@kernel
def scan(  # noqa: PLR0912 - one compiled loop; a call per value would cost more than the value
    data: Bytes, offsets: Any, valid: Any, paths: Any, cells: Any, status: Any
) -> None:  # pragma: no cover - compiled
    """Fills the cells of all rows."""
    names, name_offsets, name_of, elements = paths
    for row in range(len(offsets) - 1):
        if not valid[row]:
            continue
        end = np.uint64(offsets[row + 1])
        at = skip_space(data, np.uint64(offsets[row]), end)
        if at >= end or data[at] != 123:
            continue
        while True:
            start = skip_space(data, at + _1, end) + _1
            if start > end or data[start - _1] != 34:
                break
            at = plain_text_end(data, start, end)
            if at == UNSURE_AT:
                break
            name = _name(data, start, at - _1, names, name_offsets)
            begin = _value_start(data, at, end)
            if begin == UNSURE_AT:
                break
            if name >= 0:
                _clear(cells[0], name, name_of, row)
            kind, whole, number = TEXT, np.int64(0), 0.0
            if data[begin] == 91:
                at = _array(data, begin + _1, end, name, name_of, elements, row, cells)
            elif data[begin] == 123:
                at = _object(data, begin + _1, end, name, name_of, elements, row, cells)
            else:
                kind, whole, number, at = _scalar(data, begin, end)
            if at == UNSURE_AT:
                break
            if name >= 0:
                for field in range(len(elements)):
                    if name_of[field] == name and elements[field] < 0:
                        _put(cells, field, row, kind, whole, number, begin, at)
            at = skip_space(data, at, end)
            if at >= end or (data[at] != 44 and data[at] != 125):
                break
            if data[at] == 125:
                if skip_space(data, at + _1, end) == end:
                    status[row] = SURE
                break


@kernel
def gather(data: Bytes, starts: Any, offsets: Any, out: Bytes) -> None:  # pragma: no cover - compiled
    """Copies a piece of `data` for each row, from starts[i] to out[offsets[i]:offsets[i + 1]]."""
    source, target = data.ctypes.data, out.ctypes.data
    for row in range(len(starts)):
        begin = np.int64(offsets[row])
        copy_bytes(target + begin, source + starts[row], offsets[row + 1] - begin)


# --- Declared fields of a column of JSON values: by the scanner where it is certain, otherwise by the serde row by row.
#
# The serde and `pick` define the result; the scanner is tested against them. Rows are rejected only if they are not JSON, or
# contain fields nested deeper than JSON is written.

Load: TypeAlias = Callable[[bytes], Any]
_FlatPath: TypeAlias = "tuple[str, int]"
_Scanned: TypeAlias = "tuple[npt.NDArray[Any], ...]"
"""The names in one text, where each begins, and for each path the number of its name and its array element."""


@dataclass(slots=True)
class JsonFields:
    """Fields of n values.

    Attributes:
        fields: One column for each path.
        null_values: bool[n]: the value is Kafka's null, or JSON's.
        without_fields: bool[n]: the value is a text, a number, true or false.
        rejected: Rows that cannot be read, with their errors.
    """

    fields: list[FieldColumn]
    null_values: npt.NDArray[np.bool_]
    without_fields: npt.NDArray[np.bool_]
    rejected: dict[int, Exception]


def read_fields(values: pa.BinaryArray, paths: Sequence[str], load: Load = loads) -> JsonFields:
    """Decodes the fields at these paths of all values."""
    if _scanned(tuple(paths)) is None:
        found = _read_nested(values, paths, load)
        if found is not None:
            return found
    return _read(values, paths, load)


def _read_nested(values: pa.BinaryArray, paths: Sequence[str], load: Load) -> JsonFields | None:
    """Decodes nested fields from the texts of the objects that contain them; None if one of these cannot be read by itself.

    The scanner knows only the names of one object. So it finds the inner objects first, then their fields.
    """
    insides: dict[str, dict[str, str]] = {}
    for path in paths:
        if _flat(path) is None:
            first, rest = first_and_rest(path)
            insides.setdefault(name_in_path(first), {})[path] = rest
    outer = list(dict.fromkeys([*(path for path in paths if _flat(path) is not None), *insides]))
    found = _read(values, outer, load)
    columns = dict(zip(outer, found.fields, strict=True))
    for first, rests in insides.items():
        texts = columns[first].texts
        texts = pa.nulls(len(values), pa.binary()) if texts is None else texts
        inside = read_fields(texts, list(rests.values()), load)
        if inside.rejected:
            return None
        columns.update(zip(rests, inside.fields, strict=True))
    found.fields = [columns[path] for path in paths]
    return found


def _read(values: pa.BinaryArray, paths: Sequence[str], load: Load) -> JsonFields:
    """Decodes fields of all values, without looking into nested objects."""
    count = len(values)
    valid = valid_rows(values)
    cells = _Cells(len(paths), count)
    status = np.full(count, UNSURE, np.uint8)
    scanned = _scanned(tuple(paths))
    if scanned is not None and is_utf8(values):
        _scan(values, valid, scanned, cells, status)
        cells.sure = status == SURE
    found = JsonFields([], ~valid, np.zeros(count, np.bool_), {})
    for row in rows_where((status == UNSURE) & valid).tolist():
        try:
            value = load(values[row].as_py())
            found.without_fields[row] = value is not None and not has_fields(value)
            if not found.without_fields[row]:
                for field, path in enumerate(paths):
                    cells.set(field, row, pick(value, path))
        except Exception as error:
            found.rejected[row] = error
            cells.clear(row)
            continue
        found.null_values[row] = value is None
    found.fields = [cells.column(field, values) for field in range(len(paths))]
    return found


class _Cells:
    def __init__(self, fields: int, rows: int) -> None:
        self.kinds = np.zeros((fields, rows), np.uint8)
        self.ints = np.zeros((fields, rows), np.int64)
        self.floats = np.zeros((fields, rows), np.float64)
        self.starts = np.zeros((fields, rows), np.int64)
        self.ends = np.zeros((fields, rows), np.int64)
        self.sure = np.zeros(rows, np.bool_)
        self.texts: list[dict[int, bytes]] = [{} for _ in range(fields)]

    def column(self, field: int, values: pa.BinaryArray) -> FieldColumn:
        texts = self._scanned_texts(field, values)
        if self.texts[field]:
            by_row = [None] * len(values) if texts is None else texts.to_pylist()
            for row, text in self.texts[field].items():
                by_row[row] = text
            texts = pa.array(by_row, pa.binary())
        return FieldColumn(self.kinds[field], self.ints[field], self.floats[field], texts)

    def _scanned_texts(self, field: int, values: pa.BinaryArray) -> pa.BinaryArray | None:
        """Copies the texts that the scanner found into one column; None if it found none."""
        is_text = (self.kinds[field] == TEXT) & self.sure
        if not is_text.any():
            return None
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum(np.where(is_text, self.ends[field] - self.starts[field], 0), out=offsets[1:])
        copied = np.empty(int(offsets[-1]), np.uint8)
        gather(np.frombuffer(values.buffers()[2], np.uint8), self.starts[field], offsets, copied)
        valid = np.packbits(is_text, bitorder="little")
        return pa.Array.from_buffers(pa.binary(), len(values), [pa.py_buffer(b) for b in (valid, offsets, copied)])

    def clear(self, row: int) -> None:
        """Resets the cells of a row, which may be partly written."""
        self.kinds[:, row] = ABSENT
        for texts in self.texts:
            texts.pop(row, None)

    def set(self, field: int, row: int, value: Any) -> None:
        kind, whole, number, text = encoded(value)
        if text is not None:
            self.texts[field][row] = text
        self.kinds[field, row], self.ints[field, row], self.floats[field, row] = kind, whole, number


def _scan(
    values: pa.BinaryArray,
    valid: npt.NDArray[np.bool_],
    scanned: _Scanned,
    cells: _Cells,
    status: npt.NDArray[np.uint8],
) -> None:
    _, offsets_buffer, data_buffer = values.buffers()
    if data_buffer is None:
        return
    scan(
        np.frombuffer(data_buffer, np.uint8),
        np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1],
        valid,
        scanned,
        (cells.kinds, cells.ints, cells.floats, cells.starts, cells.ends),
        status,
    )


@lru_cache(256)
def _scanned(paths: tuple[str, ...]) -> _Scanned | None:
    """Prepares the paths for the scanner; None if it does not support one of them."""
    flat = [place for path in paths if (place := _flat(path)) is not None]
    if len(flat) < len(paths):
        return None
    names = list(dict.fromkeys(name for name, _ in flat))
    return (
        np.frombuffer("".join(names).encode(), np.uint8),
        np.cumsum([0, *(len(name.encode()) for name in names)]).astype(np.uint64),
        np.array([names.index(name) for name, _ in flat], np.int64),
        np.array([element for _, element in flat], np.int64),
    )


def _flat(path: str) -> _FlatPath | None:
    """The name and array element (-1 = none) of a path that the scanner supports; None for other paths."""
    name, *rest = names_of(path)
    if not rest:
        return name, -1
    # "v.0": if v is an object, `pick` defines the meaning; the scanner is unsure about such rows.
    return (name, int(rest[0])) if len(rest) == 1 and rest[0].isdecimal() and len(rest[0]) < 10 else None


# --- Columns of fields within a task, from the texts that the operator above has written.


def fields_of(values: Sequence[Any], paths: Sequence[str]) -> FieldValues | None:
    """The fields at these paths, if the values are JSON texts that have not been decoded yet, and all are readable; otherwise None.

    Also None for up to `FEW_CELLS` values, because few values cost less as objects than as arrays of fields.
    """
    texts = unread_json(values) if len(values) > FEW_CELLS else None
    if texts is None or pa.types.is_large_binary(texts.type):
        return None
    found = read_fields(texts, paths)
    columns = dict(zip(paths, found.fields, strict=True))
    return None if found.rejected else FieldValues(columns, found.null_values, found.without_fields)


def with_fields(batch: ColumnarBatch, paths: Sequence[str]) -> ColumnarBatch:
    """The records with the result of `fields_of` in place of their values; the batch itself if that is None."""
    found = fields_of(batch.values, paths)
    return batch if found is None else batch.with_values(found)


def frame_of(values: FieldValues) -> Frame:
    """The fields in the form that expressions take."""
    return Frame(len(values), values.fields, values.without_fields if values.without_fields.any() else None)
