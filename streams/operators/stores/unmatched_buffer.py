"""The records of a join of streams that have no match yet, in a store ordered by their times, for one step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from state.columns import joined, numbers_at, packed, sliced
from state.stores.unmatched_lists import TIME_SIDE
from streams.model.record import MAX_TIME, NO_TIME
from streams.operators.columnar import Int64s
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.serdes.base import Serde
from streams.serdes.internal import NUMBER_BYTES
from streams.serdes.internal_columns import keys_in, split_unmatched_keys, unmatched_keys

NEVER: Final = MAX_TIME
EARLIEST: Final = "earliest"
EARLIEST_SOONER: Final = "earliest_sooner"


class UnmatchedBuffer:
    """The records without a match. A row has all records of a time, side and key (`state.stores.unmatched_lists`).

    The operator's state has a lower bound of the rows' times (`EARLIEST`). If the records of one side wait for a shorter time, it
    also has a lower bound for that side (`EARLIEST_SOONER`). So a step does not read again the rows that earlier steps have found
    waiting. Bounds may be too early, but never too late.

    Args:
        store: Key-value store with `UnmatchedKeySerde` and `UnmatchedSerde`.
        key_serde: The serde of the records' keys.
        name: The topic that is passed to the serde.
        state: A dict that survives restarts, shared by all users of the store.
        ends: Whether keys are those of `WaitingKeySerde`. The time in a key is then the one until which a record may find a match,
            and the record's timestamp follows the key, so that records with different timestamps are in separate rows.
    """

    def __init__(
        self, store: TypedKeyValueStore, key_serde: Serde, name: str, state: dict[str, Any], ends: bool = False
    ) -> None:
        self.store = store
        self._ends = ends
        self.key_serde = key_serde
        self.name = name
        self._state = state

    def keys_of(self, ends: Int64s, sides: Int64s, keys: pa.BinaryArray, timestamps: Int64s) -> pa.BinaryArray:
        """The row keys of records with these timestamps, which may find a match until `ends`."""
        if self._ends:
            return unmatched_keys(ends, sides, joined(keys, packed(timestamps)))
        return unmatched_keys(timestamps, sides, keys)

    def record_keys(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The record keys in row keys."""
        return sliced(keys_in(keys), 0, NUMBER_BYTES) if self._ends else keys_in(keys)

    def timestamps(self, keys: pa.BinaryArray) -> Int64s:
        """The record timestamps in row keys, ms."""
        return numbers_at(keys, -NUMBER_BYTES if self._ends else 0)

    @property
    def earliest(self) -> int:
        """A lower bound of the rows' times; `NEVER` if there are no rows."""
        found: int = self._state.get(EARLIEST, NEVER)
        return found

    @property
    def first_time(self) -> int:
        """The time of the first row, read from the store; `NEVER` if there are no rows."""
        return self._time_of(next(self.store.rows.range(None, None), None), NEVER)

    @property
    def last_time(self) -> int:
        """The time of the last row, read from the store; `NO_TIME` if there are no rows."""
        return self._time_of(next(self.store.rows.range(None, None, True), None), NO_TIME)

    def _time_of(self, row: tuple[bytes, bytes] | None, none: int) -> int:
        return none if row is None else int(TIME_SIDE.unpack_from(row[0])[0])

    def before(self, ends: tuple[int, int]) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Keys and values, as bytes and in order, of the rows with a time below their side's in `ends` (`RIGHT` first)."""
        low, high = sorted(ends)
        keys, values = self._between(NO_TIME, low)
        if low == high:
            return keys, values
        more_keys, more_values = self._between(max(low, self._state.get(EARLIEST_SOONER, low)), high)
        own = pa.array(split_unmatched_keys(more_keys)[1] == int(np.argmax(ends)))
        return (
            pa.concat_arrays([keys, more_keys.filter(own)]),
            pa.concat_arrays([values, more_values.filter(own)]),
        )

    def _between(self, first: int, before: int) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        first = max(first, self.earliest, 0)
        if before <= first:
            return pa.array([], pa.binary()), pa.array([], pa.binary())
        # A key that is only a time comes directly before the rows of that time.
        found = self.store.rows.range_columns(_begin(first), _begin(before))
        return found.keys, found.values

    def keys_from(self, first: int, reverse: bool) -> Iterator[bytes]:
        """The keys of the rows with a time of at least `first`, as bytes, in order."""
        return (key for key, _ in self.store.rows.range(_begin(max(first, 0)), None, reverse))

    def write(
        self,
        rows: tuple[pa.BinaryArray, pa.BinaryArray, Int64s],
        added: Int64s,
        ends: tuple[int, int] = (NO_TIME, NO_TIME),
    ) -> None:
        """Writes the changes of a step.

        Args:
            rows: Keys, values (null: no row), and times, ms.
            added: Times of the added records.
            ends: By side, a time below which no row is left; `NO_TIME`: unknown.
        """
        if len(rows[2]):
            self.store.rows.put_columns(*rows)
        earliest = min(self.earliest, int(added.min(initial=NEVER)))
        low, high = sorted(ends)
        if earliest != self._state.get(EARLIEST, NEVER) or low > earliest:
            self._state[EARLIEST] = max(earliest, low)
        if low != high:
            self._state[EARLIEST_SOONER] = high


def _begin(time: int) -> bytes:
    return time.to_bytes(8, "big")
