"""The aggregates of a group of records while their functions are called (`streams.operators.aggregate.aggregates`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from state.columns import binary_column
from streams.operators.pending import RowStore, put_rows
from streams.operators.stores.codec import Codec, timestamp_of, value_of
from streams.operators.stores.key_value import CachedRow


class NewValues(list[Any]):
    """Aggregates for functions that do not change them in place, so that a record that fails can be undone."""

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self._before = list(self)

    def __setitem__(self, number: Any, value: Any) -> None:
        self._before[number] = self[number]
        super().__setitem__(number, value)

    def restore(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            super().__setitem__(number, self._before[number])


class PrivateValues:
    """Aggregates as bytes: each call gets a new object, and a record that fails can be undone.

    Args:
        codec: The codec of their store.
    """

    def __init__(self, entries: Sequence[CachedRow], codec: Codec) -> None:
        self._codec = codec
        self._cells = [codec.value(one.value) for one in entries]
        self._before = list(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, number: int) -> bytes | None:
        """The bytes of an aggregate."""
        return self._cells[number]

    def __getitem__(self, number: int) -> Any:
        return self._codec.read_value(self._cells[number])

    def __setitem__(self, number: int, value: Any) -> None:
        cell = self._codec.value(value)
        self._before[number], self._cells[number] = self._cells[number], cell

    def restore(self, numbers: Iterable[int]) -> None:
        """Takes back the last assignment to each of these aggregates."""
        for number in numbers:
            self._cells[number] = self._before[number]


class Update(NamedTuple):
    """An update that is forwarded at once.

    Attributes:
        value: The aggregate after a call; None deletes.
        before: The local value before the call.
        timestamp: The timestamp of the aggregate, ms.
    """

    value: Any
    before: bytes | None
    timestamp: int


class EveryUpdate:
    """Aggregates without a cache, by the number of the call. Each call gets a new object, and its result is an update.

    Args:
        rows: The row of each group in the store.
        codec: The codec of the store.
        groups: The group of each call.
        timestamps: The time of each call's record, ms.
    """

    def __init__(
        self, rows: Sequence[CachedRow], codec: Codec, groups: Sequence[int], timestamps: Sequence[int]
    ) -> None:
        self._rows, self._codec, self._groups, self._timestamps = rows, codec, groups, timestamps
        self._cells = [row.stored for row in rows]
        self.updates: dict[int, Update] = {}
        """Call -> its update, in order."""

    def cell(self, number: int) -> bytes | None:
        """The bytes of a group's aggregate."""
        return value_of(self._cells[number])

    def __getitem__(self, call: int) -> Any:
        return self._codec.old_value(self._cells[self._groups[call]])

    def __setitem__(self, call: int, value: Any) -> None:
        number, time = self._groups[call], self._timestamps[call]
        before = self._cells[number]
        if before is not None:
            time = max(time, timestamp_of(before))
        self._cells[number] = self._codec.fitting(self._rows[number].key, self._codec.timestamped(value, time))
        self.updates[call] = Update(value, before, time)

    def restore(self, calls: Iterable[int]) -> None:
        for call in calls:
            self._cells[self._groups[call]] = self.updates.pop(call).before

    def write(self, store: RowStore) -> None:
        """Writes each group that has an update."""
        last = {self._groups[call]: update for call, update in self.updates.items()}
        rows = [self._rows[number] for number in last]
        keys, starts = binary_column([row.key for row in rows]), np.array([row.start for row in rows], np.int64)
        times = np.array([update.timestamp for update in last.values()], np.int64)
        put_rows(store, keys, starts, binary_column([self._cells[number] for number in last]), times)
