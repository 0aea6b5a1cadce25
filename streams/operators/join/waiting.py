"""The records without a partner in a left or outer join, over the columns of a step, in both modes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import binary_column, replaced
from state.headers import decode_headers
from state.numba_kernels import allocating_kernel, kernel
from state.sorting import inverse, sorted_rows
from state.stores.unmatched_lists import TIME_SIDE, in_one_row
from state.stores.unmatched_rows import UnmatchedRecords, records_of, rows_of_one
from streams.errors import RecordError
from streams.model.record import LEFT, MAX_TIME, NO_TIME, RIGHT, HeldRecord, WaitingRecord
from streams.model.windows import JoinWindows
from streams.operators.columnar import ColumnarBatch, HeldRows, Int64s, KeyColumn, values_at
from streams.operators.join.joined_objects import JoinedObjects
from streams.operators.join.joins import StreamJoin
from streams.operators.join.pairs import Bools, Pairs, Refused, StoredStep
from streams.operators.stores.codec import Codec
from streams.operators.stores.unmatched_buffer import NEVER, UnmatchedBuffer
from streams.serdes.internal_columns import split_unmatched_keys

# --- The records without a partner in a left or outer join of streams, in both modes.
#
# Strict mode: a record waits until it ceases to be open, then gives its one result. Compat mode: Kafka Streams' behaviour
# (KIP-633), including its flaws. Records that arrive too late to wait give their result at once and may still be joined later, and
# a scan depends on a `min` that may skip rows, and on the wall clock.


@dataclass(frozen=True, slots=True)
class OuterJoinBuffer:
    """The records of both sides that have no partner yet.

    Attributes:
        rows: The waiting records, by their timestamps.
        waits: By side, how long its records wait after their rows' times, ms. A row's time is the record's timestamp, and the wait
            is `after` (for a right record `before`) plus grace; in compat mode it may be negative. If the bound is a field, a row's
            time is already the end of the record's window, and only the grace is added.
        longest: How far a row's time may be after its record's timestamp, ms.
    """

    rows: UnmatchedBuffer
    waits: tuple[int, int]
    longest: int = field(default=0, kw_only=True)

    @property
    def oldest(self) -> int:
        """A lower bound of the waiting records' timestamps, ms."""
        first = self.rows.first_time
        return first if first == NEVER else first - self.longest


@dataclass(frozen=True, slots=True)
class CompatOuterJoinBuffer(OuterJoinBuffer):
    """The behaviour of Kafka Streams 4.3 (`KStreamKStreamJoin.emitNonJoinedOuterRecords`).

    Attributes:
        grace_ms: The grace included in `waits`.
        state: A dict that survives restarts.
        now_ms: The step's wall clock.
        interval_ms: The shortest wall-clock time between two scans.
    """

    grace_ms: int
    state: dict[str, Any]
    now_ms: int
    interval_ms: int

    @property
    def may_scan(self) -> bool:
        """Whether enough time has passed since the last scan."""
        may_scan: bool = self.now_ms >= self.state.get("next_emit", 0)
        return may_scan

    def scanned(self) -> None:
        self.state["next_emit"] = self.now_ms + self.interval_ms

    @property
    def least(self) -> int:
        """The smallest time, which decides about the next scan."""
        least: int = self.state.get("min", NEVER)
        return least

    def note_least(self, least: int) -> None:
        if least != self.least:
            self.state["min"] = least


def waits_of(windows: JoinWindows, strict: bool) -> tuple[int, int]:
    """How long right and left records wait, ms: the `waits` of an `OuterJoinBuffer`, by side."""
    ahead = {RIGHT: windows.before_ms, LEFT: windows.after_ms}
    waits = {side: (max(0, ms) if strict else ms) + windows.grace_ms for side, ms in ahead.items()}
    return waits[RIGHT], waits[LEFT]


# --- Rows of an `UnmatchedBuffer` as columns: records that wait, and the rows that a step writes.

