"""Keys and values as JSON, for readers outside the program: answers over HTTP, SQL, lines of commands, samples.

The form is the one that `JsonSerde` writes, and it can be read back: bytes are base64; NaN and infinity, which JSON does not have,
are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`, as in Protocol Buffers' JSON. `shown` makes it from a value, `reader_of` from
a serde's bytes, and `written` turns it into bytes again. A value without such a form is an error, and is never shown by Python's
`str`.
"""

from __future__ import annotations

import dataclasses
import uuid
from base64 import b64encode
from collections.abc import Callable
from enum import Enum
from functools import partial
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

import orjson

from streams.errors import SerdeError
from streams.model.record import Window, Windowed
from streams.serdes import base
from streams.serdes.avro.asked import AskedFor
from streams.serdes.base import Serde, a_value
from streams.serdes.by_type import DefaultKeySerde, DerivedSerde
from streams.serdes.json import JsonIdSerde, JsonSerde, JsonWithKeys
from streams.serdes.json_forms import NOT_FINITE, bytes_of, float_of
from streams.serdes.json_text import dumps, loads
from streams.serdes.keys import JsonKeySerde
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    ListSerde,
    StringSerde,
    TupleSerde,
    UuidSerde,
)
from streams.serdes.registry import AvroSerde, RegistrySerde
from streams.serdes.wrappers import CustomWindowedSerde, SessionWindowedSerde, TimeWindowedSerde, VersionedSerde

if TYPE_CHECKING:
    import pyarrow as pa

Show = Callable[[bytes | None], Any]
"""Turns bytes into JSON data; raises `SerdeError`."""


def shown_json(data: Any) -> bytes:
    """The JSON text of data that `shown` has made, with integers of any size. Floats that are not finite would become null."""
    try:
        return orjson.dumps(data)
    except TypeError:
        return dumps(_finite(data))


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if isfinite(data) else None
    if isinstance(data, dict):
        return {name: _finite(part) for name, part in data.items()}
    return [_finite(part) for part in data] if isinstance(data, list | tuple) else data


# --- From a value to JSON.

_PLAIN = frozenset({str, int, bool, type(None)})


def shown(value: Any) -> Any:
    """A key or value as JSON data.

    Raises:
        SerdeError: JSON has no form for it, or for a part of it.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if isfinite(value) else _not_finite(value)
    if isinstance(value, dict):
        # Most parts are plain already, and rows have many: a call for each would be half of the cost of an answer.
        return {_name(name): part if type(part) in _PLAIN else shown(part) for name, part in value.items()}
    if kind is list or kind is tuple:
        return [shown(part) for part in value]
    return _other(value)


def _other(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, Windowed):
        return {"key": shown(value.key), "start": value.window.start, "end": value.window.end}
    if isinstance(value, Enum):
        return shown(value.value)
    for plain in (str, int, float):
        # Of a subclass, such as an Avro symbol.
        if isinstance(value, plain):
            return shown(plain(plain.__str__(value) if plain is str else value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: shown(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return shown(_converted(value))


def _converted(value: Any) -> Any:
    """The JSON data for a type that JSON does not have, the same as `JsonSerde` of this type writes."""
    from streams.serdes.json_types import default

    if hasattr(value, "dtype"):
        return value.tolist()
    try:
        return default(value)
    except TypeError as error:
        raise SerdeError(
            f"{a_value(value)}, {base.shown(value)}, has no form in JSON, so it cannot be shown: make it a dataclass, or name a "
            f"serde of values that have one, such as JsonSerde"
        ) from error


def _name(name: Any) -> str:
    """A dict's key as a name in JSON, as `JsonSerde` writes it."""
    if type(name) is str:
        return name
    found = shown(name)
    return found if isinstance(found, str) else shown_json(found).decode()


def _not_finite(value: float) -> str:
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


# --- From the bytes of a serde to JSON.

_JSON = (JsonSerde, JsonKeySerde, JsonWithKeys, JsonIdSerde)
_TEXT = (StringSerde, DefaultKeySerde)
_PLAIN_SERDES = (Int16Serde, Int32Serde, Int64Serde, BooleanSerde)
"""Serdes whose values are plain JSON data already."""


def reader_of(serde: Serde, topic: str, view: Callable[[Any], Any] | None = None) -> Show:
    """A function that turns a serde's bytes into JSON data. For a JSON serde, it is exactly what was written, whatever its type.

    Args:
        serde: The serde.
        topic: The topic that is passed to the serde.
        view: Computes the value to show from the one in the bytes; None: they are the same.
    """
    serde = taken(serde)
    if view is None and type(serde) in _JSON:
        # Without the type, because its objects would only be converted back.
        return quick(loads, partial(JsonSerde().deserialize, topic))
    if view is None and type(serde) in _TEXT:
        return quick(bytes.decode, partial(serde.deserialize, topic))
    if view is None and type(serde) in _PLAIN_SERDES:
        return partial(serde.deserialize, topic)
    if view is None and isinstance(serde, VersionedSerde):
        inner, newest = reader_of(serde.inner, topic), serde
        return lambda data: inner(newest.inner.serialize(topic, newest.deserialize(topic, data)))

    def read(data: bytes | None) -> Any:
        value = serde.deserialize(topic, data)
        return shown(value if view is None or value is None else view(value))

    return read


