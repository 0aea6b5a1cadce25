"""Rows of a table that are read for many keys at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.model.ownership import only_reads, snapshot
from streams.model.record import NO_TIME
from streams.operators.columnar import EncodedValues, Int64s, KeyColumn


class FoundRows:
    """The rows of a table for n keys.

    Args:
        there: bool[n], whether there is a row.
        timestamps: int64[n], ms; `NO_TIME` where there is no row.
        read: Returns the values; None where there is no row.
        encoded: Returns the values as bytes that no code has decoded; None if they are not known.
        shared: Whether other code has the same objects: the table, or another look-up.

    Attributes:
        there, timestamps, encoded, shared: The arguments of these names.
    """

    __slots__ = ("_read", "_values", "encoded", "shared", "there", "timestamps")

    def __init__(
        self,
        there: npt.NDArray[np.bool_],
        timestamps: Int64s,
        read: Callable[[], list[Any]],
        encoded: Callable[[], EncodedValues | None] = lambda: None,
        shared: bool = False,
    ) -> None:
        self.there, self.timestamps, self.encoded, self.shared = there, timestamps, encoded, shared
        self._read = read
        self._values: list[Any] | None = None

    @classmethod
    def of(cls, values: list[Any], timestamps: Int64s, shared: bool = False) -> FoundRows:
        """Makes rows from values; where a value is None, there is no row."""
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return cls(there, np.where(there, timestamps, NO_TIME), lambda: values, shared=shared)

    @property
    def values(self) -> list[Any]:
        if self._values is None:
            self._values = self._read()
        return self._values

    def values_for(self, function: Callable[..., Any], results_change: bool = False) -> list[Any]:
        """The values for calls of a function, copied if they are shared and could be changed.

        Args:
            function: The function to call.
            results_change: Whether other code may change the function's results, which may contain the values.
        """
        may_change = self.shared and (results_change or not only_reads(function))
        return list(map(snapshot, self.values)) if may_change else self.values

    def with_values(self, values: list[Any]) -> FoundRows:
        return FoundRows(self.there, self.timestamps, lambda: values, shared=self.shared)

    def mapped(self, values: list[Any], shared: bool) -> FoundRows:
        """Rows with the results of a function; None: no row. `shared`: whether several results may be the same object."""
        return FoundRows.of(values, self.timestamps, self.shared or shared)

    def joins(self, right: FoundRows, needs_left: bool, needs_right: bool) -> npt.NDArray[np.bool_]:
        """Where a join of this table with another one has a row: bool[n]."""
        left, there = self.there | (not needs_left), right.there | (not needs_right)
        found: npt.NDArray[np.bool_] = (self.there | right.there) & left & there
        return found

    def joined(self, right: FoundRows, values: list[Any], shared: bool) -> FoundRows:
        """The rows of a join with another table, from the results of its joiner; `shared` is that of `mapped`."""
        return FoundRows.of(
            values, np.maximum(self.timestamps, right.timestamps), self.shared or right.shared or shared
        )


TableLookup = Callable[[KeyColumn, Int64s], FoundRows]
"""`lookup(keys, order)` returns the rows of a table for many keys (none null), each as of a position in the step."""