EXPIRE, JOIN, ADD = 0, 1, 2
"""The changes of the buffer while a record is processed, in this order."""


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Waiting records. Records of the same time, side and key have equal keys, and leave together.

    Attributes:
        keys: The bytes of each `UnmatchedKey`.
        values: The bytes of the records' values.
        headers: The records' encoded headers; None if no record has any.
        times: int64[n], the time in the key, ms.
        sides: int64[n], the side in the key.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: list[bytes | None] | None
    times: Int64s
    sides: Int64s

    @classmethod
    def of(cls, keys: pa.BinaryArray, rows: pa.BinaryArray) -> WaitingRows:
        """Reads the records from keys and values of the buffer's rows."""
        return cls.among(keys, records_of(rows))

    @classmethod
    def among(cls, keys: pa.BinaryArray, records: UnmatchedRecords) -> WaitingRows:
        """Makes waiting records from records and their rows' keys."""
        keys = keys.take(pa.array(records.rows))
        return cls(keys, records.values, records.headers, *split_unmatched_keys(keys))

    def __len__(self) -> int:
        return len(self.times)

    @property
    def cells(self) -> pa.BinaryArray:
        """The row value of each record, if the row has only this record."""
        return rows_of_one(self.sides, self.headers, self.values)

    def take(self, rows: Int64s) -> WaitingRows:
        at, headers = pa.array(rows), self.headers and [self.headers[row] for row in rows.tolist()]
        return WaitingRows(self.keys.take(at), self.values.take(at), headers, self.times[rows], self.sides[rows])

    def followed_by(self, others: WaitingRows) -> WaitingRows:
        headers = None
        if self.headers or others.headers:
            headers = [*(self.headers or [None] * len(self)), *(others.headers or [None] * len(others))]
        return WaitingRows(
            pa.concat_arrays([self.keys, others.keys]),
            pa.concat_arrays([self.values, others.values]),
            headers,
            np.concatenate([self.times, others.times]),
            np.concatenate([self.sides, others.sides]),
        )

    def order_at(self, at: Int64s, ends: Int64s) -> Int64s:
        """The order in which rows leave: by the records that make them due, then by the ends of their waits, then by their keys."""
        order: Int64s = np.lexsort((inverse(sorted_rows(self.keys)), self.sides, ends, at))
        return order


@dataclass(frozen=True, slots=True)
class WaitingRecords:
    """The records in rows of the buffer, decoded.

    Attributes:
        cells: The bytes of the values.
        timestamps: int64[n], the records' own timestamps, ms.
        headers: Encoded headers; None if no record has any.
        held: The records that errors name.
        read: Reads the values.
    """

    keys: KeyColumn
    cells: pa.BinaryArray
    timestamps: Int64s
    headers: list[bytes | None] | None
    held: HeldRows
    read: Callable[[], list[object]]

    @property
    def values(self) -> list[object]:
        return self.read()

    @classmethod
    def of(cls, rows: WaitingRows, buffer: UnmatchedBuffer, codec: Codec | None) -> WaitingRecords:
        """Decodes rows. If there is a codec, it reads the values of both sides."""
        cells, values, times = buffer.record_keys(rows.keys), rows.values, buffer.timestamps(rows.keys)
        distinct = cells.dictionary_encode()
        data, serde = distinct.dictionary.to_pylist(), buffer.key_serde
        codes = distinct.indices.to_numpy().astype(np.int32)
        keys = KeyColumn(codes, [serde.deserialize(buffer.name, one) for one in data], data, serde)

        def read() -> list[object]:
            if codec is None:
                return [buffer.store.codec.read_value(cell)[0].value for cell in rows.cells.to_pylist()]
            return list(map(codec.reader, values.to_pylist()))

        def held(row: int) -> HeldRecord:
            header = rows.headers[row] if rows.headers else None
            return HeldRecord(cells[row].as_py(), values[row].as_py(), int(times[row]), tuple(decode_headers(header)))

        return cls(keys, values, times, rows.headers, HeldRows(held, np.arange(len(rows))), read)


