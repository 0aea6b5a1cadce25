"""Declared fields of a column of JSON values: by the scanner where it is sure, by orjson row by row where it is not.

orjson and `pick` are the plain meaning of it all, and the scanner's twin. Only rows that are no JSON are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from streams.operators.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn
from streams.operators.fields import pick
from streams.runtime.json_scan import SURE, UNSURE, scan

Load: TypeAlias = Callable[[bytes], Any]


@dataclass(slots=True)
class JsonFields:
    """Fields of n values.

    Attributes:
        fields: One column per path.
        null_values: bool[n]: Kafka's null, or JSON's.
        rejected: Rows that are no JSON, and why.
    """

    fields: list[FieldColumn]
    null_values: npt.NDArray[np.bool_]
    rejected: dict[int, Exception]


def read_fields(values: pa.BinaryArray, paths: Sequence[str], load: Load = orjson.loads) -> JsonFields:
    """Decode some fields of all values.

    Args:
        values: JSON text, null = no value.
        paths: Dotted paths. A nested path is read by orjson, which is slower.
        load: Reads one whole value, where the scanner is not sure; its errors reject the row.
    """
    count = len(values)
    valid = np.ones(count, np.bool_) if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    cells = _Cells(len(paths), count)
    status = np.full(count, UNSURE, np.uint8)
    if not any("." in path for path in paths) and _is_utf8(values):
        _scan(values, valid, paths, cells, status)
        cells.take_texts(values, status)
    found = JsonFields([], ~valid, {})
    for row in np.flatnonzero((status == UNSURE) & valid).tolist():
        try:
            value = load(values[row].as_py())
        except Exception as error:
            found.rejected[row] = error
            cells.clear(row)
            continue
        found.null_values[row] = value is None
        for field, path in enumerate(paths):
            cells.set(field, row, pick(value, path))
    found.fields = [
        FieldColumn(cells.kinds[i], cells.ints[i], cells.floats[i], cells.texts[i]) for i in range(len(paths))
    ]
    return found


class _Cells:
    """Cells of all fields and rows."""

    def __init__(self, fields: int, rows: int) -> None:
        self.kinds = np.zeros((fields, rows), np.uint8)
        self.ints = np.zeros((fields, rows), np.int64)
        self.floats = np.zeros((fields, rows), np.float64)
        self.starts = np.zeros((fields, rows), np.int64)
        self.ends = np.zeros((fields, rows), np.int64)
        self.texts: list[dict[int, bytes]] = [{} for _ in range(fields)]

    def take_texts(self, values: pa.BinaryArray, status: npt.NDArray[np.uint8]) -> None:
        """Copy the JSON text of text cells."""
        data = values.buffers()[2]
        for field, texts in enumerate(self.texts):
            rows = np.flatnonzero((self.kinds[field] == TEXT) & (status == SURE))
            if len(rows):
                view = memoryview(data)
                starts, ends = self.starts[field][rows].tolist(), self.ends[field][rows].tolist()
                texts.update((row, bytes(view[a:b])) for row, a, b in zip(rows.tolist(), starts, ends, strict=True))

    def clear(self, row: int) -> None:
        """Forget what a scan began to write."""
        self.kinds[:, row] = ABSENT

    def set(self, field: int, row: int, value: Any) -> None:
        """Write one decoded cell. A whole number beyond 64 bits travels as text."""
        kind, whole, number = ABSENT, 0, 0.0
        if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
            kind, whole = INT, value
        elif isinstance(value, float):
            kind, number = FLOAT, value
        elif value is not None:
            kind = TEXT
            self.texts[field][row] = orjson.dumps(value)
        self.kinds[field, row], self.ints[field, row], self.floats[field, row] = kind, whole, number


def _is_utf8(values: pa.BinaryArray) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _scan(
    values: pa.BinaryArray,
    valid: npt.NDArray[np.bool_],
    paths: Sequence[str],
    cells: _Cells,
    status: npt.NDArray[np.uint8],
) -> None:
    names = [path.encode() for path in paths]
    _, offsets_buffer, data_buffer = values.buffers()
    if data_buffer is None:
        return
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1]
    name_offsets = np.cumsum([0, *map(len, names)]).astype(np.uint64)
    scan(
        np.frombuffer(data_buffer, np.uint8),
        offsets,
        valid,
        np.frombuffer(b"".join(names), np.uint8),
        name_offsets,
        cells.kinds,
        cells.ints,
        cells.floats,
        cells.starts,
        cells.ends,
        status,
    )
