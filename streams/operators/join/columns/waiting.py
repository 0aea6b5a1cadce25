"""The records without a partner of a left or outer join, in strict mode, for a whole step: `StrictOuterJoinBuffer` over columns.

A record without a partner waits until its due time. Within the step, its partner may come first, stream time may pass its due
time first, or it goes on waiting. Because only open records have partners, and a record is due when it ceases to be open, a
partner always comes before that. So a record's fate is known from whether any pair has it as the earlier one, and from the running
stream time.

Invariant: the changelog has the writes of the one-by-one way, in the order of each row's first write; a record that was added and
removed in the same step leaves a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from state.kafka.headers import encode_headers
from streams.model.record import HeldRecord
from streams.model.waiting import WaitingKey, WaitingRecord
from streams.operators.columnar import ColumnarBatch, Int64s, KeyColumn
from streams.operators.join.columns.partners import Pairs
from streams.operators.join.columns.records import Bools, JoinRecords
from streams.operators.join.outer_join_buffer import StrictOuterJoinBuffer
from streams.operators.join.stream_stream_join import StreamStreamJoin

_EXPIRE, _JOIN, _ADD = 0, 1, 2
"""What changes the buffer while a record is processed, in this order."""

_NUMBER_BYTES = 8
"""Of the number at the end of a row's key."""


class _Write(NamedTuple):
    """A row of the buffer and when its first write in the step happens.

    Attributes:
        row: The record that is processed then.
        phase: What changes the row.
        number: The order among the rows that the same record changes in the same way.
        place: The row's key.
        value: What the row has at the end of the step; None: removed.
        time: The row's due time.
    """

    row: int
    phase: int
    number: int
    place: bytes
    value: bytes | None
    time: int


