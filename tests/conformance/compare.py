"""Compares the rows that came out with those that were to come, and says readably what differs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.conformance.case import Case, CaseError
from tests.conformance.json_values import canonical

_COLUMNS = ("topic", "key", "window", "value", "timestamp")


class Row(NamedTuple):
    """One output record; key, window and value as canonical JSON, so that rows can be compared and sorted."""

    topic: str
    key: str
    window: str
    value: str
    timestamp: int

    @property
    def place(self) -> tuple[str, str, str]:
        """What a table's row is known by."""
        return self.topic, self.key, self.window

    def __str__(self) -> str:
        window = "" if self.window == "null" else f" in {self.window}"
        return f"{self.topic}: {self.key}{window} = {self.value} at {self.timestamp}"


def row(given: dict[str, Any]) -> Row:
    """A row of a case. Raises ``CaseError`` for fields that are missing or unknown."""
    if set(given) != set(_COLUMNS):
        raise CaseError(f"a row has the fields {sorted(given)}, not {sorted(_COLUMNS)}")
    return Row(
        given["topic"],
        canonical(given["key"]),
        canonical(given["window"]),
        canonical(given["value"]),
        given["timestamp"],
    )


def difference(case: Case, actual: Sequence[Row], *, by_key: bool = False) -> str:
    """The rows that differ, as a diff; empty if none do.

    Args:
        case: says what is compared: ``order``: all rows of a topic in order · ``multiset``: in any order · ``last``: the
            last row of each place, tombstones left out · ``per_key_order``: the rows of each place in order.
        actual: what came out, in order within each topic.
        by_key: ``order`` only within a key, for engines that do not fix the order between keys.
    """
    compare = f"{case.compare}, by key" if by_key and case.compare == "order" else case.compare
    if compare not in _ARRANGED:
        raise CaseError(f"unknown compare {case.compare!r}")
    arrange = _ARRANGED[compare]
    wanted = [str(one) for one in arrange([row(one) for one in case.expected])]
    found = [str(one) for one in arrange(actual)]
    if wanted == found:
        return ""
    lines = difflib.unified_diff(wanted, found, "expected", "actual", lineterm="", n=2)
    return "\n".join(lines)


def _last(rows: Sequence[Row]) -> list[Row]:
    last = {one.place: one for one in rows}
    return sorted(one for one in last.values() if one.value != "null")


# Sorting is stable: rows that are equal as far as the key goes keep their order.
_ARRANGED: dict[str, Any] = {
    "order": lambda rows: sorted(rows, key=lambda one: one.topic),
    "order, by key": lambda rows: sorted(rows, key=lambda one: (one.topic, one.key)),
    "multiset": sorted,
    "last": _last,
    "per_key_order": lambda rows: sorted(rows, key=lambda one: one.place),
}
