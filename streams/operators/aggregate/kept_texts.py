"""The columns of `agg.min_by`, `max_by` and `last_by`: texts that are compared as numbers, and kept values as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, binary_column, codes_in, replaced, rows_where
from streams.operators.aggregate.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, Int64s, RankedColumn, cell
from streams.operators.expressions import json_of, object_texts
from streams.serdes.json_scan import normal_json
from streams.serdes.json_text import dumps, loads


def places_of_texts(column: FieldColumn, starts: Sequence[Any]) -> tuple[FieldColumn, list[int | None]] | None:
    """Replaces texts by numbers that compare in the same way, in cells and accumulators; None if one of them is not a text.

    Each distinct text is decoded once. Example: the cells "b" and "a" and the accumulator "c" become 1, 0 and 2.
    """
    if np.isin(column.kinds, (INT, FLOAT)).any():
        return None
    is_text, nothing = column.kinds == TEXT, pa.scalar(None, pa.binary())
    cells = pa.nulls(len(is_text), pa.binary()) if column.texts is None else column.texts
    found = pc.if_else(pa.array(is_text), cells, nothing).dictionary_encode()
    texts, known = list(map(loads, found.dictionary.to_pylist())), [start for start in starts if start is not None]
    if not {str}.issuperset(map(type, [*texts, *known])):
        return None
    places = {text: place for place, text in enumerate(sorted({*texts, *known}))}
    ints = np.array([*map(places.__getitem__, texts), 0], np.int64)[codes_in(found, len(texts))]
    numbers = FieldColumn(np.where(is_text, np.uint8(INT), np.uint8(ABSENT)), ints, np.zeros(len(ints)), None)
    return numbers, [None if start is None else places[start] for start in starts]


def kept_texts(column: RankedColumn, rows: Int64s) -> tuple[BinaryColumn, BinaryColumn]:
    """What these rows are compared by, and the values kept of them, as `dumps` writes them.

    Raises:
        ValueError: A number in a value is not finite.
    """
    parts = {name: _texts(part, rows) for name, part in column.values.items()}
    named = {name: texts for name, texts in parts.items() if name is not None}
    return _texts(column.by, rows), object_texts(named) if named else parts[None]


def _texts(column: FieldColumn, rows: Int64s) -> BinaryColumn:
    """The cells of these rows as JSON. A text is decoded and written again if orjson would write it differently."""
    taken = column.take(rows)
    texts = json_of(taken)
    if taken.texts is None:
        return texts
    others = rows_where((taken.kinds == TEXT) & ~normal_json(taken.texts))
    if not len(others):
        return texts
    return replaced(texts, others, binary_column([dumps(cell(taken, row)) for row in others.tolist()]))
