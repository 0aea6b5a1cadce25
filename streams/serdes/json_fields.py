"""The fields of typed JSON values, and whether values that were written by one type can be read as another one.

A store's format is the same whatever its type (`JsonSerde.identity`), so a new version of a program may meet rows without a field
that it needs. The fields are described as JSON Schema, which pydantic and msgspec make of their types. What the schema does not
tell (patterns, bounds) is left to the reader, and a type that changes values before it reads them is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streams.serdes.json import JsonSerde

Schema = Mapping[str, Any]

_ANY_TEXT = (None, "binary", "password", "path")
"""Formats that any text has."""
_KEPT = ("type", "format", "enum", "const", "required")
"""What is kept of a schema as it is; titles, texts and defaults have no part in reading."""


def fields_of(serde: object) -> Schema | None:
    """The description of the values that a serde reads; None if it takes any value, or its type does not tell its fields."""
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
    """Why values of one type cannot be read as another one, each with the field; empty if they can.

    Args:
        old: `fields_of` the type that the values were written by.
        new: `fields_of` the type to read them.
    """
    return list(dict.fromkeys(_Comparison(old, new).of(old, new, "", frozenset())))


def _compact(schema: Any) -> Any:
    """A schema without what does not matter here."""
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
        """What of one part cannot be read."""
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
    """Whether values of one kind are of another one, whatever is in them."""
    kind, now = old.get("type"), new.get("type")
    if kind is not None and now is not None and kind != now and (kind, now) != ("integer", "number"):
        return False
    if now == "string" and kind == "string" and new.get("format") not in (*_ANY_TEXT, old.get("format")):
        return False
    taken = _values(new)
    written = _values(old)
    return taken is None or (written is not None and all(value in taken for value in written))


def _values(schema: Schema) -> list[Any] | None:
    """The only values of a type, None if there are others."""
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
