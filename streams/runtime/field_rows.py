"""A columns entry, reader's side: of each record the key and the declared fields, cut by task.

Keys travel dictionary-encoded: an aggregate sees few distinct keys, and groups by their codes. A field's cells travel
as up to three columns (whole numbers, numbers with a fraction, JSON text), each only if it has cells, so that whole
numbers stay exact up to 64 bits and nothing else is paid for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.kafka.columns import RecordColumns
from streams.operators.column_rows import FLOAT, INT, FieldColumn
from streams.runtime.extract import DROPPED
from streams.runtime.json_fields import read_fields
from streams.runtime.route import split_by_task, tasks_of
from streams.runtime.rows import RowBatch
from streams.runtime.run import Run, SourceRows
from streams.serdes.base import Serde
from streams.topology.plan import Entry


def field_rows(
    columns: RecordColumns,
    source: SourceRows,
    timestamps: npt.NDArray[np.int64],
    seq: int,
    entry: Entry,
    serde: Serde,
    tasks: int,
    run: Run,
) -> Iterator[tuple[int, RowBatch]]:
    """Decode the declared fields and cut the rows by task.

    Args:
        columns: The records.
        source: The same, for error reports.
        timestamps: Event times; `DROPPED` marks records that end here.
        seq: `seq` of all rows.
        entry: Which fields, and which number the rows carry.
        serde: Reads a whole value where that is needed.
        tasks: Number of tasks.
        run: For policies and counters.
    """
    found = read_fields(columns.values, entry.fields, partial(serde.deserialize, columns.topic))
    kept = timestamps != DROPPED
    for row, error in found.rejected.items():
        if kept[row]:
            run.handlers.handle("deserialization", entry.source or entry.node, source.origin(row), error)
            kept[row] = False
    keys = columns.keys.dictionary_encode()
    arrays: dict[str, pa.Array] = {
        "offset": pa.array(columns.offsets),
        "seq": pa.array(np.full(len(columns), seq, np.int32)),
        "timestamp": pa.array(timestamps),
        "key": keys.indices,
    }
    if found.null_values.any():
        arrays["null"] = pa.array(found.null_values)
    for index, field in enumerate(found.fields):
        arrays.update(_cells(index, field, len(columns)))
    if run.settings.keeps_source_bytes:
        arrays["source_value"] = columns.values
        if columns.headers is not None:
            arrays["headers"] = columns.headers
    rows = pa.RecordBatch.from_pydict(arrays)
    routes = _routes(keys, columns.partition, tasks)
    if not kept.all():
        rows, routes = rows.filter(pa.array(kept)), routes[kept]
    for task, part in split_by_task(rows, routes):
        yield task, RowBatch(columns.topic, columns.partition, entry.index, _with_keys(part, keys.dictionary))


def _cells(index: int, field: FieldColumn, count: int) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    is_int, is_float = field.kinds == INT, field.kinds == FLOAT
    if is_int.any():
        columns[f"f{index}"] = pa.array(field.ints, mask=~is_int)
    if is_float.any():
        columns[f"d{index}"] = pa.array(field.floats, mask=~is_float)
    if field.texts:
        columns[f"j{index}"] = pa.array([field.texts.get(row) for row in range(count)], pa.binary())
    return columns


def _routes(keys: pa.DictionaryArray, partition: int, tasks: int) -> npt.NDArray[np.int32]:
    """Task of each row, hashing each distinct key once."""
    of_keys = np.append(tasks_of(keys.dictionary, partition, tasks), np.int32(partition % tasks))
    codes = keys.indices.fill_null(len(keys.dictionary)).to_numpy()
    routes: npt.NDArray[np.int32] = of_keys[codes]
    return routes


def _with_keys(rows: pa.RecordBatch, dictionary: pa.BinaryArray) -> pa.RecordBatch:
    """Put the keys back as a dictionary that holds only those of this part."""
    at = rows.schema.get_field_index("key")
    codes = rows.column(at)
    used = pc.unique(codes.drop_null())
    if len(used) < len(dictionary):
        place = np.zeros(len(dictionary), np.int32)
        place[used.to_numpy()] = np.arange(len(used), dtype=np.int32)
        missing = None if codes.null_count == 0 else codes.is_null().to_numpy(zero_copy_only=False)
        codes = pa.array(place[codes.fill_null(0).to_numpy()], mask=missing)
        dictionary = dictionary.take(used)
    return rows.set_column(at, "key", pa.DictionaryArray.from_arrays(codes, dictionary))
