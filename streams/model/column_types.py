"""Types of columns derived from Python's: from annotations, dataclasses, TypedDicts, NamedTuples and models."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from streams.model.table_columns import ColumnType, Field, ListType, MapType, ScalarType, StructType

_BY_TYPE: Mapping[Any, str] = {
    str: "STRING",
    UUID: "STRING",
    int: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    bytes: "BINARY",
    datetime: "TIMESTAMP",
    date: "DATE",
    Decimal: "DECIMAL(38,18)",
}


def column_type(kind: Any) -> ColumnType | None:
    """The type of columns for a Python type; None: there is none."""
    bare, _ = without_none(kind)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return ScalarType("STRING")
    name = _BY_TYPE.get(bare) if isinstance(bare, typing.Hashable) else None
    if name is not None:
        return ScalarType(name)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin in (list, set, frozenset, Sequence) or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        item = column_type(arguments[0])
        return None if item is None else ListType(item)
    if origin in (dict, Mapping) and without_none(arguments[0])[0] is str:
        item = column_type(arguments[1])
        return None if item is None else MapType(item)
    fields = fields_of(bare)
    return None if fields is None else StructType(fields)


def fields_of(kind: Any) -> tuple[Field, ...] | None:
    """The fields of a dataclass, TypedDict, NamedTuple or model; None: it has none, or one has no type of columns."""
    bare, _ = without_none(kind)
    if not isinstance(bare, type) or bare.__module__ == "builtins" or not getattr(bare, "__annotations__", None):
        return None
    try:
        hints = typing.get_type_hints(bare)
    except Exception:  # an annotation may be anything
        return None
    found = []
    for name, hint in hints.items():
        if typing.get_origin(hint) is typing.ClassVar or name.startswith("__"):
            continue
        of = column_type(hint)
        if of is None:
            return None
        found.append(Field(name, of, without_none(hint)[1]))
    return tuple(found) or None


def without_none(kind: Any) -> tuple[Any, bool]:
    """A type without `None`, `Annotated`, `Required` and `NewType`; and whether None was part of it."""
    supertype = getattr(kind, "__supertype__", None)
    if supertype is not None:
        return without_none(supertype)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated or str(origin).endswith((".Required", ".NotRequired")):
        bare, optional = without_none(arguments[0])
        return bare, optional or str(origin).endswith(".NotRequired")
    if origin is typing.Literal and all(isinstance(one, str) for one in arguments):
        return str, False
    if type(None) in arguments and len(arguments) == 2:
        (other,) = (one for one in arguments if one is not type(None))
        return without_none(other)[0], True
    return kind, False
