"""Reads fields of values for aggregates: of JSON objects and other mappings, of arrays, and attributes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.errors import NoFieldsError


def pick(value: Any, field: str | None) -> Any:
    """One field of a value, None if the field is missing.

    A dotted path goes through nested objects, and arrays by index (`v.0`). Fields of mappings are read by name, those of
    other objects (dataclasses, named tuples) as attributes.

    Raises:
        NoFieldsError: The value is text, a number or the like. If a nested part is, the field counts as missing.
    """
    if field is None or value is None:
        return None
    if not has_fields(value):
        raise NoFieldsError(field)
    for name in field.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list):
            if not name.isdecimal():
                return None
            value = value[int(name)] if int(name) < len(value) else None
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = getattr(value, name, None) if has_fields(value) else None
    return value


def has_fields(value: Any) -> bool:
    """Whether a value has fields: a mapping, a list, or an object with attributes."""
    return isinstance(value, dict | list | Mapping) or hasattr(value, "__dict__") or hasattr(type(value), "__slots__")
