"""`OrderedTable`: the database interface of the byte stores. Keys are sorted by unsigned bytes; every write is atomic.

Invariants: `write` and `write_sorted` are all or nothing, and survive a kill of the process right afterwards. Only one
process at a time has a table open. A table is read while a step runs, and written only after the step's commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Row = tuple[bytes, bytes]
RowChange = tuple[bytes, "bytes | None"]
"""Key and new value; None deletes."""
Columns = tuple[pa.BinaryArray, pa.BinaryArray]
"""Keys (none null) and new values; null deletes."""
KeyRange = tuple[bytes, bytes]
"""[lower, upper)."""


class RangeRows(NamedTuple):
    """Rows of several key ranges, columns of equal length, ordered by range and then by key.

    Attributes:
        ranges: int32[n], index of the range that a row was found for.
        keys: binary[n], none null.
        values: binary[n], none null.
    """

    ranges: npt.NDArray[np.int32]
    keys: pa.BinaryArray
    values: pa.BinaryArray


class OrderedTable(Protocol):
    """An ordered map of bytes."""

    @property
    def location(self) -> str:
        """The table's location, for messages."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, in their order."""

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """Rows with lower <= key < upper in key order or reverse order, as of now."""

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
    ) -> None:
        """Applies changes atomically, the ranges first."""

    def write_columns(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
    ) -> None:
        """As `write`, with the changes as columns in any order, each key at most once; a null value deletes."""

    def write_sorted(self, parts: Iterable[Columns], halfway: Callable[[], None] | None = None) -> None: ...

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The values of a column of keys (none null), null where a key has none. Sorted keys are the fastest."""

    def scan_ranges(self, lowers: pa.BinaryArray, uppers: pa.BinaryArray) -> RangeRows:
        """Rows of the ranges lower <= key < upper, as of now. Ranges sorted by their lower ends are the fastest."""

    def close(self) -> None:
        """Releases all resources. Scans that are still open fail once the rows they have read ahead are used up."""


@runtime_checkable
class CheckpointedTable(Protocol):
    """A table on disk, of whose files a second set can be made."""

    def checkpoint(self, folder: Path) -> None:
        """Makes a database of the committed rows as of now: further names of the table files, copies of all else."""