@dataclass(slots=True)
class WaitingWrites:
    """The records that leave the buffer, the records that a step adds, and the time of the first write of each row."""

    at: list[Int64s] = field(default_factory=list)
    phases: list[Int64s] = field(default_factory=list)
    rows: list[WaitingRows] = field(default_factory=list)
    stay: list[Bools] = field(default_factory=list)

    def remove(self, phase: int, at: Int64s, rows: WaitingRows) -> None:
        """Removes records of earlier steps, each with all records of its row key. The arguments are as for `add`."""
        self.add(phase, at, rows, np.zeros(len(rows), np.bool_))

    def add(self, phase: int, at: Int64s, rows: WaitingRows, stay: Bools) -> None:
        """Adds records. A record that does not stay leaves a tombstone."""
        self.at.append(at)
        self.phases.append(np.full(len(at), phase))
        self.rows.append(rows)
        self.stay.append(stay)

    def made(self, buffer: UnmatchedBuffer) -> tuple[pa.BinaryArray, pa.BinaryArray, Int64s]:
        """Keys, values and times of the buffer's rows, each once, in the order of their first writes.

        Raises:
            OversizedRowError: A row does not fit the changelog.
        """
        phases = np.concatenate(self.phases)
        order = np.lexsort((phases, np.concatenate(self.at)))
        at, stay = pa.array(order), np.concatenate(self.stay)
        cells = pc.if_else(
            pa.array(stay), pa.concat_arrays([one.cells for one in self.rows]), pa.scalar(None, pa.binary())
        )
        cells = cells.take(at)
        # Codes are in the order of the keys' first places.
        keys = pa.concat_arrays([one.keys for one in self.rows]).take(at).dictionary_encode()
        codes, distinct = keys.indices.to_numpy(), keys.dictionary
        firsts = np.unique(codes, return_index=True)[1]
        values = cells if len(distinct) == len(cells) else _by_key(codes, cells, len(distinct))
        times = np.concatenate([one.times for one in self.rows])[order][firsts]
        values = self._behind_others(buffer, distinct, values, times, codes[phases[order] != ADD])
        buffer.store.codec.check_all(distinct, values)
        return distinct, values, times

    def _behind_others(
        self, buffer: UnmatchedBuffer, keys: pa.BinaryArray, values: pa.BinaryArray, times: Int64s, removed: Int64s
    ) -> pa.BinaryArray:
        """The values, each preceded by the records that the buffer already has under its key and that stay."""
        added = values.is_valid().to_numpy(zero_copy_only=False)
        added[removed] = False
        if not added.any():
            return values
        at = np.flatnonzero(added & (times <= buffer.last_time))
        found = buffer.store.rows.get_columns(keys.take(pa.array(at)))
        there = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        if not len(there):
            return values
        pairs = zip(found.take(pa.array(there)).to_pylist(), values.take(pa.array(at[there])).to_pylist(), strict=True)
        return replaced(values, at[there], binary_column([in_one_row(pair) for pair in pairs]))


def _by_key(codes: Int64s, cells: pa.BinaryArray, count: int) -> pa.BinaryArray:
    """The row values of keys, some of which have several records."""
    of: list[list[bytes]] = [[] for _ in range(count)]
    for code, cell in zip(codes.tolist(), cells.to_pylist(), strict=True):
        if cell is not None:
            of[code].append(cell)
    return binary_column([(in_one_row(own) if len(own) > 1 else own[0]) if own else None for own in of])


# --- The scans for waiting records in compat mode, compiled: which rows become due at which record.

_BOTH = 3
"""Both sides, as bits."""


@kernel
def _scan(
    rows: tuple[Int64s, Int64s, Int64s], alive: Bools, due: Int64s, bounds: tuple[int, int], at: tuple[int, int]
) -> tuple[int, int]:
    """Plays one scan, which ends after the first open row of each side."""
    times, sides, open_until = rows
    (low, high), (record, now) = bounds, at
    least, met, first = MAX_TIME, 0, high + 1
    for row in range(low, high + 1):
        if not alive[row]:
            continue
        least = times[row]
        if met == _BOTH:
            break
        if open_until[row] >= now:
            met |= 1 << sides[row]
            first = min(first, row)
        else:
            due[row], alive[row] = record, False
    return least, first


