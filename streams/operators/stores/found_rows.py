"""Rows read for many keys at once: `FoundRows` of a table, and `ReadAhead` for a step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streams.model.record import NO_TIME
from streams.operators.columnar import EncodedValues, Int64s, KeyColumn


class FoundRows:
    """What a table has for n keys.

    Args:
        there: bool[n], whether there is a row.
        timestamps: int64[n], ms; `NO_TIME` where there is no row.
        read: Gives the values; None where there is no row.
        encoded: Gives the same as bytes that nobody has read, if they are known.

    Attributes:
        there: See above.
        timestamps: See above.
        encoded: See above.
    """

    __slots__ = ("_read", "_values", "encoded", "there", "timestamps")

    def __init__(
        self,
        there: npt.NDArray[np.bool_],
        timestamps: Int64s,
        read: Callable[[], list[Any]],
        encoded: Callable[[], EncodedValues | None] = lambda: None,
    ) -> None:
        self.there, self.timestamps, self.encoded = there, timestamps, encoded
        self._read = read
        self._values: list[Any] | None = None

    @classmethod
    def of(cls, values: list[Any], timestamps: Int64s) -> FoundRows:
        """Rows that are there where the value is not None."""
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return cls(there, np.where(there, timestamps, NO_TIME), lambda: values)

    @property
    def values(self) -> list[Any]:
        if self._values is None:
            self._values = self._read()
        return self._values

    def with_values(self, values: list[Any]) -> FoundRows:
        return FoundRows(self.there, self.timestamps, lambda: values)


TableLookup = Callable[[KeyColumn, Int64s], FoundRows]
"""`(keys, order)` -> the rows of a table for many keys (none null), each just before a position of the step."""


# --- `ReadAhead`: the rows of a step's keys, read at once, for operators that process the records one by one all the same.

Place: TypeAlias = tuple[int, ...]
"""Where a row of a key is: the end and the start of a session."""


class _Rows:
    __slots__ = ("cells", "places")

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.cells: list[bytes] = []


class ReadAhead:
    """Rows in memory in front of the store, which gets every write as well.

    Args:
        keys: The bytes of the keys, each once.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._rows = {key: _Rows() for key in keys}

    def __contains__(self, key: bytes) -> bool:
        """Whether the rows of a key are here."""
        return key in self._rows

    def append(self, key: bytes, place: Place, cell: bytes) -> None:
        """Adds a row after the existing rows of a key."""
        rows = self._rows[key]
        rows.places.append(place)
        rows.cells.append(cell)

    def put(self, key: bytes, place: Place, cell: bytes | None) -> None:
        """Sets a row, if those of the key are here; None deletes."""
        rows = self._rows.get(key)
        if rows is None:
            return
        at = bisect_left(rows.places, place)
        if at < len(rows.places) and rows.places[at] == place:
            if cell is not None:
                rows.cells[at] = cell
            else:
                del rows.places[at], rows.cells[at]
        elif cell is not None:
            rows.places.insert(at, place)
            rows.cells.insert(at, cell)

    def between(self, key: bytes, low: Place, high: Place, reverse: bool = False) -> Iterator[tuple[Place, bytes]]:
        """The rows of a key with low <= place < high, as of now."""
        rows = self._rows[key]
        part = slice(bisect_left(rows.places, low), bisect_left(rows.places, high))
        places, cells = rows.places[part], rows.cells[part]
        return zip(reversed(places), reversed(cells), strict=True) if reverse else zip(places, cells, strict=True)
