"""`OrderedTable`: the database interface of the byte stores. Keys are sorted by unsigned bytes; every write is atomic.

Invariants: `write` and `write_sorted` are all or nothing, and survive a kill of the process right afterwards. Only one
process at a time has a table open. A table is read while a step runs, and written only after the step's commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

Row = tuple[bytes, bytes]
RowChange = tuple[bytes, "bytes | None"]
"""Key and new value; None deletes."""
KeyRange = tuple[bytes, bytes]
"""[lower, upper)."""


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
        """Applies changes atomically, the ranges first.

        Args:
            changes: The rows to write.
            delete_ranges: The ranges to delete first.
            halfway: Called when the write has begun but would not yet survive a kill, for fault tests.
        """

    def write_sorted(self, changes: Iterator[RowChange], halfway: Callable[[], None] | None = None) -> None:
        """The same for many changes in strictly rising key order, in bounded memory where the table supports that."""

    def close(self) -> None:
        """Releases all resources. Scans that are still open fail at their next read."""