@allocating_kernel
def scans(
    triggers: Bools,
    record_waits: Int64s,
    now: Int64s,
    rows: tuple[Int64s, Int64s, Int64s, Int64s, Int64s],
    least: int,
    once: bool,
) -> tuple[Int64s, int, bool]:
    """Plays the scans of a step."""
    times, sides, open_until, added_at, removed_at = rows
    due, alive = np.full(len(times), len(now), np.int64), added_at < 0
    row_of = np.full(len(now), -1, np.int64)
    for row in np.flatnonzero(added_at >= 0):
        row_of[added_at[row]] = row
    # All existing rows lie between these two, so that a scan of few rows is short.
    living = np.flatnonzero(alive)
    low, high = (living[0], living[-1]) if len(living) else (0, -1)
    removals, removed, scanned = np.argsort(removed_at, kind="mergesort"), 0, False
    for record in range(len(now)):
        while removed < len(removals) and removed_at[removals[removed]] < record:
            alive[removals[removed]] = False
            removed += 1
        # The sum wraps around, as in Java.
        if triggers[record] and not (scanned and once) and least + record_waits[record] < now[record]:
            least, low = _scan((times, sides, open_until), alive, due, (low, high), (record, now[record]))
            scanned = True
        row = row_of[record]
        if row >= 0:
            alive[row] = True
            low, high = (min(low, row), max(high, row)) if low <= high else (row, row)
            least = min(least, times[row])
    return due, least, scanned


# --- The records without a partner in a left or outer join, for a whole step.
#
# A record without a partner waits. Then its partner may come, or it becomes due and gives its one result, or it keeps waiting. With
# windows of 10 and a grace of 5, a left record at 20 waits until a right record from 10 to 30 comes, or until stream time passes
# 35. The pairs of the step show which records find a partner; a subclass for each mode knows when the others become due.
#
# Invariant: the changelog has each row once, in the order of the rows' first writes; a row that is added and removed in a step
# leaves a tombstone.


@dataclass(frozen=True, slots=True)
class JoinStep:
    """The state of a step before its waiting records are processed.

    Attributes:
        stored: The step's records and their stores, by side.
        may_be_alone: Which records wait if they are in no pair and their side is outer.
        triggers: Which records may start a scan in compat mode, if they are in order.
        objects: Makes results from the bytes of values; None if joiners are called.
        ends: int64[n], the time of each record's row, if it waits (`OuterJoinBuffer.waits`).
        partner_ends: int64[m], the time of the row of each pair's partner.
    """

    join: StreamJoin
    stored: StoredStep
    may_be_alone: Bools
    triggers: Bools
    pairs: Pairs
    objects: JoinedObjects | None
    ends: Int64s
    partner_ends: Int64s


