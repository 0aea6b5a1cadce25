"""Declared fields of a column of JSON values: by the scanner where it is certain, else by orjson row by row.

orjson and `pick` are the definition, and the scanner's reference. Rows are rejected only if they are not JSON, or contain
fields nested deeper than orjson writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from streams.model.fields import has_fields, pick
from streams.operators.aggregate.columns.column_rows import ABSENT, TEXT, FieldColumn, encoded
from streams.runtime.reader.json_scan import SURE, UNSURE, gather, scan
from streams.runtime.rows import NULL, SCALAR
from streams.serdes.json_normal import is_utf8

Load: TypeAlias = Callable[[bytes], Any]
_FlatPath: TypeAlias = "tuple[str, int]"


@dataclass(slots=True)
class JsonFields:
    """Fields of n values.

    Attributes:
        fields: One column per path.
        null_values: bool[n]: Kafka's null, or JSON's.
        without_fields: bool[n]: a text, a number, true or false.
        rejected: Rows that cannot be read, with their errors.
    """

    fields: list[FieldColumn]
    null_values: npt.NDArray[np.bool_]
    without_fields: npt.NDArray[np.bool_]
    rejected: dict[int, Exception]

    @property
    def flags(self) -> dict[str, npt.NDArray[np.bool_]]:
        """The flags of whole values, by the names of the columns."""
        return {NULL: self.null_values, SCALAR: self.without_fields}


def read_fields(values: pa.BinaryArray, paths: Sequence[str], load: Load = orjson.loads) -> JsonFields:
    """Decode some fields of all values.

    Args:
        values: JSON text, null = no value.
        paths: Dotted paths; `v.0` is the first element of an array. Deeper ones are read by orjson, which is slower.
        load: Reads one whole value, where the scanner is uncertain; its errors reject the row.
    """
    count = len(values)
    valid = np.ones(count, np.bool_) if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    cells = _Cells(len(paths), count)
    status = np.full(count, UNSURE, np.uint8)
    flat = [place for path in paths if (place := _flat(path)) is not None]
    if len(flat) == len(paths) and is_utf8(values):
        _scan(values, valid, flat, cells, status)
        cells.sure = status == SURE
    found = JsonFields([], ~valid, np.zeros(count, np.bool_), {})
    for row in np.flatnonzero((status == UNSURE) & valid).tolist():
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
    """Cells of all fields and rows."""

    def __init__(self, fields: int, rows: int) -> None:
        self.kinds = np.zeros((fields, rows), np.uint8)
        self.ints = np.zeros((fields, rows), np.int64)
        self.floats = np.zeros((fields, rows), np.float64)
        self.starts = np.zeros((fields, rows), np.int64)
        self.ends = np.zeros((fields, rows), np.int64)
        self.sure = np.zeros(rows, np.bool_)
        self.texts: list[dict[int, bytes]] = [{} for _ in range(fields)]

    def column(self, field: int, values: pa.BinaryArray) -> FieldColumn:
        """One field of all rows."""
        texts = self._scanned_texts(field, values)
        if self.texts[field]:
            by_row = [None] * len(values) if texts is None else texts.to_pylist()
            for row, text in self.texts[field].items():
                by_row[row] = text
            texts = pa.array(by_row, pa.binary())
        return FieldColumn(self.kinds[field], self.ints[field], self.floats[field], texts)

    def _scanned_texts(self, field: int, values: pa.BinaryArray) -> pa.BinaryArray | None:
        """Text cells found by the scanner, copied together."""
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
        """Reset the row's cells, which may be partly written."""
        self.kinds[:, row] = ABSENT
        for texts in self.texts:
            texts.pop(row, None)

    def set(self, field: int, row: int, value: Any) -> None:
        """Write one decoded cell."""
        kind, whole, number, text = encoded(value)
        if text is not None:
            self.texts[field][row] = text
        self.kinds[field, row], self.ints[field, row], self.floats[field, row] = kind, whole, number


def _scan(
    values: pa.BinaryArray,
    valid: npt.NDArray[np.bool_],
    paths: Sequence[_FlatPath],
    cells: _Cells,
    status: npt.NDArray[np.uint8],
) -> None:
    _, offsets_buffer, data_buffer = values.buffers()
    if data_buffer is None:
        return
    names = list(dict.fromkeys(name for name, _ in paths))
    scan(
        np.frombuffer(data_buffer, np.uint8),
        np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1],
        valid,
        (
            np.frombuffer("".join(names).encode(), np.uint8),
            np.cumsum([0, *(len(name.encode()) for name in names)]).astype(np.uint64),
            np.array([names.index(name) for name, _ in paths], np.int64),
            np.array([element for _, element in paths], np.int64),
        ),
        (cells.kinds, cells.ints, cells.floats, cells.starts, cells.ends),
        status,
    )


def _flat(path: str) -> _FlatPath | None:
    """Name and array element (-1 = none) of a path that the scanner supports."""
    name, dot, rest = path.partition(".")
    if not dot:
        return name, -1
    # "v.0": if v is an object, `pick` defines the meaning; the scanner is uncertain about such rows.
    return (name, int(rest)) if rest.isdecimal() and len(rest) < 10 else None
