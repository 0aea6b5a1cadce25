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
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from state.kafka.headers import decode_headers, encode_headers
from streams.model.record import HeldRecord
from streams.model.waiting import WaitingRecord
from streams.operators.columnar import ColumnarBatch, Int64s, KeyColumn
from streams.operators.join.columns.partners import Pairs
from streams.operators.join.columns.records import Bools, JoinRecords
from streams.operators.join.outer_join_buffer import StrictOuterJoinBuffer
from streams.operators.join.stream_stream_join import StreamStreamJoin
from streams.serdes.waiting import (
    NUMBER_BYTES,
    split_waiting_key,
    split_waiting_record,
    waiting_key,
    waiting_prefix,
    waiting_record,
)

_EXPIRE, _JOIN, _ADD = 0, 1, 2
"""What changes the buffer while a record is processed, in this order."""


@dataclass(slots=True)
class _Writes:
    """Rows of the buffer with what they have at the end of the step, and when the first write of each one happens."""

    at: list[Int64s] = field(default_factory=list)
    phases: list[Int64s] = field(default_factory=list)
    times: list[Int64s] = field(default_factory=list)
    rows: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def add(self, at: Int64s, phase: int, times: Int64s, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Adds rows.

        Args:
            at: The records that are processed when the rows are first written.
            phase: What writes the rows; those of one record and phase are given in the order of their writes.
            times: Their due times.
            rows: Keys and values; None: removed.
        """
        self.at.append(at)
        self.phases.append(np.full(len(at), phase))
        self.times.append(times)
        self.rows.extend(rows)

    def in_order(self) -> tuple[list[tuple[bytes, bytes | None]], Int64s]:
        """The rows in the order of their first writes, and their due times."""
        order = np.lexsort((np.concatenate(self.phases), np.concatenate(self.at)))
        return [self.rows[row] for row in order.tolist()], np.concatenate(self.times)[order]


class WaitingStep:
    """One step of the buffer.

    Args:
        sides: The operators by side.
        records: The step's records; the index of their node is the side.
        time: int64[n], stream time at each record.
        is_open: Which records are processed.
        pairs: The pairs of the step.
        cells: The bytes of the open records' values in their stores.
    """

    def __init__(
        self,
        sides: Sequence[StreamStreamJoin],
        records: JoinRecords,
        time: Int64s,
        is_open: Bools,
        pairs: Pairs,
        cells: Sequence[bytes | None],
    ) -> None:
        buffer = sides[0].buffer
        assert isinstance(buffer, StrictOuterJoinBuffer), "compat mode processes records one by one"
        self._rows, self._waits = buffer.rows, np.array(buffer.waits, np.int64)
        self._codec = self._rows.store.codec
        self._join = sides[0].join
        self._records, self._time, self._pairs, self._cells = records, time, pairs, cells
        self._outer = np.array([self._join.is_outer(side) for side in range(2)])
        self._alike = sides[0].store.codec.writes_as(sides[1].store.codec)
        self._reader = sides[0].store.codec.reader
        self._keys = records.batch.keys.encoded(self._join.key_serde, self._rows.name)
        self._writes = _Writes()
        self._due: list[tuple[bytes, bytes]] = []
        self._removed: set[bytes] = set()
        self._added = self._add(is_open)
        self._remove_joined()
        self._expire()

    def results(self) -> tuple[ColumnarBatch, Int64s]:
        """The results of records that no longer wait, and the records that make them due."""
        joiner, waits, read_key = self._join.joiner, self._waits.tolist(), self._rows.key_serde.deserialize
        keys, data, values, times, dues, headers, held = [], [], [], [], [], [], {}
        for row, (place, cell) in enumerate(self._due):
            due, side, key_data = split_waiting_key(place)
            header, value_data = split_waiting_record(cell)
            value = self._reader(value_data) if self._alike else self._codec.read_value(cell).value
            key, time = read_key(self._rows.name, key_data), due - waits[side]
            values.append(joiner(key, value, None) if side else joiner(key, None, value))
            keys.append(key)
            data.append(key_data)
            times.append(time)
            dues.append(due)
            headers.append(header or None)
            held[row] = HeldRecord(key_data, value_data, time, tuple(decode_headers(header)) if header else ())
        at = self._due_at(np.array(dues, np.int64))
        batch = self._records.batch
        column = KeyColumn(np.arange(len(keys), dtype=np.int32), keys, data, self._rows.key_serde)
        cells = headers if any(headers) else None
        return ColumnarBatch(column, values, np.array(times, np.int64), batch.order[at], cells, batch.place, held), at

    def write(self) -> None:
        """Write what has changed."""
        rows, times = self._writes.in_order()
        self._rows.write(rows, times, self._added, int(self._time[-1]))

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
        number, added = self._rows.next_number, list[tuple[bytes, bytes | None]]()
        for row, side, time, code, due, stay in zip(*(column.tolist() for column in columns), strict=True):
            place = waiting_key(time, side, self._key(code), number)
            value = self._codec.fitting(place, self._value(row, side))
            assert value is not None, "a waiting record is never null"
            if due:
                self._due.append((place, value))
            added.append((place, value if stay else None))
            number += 1
        self._writes.add(rows, _ADD, times, added)
        return times

    def _value(self, row: int, side: int) -> bytes | None:
        """The bytes of a record in the buffer."""
        batch, cell = self._records.batch, self._cells[row]
        if self._alike and cell is not None:
            header = b"" if batch.headers is None else encode_headers(batch.headers_of(row))
            return waiting_record(side, header, cell)
        return self._codec.value(WaitingRecord(side, batch.values[row], batch.headers_of(row)))

    def _remove_joined(self) -> None:
        """Remove the records of earlier steps that meet a partner, when they meet the first one."""
        pairs, nodes = self._pairs, self._records.nodes
        at = np.flatnonzero(pairs.partners < 0)
        at = at[self._outer[1 - nodes[pairs.rows[at]]]]
        at = at[np.sort(np.unique(pairs.places[-1 - pairs.partners[at]], return_index=True)[1])]
        sides = 1 - nodes[pairs.rows[at]]
        times = pairs.times[at] + self._waits[sides]
        may_wait = times >= self._rows.earliest
        at, sides, times = at[may_wait], sides[may_wait], times[may_wait]
        if not len(at):
            return
        codes = self._records.batch.keys.codes[pairs.rows[at]].tolist()
        prefixes = [
            waiting_prefix(time, side, self._key(code))
            for time, side, code in zip(times.tolist(), sides.tolist(), codes, strict=True)
        ]
        # The store is read in the order of the rows, and the rows found are put back into the order of the pairs.
        by_bytes = sorted(range(len(prefixes)), key=prefixes.__getitem__)
        found = self._rows.store.rows.scan_prefixes(pa.array([prefixes[one] for one in by_bytes], pa.binary()))
        asked = np.array(by_bytes, np.int64)[found.ranges]
        for_pair = np.argsort(asked, kind="stable")
        places = found.keys.to_pylist()
        own = [row for row in for_pair.tolist() if len(places[row]) == len(prefixes[asked[row]]) + NUMBER_BYTES]
        self._removed = {places[row] for row in own}
        asked = asked[own]
        self._writes.add(pairs.rows[at[asked]], _JOIN, times[asked], [(places[row], None) for row in own])

    def _expire(self) -> None:
        """Remove the records of earlier steps that are due; the results of all records that are due, in order."""
        found = [row for row in self._rows.rows_before(int(self._time[-1])) if row[0] not in self._removed]
        times = np.array([split_waiting_key(place)[0] for place, _ in found], np.int64)
        self._writes.add(self._due_at(times), _EXPIRE, times, [(place, None) for place, _ in found])
        self._due = sorted(self._due + found)

    def _key(self, code: int) -> bytes:
        data = self._keys[code]
        assert data is not None, "records without a key do not wait"
        return data