class WaitingStep(ABC):
    """The buffer's part of one step.

    Args:
        step: The state of the step.
    """

    def __init__(self, step: JoinStep, buffer: OuterJoinBuffer) -> None:
        self._stored, self.records, self.time = step.stored, step.stored.records, step.stored.time
        self.count = len(self.records)
        self.rows = buffer.rows
        self.waits = np.array(buffer.waits, np.int64)
        self._step, self._join = step, step.join
        self.refused: list[Refused] = []
        self.alone: Int64s = np.zeros(2, np.int64)
        """By side, the number of records that are known to have no partner."""
        self.outer = np.array([self._join.is_outer(side) for side in range(2)])
        # The bytes of values are then known already.
        self._alike = self._stored.codecs[0].writes_as(self._stored.codecs[1])
        self._keys = pa.array(self.records.batch.keys.encoded(self._join.key_serde, self.rows.name), pa.binary())
        alone = step.may_be_alone & self.outer[self.records.nodes]
        alone[step.pairs.rows] = False
        waits = self._wait()
        self.at_once = np.flatnonzero(alone & ~waits)
        # A value that is written as null neither waits nor is stored.
        self.added = np.flatnonzero(alone & waits & self._stored.column.is_valid().to_numpy(zero_copy_only=False))
        self.new = self._new_rows()
        self.new_met = _first_of_each(step.pairs.partners, step.pairs.rows, self.count)[self.added]
        self.met, self.met_at = self._met_rows()
        self._old, self._old_due, self._new_due = self._due()
        self._changes = self._changed()

    @abstractmethod
    def _wait(self) -> Bools:
        """Whether each record waits if it finds no partner; the others give their results at once."""

    @abstractmethod
    def _due(self) -> tuple[WaitingRows, Int64s, Int64s]:
        """The due rows of earlier steps, in order; the record that makes each due; and that of each new row (n: none)."""

    @abstractmethod
    def _named(self, due: WaitingRecords, at: Int64s) -> tuple[list[bytes | None] | None, HeldRows | None]:
        """The headers of the results of records that become due at the records `at`, and the records that errors name."""

    def results(self) -> tuple[ColumnarBatch, Int64s]:
        """The results of records that are due, and for each the record that makes it due."""
        new = np.flatnonzero(self._new_due < self.count)
        rows = self._old.followed_by(self.new.take(new))
        at = np.concatenate([self._old_due, self._new_due[new]])
        order = rows.order_at(at, self._ends(rows))
        rows, at = rows.take(order), at[order]
        self.alone = np.bincount(np.append(rows.sides, self.records.nodes[self.at_once]), minlength=2)
        due = WaitingRecords.of(rows, self.rows, self._stored.codecs[0] if self._alike else None)
        batch = self.records.batch
        headers, held = self._named(due, at)
        results = ColumnarBatch(due.keys, (), due.timestamps, batch.order[at], headers, batch.place, held or {})
        if self._step.objects is not None:
            try:
                return results.with_values(
                    self._step.objects.of_one_side(due.cells, rows.sides == LEFT, certain=False)
                ), at
            except RecordError:
                if not self._stored.alone:
                    raise
        return self._called(results, due, rows.sides, at)

    def _called(
        self, results: ColumnarBatch, due: WaitingRecords, sides: Int64s, at: Int64s
    ) -> tuple[ColumnarBatch, Int64s]:
        """The results with the joiner's values. The policy applies to a record on which the joiner fails."""
        joined, values, kept, waited = self._join.joined, list[Any](), list[int](), due.values
        for row, (side, key, value) in enumerate(zip(sides.tolist(), due.keys, waited, strict=True)):
            try:
                values.append(joined(side, key, value, None))
                kept.append(row)
            except Exception as error:
                if not self._stored.alone:
                    raise
                own = replace(results, values=waited, headers=due.headers, held=due.held)
                self.refused.append(Refused(own, row, int(at[row]), error))
        if len(kept) == len(waited):
            return results.with_values(values), at
        rows = np.array(kept, np.int64)
        return results.with_values(waited).take(rows).with_values(values), at[rows]

    def write(self) -> None:
        self.rows.write(self._changes, self.new.times, self._gone())

    def _changed(self) -> tuple[pa.BinaryArray, pa.BinaryArray, Int64s]:
        """The rows that the step changes in the buffer."""
        writes = WaitingWrites()
        writes.remove(EXPIRE, self._old_due, self._old)
        still_there = np.flatnonzero(~is_in(self.met.keys, self._old.keys))
        writes.remove(JOIN, self.met_at[still_there], self.met.take(still_there))
        stay = (self._new_due == self.count) & (self.new_met == self.count)
        writes.add(ADD, self.added, self.new, stay)
        return writes.made(self.rows)

    def _ends(self, rows: WaitingRows) -> Int64s:
        """The times that order records that become due at once."""
        return rows.times

    def _gone(self) -> tuple[int, int]:
        """For each side, a time before which no rows are left after the step, ms; `NO_TIME`: unknown."""
        return NO_TIME, NO_TIME

    def _new_rows(self) -> WaitingRows:
        """The records that are added."""
        batch, rows = self.records.batch, self.added
        sides, times = self.records.nodes[rows], self._step.ends[rows]
        own = self._keys.take(pa.array(batch.keys.codes[rows]))
        keys = self.rows.keys_of(times, sides, own, batch.timestamps[rows])
        codec = self.rows.store.codec
        if self._alike:
            headers = None if batch.headers is None else [batch.headers[row] for row in rows.tolist()]
            values = self._stored.column.take(pa.array(rows))
            new = WaitingRows(keys, values, headers, times, sides)
        else:
            records = zip(sides.tolist(), rows.tolist(), values_at(batch.values, rows), strict=True)
            waiting = [(WaitingRecord(side, value, batch.headers_of(row)),) for side, row, value in records]
            new = WaitingRows.of(keys, pa.array(codec.cells(waiting), pa.binary()))
        codec.check_all(keys, new.cells)
        return new

    def _met_rows(self) -> tuple[WaitingRows, Int64s]:
        """The records of earlier steps that find a partner, in the order of the pairs, and the first record that each matches."""
        pairs, nodes = self._step.pairs, self.records.nodes
        at = np.flatnonzero(pairs.partners < 0)
        at = at[self.outer[1 - nodes[pairs.rows[at]]]]
        ends = self._step.partner_ends
        at = at[ends[at] >= self.rows.earliest]
        sides = 1 - nodes[pairs.rows[at]]
        codes = self.records.batch.keys.codes[pairs.rows[at]]
        own = self._keys.take(pa.array(codes))
        keys = self.rows.keys_of(ends[at], sides, own, pairs.times[at]).dictionary_encode()
        at = at[np.unique(keys.indices.to_numpy(), return_index=True)[1]]
        # The store is read in the order of the rows. The found rows are then put back into the order of the pairs.
        order = sorted_rows(keys.dictionary)
        cells = self.rows.store.rows.get_columns(keys.dictionary.take(pa.array(order)))
        cells = cells.take(pa.array(inverse(order)))
        there = np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))
        records = records_of(cells.take(pa.array(there)))
        return WaitingRows.among(keys.dictionary.take(pa.array(there)), records), pairs.rows[at[there]][records.rows]


