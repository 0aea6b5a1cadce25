"""The reader's side of a columns entry: the key and the declared fields of each record, split by task.

Keys are sent dictionary-encoded, because an aggregate sees few distinct keys, and groups by their codes. A field's cells are
sent as up to three columns (integers, numbers with a fraction, JSON text), each only if it has cells, so that
integers stay exact up to 64 bits at no other cost.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.kafka.columns import RecordColumns
from streams.operators.aggregate.columns.column_rows import FLOAT, INT, FieldColumn
from streams.runtime.reader.route import tasks_of


def field_rows(
    columns: RecordColumns,
    new_keys: pa.DictionaryArray | None,
    timestamps: npt.NDArray[np.int64],
    seq: int,
    fields: Mapping[str, FieldColumn],
    flags: Mapping[str, npt.NDArray[np.bool_]],
    tasks: int,
    with_source: bool,
) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
    """Rows of decoded fields.

    Args:
        columns: The records.
        new_keys: The keys, if they are not the records' own.
        timestamps: Event times.
        seq: `seq` of all rows.
        fields: Decoded fields by path.
        flags: bool[n] each: `NULL`, whether a value is null, and `SCALAR`, whether it has no fields.
        tasks: Number of tasks.
        with_source: Include the original values.

    Returns:
        The rows, and the task of each.
    """
    keys = columns.keys.dictionary_encode() if new_keys is None else new_keys
    arrays: dict[str, pa.Array] = {
        "offset": pa.array(columns.offsets),
        "seq": pa.array(np.full(len(columns), seq, np.int32)),
        "timestamp": pa.array(timestamps),
        "key": keys,
    }
    arrays.update({name: pa.array(flag) for name, flag in flags.items() if flag.any()})
    for path, field in fields.items():
        arrays.update(_cells(path, field))
    if with_source:
        arrays["source_value"] = columns.values
    if new_keys is not None:
        arrays["source_key"] = columns.keys if with_source else pa.nulls(len(columns))
    if columns.headers is not None:
        arrays["headers"] = columns.headers
    return pa.RecordBatch.from_pydict(arrays), _routes(keys, columns.partition, tasks)


def _cells(path: str, field: FieldColumn) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    is_int, is_float = field.kinds == INT, field.kinds == FLOAT
    if is_int.any():
        columns[f"i:{path}"] = pa.array(field.ints, mask=~is_int)
    if is_float.any():
        columns[f"d:{path}"] = pa.array(field.floats, mask=~is_float)
    if field.texts is not None:
        columns[f"j:{path}"] = field.texts
    return columns


def _routes(keys: pa.DictionaryArray, partition: int, tasks: int) -> npt.NDArray[np.int32]:
    """Task of each row, hashing each distinct key once."""
    of_keys = np.append(tasks_of(keys.dictionary, partition, tasks), np.int32(partition % tasks))
    codes = keys.indices.fill_null(len(keys.dictionary)).to_numpy()
    routes: npt.NDArray[np.int32] = of_keys[codes]
    return routes


def compact_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Reduce the keys' dictionary, if any, to what these rows use: a task need not get all keys."""
    at = rows.schema.get_field_index("key")
    keys = rows.column(at)
    if not pa.types.is_dictionary(keys.type):
        return rows
    codes, dictionary = keys.indices, keys.dictionary
    used = pc.unique(codes.drop_null())
    if len(used) == len(dictionary):
        return rows
    place = np.zeros(len(dictionary), np.int32)
    place[used.to_numpy()] = np.arange(len(used), dtype=np.int32)
    missing = None if codes.null_count == 0 else codes.is_null().to_numpy(zero_copy_only=False)
    codes = pa.array(place[codes.fill_null(0).to_numpy()], mask=missing)
    return rows.set_column(at, "key", pa.DictionaryArray.from_arrays(codes, dictionary.take(used)))
