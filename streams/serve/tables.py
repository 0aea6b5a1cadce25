"""Rows as Arrow: answers to clients that accept `application/vnd.apache.arrow.stream`, and the tables that SQL reads.

Columns are `key`, `value`, `timestamp`, `window_start` and `window_end`, as far as a store has them. Texts, numbers, booleans and
bytes have their types; everything else is a text column of JSON, which Arrow calls `arrow.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from streams.application.store_rows import StoredRows, StoreReader, StoreRow
from streams.errors import SerdeError
from streams.serdes.base import Serde
from streams.serdes.by_type import DefaultKeySerde
from streams.serdes.json_shown import shown_json, taken, value_of
from streams.serdes.json_text import loads
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    StringSerde,
)
from streams.serve.reading import Answer, ReadStore
from streams.serve.requests import tasks_json

ARROW = "application/vnd.apache.arrow.stream"
_JSON = {"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""}
_TYPES: Mapping[type[Any], pa.DataType] = {
    StringSerde: pa.string(),
    DefaultKeySerde: pa.string(),
    Int16Serde: pa.int64(),
    Int32Serde: pa.int64(),
    Int64Serde: pa.int64(),
    Float32Serde: pa.float64(),
    Float64Serde: pa.float64(),
    BooleanSerde: pa.bool_(),
    BytesSerde: pa.binary(),
}
_Column = tuple[pa.Array, bool]
"""A column, and whether it is JSON."""


def type_of(serde: Serde) -> pa.DataType | None:
    """The type of a column of keys or values; None: it is JSON."""
    return _TYPES.get(type(taken(serde)))


def table_of(store: ReadStore, rows: Sequence[StoreRow]) -> pa.Table:
    """A table of rows that `StoreReader.shown` has made. Values that are computed from the stored ones may have any type.

    Raises:
        SerdeError: A value has no form in Arrow.
    """
    reader = store.reader
    key = _shown_column([row.key for row in rows], reader.key_serde)
    value = _shown_column([row.value for row in rows], reader.value_serde)
    windows = [(row.window_start, row.window_end) for row in rows]
    return _table(store, key, value, [row.timestamp for row in rows], windows)


def stream(store: ReadStore, rows: StoredRows | Sequence[bytes], answer: Answer, cursor: str | None) -> bytes:
    """An answer as an Arrow stream. The schema's metadata has `tasks` and `cursor`, which JSON has next to the rows.

    Args:
        store: The store.
        rows: The rows, as they are stored; or as JSON text (`StoreReader.text`), if other processes have some.
        answer: The commits that the rows are from.
        cursor: Continues after the last row; None: there are no more.

    Raises:
        SerdeError: A row cannot be read.
    """
    table = _stored(store, rows) if isinstance(rows, StoredRows) else table_of(store, list(map(_of_text, rows)))
    said = {"tasks": shown_json(tasks_json(answer)), **({} if cursor is None else {"cursor": cursor.encode()})}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.with_metadata(said)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _of_text(row: bytes) -> StoreRow:
    data = loads(row)
    window = data.get("window", {})
    return StoreRow(0, data["key"], data["value"], window.get("start"), window.get("end"), data.get("timestamp"))


def _stored(store: ReadStore, rows: StoredRows) -> pa.Table:
    reader = store.reader
    key = _stored_column(rows.keys, reader, reader.key_serde, reader.key_texts)
    serde = None if reader.computes else reader.value_serde
    value = _stored_column(rows.values, reader, serde, reader.value_texts)
    return _table(store, key, value, rows.timestamps, rows.windows or ())


def _table(
    store: ReadStore,
    key: _Column,
    value: _Column,
    timestamps: Sequence[int | None] | None,
    windows: Sequence[tuple[int | None, int | None]],
) -> pa.Table:
    columns = {"key": key, "value": value}
    if store.kind.timestamped:
        columns["timestamp"] = pa.array(timestamps, pa.int64()), False
    if store.kind.segmented:
        columns["window_start"] = pa.array([start for start, _ in windows], pa.int64()), False
        columns["window_end"] = pa.array([end for _, end in windows], pa.int64()), False
    fields = [
        pa.field(name, array.type, metadata=_JSON if is_json else None) for name, (array, is_json) in columns.items()
    ]
    return pa.table([array for array, _ in columns.values()], pa.schema(fields))


def _shown_column(cells: Sequence[Any], serde: Serde) -> _Column:
    kind = type_of(serde)
    if kind is not None:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, SerdeError):
            if kind in (pa.binary(), pa.float64()):
                # In JSON, these are texts: all bytes, and floats that are not finite.
                cells = [value_of(serde, "", cell) for cell in cells]
            return pa.array(cells, kind), False
    texts = (None if cell is None else shown_json(cell).decode() for cell in cells)
    return pa.array(texts, pa.string()), True


def _stored_column(
    cells: pa.BinaryArray, reader: StoreReader, serde: Serde | None, texts: Callable[[pa.BinaryArray], list[bytes]]
) -> _Column:
    kind = None if serde is None else type_of(serde)
    if kind is None or serde is None:
        return pa.array(texts(cells), pa.binary()).cast(pa.string()), True
    if kind == pa.binary():
        return cells, False
    if kind == pa.string():
        with suppress(pa.ArrowInvalid):
            return cells.cast(kind), False
    return pa.array([serde.deserialize(reader.topic, cell) for cell in cells.to_pylist()], kind), False
