"""JSON of a union of classes that look alike: the text names the class in a field `$type`.

`JsonSerde(Created | Deleted)`, where both have the same fields, would read a `Deleted` back as a `Created`. So the class is named
before the fields: `{"$type":"Deleted","id":"1"}`. A union whose classes differ in JSON has no such field.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel

from streams.errors import TopologyError
from streams.serdes.base import UNIONS, type_name
from streams.serdes.json_text import loads
from streams.serdes.json_types import TypedJson

TYPE = "$type"
"""The field with the name of the class."""


@dataclass(frozen=True, slots=True)
class TaggedJson:
    """Reads and writes a union of classes, as `TypedJson` does a single type.

    Attributes:
        classes: The classes, by their names.
        forms: The `TypedJson` of each class.
    """

    classes: Mapping[str, type]
    forms: Mapping[str, TypedJson]

    def loads(self, data: bytes) -> Any:
        """Parses a value. Raises `ValueError` for another shape, or if the text does not name the class."""
        found = loads(data)
        name = found.get(TYPE) if isinstance(found, dict) else None
        if not isinstance(name, str) or name not in self.forms:
            raise ValueError(
                f"{TYPE}: expected one of {', '.join(map(repr, self.forms))}, which says the class, not {name!r}"
            )
        return self.forms[name].loads(data)

    def dumps(self, value: Any, options: int) -> bytes:
        """The value as JSON text. Raises the errors of `TypedJson.dumps`."""
        name, form = self._form(value)
        return _tagged(name, form.dumps(value, options))

    def keep(self, value: Any) -> bytes:
        """The value as JSON text that is read back. Raises the errors of `TypedJson.keep`."""
        name, form = self._form(value)
        return _tagged(name, form.keep(value))

    def check_kept(self, value: Any) -> None:
        """Raises the errors that `keep` would raise."""
        self._form(value)[1].check_kept(value)

    @staticmethod
    def explained(error: Exception) -> str:
        """The reason why a value has another shape."""
        return TypedJson.explained(error)

    def _form(self, value: Any) -> tuple[str, TypedJson]:
        for name, kind in self.classes.items():
            if type(value) is kind:
                return name, self.forms[name]
        raise ValueError(f"expected one of {', '.join(self.classes)}, not {type_name(type(value))}")


def _tagged(name: str, data: bytes) -> bytes:
    separator = b"" if data[1:2] == b"}" else b","
    return b"".join((b'{"', TYPE.encode(), b'":', orjson.dumps(name), separator, data[1:]))


def typed_json(kind: Any) -> TypedJson | TaggedJson:
    """The object that reads and writes values of a type. Raises `TopologyError` for the reasons of `TypedJson.of`."""
    try:
        return TypedJson.of(kind)
    except TopologyError:
        tagged = _of_alike(kind)
        if tagged is None:
            raise
        return tagged


def _of_alike(kind: Any) -> TaggedJson | None:
    """The form of a union of classes with fields; None for another type, or for classes that take no further field."""
    if typing.get_origin(kind) not in UNIONS:
        return None
    members = [one for one in typing.get_args(kind) if one is not type(None)]
    classes = {type_name(one): one for one in members if _has_fields(one)}
    if len(classes) < max(2, len(members)):
        return None
    forms = {name: TypedJson.of(one) for name, one in classes.items()}
    return TaggedJson(classes, forms) if all(map(_takes_more, classes.values())) else None


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel))


def _takes_more(kind: Any) -> bool:
    """Whether a class ignores a field that it does not have."""
    settings: Mapping[str, Any] = (
        getattr(kind, "__pydantic_config__", None) or getattr(kind, "model_config", None) or {}
    )
    return bool(settings.get("extra", "ignore") == "ignore")
