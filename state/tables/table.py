"""`OrderedTable`: what a byte store needs of a database. Sorted by unsigned bytes; every write is atomic.

Invariants: `write` and `write_sorted` are all or nothing, and a process killed right after them loses nothing of
them. Only one process at a time has a table open. A table is read while a step runs, and written only after the
step's commit.
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
        """Where it lies, for messages."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, in their order."""

    def scan(self, lower: bytes, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """Rows with lower <= key < upper in key order, or in the opposite one; the table as it is now."""

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
    ) -> None:
        """Applies changes atomically, the ranges first.

        Args:
            changes: What to write.
            delete_ranges: What to delete before.
            halfway: Called when the write has begun and would not yet outlive the process, for fault drills.
        """

    def write_sorted(self, changes: Iterator[RowChange], halfway: Callable[[], None] | None = None) -> None:
        """The same for many changes in strictly rising order of keys, in bounded memory where the table can."""

    def close(self) -> None:
        """Lets go of everything. Scans that are still open end with an error when they are read on."""
