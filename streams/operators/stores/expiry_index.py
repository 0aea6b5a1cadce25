"""Rows of a key-value store in the order of their keys, taken from the front: what is due first.

Why: a scan lays the writes of the step over the committed rows, which costs as much as there are writes in its range. An
operator that looks for what is due after each record cannot pay that. Here the committed rows are read on from where the
last look ended, and the rows of this step wait in a heap. Invariant: every row that is there lies ahead of the reader or in the
heap, so none is missed; one that was removed is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from streams.operators.stores.key_value import TypedKeyValueStore


class ExpiryIndex:
    """A store of bytes, seen from its front, within one step. It must not have been written to in this step.

    Args:
        store: Rows whose keys begin with what they are ordered by.
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
            is_new: False if the row is known to be there.
        """
        self._store.put(row, value, timestamp)
        if is_new:
            heappush(self._added, row)

    def remove(self, row: bytes, timestamp: int) -> None:
        """Delete a row."""
        self._store.put(row, None, timestamp)

    @property
    def first(self) -> bytes | None:
        """The first row, or one before it that was removed; None if there are no rows."""
        if self._added and (self._next is None or self._added[0] < self._next):
            return self._added[0]
        return self._next

    def up_to(self, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows < end (None: all) that are still there, in order; each must be removed before the next is asked for."""
        while (row := self.first) is not None and (end is None or row < end):
            if row == self._next:
                self._next = self._read_on()
            if self._added and row == self._added[0]:
                heappop(self._added)
            value = self.get(row)
            if value is not None:
                yield row, value

    def close(self) -> None:
        """Let go of the store, which cannot be closed under a reader."""
        self._committed = iter(())

    def _read_on(self) -> bytes | None:
        row = next(self._committed, None)
        return None if row is None else row[0]
