"""Rows of a key-value store in key order, taken from the front: the rows that are due first.

A scan merges the step's writes with the committed rows, which costs as much as there are writes in its range. An operator that
checks for due rows after each record cannot afford that. Here the committed rows are read on from where the last check ended,
and the rows of this step are in a heap. Invariant: every existing row is ahead of the reader or in the heap, so none is
missed; removed rows are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from streams.operators.stores.key_value import TypedKeyValueStore


class ExpiryIndex:
    """A store of bytes, read from its front, within one step. The store must not have been written to in this step.

    Args:
        store: A store whose keys begin with the sort order.
    """

    def __init__(self, store: TypedKeyValueStore) -> None:
        self._store = store
        self._committed: Iterator[tuple[bytes, bytes]] = iter(store.all())
        self._next: bytes | None = self._read_on()
        self._added: list[bytes] = []

    def get(self, row: bytes) -> bytes | None:
        """The value of a row, None if there is none."""
        value: bytes | None = self._store.get(row)
        return value

    def put(self, row: bytes, value: bytes, timestamp: int, is_new: bool = True) -> None:
        """Write a row.

        Args:
            row: The key.
            value: The value.
            timestamp: Of the changelog record, ms.
            is_new: False if the row is known to exist.
        """
        self._store.put(row, value, timestamp)
        if is_new:
            heappush(self._added, row)

    def remove(self, row: bytes, timestamp: int) -> None:
        """Delete a row."""
        self._store.put(row, None, timestamp)

    @property
    def first(self) -> bytes | None:
        """The first row, or an earlier one that was removed; None if there are no rows."""
        if self._added and (self._next is None or self._added[0] < self._next):
            return self._added[0]
        return self._next

    def up_to(self, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Existing rows < end (None: all), in order; each must be removed before the next is requested."""
        while (row := self.first) is not None and (end is None or row < end):
            if row == self._next:
                self._next = self._read_on()
            if self._added and row == self._added[0]:
                heappop(self._added)
            value = self.get(row)
            if value is not None:
                yield row, value

    def close(self) -> None:
        """Release the store, which cannot be closed under a reader."""
        self._committed = iter(())

    def _read_on(self) -> bytes | None:
        row = next(self._committed, None)
        return None if row is None else row[0]
