"""Chooses the serde for a type, for keys and values whose type is known and whose serde is not named."""

from __future__ import annotations

import typing
import uuid
from collections.abc import Callable
from typing import Any

import typing_extensions

from streams.errors import TopologyError
from streams.model.record import Windowed
from streams.serdes.base import Serde, T
from streams.serdes.json import JsonSerde
from streams.serdes.lists import ListSerde
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float64Serde,
    Int64Serde,
    StringSerde,
    UuidSerde,
    VoidSerde,
)
from streams.serdes.tuples import TupleSerde
from streams.serdes.type_names import UNIONS, type_name

_PLAIN: dict[Any, Callable[[], Serde[Any]]] = {
    str: StringSerde,
    int: Int64Serde,
    float: Float64Serde,
    bool: BooleanSerde,
    bytes: BytesSerde,
    uuid.UUID: UuidSerde,
    type(None): VoidSerde,
    dict: JsonSerde,
    list: JsonSerde,
}
_NOTHING_SAID = (Any, object, tuple, Windowed)


def serde_for(kind: type[T]) -> Serde[T]:
    """Returns the serde for a type.

    ================================================== ========================================================
    type                                               serde
    ================================================== ========================================================
    `str`, `int`, `float`, `bool`, `bytes`, UUID       `StringSerde()`, `Int64Serde()`, `Float64Serde()`, ...
    `tuple[int, str]`                                  `TupleSerde(Int64Serde(), StringSerde())`
    `list[int]`                                        `ListSerde(Int64Serde())`
    `T | None`                                         the serde for `T`, because None is Kafka's null
    `dict`, `list`                                     `JsonSerde()`
    dataclass, TypedDict, NamedTuple, pydantic model,  `JsonSerde(T)`
    msgspec Struct, `datetime`, `date`, `Decimal`,
    `Enum`, and other types that JSON can represent
    ================================================== ========================================================

    Example::

        serde_for(tuple[str, int])
        serde_for(Order)

    Raises:
        TopologyError: There is none, because the type is too general (`Any`, `tuple`), or cannot be read from JSON.
    """
    bare = plain_type(kind)
    if bare in _PLAIN:
        return _PLAIN[bare]()
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin is tuple and arguments and arguments[-1] is not ...:
        entries: Any = TupleSerde(*map(serde_for, arguments))
        return typing.cast("Serde[T]", entries)
    if origin is list:
        listed: Any = ListSerde(serde_for(arguments[0]))
        return typing.cast("Serde[T]", listed)
    if bare in _NOTHING_SAID or isinstance(bare, typing.TypeVar | str) or origin is Windowed:
        raise TopologyError(f"No serde suits {type_name(bare)}: it does not say what the values are. Name a serde.")
    return JsonSerde(bare)


def plain_type(kind: Any) -> Any:
    """A type without what makes no difference to its bytes: `None` in a union, `Annotated`, `NewType`, `Literal`."""
    if kind is None:
        return type(None)
    supertype = getattr(kind, "__supertype__", None)
    if supertype is not None:
        return plain_type(supertype)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return plain_type(arguments[0])
    if origin in (typing.Literal, typing_extensions.Literal):
        found = {type(argument) for argument in arguments}
        return found.pop() if len(found) == 1 else kind
    if origin in UNIONS:
        others = [argument for argument in arguments if argument is not type(None)]
        return plain_type(others[0]) if len(others) == 1 else kind
    return kind


def serde_text(value: object) -> str:
    """How the serde that suits a value is written, for messages: `Int64Serde()`."""
    try:
        if type(value) is tuple:
            return f"TupleSerde({', '.join(map(serde_text, value))})"
        return repr(serde_for(type(value)))
    except Exception:
        return "..."
