"""Whole values of columns as JSON, for nodes that take whole records. Most of them never become Python objects.

A reader writes the same bytes as `JsonSerde()` for the same value, so a sink can use them unchanged. A value that JSON cannot
express (a computed number that is not finite) is pickled, and the node that writes it fails as it would for the object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import FEW_ROWS, BinaryColumn, binary_column, replaced, rows_where, valid_rows
from streams.engine.graph.values import PICKLED, dump_value, load_written
from streams.model.expressions import all_fields
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, cell
from streams.operators.expressions import Bools, first_bytes, json_of, object_texts
from streams.operators.text_kernels import containing
from streams.serdes.json_scan import normal_json
from streams.serdes.json_text import dumps, loads

Int64s = npt.NDArray[np.int64]
WholeValues: TypeAlias = Callable[[Int64s], BinaryColumn]
"""Returns the written values of the rows with these numbers; null for a null value."""


def of_source(values: BinaryColumn, null: Bools) -> WholeValues:
    """The values that a source has read."""
    return partial(_source_cells, values, null)


def _source_cells(values: BinaryColumn, null: Bools, rows: Int64s) -> BinaryColumn:
    return _normal(_null_at(values.take(pa.array(rows)), null[rows]))


def of_field(column: FieldColumn) -> WholeValues:
    """A field of the values, which becomes the value."""
    return lambda rows: _cells(column.take(rows))


def of_fields(made: Mapping[str, FieldColumn], null: Bools, all_of: WholeValues | None) -> WholeValues:
    """Objects made of fields.

    Args:
        made: The fields by their names.
        null: Where the value is null.
        all_of: The values whose other fields are kept; None if there are no other fields.
    """
    return partial(_object_cells, made, null, all_of)


def _object_cells(
    made: Mapping[str, FieldColumn], null: Bools, all_of: WholeValues | None, rows: Int64s
) -> BinaryColumn:
    if len(rows) <= FEW_ROWS:
        return binary_column(list(_few_objects(made, null, all_of, rows)))
    taken = {name: column.take(rows) for name, column in made.items()}
    no_numbers = np.zeros(len(rows), np.bool_)
    parts: dict[str, pa.BinaryArray] = {}
    for name, column in taken.items():
        parts[name] = json_of(_with_normal_texts(column))
        no_numbers |= _not_finite(column)
    if all_of is None:
        return _pickled(_null_at(object_texts(parts), null[rows]), no_numbers)
    above = all_of(rows)
    return _null_at(_extended(above, taken, parts, no_numbers), null[rows])


def _few_objects(
    made: Mapping[str, FieldColumn], null: Bools, all_of: WholeValues | None, rows: Int64s
) -> Iterator[bytes | None]:
    """Makes the objects of a few rows, where Python objects cost less than calls of compiled code."""
    above = repeat(None) if all_of is None else all_of(rows).to_pylist()
    for row, text in zip(rows.tolist(), above, strict=False):
        if null[row]:
            yield None
        else:
            yield _written({**({} if text is None else all_fields(load_written(text))), **_fields_at(made, row)})


def _extended(
    above: BinaryColumn, made: Mapping[str, FieldColumn], parts: Mapping[str, pa.BinaryArray], no_numbers: Bools
) -> BinaryColumn:
    """Adds fields to objects. A field that an object already has keeps its place, as in a dict."""
    simple = (first_bytes(above) == ord("{")) & ~no_numbers
    for name in parts:
        simple &= ~containing(above, dumps(name) + b":")
    comma = pc.if_else(pc.equal(above, pa.scalar(b"{}", above.type)), pa.scalar(b""), pa.scalar(b","))
    begin = pc.binary_join_element_wise(pc.binary_slice(above, 0, -1), comma, pa.scalar(b""))
    texts = object_texts(parts, begin)
    others = rows_where(~simple & valid_rows(above))
    if not len(others):
        return texts
    objects = [{**all_fields(load_written(above[row].as_py())), **_fields_at(made, row)} for row in others.tolist()]
    return replaced(texts, others, binary_column(list(map(_written, objects))))


def _fields_at(made: Mapping[str, FieldColumn], row: int) -> dict[str, Any]:
    return {name: cell(column, row) for name, column in made.items()}


def _cells(column: FieldColumn) -> BinaryColumn:
    """Writes each cell as a value of its own."""
    null = column.kinds == ABSENT
    if column.texts is not None and not np.isin(column.kinds, (INT, FLOAT)).any():
        return _normal(_null_at(column.texts, null))
    return _pickled(_null_at(json_of(_with_normal_texts(column)), null), _not_finite(column))


def _with_normal_texts(column: FieldColumn) -> FieldColumn:
    if column.texts is None:
        return column
    texts = _normal(_null_at(column.texts, column.kinds != TEXT))
    return FieldColumn(column.kinds, column.ints, column.floats, texts)


def _not_finite(column: FieldColumn) -> Bools:
    found: Bools = (column.kinds == FLOAT) & ~np.isfinite(column.floats)
    return found


def _null_at(texts: BinaryColumn, null: Bools) -> BinaryColumn:
    return pc.if_else(pa.array(null), pa.scalar(None, texts.type), texts) if null.any() else texts


def _normal(texts: BinaryColumn) -> BinaryColumn:
    """The same JSON in the form that orjson writes."""
    others = rows_where(~normal_json(texts) & valid_rows(texts))
    if not len(others):
        return texts
    return replaced(
        texts, others, binary_column([_rewritten(text) for text in texts.take(pa.array(others)).to_pylist()])
    )


def _rewritten(text: bytes) -> bytes:
    return text if text[0] == PICKLED else _written(loads(text))


def _written(value: Any) -> bytes:
    try:
        return dumps(value)
    except (TypeError, ValueError):
        return dump_value(value)


def _pickled(texts: BinaryColumn, which: Bools) -> BinaryColumn:
    """Pickles the texts of `which`, in which numbers are not finite, after reading them as Python writes them."""
    rows = rows_where(which)
    if not len(rows):
        return texts
    return replaced(texts, rows, binary_column([dump_value(json.loads(texts[row].as_py())) for row in rows.tolist()]))
