"""`JsonSerde`: JSON by orjson, the default serde of values, optionally read back as values of one type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import UnionType
from typing import TYPE_CHECKING, Any, overload

import orjson

from streams.serdes.base import Headers, Serde, T, cannot_deserialize, cannot_serialize
from streams.serdes.type_names import type_name

if TYPE_CHECKING:
    from streams.serdes.json_types import TypedJson

# Keys of ints and the like become text, as in every JSON library; NumPy scalars come out of user code on data frames.
# orjson writes into 4 KiB, which its result then occupies for as long as it lives. Cutting off a newline copies the result into
# memory of its own size: a step of 100 000 records holds 12 MB instead of 400 MB, and saves 3 us a record of page faults.
JSON_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE

_CURE = "Correct what writes these records, or the type: a field that may be missing needs a default"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class JsonSerde(Serde[T]):
    """JSON as UTF-8 without spaces, with fields in insertion order (never sorted).

    `JsonSerde()` accepts any JSON value. Dataclasses, datetimes and UUIDs are written by orjson's rules, and read back as plain
    objects and text. `JsonSerde(Order)` writes the same bytes and reads them back as an `Order`, which may be a dataclass, a
    TypedDict, a NamedTuple, a pydantic model, a msgspec Struct, or a type made of these, such as `list[Order]`.

    JSON's `null` is read as None; None is written as Kafka's null.

    Example::

        @dataclass
        class Order:
            id: int
            amount: Decimal
            at: datetime
            note: str | None = None

        builder.stream("orders", Consumed(value_serde=JsonSerde(Order)))

    With a type, reading or writing a value of another shape raises a `SerdeError` that names the field and the expected type:
    the text `"12"` is no `int`. Missing fields get their defaults; unknown fields are ignored; pydantic models follow their own
    configuration instead. The fields of an object are not checked again when the object is written.

    Attributes:
        kind: The type of the values to read; None: plain objects. A store's format is the same with and without a type.

    Raises:
        TopologyError: The type, or one of its fields, cannot be read from JSON.
    """

    kind: Any
    _typed: TypedJson | None = field(compare=False)
    _loads: Callable[[bytes], Any] = field(compare=False)

    @overload
    def __init__(self: JsonSerde[Any], kind: None = None) -> None: ...
    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: JsonSerde[Any], kind: UnionType) -> None: ...
    def __init__(self, kind: Any = None) -> None:
        typed = None if kind is None else _typed_json(kind)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "_typed", typed)
        object.__setattr__(self, "_loads", orjson.loads if typed is None else typed.loads)

    def serialize(self, topic: str, value: T | None, headers: Headers = None) -> bytes | None:
        """The value as JSON text. Raises `SerdeError` if JSON cannot represent the value, or the value has another type."""
        if value is None:
            return None
        try:
            if self._typed is None:
                return orjson.dumps(value, option=JSON_OPTIONS)[:-1]
            return self._typed.dumps(value, JSON_OPTIONS)[:-1]
        except (TypeError, ValueError) as error:
            why = str(error) if self._typed is None else self._typed.explained(error)
            raise cannot_serialize(self, topic, value, why) from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> T | None:
        """The value. Raises `SerdeError` if the bytes are not JSON, or not a value of the type."""
        if data is None:
            return None
        try:
            value: T = self._loads(data)
        except ValueError as error:
            if self._typed is None:
                raise cannot_deserialize(self, topic, data, error) from error
            if data.strip() == b"null":
                return None
            raise cannot_deserialize(self, topic, data, self._typed.explained(error), cure=_CURE) from error
        return value

    @property
    def is_plain(self) -> bool:
        """Whether values are read as plain objects, so that single fields can be read without the rest."""
        return self._typed is None

    def identity(self) -> str:
        """The same with and without a type: all types are one format."""
        return "JsonSerde()"

    @property
    def label(self) -> str:
        """Its name in messages: `JsonSerde`, `JsonSerde(Order)`."""
        return "JsonSerde" if self._typed is None else repr(self)

    def __repr__(self) -> str:
        return f"JsonSerde({'' if self._typed is None else type_name(self.kind)})"


def _typed_json(kind: Any) -> TypedJson:
    # pydantic is loaded with the first type, so that programs without typed values start without it.
    from streams.serdes.json_types import TypedJson

    return TypedJson.of(kind)


def is_plain_json(serde: object) -> bool:
    """Whether a serde is exactly `JsonSerde()`, so that fields may be read directly from the bytes, as columns."""
    return type(serde) is JsonSerde and serde.is_plain
