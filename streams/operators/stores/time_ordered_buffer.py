"""Rows in order of time: the index of rows that are due first, and the buffer of records that wait.

The rows of a key-value store are taken from its front, in key order. A scan would merge the step's writes with the committed rows,
at a cost that grows with the writes in its range. An operator that checks for due rows after each record cannot afford that. Here,
reading continues in the committed rows where the last check ended, and the rows of this step are in a heap. Invariant: every
existing row is ahead of the reader or in the heap, so none is missed; removed rows are skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from state.columns import BinaryColumn
from streams.model.record import MAX_TIME, Headers, HeldRecord, WaitingKey, WaitingRecord
from streams.operators.columnar import Int64s
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.serdes.base import Serde


class ExpiryIndex:
    """A store of bytes that is read from its front, within one step. It must not have been written to in this step before.

    Args:
        store: A store whose keys begin with the sort order.
    """

    def __init__(self, store: TypedKeyValueStore) -> None:
        self._store = store
        self._committed: Iterator[tuple[bytes, bytes]] = store.rows.range(None, None)
        self._next: bytes | None = self._read_on()
        self._added: list[bytes] = []

    def put(self, row: bytes, value: bytes, timestamp: int) -> None:
        """Write a new row."""
        self._store.put(row, value, timestamp)
        self.add(row)

    def remove(self, row: bytes, timestamp: int) -> None:
        self._store.put(row, None, timestamp)

    def put_columns(self, rows: BinaryColumn, values: BinaryColumn, timestamps: Int64s) -> None:
        """Write a column of rows. Each is new, or is removed by a null value."""
        self._store.rows.put_columns(rows, values, timestamps)
        for row in rows.filter(values.is_valid()).to_pylist():
            self.add(row)

    def up_to(self, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Existing rows < end, in order. Each must be removed before the next one is requested."""
        while (row := self.first) is not None and row < end:
            self.pop()
            value = self._store.get(row)
            if value is not None:
                yield row, value

    @property
    def first(self) -> bytes | None:
        """The first row, or an earlier one that was removed; None if there are no rows."""
        if self._added and (self._next is None or self._added[0] < self._next):
            return self._added[0]
        return self._next

    def add(self, row: bytes) -> None:
        """Adds a row that is new in the store, or will be written to it."""
        heappush(self._added, row)

    def pop(self) -> None:
        """Moves past the first row."""
        row = self.first
        if self._added and row == self._added[0]:
            heappop(self._added)
        if row == self._next:
            self._next = self._read_on()

    def undo(self, added: Collection[bytes], passed: Collection[bytes]) -> None:
        """Takes back the rows `added`, and returns to the rows `passed`."""
        self._added = [*(row for row in self._added if row not in added), *passed]
        heapify(self._added)

    def close(self) -> None:
        """Release the store's iterator; the store cannot be closed while it is open."""
        self._committed = iter(())

    def _read_on(self) -> bytes | None:
        row = next(self._committed, None)
        return None if row is None else row[0]


# --- Records that wait until they are due, in a store ordered by that time.
#
# Invariant: a check for due rows costs nothing while none is due, because the operator's state has a lower bound of the rows'
# times. The bound may be too early, if rows were removed, but never too late.

NEVER = MAX_TIME
_FARTHEST_MS = 1024
EARLIEST, NUMBER = "earliest", "number"


class DueRecord(NamedTuple):
    """A record that is due."""

    place: WaitingKey
    key: Any
    value: Any
    headers: Headers
    data: bytes

    def held(self, timestamp: int) -> HeldRecord:
        """The record as bytes, with a timestamp that only the operator knows."""
        return HeldRecord(self.place.key, self.data, timestamp, self.headers)


class TimeOrderedBuffer:
    """The waiting records of an operator, for one step.

    Args:
        store: Key-value store with `WaitingKeySerde` and `WaitingSerde`, or `BufferedKeySerde` and `BufferedSerde`.
        key_serde: The serde of the records' keys.
        name: The topic that is passed to the serde.
        state: A dict that survives restarts, shared by all users of the store.
    """

    def __init__(self, store: TypedKeyValueStore, key_serde: Serde, name: str, state: dict[str, Any]) -> None:
        self.store = store
        self.key_serde = key_serde
        self.name = name
        self._state = state
        self._ahead = 1

    @property
    def earliest(self) -> int:
        """A lower bound of the rows' times; `NEVER` if there are no rows."""
        found: int = self._state.get(EARLIEST, NEVER)
        return found

    @property
    def first_time(self) -> int:
        """The time of the first row, read from the store; `NEVER` if there are no rows."""
        first = next(self.store.all(), None)
        return NEVER if first is None else int(first[0].time)

    def add(self, time: int, side: int, key: Any, value: Any, headers: Headers) -> None:
        number = self._state[NUMBER] = self._state.get(NUMBER, 0) + 1
        place = WaitingKey(time, side, self._bytes(key), number)
        self.store.put(place, WaitingRecord(side, value, headers, time=time), time)
        self._state[EARLIEST] = min(self.earliest, time)

    def remove(self, place: WaitingKey) -> None:
        self.store.put(place, None, place.time)

    def remove_all(self, time: int, side: int, key: Any) -> None:
        """Removes all records with a time, side and key."""
        if time < self.earliest:
            return
        key_bytes = self._bytes(key)
        lower, upper = WaitingKey(time, side, key_bytes, 0), WaitingKey(time, side, key_bytes, NEVER)
        for place in [place for place, _ in self.store.range(lower, upper) if place.key == key_bytes]:
            self.remove(place)

    def take(self, before: int) -> list[DueRecord]:
        """Removes and returns the records with a time below `before`, in order."""
        first = self.earliest
        if before <= first:
            return []
        due: list[DueRecord] = []
        # A short look ahead shows when the next check is worthwhile. A long one would cost more than it saves.
        until = min(before + self._ahead, NEVER)
        following, self._ahead = until, min(2 * self._ahead, _FARTHEST_MS)
        for place, waiting in self.store.range(WaitingKey(first, 0, b"", 0), WaitingKey(until, 0, b"", 0)):
            if place.time >= before:
                following, self._ahead = place.time, max(1, self._ahead // 4)
                break
            key = self.key_serde.deserialize(self.name, place.key)
            due.append(DueRecord(place, key, waiting.value, waiting.headers, waiting.data))
        self._state[EARLIEST] = following
        for one in due:
            self.remove(one.place)
        return due

    def _bytes(self, key: Any) -> bytes:
        data = self.key_serde.serialize(self.name, key)
        assert data is not None, "records without a key do not wait"
        return data
