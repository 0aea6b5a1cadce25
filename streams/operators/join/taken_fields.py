"""Finds joins whose results consist only of fields and constants.

Returns the parts of such an object, or that it has to be computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from streams.model.expressions import ALL, Col, Expression, JoinedFields, Lit
from streams.model.paths import names_of
from streams.serdes.json_text import dumps

_SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """A part of the new object: a field or constant under a name, or all fields of a value (without a name).

    Attributes:
        side: The index of the value it is taken from; -1 for a constant.
        path: The names of the fields that lead to it.
        constant: JSON text.
    """

    side: int
    path: tuple[str, ...] = ()
    constant: bytes | None = None


def parts_of(fields: JoinedFields | None) -> dict[str | int, ObjectPart] | None:
    """The parts of an object by name; all fields of a value have their side's index as name.

    Returns None if objects have to be computed, or a name has two meanings.
    """
    if fields is None:
        return None
    parts = dict[str | int, ObjectPart]()
    for name, part in _each(fields):
        if part is None or name in parts:
            return None
        parts[name] = part
    return parts


def _each(fields: JoinedFields) -> Iterator[tuple[str | int, ObjectPart | None]]:
    """The parts; None for a part that has to be computed."""
    for side, names in enumerate((fields.left, fields.right)):
        if ALL in names:
            yield side, ObjectPart(side)
        else:
            yield from ((name, ObjectPart(side, (name,))) for name in names)
    for name, expression in fields.computed:
        yield name, _computed(expression)


def _computed(expression: Expression) -> ObjectPart | None:
    if isinstance(expression, Lit) and not isinstance(expression.value, Decimal):
        return ObjectPart(-1, constant=dumps(expression.value))
    if not isinstance(expression, Col):
        return None
    first, *path = names_of(expression.path)
    return ObjectPart(_SIDES.index(first), tuple(path)) if first in _SIDES else ObjectPart(-1, constant=b"null")
