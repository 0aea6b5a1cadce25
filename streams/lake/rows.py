"""Rows of a sink's internal topic as Arrow columns: the table's columns, and where each row stood in the topic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from state.kafka.columns import RecordColumns
from streams.model.row_layout import RowLayout
from streams.model.scalar_cells import Cell
from streams.model.table_columns import ColumnType, ListType, MapType, StructType, quoted

PARTITION, OFFSET, DELETED = "_partition", "_offset", "_deleted"
"""The columns besides the table's: the place in the internal topic, and whether the row of the key is deleted."""

_PLACES = (("_partition", "INT"), ("_offset", "BIGINT"), ("_deleted", "BOOLEAN"))
_SCALARS = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATE": pa.date32(),
    "DECIMAL(38,18)": pa.decimal128(38, 18),
}


def sql_columns(layout: RowLayout) -> str:
    """The table's columns in Spark SQL."""
    return ", ".join(f"{quoted(column.name)} {column.type.sql}" for column in layout.columns)


def sql_schema(layout: RowLayout) -> str:
    """All columns of the rows in Spark SQL."""
    return ", ".join([sql_columns(layout), *(f"{name} {kind}" for name, kind in _PLACES)])


def arrow_schema(layout: RowLayout) -> pa.Schema:
    """All columns of the rows as Arrow has them."""
    columns = [pa.field(column.name, arrow_type(column.type)) for column in layout.columns]
    return pa.schema(
        [*columns, pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64()), pa.field(DELETED, pa.bool_())]
    )


def arrow_type(of: ColumnType) -> pa.DataType:
    """The Arrow type of a column's type."""
    if isinstance(of, ListType):
        return pa.list_(arrow_type(of.item))
    if isinstance(of, MapType):
        return pa.map_(pa.string(), arrow_type(of.item))
    if isinstance(of, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in of.fields])
    return _SCALARS[of.sql]


def row_batch(records: RecordColumns, layout: RowLayout, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of some records."""
    values = records.values.to_pylist()
    rows = [_row(key, value, layout) for key, value in zip(records.keys.to_pylist(), values, strict=True)]
    columns: list[Any] = []
    for at, (name, column) in enumerate(zip(layout.names, layout.columns, strict=True)):
        read = column.type.read
        cells = [None if (cell := row.get(name)) is None else read(cell) for row in rows]
        columns.append(pa.array(cells, schema.field(at).type))
    columns.append(pa.array(_places(records.partition, rows, layout), pa.int32()))
    columns.append(pa.array(records.offsets))
    columns.append(pa.array([value is None for value in values], pa.bool_()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _places(partition: int, rows: Sequence[Mapping[str, Cell]], layout: RowLayout) -> Any:
    """The partition of each row; below 0 if an earlier version has written it with another cell for its key.

    That version could send the rows of one key to several partitions. Those rows are older than all that have the present cell.
    """
    keys = [
        column
        for column in layout.columns
        if column.name in layout.keys and re.search("DECIMAL|DOUBLE", column.type.sql)
    ]
    if not keys:
        return np.full(len(rows), partition, np.int32)

    def is_old(row: Mapping[str, Cell]) -> bool:
        return any(
            str(cell) != str(column.type.cell(column.type.read(cell)))  # as text: -0.0 equals 0.0
            for column in keys
            if (cell := row.get(column.name)) is not None
        )

    return [-1 - partition if is_old(row) else partition for row in rows]


def _row(key: bytes | None, value: bytes | None, layout: RowLayout) -> Mapping[str, Cell]:
    """The cells of a record by column; one without a value has those of its key only."""
    if value is None:
        return dict(zip(layout.keys, orjson.loads(key or b"[]"), strict=True))
    row: dict[str, Cell] = orjson.loads(value)
    return row