def is_in(cells: pa.BinaryArray, others: pa.BinaryArray) -> Bools:
    found: Bools = pc.is_in(cells, value_set=others).to_numpy(zero_copy_only=False)
    return found


def _first_of_each(partners: Int64s, rows: Int64s, count: int) -> Int64s:
    """For each of n records, the first of `rows` (ascending) that it matches; n: none."""
    first = np.full(count, count, np.int64)
    own = np.flatnonzero(partners >= 0)[::-1]
    first[partners[own]] = rows[own]
    return first


# --- The waiting records of a step in strict mode.
#
# Only open records have partners, and a record is due when it ceases to be open. So a partner always comes before that, and stream
# time alone decides when a record without a partner is due.


class StrictWaitingStep(WaitingStep):
    def _wait(self) -> Bools:
        return np.ones(self.count, np.bool_)

    def _due(self) -> tuple[WaitingRows, Int64s, Int64s]:
        found = WaitingRows.of(*self.rows.before(self._gone()))
        old = found.take(np.flatnonzero(~is_in(found.keys, self.met.keys)))
        new_due = self._due_at(self.new)
        new_due[self.new_met < self.count] = self.count
        return old, self._due_at(old), new_due

    def _due_at(self, rows: WaitingRows) -> Int64s:
        """The record at which each row ceases to be open; n: none."""
        return np.searchsorted(self.time, self._ends(rows), "right")

    def _ends(self, rows: WaitingRows) -> Int64s:
        ends: Int64s = rows.times + self.waits[rows.sides]
        return ends

    def _named(self, due: WaitingRecords, at: Int64s) -> tuple[list[bytes | None] | None, HeldRows | None]:
        return due.headers, due.held

    def _gone(self) -> tuple[int, int]:
        right, left = (int(self.time[-1]) - self.waits).tolist()
        return right, left