def text_of(serde: Serde, topic: str, view: Callable[[Any], Any] | None = None) -> Callable[[bytes | None], bytes]:
    """A function that turns a serde's bytes into JSON text. Bytes of a JSON serde are checked and returned as they are.

    Args:
        serde: The serde.
        topic: The topic that is passed to the serde.
        view: Computes the value to show from the one in the bytes; None: they are the same.
    """
    show = reader_of(serde, topic, view)

    def text(data: bytes | None) -> bytes:
        return shown_json(show(data))

    # One call for each cell, since an answer may have many.
    def checked(data: bytes | None) -> bytes:
        try:
            orjson.loads(data)  # type: ignore[arg-type]
        except ValueError:
            return text(data)
        return data  # type: ignore[return-value]

    def quoted(data: bytes | None) -> bytes:
        try:
            return orjson.dumps(data.decode())  # type: ignore[union-attr]
        except (ValueError, AttributeError):
            return text(data)

    if view is None and type(taken(serde)) in _JSON:
        return checked
    return quoted if view is None and type(taken(serde)) in _TEXT else text


def texts_of(
    serde: Serde, topic: str, view: Callable[[Any], Any] | None = None
) -> Callable[[pa.BinaryArray], list[bytes]]:
    """Like `text_of`, but returns a function for columns without nulls. Compiled code finds most JSON that can stay as it is."""
    # Not at the top: commands that show a few records do without the libraries of columns.
    from streams.serdes.json_scan import normal_json

    text, kind = text_of(serde, topic, view), None if view is not None else type(taken(serde))

    def checked(column: pa.BinaryArray) -> list[bytes]:
        cells = zip(column.to_pylist(), normal_json(column).tolist(), strict=True)
        return [cell if is_normal else text(cell) for cell, is_normal in cells]

    def quoted(column: pa.BinaryArray) -> list[bytes]:
        cells = column.to_pylist()
        try:
            return [orjson.dumps(cell.decode()) for cell in cells]
        except ValueError:
            return list(map(text, cells))

    if kind in _JSON:
        return checked
    return quoted if kind in _TEXT else lambda column: list(map(text, column.to_pylist()))


