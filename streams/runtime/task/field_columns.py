"""The task's side of a columns entry: batches of several readers joined into one `ColumnRows` in merge order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, TEXT, ColumnRows, FieldColumn
from streams.runtime.rows import NULL, SCALAR, RowBatch
from streams.runtime.step_context import SourceRows
from streams.runtime.task.merge import columns_as_raw, merged


def column_rows(batches: Sequence[RowBatch], paths: Sequence[str]) -> ColumnRows:
    """Join batches of one node, or of several that read the same rows."""
    sequence, order = merged(batches)
    rows = [batches[i].rows for i in sequence]
    keys = pa.chunked_array([batch.column("key") for batch in rows]).unify_dictionaries()
    codes = [chunk.indices.fill_null(-1).to_numpy() for chunk in keys.chunks]
    headers = _binary(rows, "headers", order)
    return ColumnRows(
        keys.chunk(0).dictionary.to_pylist() if keys.num_chunks else [],
        _joined(codes, np.int32)[order],
        _joined([batch.column("timestamp").to_numpy() for batch in rows], np.int64)[order],
        _joined([_flags(batch, NULL) for batch in rows], np.bool_)[order],
        {path: _field(rows, path, order) for path in paths},
        _joined([_flags(batch, SCALAR) for batch in rows], np.bool_)[order]
        if any(SCALAR in batch.schema.names for batch in rows)
        else None,
        None if headers is None else headers.to_pylist(),
        partial(_source_row, [batches[i] for i in sequence], order),
    )


def _source_row(batches: Sequence[RowBatch], order: npt.NDArray[np.int64], row: int) -> tuple[SourceRows, int]:
    """The source record of one row, which is needed only for errors."""
    at = int(order[row])
    for batch in batches:
        if at < batch.rows.num_rows:
            one = RowBatch(batch.topic, batch.partition, batch.entry, batch.rows.slice(at, 1))
            return columns_as_raw(one), 0
        at -= batch.rows.num_rows
    raise IndexError(row)


def _field(rows: Sequence[pa.RecordBatch], path: str, order: npt.NDArray[np.int64]) -> FieldColumn:
    kinds, ints, floats = [], [], []
    for batch in rows:
        kind = np.full(batch.num_rows, ABSENT, np.uint8)
        ints.append(_numbers(batch, f"i:{path}", np.int64, kind, INT))
        floats.append(_numbers(batch, f"d:{path}", np.float64, kind, FLOAT))
        if f"j:{path}" in batch.schema.names:
            kind[batch.column(f"j:{path}").is_valid().to_numpy(zero_copy_only=False)] = TEXT
        kinds.append(kind)
    return FieldColumn(
        _joined(kinds, np.uint8)[order],
        _joined(ints, np.int64)[order],
        _joined(floats, np.float64)[order],
        _binary(rows, f"j:{path}", order),
    )


def _binary(rows: Sequence[pa.RecordBatch], name: str, order: npt.NDArray[np.int64]) -> pa.BinaryArray | None:
    """A column that may be missing in a batch, in order; None if all batches lack it."""
    if not any(name in batch.schema.names for batch in rows):
        return None
    cells = [
        batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows, pa.binary()) for batch in rows
    ]
    return pa.concat_arrays(cells).take(pa.array(order))


def _numbers(
    batch: pa.RecordBatch, name: str, dtype: type, kinds: npt.NDArray[np.uint8], kind: int
) -> npt.NDArray[Any]:
    """The numbers of one column, 0 where there is none; marks the cells with numbers."""
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


def _flags(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.bool_]:
    """A column of booleans, which a batch has only if any is true."""
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, np.bool_)
    flags: npt.NDArray[np.bool_] = batch.column(name).to_numpy(zero_copy_only=False)
    return flags


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)
