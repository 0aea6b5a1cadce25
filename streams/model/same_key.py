"""Compares keys by the bytes that they are written as, not by Python's `==`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, time
from decimal import Decimal
from typing import Any

_PLAIN = frozenset({str, int, bool, bytes, type(None)})
_BY_TEXT = (float, Decimal, datetime, time)
"""Types in which equal values may be written differently: 0.0 and -0.0, 1.0 and 1.00, one moment in two zones."""


def same_key(one: Any, other: Any) -> bool:
    """Whether two keys are written as the same bytes, as far as their types show.

    Python considers 1, 1.0 and True equal, 0.0 and -0.0, `Decimal("1.0")` and `Decimal("1.00")`, and one moment in two zones. As
    keys they differ at any depth, because they are written as different bytes.
    """
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _PLAIN:
        return bool(one == other)
    if isinstance(one, _BY_TEXT):
        return repr(one) == repr(other)
    if one != other:
        return False
    return all(map(same_key, _parts(one), _parts(other)))


def _parts(key: Any) -> list[Any]:
    """The parts of a key, in an order that is the same for equal keys."""
    if isinstance(key, Mapping):
        return [part for pair in sorted(key.items(), key=lambda pair: hash(pair[0])) for part in pair]
    if isinstance(key, set | frozenset):
        return sorted(key, key=hash)
    if isinstance(key, list | tuple):
        return list(key)
    if dataclasses.is_dataclass(key):
        return [getattr(key, one.name) for one in dataclasses.fields(key)]
    if names := getattr(key, "__struct_fields__", ()):  # msgspec
        return [getattr(key, name) for name in names]
    return list(getattr(key, "__dict__", {}).values())
