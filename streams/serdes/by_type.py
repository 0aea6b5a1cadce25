"""The serde for a type: `serde_for`, and serdes that are derived, while a topology is built, for keys and values without one."""

from __future__ import annotations

import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typing_extensions

from streams.errors import SerdeError, TopologyError
from streams.model.record import Windowed
from streams.serdes.base import UNIONS, Headers, Serde, T, a_value, cannot_deserialize, serde_identity, shown, type_name
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float64Serde,
    Int64Serde,
    ListSerde,
    StringSerde,
    TupleSerde,
    UuidSerde,
    VoidSerde,
)

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

    For example:

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
    """A type stripped of the parts that do not change its bytes: `None` in a union, `Annotated`, `NewType`, `Literal`."""
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
    """The Python expression of the serde that suits a value, for messages: `Int64Serde()`."""
    try:
        if type(value) is tuple:
            return f"TupleSerde({', '.join(map(serde_text, value))})"
        return repr(serde_for(type(value)))
    except Exception:
        return "..."


# --- Serdes derived from types, for keys and values that are made by a function and whose serde is not named.
#
# While the topology is built, a `DerivedSerde` is replaced by any serde that the program names upstream or downstream. Whatever the
# default serdes can write (text as keys, plain JSON as values) has the same bytes with and without a derived serde.


@dataclass(frozen=True, slots=True)
class DerivedSerde(Serde[Any]):
    """A serde that is used only if no other is named.

    Attributes:
        inner: The serde; None: the type is known, but has no serde.
        problem: The error message if a serde is needed and `inner` is None.
    """

    inner: Serde[Any] | None
    problem: str = ""

    def taken(self) -> Serde[Any]:
        """The serde. Raises `TopologyError` if there is none."""
        if self.inner is None:
            raise TopologyError(self.problem)
        return self.inner

    def serialize(self, topic: str, value: Any, headers: Headers = None) -> bytes | None:
        """Writes as `inner` does."""
        return self.taken().serialize(topic, value, headers)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Any:
        """Reads as `inner` does."""
        return self.taken().deserialize(topic, data, headers)

    def identity(self) -> str:
        """The identity of `inner`."""
        return serde_identity(self.inner)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DefaultKeySerde(StringSerde):
    """`StringSerde()` for keys that may be text: the same bytes, but its error message names the serde that is missing, and where.

    Attributes:
        made_by: The operator whose function made the keys.
        is_text: Whether the type of the keys is known, and is text.
        member_of: The enum whose members the keys are, if their type is known to be one whose members are texts.
    """

    made_by: str
    is_text: bool = False
    member_of: Any = None
    kept = StringSerde.kept

    def serialize(self, topic: str, value: str | None, headers: Headers = None) -> bytes | None:
        """UTF-8 bytes. Raises `SerdeError` for anything but `str`."""
        if self.member_of is not None and isinstance(value, str):
            if type(value) is not self.member_of:
                self._other_type(topic, value, str, self.member_of)
            return str.encode(value)
        if value is None or isinstance(value, str):
            return StringSerde.serialize(self, topic, value, headers)
        serde = serde_text(value)
        raise SerdeError(
            f"'{self.made_by}' makes a key that is {a_value(value)}, {shown(value)}, and no serde is named for it: only text can "
            f"be written. Name the serde where the key is used, with key_serde={serde} in Grouped, Joined, StreamJoined, "
            f"Repartitioned or Produced; or annotate what the function returns; or convert the key to text."
        )

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Any:
        """The text, or the member of the enum. Raises `SerdeError` if the bytes are not UTF-8, or are not a member."""
        text = StringSerde.deserialize(self, topic, data, headers)
        if self.member_of is None or text is None or data is None:
            return text
        try:
            return self.member_of(text)
        except ValueError as error:
            raise cannot_deserialize(self, topic, data, error) from error

    @property
    def label(self) -> str:
        """Its name in messages."""
        return "StringSerde"

    def identity(self) -> str:
        """The identity of `StringSerde()`."""
        return serde_identity(StringSerde())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StringSerde)

    def __hash__(self) -> int:
        return hash(StringSerde())

    def __repr__(self) -> str:
        return repr(StringSerde())
