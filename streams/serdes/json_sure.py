"""A fast check of a value: are its parts exactly of the declared types, so that its JSON is certainly read back as the same value?

Yes is certain; no means only that the value must be read to find out (`read_back`). The results of a type's samples, from when the
serde was made, hold for all values that pass this check.

A shape has the exact types that a value may have, and for each type a further check. The types of all fields of an object are
compared at once. Checks are functions of a value, made of partials, because they are pickled with the job.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Flag
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias
from uuid import UUID

Check: TypeAlias = Callable[[Any], bool]
Shape: TypeAlias = dict[type, Check | None]
"""Type of a value -> a further check of it; None: nothing else has to be checked."""

_NOTHING_SAID = {"type", "ref", "metadata", "microseconds_precision"}
"""Settings of a core schema that neither limit nor change what is read."""
_HARMLESS = {"title", "frozen", "validate_by_name", "validate_by_alias", "populate_by_name", "extra_fields_behavior"}
"""Settings of a class that do not change what is read, either, provided that samples of the class were read back correctly."""
_FORMS = {
    **dict.fromkeys(("int", "float"), "number"),
    **dict.fromkeys(("str", "uuid", "date", "decimal", "datetime"), "text"),
    **dict.fromkeys(("list", "tuple", "set", "frozenset"), "array"),
    **dict.fromkeys(("dict", "typed-dict", "dataclass", "model"), "object"),
    "bool": "bool",
}
"""The kind of JSON for a type, if it is always the same."""


def check_of(schema: Any) -> Check:
    """The check of a type, made from its core schema."""
    return partial(_has_shape, _Shapes().of(schema) or {})


def _has_shape(shape: Shape, value: Any) -> bool:
    check = shape.get(type(value), _never)
    return check is None or check(value)


def _never(value: Any) -> bool:
    return False


def _in_utc(value: datetime) -> bool:
    """Whether a time is in UTC or has no zone. Other zones are read back as their offset at that time."""
    return value.tzinfo is None or value.tzinfo is timezone.utc


_LEAVES: dict[str, Shape] = {
    "int": {int: None},
    "str": {str: None},
    "bool": {bool: None},
    "none": {type(None): None},
    "uuid": {UUID: None},
    "date": {date: None},
    "float": {float: math.isfinite},
    "decimal": {Decimal: Decimal.is_finite},
    "datetime": {datetime: _in_utc},
}


class _Shapes:
    """Makes shapes from core schemas; None: a schema has no shape."""

    def __init__(self) -> None:
        self._refs: dict[str, Any] = {}
        self._within: set[str] = set()

    def of(self, schema: Any) -> Shape | None:
        kind, said = schema["type"], schema.keys() - _NOTHING_SAID
        if kind in _LEAVES:
            return None if said else _LEAVES[kind]
        if "serialization" in said:
            return None
        make: Callable[[Any, set[str]], Shape | None] | None = getattr(self, "_" + kind.replace("-", "_"), None)
        return None if make is None else make(schema, said)

    def _all(self, schemas: Sequence[Any]) -> tuple[Shape, ...] | None:
        found = tuple(shape for schema in schemas if (shape := self.of(schema)) is not None)
        return found if len(found) == len(schemas) else None

    def _definitions(self, schema: Any, said: set[str]) -> Shape | None:
        self._refs = {one["ref"]: one for one in schema["definitions"]}
        return self.of(schema["schema"])

    def _definition_ref(self, schema: Any, said: set[str]) -> Shape | None:
        ref = schema["schema_ref"]
        if ref in self._within:
            return None  # a type within itself
        self._within.add(ref)
        found = self.of(self._refs[ref])
        self._within.remove(ref)
        return found

    def _default(self, schema: Any, said: set[str]) -> Shape | None:
        return self.of(schema["schema"])

    def _nullable(self, schema: Any, said: set[str]) -> Shape | None:
        inner = self.of(schema["schema"])
        return None if inner is None else {**inner, type(None): None}

    def _union(self, schema: Any, said: set[str]) -> Shape | None:
        choices = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
        forms = [_FORMS.get(choice["type"]) for choice in choices]
        members = self._all(choices)
        if members is None or None in forms or len(set(forms)) < len(forms) or said != {"choices"}:
            return None
        return {kind: check for member in members for kind, check in member.items()}

    def _enum(self, schema: Any, said: set[str]) -> Shape | None:
        kind = schema["cls"]
        return None if issubclass(kind, Flag) or "missing" in said else {kind: None}

    def _literal(self, schema: Any, said: set[str]) -> Shape:
        values = schema["expected"]
        return {kind: {value for value in values if type(value) is kind}.__contains__ for kind in map(type, values)}

    def _list(self, schema: Any, said: set[str]) -> Shape | None:
        return self._items(list, schema, said)

    def _set(self, schema: Any, said: set[str]) -> Shape | None:
        return self._items(set, schema, said)

    def _frozenset(self, schema: Any, said: set[str]) -> Shape | None:
        return self._items(frozenset, schema, said)

    def _items(self, kind: type, schema: Any, said: set[str]) -> Shape | None:
        item = self.of(schema["items_schema"]) if said == {"items_schema"} else None
        return None if item is None else {kind: partial(_all_of, item)}

    def _tuple(self, schema: Any, said: set[str]) -> Shape | None:
        items = schema["items_schema"]
        if said == {"items_schema", "variadic_item_index"} and len(items) == 1:
            return self._items(tuple, {"items_schema": items[0]}, {"items_schema"})
        shapes = self._all(items) if said == {"items_schema"} else None
        return None if shapes is None else {tuple: partial(_parts, None, shapes, {})}

    def _dict(self, schema: Any, said: set[str]) -> Shape | None:
        if said != {"keys_schema", "values_schema"} or schema["keys_schema"] not in ({"type": "str"}, {"type": "int"}):
            return None
        key, item = (int if schema["keys_schema"]["type"] == "int" else str), self.of(schema["values_schema"])
        return None if item is None else {dict: partial(_mapping, key, item)}

    def _json_or_python(self, schema: Any, said: set[str]) -> Shape | None:
        """The shape of a NamedTuple, which has a schema in the form that `json_types` gives it."""
        kind, made = schema["python_schema"].get("cls"), schema["json_schema"].get("schema", {})
        if not (isinstance(kind, type) and issubclass(kind, tuple)) or made.get("type") != "typed-dict":
            return None
        shapes = self._all([field["schema"] for field in made["fields"].values()])
        return None if shapes is None else {kind: partial(_parts, None, shapes, {})}

    def _typed_dict(self, schema: Any, said: set[str]) -> Shape | None:
        if said - {"fields", "cls", "cls_name", "total", "computed_fields", "config"} or _changes(schema):
            return None
        fields = schema["fields"]
        shapes = self._all([field["schema"] for field in fields.values()])
        needed = frozenset(name for name, field in fields.items() if field.get("required", schema.get("total", True)))
        return None if shapes is None else {dict: partial(_typed, dict(zip(fields, shapes, strict=True)), needed)}

    def _dataclass(self, schema: Any, said: set[str]) -> Shape | None:
        kind, inner = schema["cls"], schema["schema"]
        names = [field.name for field in dataclasses.fields(kind)]
        if inner["type"] != "dataclass-args" or schema.get("post_init") or _changes(schema):
            return None
        fields = {field["name"]: field for field in inner["fields"] if field.get("init", True)}
        return self._object(kind, names, {name: field["schema"] for name, field in fields.items()})

    def _model(self, schema: Any, said: set[str]) -> Shape | None:
        inner = schema["schema"]
        custom = any(schema.get(name) for name in ("custom_init", "root_model", "post_init"))
        if inner["type"] != "model-fields" or custom or _changes(schema) or "serialization" in inner:
            return None
        if inner.get("extras_schema") or schema.get("config", {}).get("extra_fields_behavior") == "allow":
            return None
        fields = inner["fields"]
        return self._object(schema["cls"], list(fields), {name: field["schema"] for name, field in fields.items()})

    def _object(self, kind: type, names: list[str], fields: dict[str, Any]) -> Shape | None:
        shapes = self._all(list(fields.values())) if names and names == list(fields) else None
        if shapes is None:
            return None
        if len(names) == 1:
            return {kind: partial(_part, attrgetter(*names), shapes[0])}
        return {kind: partial(_parts, attrgetter(*names), shapes, {})}


def _changes(schema: Any) -> bool:
    """Whether a class has settings that may change what is read."""
    return bool(schema.get("config", {}).keys() - _HARMLESS)


def _all_of(item: Shape, values: Any) -> bool:
    kinds = set(map(type, values))
    for kind in kinds:
        check = item.get(kind, _never)
        if check is not None:
            return all(map(check, values)) if len(kinds) == 1 else all(_has_shape(item, value) for value in values)
    return True


def _mapping(key: type, item: Shape, value: dict[Any, Any]) -> bool:
    return set(map(type, value)) <= {key} and _all_of(item, value.values())


def _typed(shapes: Mapping[str, Shape], needed: frozenset[str], value: dict[Any, Any]) -> bool:
    return value.keys() >= needed and all(
        name in shapes and _has_shape(shapes[name], part) for name, part in value.items()
    )


def _part(read: Callable[[Any], Any], shape: Shape, value: Any) -> bool:
    try:
        return _has_shape(shape, read(value))
    except AttributeError:  # the field was deleted
        return False


_Known: TypeAlias = dict[tuple[type, ...], list[tuple[int, Check]]]


def _parts(read: Callable[[Any], Sequence[Any]] | None, shapes: Sequence[Shape], known: _Known, value: Any) -> bool:
    """Checks the fields of an object, or the entries of a tuple; `known` caches the checks by the types of the parts."""
    try:
        parts = value if read is None else read(value)
    except AttributeError:
        return False
    kinds = tuple(map(type, parts))
    checks = known.get(kinds)
    if checks is None:
        if len(kinds) != len(shapes) or not all(kind in shape for kind, shape in zip(kinds, shapes, strict=True)):
            return False
        all_checks = [(at, shape[kind]) for at, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))]
        checks = known[kinds] = [(at, check) for at, check in all_checks if check is not None]
    return all(check(parts[at]) for at, check in checks) if checks else True
