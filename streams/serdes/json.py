"""`JsonSerde`: JSON, the default serde of values, optionally read back as values of one type.

For a sink, values that JSON has no form for are converted. A value that the engine keeps for itself (`JsonSerde.kept`) must come
back from its bytes unchanged, in value and type, or it is refused. Otherwise a function would see one value in the step that wrote
it, and another one in the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from types import UnionType
from typing import TYPE_CHECKING, Any, cast, overload

from streams.serdes.base import Headers, Serde, T, cannot_deserialize, cannot_keep, cannot_serialize, type_name
from streams.serdes.json_text import (
    JSON_OPTIONS,
    NotKept,
    check_kept,
    check_with_keys,
    dumps,
    keep,
    keep_all,
    keep_with_keys,
    loads,
    loads_with_keys,
)

if TYPE_CHECKING:
    from streams.serdes.json_tagged import TaggedJson
    from streams.serdes.json_types import TypedJson


_CURE = "Correct what writes these records, or the type: a field that may be missing needs a default"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class JsonSerde(Serde[T]):
    """JSON as UTF-8 without spaces, with fields in insertion order; as a key, in the order of their names.

    `JsonSerde()` reads the types of JSON: dicts with text keys, lists, texts, integers of any size, floats, booleans, None. It
    writes the same types, and for a sink also values that can be converted: dataclasses, datetimes, UUIDs, enums, tuples, keys that
    are numbers. A value that the engine keeps (in a store, or on a topic of its own) is not converted, because a function would get
    it back as something else: writing it raises an error that names the field. NaN and infinity are never written, because JSON has
    neither.

    `JsonSerde(Order)` writes the same JSON and reads it back as an `Order`, which may be a dataclass, a TypedDict, a NamedTuple, a
    pydantic model, a msgspec Struct, or a type made of these, such as `list[Order]` or `dict[int, int]`.

    JSON's `null` is read as None; None is written as Kafka's null.

    For example:

        @dataclass
        class Order:
            id: int
            amount: Decimal
            at: datetime
            note: str | None = None

        builder.stream("orders", Consumed(value_serde=JsonSerde(Order)))

    With a type, reading or writing a value of another shape raises a `SerdeError` that names the field and the expected type:
    the text `"12"` is not an `int`. Missing fields get their defaults; unknown fields are ignored; pydantic models follow their own
    configuration instead.

    Attributes:
        kind: The type of the values to read; None: plain objects. A store's format is the same with and without a type.
        is_kept: Whether values that would not come back as they were are refused.

    Raises:
        TopologyError: The type, or one of its fields, cannot be read from JSON.
    """

    kind: Any
    _typed: TypedJson | TaggedJson | None = field(compare=False)
    is_kept: bool = field(compare=False)

    @overload
    def __init__(self: JsonSerde[Any], kind: None = None) -> None: ...
    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: JsonSerde[Any], kind: UnionType) -> None: ...
    def __init__(self, kind: Any = None) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "_typed", None if kind is None else _typed_json(kind))
        object.__setattr__(self, "is_kept", False)

    def kept(self) -> JsonSerde[T]:
        """The same serde for values that the engine reads back. It refuses every value that would come back as something else."""
        if self.is_kept:
            return self
        kept = copy(self)  # of a subclass, too
        object.__setattr__(kept, "is_kept", True)
        return kept

    @property
    def write(self) -> Callable[[Any], bytes]:
        """Writes a value that is not None. Raises `TypeError` or `ValueError` where `serialize` raises a `SerdeError`."""
        if self._typed is None:
            return keep if self.is_kept else dumps
        return self._typed.keep if self.is_kept else self._written

    def write_all(self, values: Sequence[Any]) -> list[bytes | None]:
        """Writes many values, some of which may be None, as `write` does."""
        write = self.write
        return keep_all(values) if write is keep else [None if value is None else write(value) for value in values]

    @property
    def check(self) -> Callable[[Any], object]:
        """Raises `ValueError` or `TypeError` for a value that would not come back; if possible, at less cost than writing it."""
        return check_kept if self._typed is None else self._typed.check_kept

    def _written(self, value: Any) -> bytes:
        assert self._typed is not None, "plain values are written by functions"
        return self._typed.dumps(value, JSON_OPTIONS)[:-1]

    def serialize(self, topic: str, value: T | None, headers: Headers = None) -> bytes | None:
        """The value as JSON text.

        Raises:
            SerdeError: JSON cannot represent the value, the value has another type, or a kept value would not come back.
        """
        if value is None:
            return None
        try:
            return self.write(value)
        except NotKept as error:
            raise cannot_keep(self, topic, value, error) from error
        except (TypeError, ValueError) as error:
            why = str(error) if self._typed is None else self._typed.explained(error)
            raise cannot_serialize(self, topic, value, why) from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> T | None:
        """The value. Raises `SerdeError` if the bytes are not JSON, or not a value of the type."""
        if data is None:
            return None
        try:
            value: T = loads(data) if self._typed is None else self._typed.loads(data)
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
        """The identity, which is the same with and without a type, since all types have one format."""
        return "JsonSerde()"

    @property
    def label(self) -> str:
        """Its name in messages: `JsonSerde`, `JsonSerde(Order)`."""
        return "JsonSerde" if self._typed is None else repr(self)

    def __repr__(self) -> str:
        return f"JsonSerde({'' if self._typed is None else type_name(self.kind)})"


class JsonWithKeys(JsonSerde[Any]):
    """`JsonSerde()` for an aggregate of an unknown type whose function makes the keys of a dict, such as `{**a, v: ...}`.

    A dict whose keys are all int, or all bool, comes back from the store with these keys. For a sink, it equals `JsonSerde()`.
    """

    __slots__ = ()

    @property
    def write(self) -> Callable[[Any], bytes]:
        """Writes a value that is not None, as `JsonSerde.write` does."""
        return keep_with_keys if self.is_kept else dumps

    @property
    def check(self) -> Callable[[Any], object]:
        """Checks a value, as `JsonSerde.check` does."""
        return check_with_keys

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Any:
        """The value. Raises `SerdeError` if the bytes are not JSON."""
        try:
            return None if data is None else loads_with_keys(data)
        except ValueError as error:
            raise cannot_deserialize(self, topic, data or b"", error) from error

    def kept(self) -> JsonWithKeys:
        """The same serde for values that the engine reads back."""
        return cast("JsonWithKeys", super().kept())


class JsonIdSerde(JsonSerde[Any]):
    """`JsonSerde()` for ids. An id may be a tuple or a date: ids are only compared by their bytes, and never read back."""

    __slots__ = ()

    def kept(self) -> JsonIdSerde:
        """The serde itself."""
        return self


def _typed_json(kind: Any) -> TypedJson | TaggedJson:
    # pydantic is loaded with the first type, so that programs without typed values start without it.
    from streams.serdes.json_tagged import typed_json

    return typed_json(kind)


def is_plain_json(serde: object) -> bool:
    """Whether a serde is exactly `JsonSerde()`, so that fields may be read directly from the bytes, as columns."""
    return type(serde) is JsonSerde and serde.is_plain


# --- The fields of typed JSON values, and whether values that were written by one type can be read as another one.
#
# A store's format is the same whatever its type (`JsonSerde.identity`), so a new version of a program may meet rows without a field
# that it needs. The fields are described as JSON Schema, which pydantic and msgspec make of their types. What the schema does not
# tell (patterns, bounds) is left to the reader, and a type that changes values before it reads them is not compared.

Schema = Mapping[str, Any]

_ANY_TEXT = (None, "binary", "password", "path")
"""Formats that any text satisfies."""
_KEPT = ("type", "format", "enum", "const", "required")
"""The parts of a schema that are kept unchanged. Titles and descriptions do not matter for reading."""


def fields_of(serde: object) -> Schema | None:
    """The description of the values that a serde reads; None if it takes any value, or if its type does not show its fields."""
    if type(serde) is not JsonSerde or serde.is_plain:
        return None
    from streams.serdes.json_types import schema_of

    try:
        found = schema_of(serde.kind)
    except Exception:
        # A type of a function with annotations as text, or one that has no JSON Schema: nothing is compared.
        return None
    compact: Schema | None = None if found is None else _compact(found)
    return compact


def unreadable(old: Schema, new: Schema) -> list[str]:
    """Why values of one type cannot be read as values of another, each reason with its field; empty if they can.

    Args:
        old: The `fields_of` the type by which the values were written.
        new: The `fields_of` the type by which they are read.
    """
    return list(dict.fromkeys(_Comparison(old, new).of(old, new, "", frozenset())))


def _compact(schema: Any) -> Any:
    """A schema without the parts that do not matter for reading."""
    if not isinstance(schema, Mapping):
        return schema
    kept = {name: schema[name] for name in _KEPT if name in schema}
    for name in ("properties", "$defs"):
        if name in schema:
            kept[name] = {key: _compact(value) for key, value in schema[name].items()}
    for name in ("anyOf", "oneOf", "prefixItems"):
        if name in schema:
            kept["anyOf" if name == "oneOf" else name] = [_compact(one) for one in schema[name]]
    for name in ("items", "additionalProperties"):
        if name in schema:
            kept[name] = _compact(schema[name])
    return kept | ({"$ref": schema["$ref"].rpartition("/")[2]} if "$ref" in schema else {})


class _Comparison:
    """A comparison of two schemas, each with its own definitions."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old.get("$defs", {}), new.get("$defs", {})

    def of(self, old: Any, new: Any, place: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        """The reasons why a part of the old schema cannot be read by the new one."""
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            return
        if not place and old.get("type") == "null":
            # It is written as Kafka's null, and read as None by every type.
            return
        if "$ref" in old or "$ref" in new:
            names = (str(old.get("$ref")), str(new.get("$ref")))
            if names in seen:
                return
            seen |= {names}
            old, new = self._old.get(old.get("$ref"), old), self._new.get(new.get("$ref"), new)
        if "anyOf" in old:
            for one in old["anyOf"]:
                yield from self.of(one, new, place, seen)
        elif "anyOf" in new:
            found = [list(self.of(old, one, place, seen)) for one in new["anyOf"]]
            if all(found):
                told = [why for why in found if not why[0].startswith(_where(place) + " was ")]
                yield from told[0] if told else [_other(place, old, new)]
        elif not _alike(old, new):
            yield _other(place, old, new)
        else:
            yield from self._parts(old, new, place, seen)

    def _parts(self, old: Schema, new: Schema, place: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        before, now = old.get("properties", {}), new.get("properties", {})
        for name in new.get("required", ()):
            if name not in before and "properties" in old:
                yield f"{_where(_within(place, name))} is required, and they have none"
        for name in before.keys() & now.keys():
            yield from self.of(before[name], now[name], _within(place, name), seen)
        if new.get("additionalProperties") is False:
            for name in before.keys() - now.keys():
                yield f"{_where(_within(place, name))} is gone, and the type takes no further fields"
        yield from self.of(old.get("additionalProperties"), new.get("additionalProperties"), _within(place, "*"), seen)
        yield from self.of(old.get("items"), new.get("items"), place + "[]", seen)
        for at, (one, other) in enumerate(zip(old.get("prefixItems", ()), new.get("prefixItems", ()), strict=False)):
            yield from self.of(one, other, f"{place}[{at}]", seen)


def _alike(old: Schema, new: Schema) -> bool:
    """Whether values of one kind may be values of another kind, regardless of their contents."""
    kind, now = old.get("type"), new.get("type")
    if kind is not None and now is not None and kind != now and (kind, now) != ("integer", "number"):
        return False
    if now == "string" and kind == "string" and new.get("format") not in (*_ANY_TEXT, old.get("format")):
        return False
    taken = _values(new)
    written = _values(old)
    return taken is None or (written is not None and all(value in taken for value in written))


def _values(schema: Schema) -> list[Any] | None:
    """The values of a type that has only these; None if there are others."""
    values: list[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    return values


def _other(place: str, old: Schema, new: Schema) -> str:
    return f"{_where(place)} was {_text(old)} and is {_text(new)}"


def _text(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_text(one) for one in schema["anyOf"])
    values = _values(schema)
    if values is not None:
        return f"one of {values}"
    return str(schema.get("format") or schema.get("$ref") or schema.get("type", "any value"))


def _where(place: str) -> str:
    return f"the field '{place}'" if place else "the value"


def _within(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
