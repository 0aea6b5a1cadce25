"""Derives serdes for keys and values that are made by a function, if the program names none.

The defaults stay: keys are text, values are JSON, so whatever the defaults can write has the same bytes with and without an
annotation. A type only matters for what the defaults cannot write or read back: a number as key, a dataclass as value.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from streams.dsl.nodes.result_types import Type
from streams.errors import TopologyError
from streams.serdes.base import Serde
from streams.serdes.by_type import UNIONS, plain_type, serde_for
from streams.serdes.derived import DefaultKeySerde, DerivedSerde
from streams.serdes.json import JsonSerde, is_plain_json
from streams.serdes.primitives import StringSerde
from streams.serdes.type_names import type_name

_NOT_READ_BACK = (Enum, date, time, timedelta, Decimal, UUID, set, frozenset, bytes)
"""Types that JSON has no form for, or reads back as text; besides classes with fields."""


def taken(candidates: tuple[Serde[Any] | None, ...], default: Serde[Any]) -> Serde[Any]:
    """The first named serde, else the first one derived from a type, else the default.

    Raises:
        TopologyError: No serde is named, and there is none for the type.
    """
    known = [serde for serde in candidates if serde is not None]
    named = next((serde for serde in known if not isinstance(serde, DerivedSerde)), None)
    if named is not None:
        return named
    return next((serde.taken() for serde in known if isinstance(serde, DerivedSerde)), default)


def without_mark(serde: Serde[Any] | None) -> Serde[Any] | None:
    """The serde itself, without its `DerivedSerde` wrapper; None if it is the default."""
    if not isinstance(serde, DerivedSerde):
        return serde
    return None if isinstance(serde.inner, DefaultKeySerde) else serde.inner


def derived_key(kind: Type, default: Serde[Any], made_by: str) -> Serde[Any] | None:
    """The serde to use for keys of a type if none is named; None: the program's own default.

    Args:
        kind: The type of the keys, None if unknown.
        default: The builder's default.
        made_by: The operator whose function makes the keys.
    """
    if default != StringSerde():
        return None
    if _may_be_text(kind):
        return DerivedSerde(DefaultKeySerde(made_by, is_text=plain_type(kind) is str))
    try:
        return DerivedSerde(serde_for(kind))
    except TopologyError as error:
        return DerivedSerde(
            None,
            f"'{made_by}' makes keys of type {type_name(kind)}, which no serde is known for. Name one where the key is used, with "
            f"key_serde=... in Grouped, Joined, StreamJoined, Repartitioned or Produced. ({error})",
        )


def derived_value(kind: Type, default: Serde[Any]) -> Serde[Any] | None:
    """The serde to use for values of a type if none is named; None: the builder's default."""
    if kind is None or not is_plain_json(default) or not _lost_in_json(kind):
        return None
    try:
        return DerivedSerde(serde_for(bytes) if plain_type(kind) is bytes else JsonSerde(kind))
    except TopologyError:
        return None


def _may_be_text(kind: Type) -> bool:
    """Whether values of a type may be, or are always, a `str`; true if nothing is known."""
    kind = plain_type(kind) if kind is not None else Any
    if kind in (Any, type(None)) or isinstance(kind, typing.TypeVar | str):
        return True
    origin: Type = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is typing.Literal:
        return any(isinstance(one, str) for one in arguments)
    bare = kind if origin is None or origin in UNIONS else origin
    if not isinstance(bare, type):
        return any(map(_may_be_text, arguments))
    try:
        return issubclass(bare, str) or issubclass(str, bare)
    except TypeError:  # a protocol with attributes
        return True


def _lost_in_json(kind: Type) -> bool:
    """Whether plain JSON cannot write values of a type, or reads them back as another type."""
    kind = plain_type(kind)
    origin: Type = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if arguments and origin is not typing.Literal:
        return any(map(_lost_in_json, arguments)) or origin in (set, frozenset)
    if not isinstance(kind, type):
        return False
    has_fields = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") or hasattr(kind, "__struct_fields__")
    # A class can only be a model where pydantic has been loaded, which need not happen here.
    models = sys.modules.get("pydantic")
    return has_fields or issubclass(kind, _NOT_READ_BACK) or (models is not None and issubclass(kind, models.BaseModel))
