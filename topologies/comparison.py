"""The comparison of two tables of results, with the differences in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

TOLERANCE = 1e-9
"""The relative tolerance for floats, whose sums depend on the order of addition in the last digits."""


def compare(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """The differences between two tables, one line each, in the order of the keys; none if the tables are equal.

    Args:
        expected: The expected rows by key; a row is an object with fields, or one value.
        actual: The actual rows, in the same form.
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
