"""A columns entry, task's side: batches of several readers joined into one `ColumnRows` in merge order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.operators.column_rows import ABSENT, FLOAT, INT, TEXT, ColumnRows, FieldColumn
from streams.runtime.row_order import merged
from streams.runtime.rows import RowBatch


def column_rows(batches: Sequence[RowBatch], paths: Sequence[str]) -> ColumnRows:
    """Join batches of one node.

    Args:
        batches: In any order.
        paths: Field paths, in the order of the entry.
    """
    sequence, order = merged(batches)
    rows = [batches[i].rows for i in sequence]
    keys = pa.chunked_array([batch.column("key") for batch in rows]).unify_dictionaries()
    codes = [chunk.indices.fill_null(-1).to_numpy() for chunk in keys.chunks]
    return ColumnRows(
        keys.chunk(0).dictionary.to_pylist() if keys.num_chunks else [],
        _joined(codes, np.int32)[order],
        _joined([batch.column("timestamp").to_numpy() for batch in rows], np.int64)[order],
        _joined([_nulls(batch) for batch in rows], np.bool_)[order],
        {path: _field(rows, index, order) for index, path in enumerate(paths)},
    )


def _field(rows: Sequence[pa.RecordBatch], index: int, order: npt.NDArray[np.int64]) -> FieldColumn:
    kinds, ints, floats = [], [], []
    texts: dict[int, bytes] = {}
    start = 0
    for batch in rows:
        count = batch.num_rows
        kind = np.full(count, ABSENT, np.uint8)
        ints.append(_numbers(batch, f"f{index}", np.int64, kind, INT))
        floats.append(_numbers(batch, f"d{index}", np.float64, kind, FLOAT))
        name = f"j{index}"
        if name in batch.schema.names:
            for row, text in enumerate(batch.column(name).to_pylist()):
                if text is not None:
                    kind[row] = TEXT
                    texts[start + row] = text
        kinds.append(kind)
        start += count
    if texts:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        texts = {int(place[row]): text for row, text in texts.items()}
    return FieldColumn(
        _joined(kinds, np.uint8)[order], _joined(ints, np.int64)[order], _joined(floats, np.float64)[order], texts
    )


def _numbers(
    batch: pa.RecordBatch, name: str, dtype: type, kinds: npt.NDArray[np.uint8], kind: int
) -> npt.NDArray[Any]:
    """The numbers of one column, 0 where there is none; marks the cells that have one."""
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, dtype)
    column = batch.column(name)
    if column.null_count == 0:
        kinds[:] = kind
    else:
        kinds[column.is_valid().to_numpy(zero_copy_only=False)] = kind
        column = column.fill_null(0)
    numbers: npt.NDArray[Any] = column.to_numpy()
    return numbers


def _nulls(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    if "null" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.bool_)
    nulls: npt.NDArray[np.bool_] = batch.column("null").to_numpy(zero_copy_only=False)
    return nulls


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)
