"""Are two tables of results equal? And if not: where, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

TOLERANCE = 1e-9
"""Relative: a sum of floats depends on the order of adding in its last digits. Everything else must be equal."""


def compare(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Differences between two tables, one line each, in order of the keys; none if they are equal.

    Args:
        expected: Rows by key; a row is an object of fields, or one value.
        actual: The same.
    """
    lines = [f"{key}: missing, expected {expected[key]}" for key in sorted(expected.keys() - actual.keys())]
    lines += [f"{key}: not expected, found {actual[key]}" for key in sorted(actual.keys() - expected.keys())]
    for key in sorted(expected.keys() & actual.keys()):
        lines += _differences(key, expected[key], actual[key])
    return lines


def _differences(where: str, expected: Any, actual: Any) -> list[str]:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        names = [*expected, *(name for name in actual if name not in expected)]
        pairs = ((name, expected.get(name), actual.get(name)) for name in names)
        return [line for name, ours, theirs in pairs for line in _differences(f"{where} {name}", ours, theirs)]
    if _equal(expected, actual):
        return []
    return [f"{where}: expected {expected!r}, found {actual!r}"]


def _equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, int | float):
        return math.isclose(expected, actual, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(expected == actual)