def quick(made: Callable[[Any], Any], slowly: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that calls fast C code (`made`). If that fails, the serde (`slowly`) does the work, or raises the error."""

    def quickly(data: Any) -> Any:
        try:
            return made(data)
        except (ValueError, TypeError):
            return slowly(data)

    return quickly


def schema_of(serde: Serde) -> dict[str, Any]:
    """The JSON Schema of a serde's values as they are shown; empty, which allows anything, if it is not known."""
    serde = taken(serde)
    made = next((made for kind, made in _SCHEMAS.items() if isinstance(serde, kind)), None)
    return made(serde) if callable(made) else made or {}


def _schema_of_type(serde: JsonSerde[Any]) -> dict[str, Any]:
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return {} if serde.kind is None else TypeAdapter(serde.kind).json_schema()
    except PydanticUserError:
        return {"type": "object"}


def _schema_of_windowed(serde: Any) -> dict[str, Any]:
    times = {name: {"type": "integer"} for name in ("start", "end")}
    return {"type": "object", "properties": {"key": schema_of(serde.inner), **times}}


_FLOAT: dict[str, Any] = {"anyOf": [{"type": "number"}, {"enum": list(NOT_FINITE)}]}
_SCHEMAS: dict[type[Any], dict[str, Any] | Callable[[Any], dict[str, Any]]] = {
    StringSerde: {"type": "string"},
    UuidSerde: {"type": "string", "format": "uuid"},
    BytesSerde: {"type": "string", "contentEncoding": "base64"},
    Int16Serde: {"type": "integer"},
    Int32Serde: {"type": "integer", "format": "int32"},
    Int64Serde: {"type": "integer", "format": "int64"},
    Float32Serde: _FLOAT,
    Float64Serde: _FLOAT,
    BooleanSerde: {"type": "boolean"},
    JsonSerde: _schema_of_type,
    VersionedSerde: lambda serde: schema_of(serde.inner),
    ListSerde: lambda serde: {"type": "array", "items": schema_of(serde.inner)},
    TupleSerde: lambda serde: {"type": "array", "prefixItems": list(map(schema_of, serde.entries))},
    TimeWindowedSerde: _schema_of_windowed,
    CustomWindowedSerde: _schema_of_windowed,
    SessionWindowedSerde: _schema_of_windowed,
}


# --- From JSON to the bytes of a serde.


def written(serde: Serde, topic: str, data: Any) -> bytes:
    """The bytes that a serde writes for a key or value in its JSON form.

    Raises:
        SerdeError: The serde has no such value.
    """
    found = serde.serialize(topic, value_of(serde, topic, data))
    if found is None:
        raise SerdeError("null is not a key")
    return found


def written_of_text(serde: Serde, topic: str, text: str) -> bytes:
    """The bytes of a typed key: the text itself if that is a key, else the key in its JSON.

    If keys are plain JSON, any text could be a key itself, so JSON comes first: `7` is the number.

    Raises:
        SerdeError: The serde has no such key.
    """
    found = taken(serde)
    if isinstance(found, JsonSerde) and found.is_plain:
        return written(serde, topic, _data(text, text))
    try:
        return written(serde, topic, text)
    except SerdeError as error:
        data = _data(text, None)
        if data is None:
            raise SerdeError(f"{error}; nor is it one in JSON") from error
        return written(serde, topic, data)


def _data(text: str, other: Any) -> Any:
    try:
        return loads(text)
    except ValueError:
        return other


def is_plain_text(serde: Serde) -> bool:
    """Whether a serde takes every text, and writes it as UTF-8."""
    found = taken(serde)
    return type(found) is StringSerde or (type(found) is DefaultKeySerde and found.member_of is None)


def value_of(serde: Serde, topic: str, data: Any) -> Any:
    """The key or value with this JSON form; for an Avro serde, an `AskedFor`, which this serde writes as the value.

    Raises:
        SerdeError: The serde has no such value.
    """
    serde = taken(serde)
    if data is None:
        return None
    read = next((read for kind, read in _READ.items() if isinstance(serde, kind)), _of_own)
    return read(serde, topic, data)


def taken(serde: Serde) -> Serde:
    """The serde that a derived serde stands for; other serdes are returned as they are."""
    return serde.inner if isinstance(serde, DerivedSerde) and serde.inner is not None else serde


def _text(serde: StringSerde, topic: str, data: Any) -> Any:
    try:
        return serde.deserialize(topic, str.encode(data))
    except (TypeError, UnicodeEncodeError) as error:
        raise SerdeError(f"it is a text, not {a_value(data)}") from error


def _by_form(read: Callable[[Any], Any]) -> Callable[[Serde, str, Any], Any]:
    def value(serde: Serde, topic: str, data: Any) -> Any:
        try:
            return read(data)
        except ValueError as error:
            raise SerdeError(str(error)) from error

    return value


def _uuid(serde: Serde, topic: str, data: Any) -> uuid.UUID:
    try:
        return uuid.UUID(data)
    except (ValueError, AttributeError, TypeError) as error:
        raise SerdeError("it is a UUID, as a text") from error


def _json(serde: JsonSerde[Any], topic: str, data: Any) -> Any:
    return data if serde.is_plain else serde.deserialize(topic, dumps(data))


def _array(data: Any, length: int | None = None) -> list[Any]:
    if not isinstance(data, list) or length not in (None, len(data)):
        raise SerdeError(f"it is an array{'' if length is None else f' of {length}'}, not {a_value(data)}")
    return data


def _list(serde: ListSerde[Any], topic: str, data: Any) -> list[Any]:
    return [value_of(serde.inner, topic, one) for one in _array(data)]


def _tuple(serde: TupleSerde, topic: str, data: Any) -> tuple[Any, ...]:
    parts = _array(data, len(serde.entries))
    return tuple(value_of(entry, topic, one) for entry, one in zip(serde.entries, parts, strict=True))


def _windowed(serde: Any, topic: str, data: Any) -> Windowed[Any]:
    if not isinstance(data, dict) or set(data) != {"key", "start", "end"}:
        raise SerdeError('a windowed key is {"key": ..., "start": ms, "end": ms}')
    if not all(type(data[name]) is int for name in ("start", "end")):
        raise SerdeError("start and end of a window are milliseconds")
    return Windowed(value_of(serde.inner, topic, data["key"]), Window(data["start"], data["end"]))


def _same(serde: Serde, topic: str, data: Any) -> Any:
    return data


_READ: dict[type[Any], Callable[[Any, str, Any], Any]] = {
    StringSerde: _text,
    BytesSerde: _by_form(bytes_of),
    UuidSerde: _uuid,
    Float32Serde: _by_form(float_of),
    Float64Serde: _by_form(float_of),
    JsonSerde: _json,
    VersionedSerde: lambda serde, topic, data: value_of(serde.inner, topic, data),
    ListSerde: _list,
    TupleSerde: _tuple,
    TimeWindowedSerde: _windowed,
    CustomWindowedSerde: _windowed,
    SessionWindowedSerde: _windowed,
    AvroSerde: lambda serde, topic, data: AskedFor(data, shown),
    RegistrySerde: _same,
    **dict.fromkeys(_PLAIN_SERDES, _same),
}


def _of_own(serde: Serde, topic: str, data: Any) -> Any:
    """The value of a user's serde that has this JSON form. It is found by trying: the serde only converts values and bytes."""
    forms: list[Callable[[], Any]] = [lambda: data, lambda: serde.deserialize(topic, dumps(data))]
    if isinstance(data, str):
        forms.append(lambda: serde.deserialize(topic, data.encode()))
    for form in forms:
        try:
            value = form()
            if shown(serde.deserialize(topic, serde.serialize(topic, value))) == data:
                return value
        except Exception:
            # A user's function may raise anything for data that is not one of its values.
            continue
    raise SerdeError(f"no value that {type(serde).__name__} reads is shown like this")
