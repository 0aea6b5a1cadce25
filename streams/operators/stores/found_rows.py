"""`FoundRows`: the rows that a table has for many keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streams.model.times import NO_TIME
from streams.operators.columnar import Int64s, KeyColumn


class FoundRows(NamedTuple):
    """What a table has for n keys.

    Attributes:
        there: bool[n], whether there is a row.
        values: The values; None where there is no row.
        timestamps: int64[n], ms; `NO_TIME` where there is no row.
    """

    there: npt.NDArray[np.bool_]
    values: list[Any]
    timestamps: Int64s

    @classmethod
    def of(cls, values: list[Any], timestamps: Int64s) -> FoundRows:
        """Rows that are there where the value is not None."""
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return cls(there, values, np.where(there, timestamps, NO_TIME))


TableLookup = Callable[[KeyColumn, Int64s], FoundRows]
"""`(keys, order)` -> the rows of a table for many keys (none null), each just before a position of the step."""
