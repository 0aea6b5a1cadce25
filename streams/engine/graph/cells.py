"""Reads the keys and values of many rows. An error in one row does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import FEW_ROWS, BinaryColumn, codes_in, rows_where
from state.headers import decode_headers
from streams.engine.graph.keys import read_key
from streams.engine.graph.node import may_be_the_records_fault
from streams.engine.graph.values import PICKLED, load_written
from streams.errors import ValueNotPicklableError
from streams.model.record import Headers
from streams.operators.columnar import NULL_KEY, EncodedValues, KeyColumn
from streams.operators.expressions import first_bytes
from streams.serdes.base import Serde
from streams.serdes.columns import normal_cells, read_all
from streams.serdes.exactness import reads_alone
from streams.serdes.json import JsonSerde

_PART = 512


class CellReader:
    """Reads keys and values.

    Args:
        topics: One topic for all rows, or the topic of each row.
        headers: The encoded headers of each row; None if no row has any.
    """

    def __init__(self, topics: str | Sequence[str], headers: Sequence[bytes | None] | None) -> None:
        self._topic = topics if isinstance(topics, str) else ""
        self._topics = None if isinstance(topics, str) else topics
        self._headers: list[Headers] | None = None
        if headers is not None:
            self._headers = [tuple(decode_headers(cell)) if cell else () for cell in headers]

    def keys(self, serde: Serde, column: BinaryColumn | pa.DictionaryArray, failed: dict[int, Exception]) -> KeyColumn:
        """Reads keys in their canonical bytes (`streams.engine.graph.keys`). Errors go to `failed`, by row."""
        if self._topics is not None or not (self._headers is None or reads_alone(serde)):
            return KeyColumn.of(self._read_keys(serde, column.to_pylist(), failed))
        codes, data = _distinct(column)
        wrong: dict[int, Exception] = {}
        objects = self._read_alone(serde, data, wrong)
        for code, error in wrong.items():
            failed.update(dict.fromkeys(rows_where(codes == code).tolist(), error))
        # A key read as None (JSON's null) is a null key.
        nulls = [code for code, key in enumerate(objects) if key is None]
        if nulls:
            codes = np.where(np.isin(codes, nulls), np.int32(NULL_KEY), codes)
        return KeyColumn(codes, objects, data, serde)

    def _read_keys(self, serde: Serde, cells: list[bytes | None], failed: dict[int, Exception]) -> list[Any]:
        headers = repeat(()) if self._headers is None else self._headers
        topics = repeat(self._topic) if self._topics is None else self._topics
        read = partial(read_key, serde)
        return [
            _one(read, topic, cell, of_cell, row, failed)
            for row, (topic, cell, of_cell) in enumerate(zip(topics, cells, headers, strict=False))
        ]

    def values(self, serde: Serde, column: BinaryColumn, failed: dict[int, Exception], encoded: bool) -> Sequence[Any]:
        """Reads the values, or leaves them as bytes if `encoded` is set and the serde allows it. Errors go to `failed`, by row."""
        normal = normal_cells(serde, column) if encoded and self._topics is None else None
        if normal is None:
            return self._read(serde, column.to_pylist(), failed)
        nulls: dict[int, None] = {}
        others = rows_where(~normal)
        for start in range(0, len(others), _PART):
            rows = others[start : start + _PART]
            wrong: dict[int, Exception] = {}
            read = self._read_alone(serde, column.take(pa.array(rows)).to_pylist(), wrong)
            nulls |= {row: None for row, value in zip(rows.tolist(), read, strict=True) if value is None}
            for at, error in wrong.items():
                failed.setdefault(int(rows[at]), error)
        return EncodedValues(column, serde, self._topic, nulls, normal)

    def written(self, column: BinaryColumn, encoded: bool) -> Sequence[Any]:
        """Reads values in the format of a reader (`load_written`), or leaves them as bytes if `encoded` is set."""
        if (first_bytes(column) == PICKLED).any():
            return [None if cell is None else load_written(cell) for cell in column.to_pylist()]
        serde = JsonSerde()
        return EncodedValues(column, serde, self._topic, {}) if encoded else self._read(serde, column.to_pylist(), {})

    def _read_alone(self, serde: Serde, cells: Sequence[bytes | None], failed: dict[int, Exception]) -> list[Any]:
        """Reads cells whose serde does not look at headers."""
        return _each(lambda: read_all(serde, self._topic, cells, None), serde.deserialize, self._topic, cells, failed)

    def _read(self, serde: Serde, cells: list[bytes | None], failed: dict[int, Exception]) -> list[Any]:
        if self._topics is None:
            headers = self._headers

            def read_together() -> list[Any]:
                return read_all(serde, self._topic, cells, headers)

            return _each(read_together, serde.deserialize, self._topic, cells, failed, headers)
        objects: list[Any] = []
        for row, (topic, cell) in enumerate(zip(self._topics, cells, strict=True)):
            objects.append(
                _one(serde.deserialize, topic, cell, () if self._headers is None else self._headers[row], row, failed)
            )
        return objects


def _distinct(column: BinaryColumn | pa.DictionaryArray) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """The number of each cell's value (`NULL_KEY` for null), and the distinct values in the order of these numbers."""
    if isinstance(column, pa.DictionaryArray):
        keys = column
    elif len(column) <= FEW_ROWS:
        cells, numbers = column.to_pylist(), dict[bytes, int]()
        codes = [NULL_KEY if cell is None else numbers.setdefault(cell, len(numbers)) for cell in cells]
        return np.array(codes, np.int32), list(numbers)
    else:
        keys = column.dictionary_encode()
    return codes_in(keys, NULL_KEY), keys.dictionary.to_pylist()


def _each(
    together: Callable[[], list[Any]],
    read: Callable[..., Any],
    topic: str,
    cells: Sequence[bytes | None],
    failed: dict[int, Exception],
    headers: Sequence[Headers] | None = None,
) -> list[Any]:
    """Reads all cells in one call. If that fails, reads them one by one, notes each failure, and returns None in its place."""
    try:
        return together()
    except Exception as error:
        if not may_be_the_records_fault(error):
            raise
    return [
        _one(read, topic, cell, () if headers is None else headers[row], row, failed) for row, cell in enumerate(cells)
    ]


def _one(
    read: Callable[..., Any], topic: str, cell: bytes | None, headers: Headers, row: int, failed: dict[int, Exception]
) -> Any:
    try:
        return read(topic, cell, headers)
    except ValueNotPicklableError:
        raise
    except Exception as error:
        failed.setdefault(row, error)
        return None
