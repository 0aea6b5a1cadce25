"""The comparison of expected rows with those that were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

TOLERANCE = 1e-6
_SHOWN = 10

Table = Mapping[str, npt.NDArray[Any]]
"""Columns of equal length, by name."""


@dataclass(frozen=True)
class Verdict:
    """What a verifier says.

    Attributes:
        differences: The first differences, in words; none: the output is right.
        output_records: The records in the output topics.
        figures: Further figures, such as the number of duplicates.
    """

    differences: Sequence[str] = ()
    output_records: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether the run counts."""
        return not self.differences


def compare(expected: Table, found: Table, keys: Sequence[str], *, duplicates: bool = False) -> list[str]:
    """The differences between two tables, in words; at most some of each sort.

    Args:
        expected: The expected rows.
        found: The rows of the output.
        keys: The columns that identify a row. All others are values, which are compared with a small tolerance.
        duplicates: Whether a row may be found more than once.
    """
    ours, theirs = _sorted(expected, keys), _sorted(found, keys)
    once, counts = np.unique(theirs, return_counts=True, axis=0) if len(theirs) else (theirs, np.array([], np.int64))
    lines: list[str] = []
    if not duplicates:
        twice = once[counts > 1]
        lines += _lines("more than once", keys, twice)
    missing, unexpected = _without(ours, once), _without(once, ours)
    lines += _lines("missing", keys, missing) + _lines("not expected", keys, unexpected)
    if lines:
        return lines
    return _wrong_values(expected, found, keys)


def _sorted(table: Table, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """The identities of all rows, int64[n, keys]; -1 for null."""
    return np.stack([np.asarray(table[name], np.int64) for name in keys], axis=1)


def _void(rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Each row as one value that can be searched."""
    packed = np.ascontiguousarray(rows)
    return packed.view([("", packed.dtype)] * packed.shape[1]).ravel()


def _without(rows: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The rows that are not among the others."""
    if not len(rows) or not len(others):
        return rows
    return rows[~np.isin(_void(rows), _void(others))]


def _lines(what: str, keys: Sequence[str], rows: npt.NDArray[np.int64]) -> list[str]:
    shown = [f"{what}: {dict(zip(keys, row, strict=True))}" for row in rows[:_SHOWN].tolist()]
    return [*shown, f"{what}: {len(rows):,} in all"] if len(rows) else []


def _wrong_values(expected: Table, found: Table, keys: Sequence[str]) -> list[str]:
    """The rows whose values differ; both tables have the same rows."""
    names = [name for name in expected if name not in keys]
    if not names or not len(expected[keys[0]]):
        return []
    identities = _void(_sorted(expected, keys))
    order = np.argsort(identities, kind="stable")
    at = order[np.searchsorted(identities, _void(_sorted(found, keys)), sorter=order)]
    lines: list[str] = []
    for name in names:
        want, got = np.asarray(expected[name], np.float64)[at], np.asarray(found[name], np.float64)
        wrong = np.flatnonzero(~np.isclose(got, want, rtol=TOLERANCE, atol=TOLERANCE))
        for row in wrong[:_SHOWN].tolist():
            identity = {key: int(found[key][row]) for key in keys}
            lines.append(f"{identity} {name}: expected {want[row]}, found {got[row]}")
        if len(wrong):
            lines.append(f"{name}: {len(wrong):,} wrong values in all")
    return lines


def table_of(found: Sequence[Sequence[Any]], names: Sequence[str]) -> Table:
    """Rows as columns; None becomes -1."""
    columns = list(zip(*found, strict=True)) if found else [()] * len(names)
    return {
        name: np.array([-1 if value is None else value for value in column])
        for name, column in zip(names, columns, strict=True)
    }