class WaitingStep:
    """One step of the buffer.

    Args:
        sides: The operators by side.
        records: The step's records; the index of their node is the side.
        time: int64[n], stream time at each record.
        is_open: Which records are processed.
        pairs: The pairs of the step.
    """

    def __init__(
        self, sides: Sequence[StreamStreamJoin], records: JoinRecords, time: Int64s, is_open: Bools, pairs: Pairs
    ) -> None:
        buffer = sides[0].buffer
        assert isinstance(buffer, StrictOuterJoinBuffer), "compat mode processes records one by one"
        self._rows, self._waits = buffer.rows, np.array(buffer.waits, np.int64)
        self._codec = self._rows.store.codec
        self._join = sides[0].join
        self._records, self._time, self._pairs = records, time, pairs
        self._outer = np.array([self._join.is_outer(side) for side in range(2)])
        self._keys = records.batch.keys.encoded(self._join.key_serde, self._rows.name)
        self._writes: list[_Write] = []
        self._due: list[tuple[bytes, bytes]] = []
        self._removed: set[bytes] = set()
        self._added = self._add(is_open)
        self._remove_joined()
        self._expire()

    def results(self) -> tuple[ColumnarBatch, Int64s]:
        """The results of records that no longer wait, and the records that make them due."""
        joined = self._join.joined
        keys, values, times, headers, held = [], [], [], [], {}
        data = []
        for row, (place_data, cell) in enumerate(self._due):
            place: WaitingKey = self._codec.read_key(place_data)
            waiting: WaitingRecord = self._codec.read_value(cell)
            key = self._rows.key_serde.deserialize(self._rows.name, place.key)
            time = place.time - int(self._waits[place.side])
            values.append(joined(place.side, key, waiting.value, None))
            keys.append(key)
            data.append(place.key)
            times.append(time)
            headers.append(encode_headers(waiting.headers) or None)
            held[row] = HeldRecord(place.key, waiting.data, time, waiting.headers)
        at = self._due_at(np.array([_time_of(place) for place, _ in self._due], np.int64))
        batch = self._records.batch
        column = KeyColumn(np.arange(len(keys), dtype=np.int32), keys, data, self._rows.key_serde)
        cells = headers if any(headers) else None
        return ColumnarBatch(column, values, np.array(times, np.int64), batch.order[at], cells, batch.place, held), at

    def write(self) -> None:
        """Write what has changed."""
        writes = sorted(self._writes)
        rows = [(one.place, one.value) for one in writes]
        self._rows.write(rows, np.array([one.time for one in writes], np.int64), self._added, int(self._time[-1]))

    def _due_at(self, times: Int64s) -> Int64s:
        """The first record at which stream time is above each of these times; n for none."""
        return np.searchsorted(self._time, times, "right")

    def _add(self, is_open: Bools) -> Int64s:
        """Add the records that find no partner, and decide what becomes of them in this step; their due times."""
        batch, nodes = self._records.batch, self._records.nodes
        alone = is_open & self._outer[nodes]
        alone[self._pairs.rows] = False
        rows = np.flatnonzero(alone)
        times = batch.timestamps[rows] + self._waits[nodes[rows]]
        is_partner = np.zeros(len(nodes), np.bool_)
        is_partner[self._pairs.partners[self._pairs.partners >= 0]] = True
        is_due = ~is_partner[rows] & (self._due_at(times) < len(nodes))
        stays = ~is_partner[rows] & ~is_due
        columns = (rows, nodes[rows], times, batch.keys.codes[rows], is_due, stays)
        number = self._rows.next_number
        for row, side, time, code, due, stay in zip(*(column.tolist() for column in columns), strict=True):
            place = self._place(WaitingKey(time, side, self._key(code), number))
            waiting = WaitingRecord(side, batch.values[row], batch.headers_of(row))
            value = self._codec.fitting(place, self._codec.value(waiting))
            assert value is not None, "a waiting record is never null"
            if due:
                self._due.append((place, value))
            self._writes.append(_Write(row, _ADD, 0, place, value if stay else None, time))
            number += 1
        return times

    def _remove_joined(self) -> None:
        """Remove the records of earlier steps that meet a partner, when they meet the first one."""
        pairs, nodes = self._pairs, self._records.nodes
        at = np.flatnonzero(pairs.partners < 0)
        at = at[self._outer[1 - nodes[pairs.rows[at]]]]
        at = at[np.sort(np.unique(pairs.places[-1 - pairs.partners[at]], return_index=True)[1])]
        sides = 1 - nodes[pairs.rows[at]]
        times = pairs.times[at] + self._waits[sides]
        codes = self._records.batch.keys.codes[pairs.rows[at]]
        columns = (at, pairs.rows[at], sides, times, codes)
        for number, row, side, time, code in zip(*(column.tolist() for column in columns), strict=True):
            if time < self._rows.earliest:
                continue
            key = self._key(code)
            lowest = self._place(WaitingKey(time, side, key, 0))
            for place, _ in self._rows.store.rows.prefix(lowest[:-_NUMBER_BYTES]):
                if len(place) == len(lowest):
                    self._removed.add(place)
                    self._writes.append(_Write(row, _JOIN, number, place, None, time))

    def _expire(self) -> None:
        """Remove the records of earlier steps that are due; the results of all records that are due, in order."""
        found = [row for row in self._rows.rows_before(int(self._time[-1])) if row[0] not in self._removed]
        times = np.array([_time_of(place) for place, _ in found], np.int64)
        for (place, _), at, time in zip(found, self._due_at(times).tolist(), times.tolist(), strict=True):
            self._writes.append(_Write(at, _EXPIRE, 0, place, None, time))
        self._due = sorted(self._due + found)

    def _key(self, code: int) -> bytes:
        data = self._keys[code]
        assert data is not None, "records without a key do not wait"
        return data

    def _place(self, key: WaitingKey) -> bytes:
        return self._codec.key(key)


def _time_of(place: bytes) -> int:
    return int.from_bytes(place[:8], "big", signed=True)
