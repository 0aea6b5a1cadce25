"""Compares a value that was read with the value that was written: equal, and of the same type, in all parts."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

from streams.serdes.base import a_value, shown

_ONE_BY_ONE = (list, tuple, deque)
_NEVER_READ = "is not finite, and JSON has no such number"


class Difference(NamedTuple):
    """A part of a value that is not read back as it is.

    Attributes:
        place: The path to it, such as `lines.0.sku`; empty for the value itself.
        what: A description of the difference.
        value: The written part.
        back: The part that was read, if any.
    """

    place: str
    what: str
    value: Any
    back: Any = None

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" if self.place else self.what


def difference(value: Any, back: Any, *, widened: bool = False) -> Difference | None:
    """The first part of a value that is not read back as it is, with its place; None if there is none.

    Args:
        value: The written value.
        back: The value that was read.
        widened: Whether an int may come back as the equal float.
    """
    return next(_differences(value, back, "", widened), None)


def not_finite(value: Any) -> Difference | None:
    """The first number in a value that is NaN or infinite, with its place; None if there is none."""
    return next(_not_finite(value, ""), None)


def _differences(value: Any, back: Any, place: str, widened: bool) -> Iterator[Difference]:
    kind = type(value)
    if kind in (float, Decimal) and not math.isfinite(value):
        yield Difference(place, f"{value} {_NEVER_READ}", value)
    elif type(back) is not kind:
        if not (widened and kind is int and type(back) is float and value == back):
            what = f"{a_value(value)}, {shown(value)}, would be read back as {a_value(back)}, {shown(back)}"
            yield Difference(place, what, value, back)
    elif isinstance(value, _ONE_BY_ONE):
        names = getattr(kind, "_fields", None) or range(max(len(value), len(back)))
        yield from _of_pairs(zip(names, value, strict=False), dict(zip(names, back, strict=False)), place, widened)
    elif isinstance(value, dict):
        yield from _of_keys((key for key in value if type(key) is not str), back, place, widened)
        yield from _of_pairs(value.items(), back, place, widened)
    elif isinstance(value, set | frozenset):
        yield from _of_keys(value, back, place, widened)
    elif isinstance(value, Enum) or (parts := parts_of(value)) is None:
        # When clocks change, a zone has an hour twice or skips one. Python never considers times in that hour equal to times of
        # another zone, so this compares texts.
        same = value.isoformat() == back.isoformat() if isinstance(value, datetime) else value == back
        if not same:
            what = f"{a_value(value)} would be read back changed: {shown(value)} as {shown(back)}"
            yield Difference(place, what, value, back)
    else:
        yield from _of_pairs(parts.items(), parts_of(back) or {}, place, widened)


def _of_pairs(
    parts: Iterable[tuple[Any, Any]], back: dict[Any, Any], place: str, widened: bool
) -> Iterator[Difference]:
    seen = 0
    for name, part in parts:
        seen += 1
        if name in back:
            yield from _differences(part, back[name], _within(place, name), widened)
        else:
            yield Difference(_within(place, name), f"{a_value(part)}, {shown(part)}, would not be read back", part)
    if seen < len(back):
        yield Difference(place, "more would be read back than is there", parts, back)


def _of_keys(keys: Iterable[Any], back: Iterable[Any], place: str, widened: bool) -> Iterator[Difference]:
    """The differences between the keys of dicts, or the elements of sets."""
    same = {key: key for key in back}
    for key in keys:
        if key in same:
            yield from _differences(key, same[key], _within(place, "[key]"), widened)
        else:
            what = f"{a_value(key)}, {shown(key)}, would not be read back as a key or an element"
            yield Difference(place, what, key)


def _not_finite(value: Any, place: str) -> Iterator[Difference]:
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            yield Difference(place, f"{value} {_NEVER_READ}", value)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _not_finite(part, _within(place, name))
    elif isinstance(value, (*_ONE_BY_ONE, set, frozenset)):
        for at, part in enumerate(value):
            yield from _not_finite(part, _within(place, at))
    elif not isinstance(value, type):
        yield from _not_finite(parts_of(value) or {}, place)


def parts_of(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass, a pydantic model or a msgspec Struct; None for anything else."""
    if dataclasses.is_dataclass(value):
        names: Iterable[str] = [field.name for field in dataclasses.fields(value)]
    elif hasattr(value, "__struct_fields__"):
        names = value.__struct_fields__
    elif hasattr(value, "__pydantic_fields__"):
        # Private attributes of a model are not written, so they must have the same values as in every new object.
        own = {**(value.__pydantic_extra__ or {}), **(value.__pydantic_private__ or {})}
        return {name: getattr(value, name) for name in type(value).__pydantic_fields__ if hasattr(value, name)} | own
    else:
        return None
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _within(place: str, name: Any) -> str:
    return f"{place}.{name}" if place else str(name)