# --- The waiting records of a step in compat mode.
#
# A record in order may trigger a scan, which makes all rows due whose windows have passed. The rows that a scan leaves decide about
# the next scan. A compiled loop over the records plays the scans (`scans`) on the rows that any of them may see: rows that may
# become due by the end of the step, rows that the step adds, and the first rows after these, at which a scan ends.


class CompatWaitingStep(WaitingStep):
    def __init__(self, step: JoinStep, buffer: CompatOuterJoinBuffer) -> None:
        self._buffer = buffer
        self._least, self._scanned = buffer.least, False
        super().__init__(step, buffer)

    def write(self) -> None:
        super().write()
        if self._scanned:
            self._buffer.scanned()
        self._buffer.note_least(self._least)

    def _wait(self) -> Bools:
        until = self.records.batch.timestamps + self.waits[self.records.nodes] - self._buffer.grace_ms
        waits: Bools = np.maximum(until, 0) >= self.time
        return waits

    def _due(self) -> tuple[WaitingRows, Int64s, Int64s]:
        nothing = self.met.take(np.empty(0, np.int64))
        none = np.empty(0, np.int64)
        new_due = np.full(len(self.new), self.count, np.int64)
        triggers = self._step.triggers & (self.records.batch.timestamps == self.time)
        if not self._buffer.may_scan or not self._would_scan(triggers):
            self._least = min(self._least, int(self.new.times.min(initial=self._least)))
            return nothing, none, new_due
        first = int(self.time[-1]) - int(self.waits.min())
        before = WaitingRows.of(*self.rows.before((first, first)))
        behind = self._rows_behind(first)
        return self._play(triggers, before, behind)

    def _would_scan(self, triggers: Bools) -> bool:
        """Whether a scan takes place; otherwise the records only wait for the first scan."""
        added = np.full(self.count + 1, self._least, np.int64)
        added[self.added + 1] = self.new.times
        least = np.minimum.accumulate(added)[:-1]
        return bool((triggers & (least + self.waits[self.records.nodes] < self.time)).any())

    def _rows_behind(self, first: int) -> WaitingRows:
        """Rows of earlier steps that do not become due in this step, but may decide the smallest time of a scan.

        A scan ends after the first row of each side that it meets. If only one side waits, the scan continues to the last row.
        """
        met, open_sides, found = set(self.met.keys.to_pylist()), set[int](), []
        one_sided = not self.outer.all()
        for key in self.rows.keys_from(first, reverse=one_sided):
            found.append(key)
            if key in met:
                continue
            if one_sided or len(open_sides) == len(self.outer):
                break
            open_sides.add(key[TIME_SIDE.size - 1])
        keys = pa.array(found, pa.binary())
        return WaitingRows(keys, pa.nulls(len(keys), pa.binary()), None, *split_unmatched_keys(keys))

    def _play(self, triggers: Bools, before: WaitingRows, behind: WaitingRows) -> tuple[WaitingRows, Int64s, Int64s]:
        """The result of `_due` for these rows of earlier steps."""
        old = before.followed_by(behind)
        rows = old.followed_by(self.new)
        place = pc.index_in(old.keys, value_set=self.met.keys).fill_null(-1).to_numpy()
        removed_at = np.concatenate([np.append(self.met_at, self.count)[place], self.new_met])
        added_at = np.concatenate([np.full(len(old), -1, np.int64), self.added])
        order = sorted_rows(rows.keys)
        open_until = rows.times + self.waits[rows.sides]
        due, self._least, self._scanned = scans(
            triggers,
            self.waits[self.records.nodes],
            self.time,
            (rows.times[order], rows.sides[order], open_until[order], added_at[order], removed_at[order]),
            self._least,
            self._buffer.interval_ms > 0,
        )
        due_of = np.empty(len(rows), np.int64)
        due_of[order] = due
        is_due = np.flatnonzero(due_of[: len(before)] < self.count)
        return before.take(is_due), due_of[is_due], due_of[len(old) :]

    def _named(self, due: WaitingRecords, at: Int64s) -> tuple[list[bytes | None] | None, HeldRows | None]:
        headers = self.records.batch.headers
        return None if headers is None else [headers[row] for row in at.tolist()], due.held
