"""Rows of a key-value store in key order, taken from the front: the rows that are due first.

A scan merges the step's writes with the committed rows, which costs as much as there are writes in its range. An operator that
checks for due rows after each record cannot afford that. Here the committed rows are read on from where the last check ended,
and the rows of this step are in a heap. Invariant: every existing row is ahead of the reader or in the heap, so none is
missed; removed rows are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from state.columns import BinaryColumn, binary_column
from streams.operators.columnar import Int64s
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
        """Write a row."""
        self._store.put(row, value, timestamp)
        if is_new:
            heappush(self._added, row)

    def remove(self, row: bytes, timestamp: int) -> None:
        self._store.put(row, None, timestamp)

    def get_columns(self, rows: BinaryColumn) -> BinaryColumn:
        """The values of many rows, null where there is none."""
        return self._store.rows.get_columns(rows)

    def check_all(self, rows: BinaryColumn, values: BinaryColumn) -> None:
        """Raises `OversizedRowError` if a row does not fit the changelog."""
        self._store.codec.check_all(rows, values)

    def put_columns(self, rows: BinaryColumn, values: BinaryColumn, timestamps: Int64s, new: Iterable[bytes]) -> None:
        """Write many rows."""
        self._store.rows.put_columns(rows, values, timestamps)
        for row in new:
            heappush(self._added, row)

    def put_back(self, rows: Iterable[bytes]) -> None:
        """Lets rows that `rows_up_to` has returned be found again, because they were not removed."""
        for row in rows:
            heappush(self._added, row)

    def rows_up_to(self, end: bytes) -> tuple[BinaryColumn, BinaryColumn]:
        """Existing rows < end and their values, in order, which must be removed."""
        passed = binary_column(list(self._passed(end)))
        values = self.get_columns(passed)
        there = values.is_valid()
        return passed.filter(there), values.filter(there)

    @property
    def first(self) -> bytes | None:
        """The first row, or an earlier one that was removed; None if there are no rows."""
        if self._added and (self._next is None or self._added[0] < self._next):
            return self._added[0]
        return self._next

    def up_to(self, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Existing rows < end (None: all), in order; each must be removed before the next is requested."""
        for row in self._passed(end):
            value = self.get(row)
            if value is not None:
                yield row, value

    def close(self) -> None:
        """Release the store, which cannot be closed under a reader."""
        self._committed = iter(())

    def _passed(self, end: bytes | None) -> Iterator[bytes]:
        """Moves on to `end`; returns the rows on the way, in order, some of which may have been removed."""
        while (row := self.first) is not None and (end is None or row < end):
            if row == self._next:
                self._next = self._read_on()
            if self._added and row == self._added[0]:
                heappop(self._added)
            yield row

    def _read_on(self) -> bytes | None:
        row = next(self._committed, None)
        return None if row is None else row[0]
