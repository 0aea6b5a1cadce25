"""The results of `fields(left=..., right=...)` for all pairs of a step, made of the texts of fields without reading any value.

`JoinedFields` is the definition. Where an expression only names fields and constants, and both values are JSON that orjson would
write as it stands, the new object's text is made of pieces of theirs; the definition computes all other pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from state.kafka.columns import BinaryColumn, binary_column, data_and_bounds
from state.tables.binary_columns import replaced
from streams.model.expressions.expression import Col, Expression, Lit
from streams.model.expressions.fields import ALL, JoinedFields
from streams.operators.columnar import Int64s, OneByOne
from streams.operators.encoded_values import EncodedValues
from streams.operators.join.columns.object_kernels import COLUMNS, CONSTANT, EVERYTHING, FIELD, find, write
from streams.operators.join.columns.records import Bools
from streams.serdes.columns import write_all
from streams.serdes.json import JSON_OPTIONS, JsonSerde
from streams.serdes.json_normal import normal_json

_MOST_BYTES = 2**31 - 1
"""What a column with offsets of 32 bits holds."""
_SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the new object: a field or constant under a name, or all fields of a value (without a name).

    Attributes:
        side: The index of the value that it is of; -1 for a constant.
        path: The names of the fields on the way to it.
        constant: JSON text.
    """

    side: int
    path: tuple[str, ...] = ()
    constant: bytes | None = None


class JoinedObjects:
    """Makes the objects.

    Args:
        fields: The definition.
        parts: The parts of an object, by name; all fields of a value have its side's index as their name.
    """

    def __init__(self, fields: JoinedFields, parts: dict[str | int, _Part]) -> None:
        self._fields = fields
        texts = list[bytes]()
        rows = [_row(name, part, texts) for name, part in parts.items()]
        self._parts = np.array(rows, np.int64).reshape(-1, COLUMNS)
        self._texts = np.frombuffer(b"".join(texts) or b" ", np.uint8)
        self._text_bounds = np.cumsum([0, *map(len, texts)]).astype(np.uint64)

    @classmethod
    def of(cls, fields: JoinedFields | None) -> JoinedObjects | None:
        """None if objects have to be computed, or a name has two meanings."""
        if fields is None:
            return None
        parts = dict[str | int, _Part]()
        for name, part in _parts_of(fields):
            if part is None or name in parts:
                return None
            parts[name] = part
        return cls(fields, parts)

    def of_pairs(self, values: BinaryColumn, left: Int64s, right: Int64s, certain: Bools) -> EncodedValues:
        """The objects.

        Args:
            values: JSON.
            left: int64[m], the left value of each object; -1 for none.
            right: int64[m], the right one.
            certain: The values that orjson has written or would write as they stand; of the others, `normal_json` is asked.

        Raises:
            RecordError: As from `JoinedFields`.
        """
        pairs = np.stack([left, right])
        known = certain | _normal(values, ~certain)
        sure: Bools = np.logical_and.reduce(known[pairs] | (pairs < 0), axis=0)
        made = self._made(values, pairs, sure)
        rows = np.flatnonzero(~sure)
        if len(rows):
            made = replaced(made, rows, self._defined(values, pairs[:, rows]))
        return EncodedValues(made, JsonSerde(), "", {})

    def of_one_side(self, values: BinaryColumn, is_left: Bools, *, certain: bool) -> EncodedValues:
        """The objects of values without a partner.

        Args:
            values: JSON.
            is_left: Which of them are left values.
            certain: See `of_pairs`.

        Raises:
            RecordError: As from `JoinedFields`.
        """
        rows = np.arange(len(values))
        left, right = np.where(is_left, rows, -1), np.where(is_left, -1, rows)
        return self.of_pairs(values, left, right, np.full(len(values), certain))

    def _made(self, values: BinaryColumn, pairs: Int64s, sure: Bools) -> BinaryColumn:
        """The objects made of texts; empty where that is not certain, and `sure` becomes False."""
        data, bounds = data_and_bounds(values)
        places, sizes = np.zeros((len(self._parts), len(sure), 2), np.uint64), np.zeros(len(sure), np.int64)
        find(data, bounds, pairs, self._texts, self._text_bounds, self._parts, places, sizes, sure)
        ends = np.cumsum(np.append(0, np.where(sure, sizes, 0)))
        if ends[-1] > _MOST_BYTES:
            raise OneByOne("the results of a step have more than 2 GiB")
        target = np.empty(int(ends[-1]), np.uint8)
        write(data, self._texts, self._text_bounds, self._parts, places, sure, ends.astype(np.uint64), target)
        buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(target)]
        return pa.BinaryArray.from_buffers(pa.binary(), len(sure), buffers)

    def _defined(self, values: BinaryColumn, pairs: Int64s) -> BinaryColumn:
        """The objects by the definition."""
        sides = [_read(values, side) for side in pairs]
        return binary_column(write_all(JsonSerde(), "", list(map(self._fields, *sides))))


def _parts_of(fields: JoinedFields) -> Iterator[tuple[str | int, _Part | None]]:
    """The parts; None for what has to be computed."""
    for side, names in enumerate((fields.left, fields.right)):
        if ALL in names:
            yield side, _Part(side)
        else:
            yield from ((name, _Part(side, (name,))) for name in names)
    for name, expression in fields.computed:
        yield name, _computed(expression)


def _computed(expression: Expression) -> _Part | None:
    if isinstance(expression, Lit):
        return _Part(-1, constant=orjson.dumps(expression.value, option=JSON_OPTIONS)[:-1])
    if not isinstance(expression, Col):
        return None
    first, *path = expression.path.split(".")
    return _Part(_SIDES.index(first), tuple(path)) if first in _SIDES else _Part(-1, constant=b"null")


def _row(name: str | int, part: _Part, texts: list[bytes]) -> list[int]:
    """The part as a row for the kernels; adds its texts."""
    if isinstance(name, int):
        return [EVERYTHING, part.side, 0, 0, 0]
    own = len(texts)
    texts.append(orjson.dumps(name) + b":")
    if part.constant is not None:
        texts.append(part.constant)
        return [CONSTANT, 0, own, own + 1, own + 2]
    texts += [orjson.dumps(one)[1:-1] for one in part.path]
    return [FIELD, part.side, own, own + 1, len(texts)]


def _normal(values: BinaryColumn, asked: Bools) -> Bools:
    """`normal_json` of some of the values; False for the others."""
    normal = np.zeros(len(values), np.bool_)
    rows = np.flatnonzero(asked)
    if len(rows):
        normal[rows] = normal_json(values.take(pa.array(rows)))
    return normal


def _read(values: BinaryColumn, rows: Int64s) -> list[Any]:
    cells = values.take(pa.array(rows, mask=rows < 0)).to_pylist()
    return [None if cell is None else orjson.loads(cell) for cell in cells]
