"""The records without a partner of a left or outer join, for a whole step: `OuterJoinBuffer` over columns.

A record without a partner waits. Its partner may come, or it becomes due and gives its one result, or it goes on waiting. Which
records find a partner is known from the pairs of the step; a subclass for each mode knows when those without become due.

Invariant: the changelog has the writes of the one-by-one way, in the order of each row's first write; a record that was added and
removed in the same step leaves a tombstone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.kafka.columns import BinaryColumn
from state.tables.binary_columns import sorted_rows
from streams.model.times import NO_TIME
from streams.model.waiting import LEFT, WaitingRecord
from streams.operators.columnar import ColumnarBatch, HeldRows, Int64s
from streams.operators.encoded_values import values_at
from streams.operators.join.columns.joined_objects import JoinedObjects
from streams.operators.join.columns.partners import Pairs
from streams.operators.join.columns.records import Bools, JoinRecords
from streams.operators.join.columns.waiting_rows import ADD, EXPIRE, JOIN, WaitingRecords, WaitingRows, WaitingWrites
from streams.operators.join.options import StreamJoin
from streams.operators.join.outer_join_buffer import OuterJoinBuffer
from streams.operators.stores.codec import Codec
from streams.serdes.waiting import NUMBER_BYTES
from streams.serdes.waiting_columns import waiting_keys, waiting_prefixes, waiting_records


@dataclass(frozen=True, slots=True)
class JoinStep:
    """What is known of a step before its waiting records.

    Attributes:
        join: The join.
        codecs: The codecs of the stores by side.
        records: The step's records; the index of their node is the side.
        time: int64[n], stream time at each record.
        may_be_alone: Which records wait if they are in no pair, and their side is outer.
        pairs: The pairs of the step.
        cells: The bytes of the open records' values in their stores.
        objects: Makes results of the bytes of values; None if joiners are called.
    """

    join: StreamJoin
    codecs: Sequence[Codec]
    records: JoinRecords
    time: Int64s
    may_be_alone: Bools
    pairs: Pairs
    cells: BinaryColumn
    objects: JoinedObjects | None


class WaitingStep(ABC):
    """One step of the buffer.

    Args:
        step: What is known of the step.
        buffer: The buffer.
    """

    def __init__(self, step: JoinStep, buffer: OuterJoinBuffer) -> None:
        self.records, self.time, self.count = step.records, step.time, len(step.records)
        self.rows = buffer.rows
        self.waits, self._delays = np.array(buffer.waits, np.int64), np.array(buffer.delays, np.int64)
        self._step, self._join = step, step.join
        self.outer = np.array([self._join.is_outer(side) for side in range(2)])
        # Then the bytes of values are known already.
        self._alike = step.codecs[0].writes_as(step.codecs[1])
        self._keys = pa.array(self.records.batch.keys.encoded(self._join.key_serde, self.rows.name), pa.binary())
        alone = step.may_be_alone & self.outer[self.records.nodes]
        alone[step.pairs.rows] = False
        waits = self._wait()
        self.at_once = np.flatnonzero(alone & ~waits)
        self.added = np.flatnonzero(alone & waits)
        self.new = self._new_rows()
        self.new_met = _first_of_each(step.pairs.partners, step.pairs.rows, self.count)[self.added]
        self.met, self.met_at = self._met_rows()
        self._old, self._old_due, self._new_due = self._due()

    @abstractmethod
    def _wait(self) -> Bools:
        """Which records wait if they find no partner; the others give their results at once."""

    @abstractmethod
    def _due(self) -> tuple[WaitingRows, Int64s, Int64s]:
        """What becomes due: rows of earlier steps, in order, and the record that makes each due; that of each new row, n: none."""

    @abstractmethod
    def _named(self, due: WaitingRecords, at: Int64s) -> tuple[list[bytes | None] | None, HeldRows | None]:
        """Headers of the results of records that are due because of the records `at`, and what errors name."""

    def results(self) -> tuple[ColumnarBatch, Int64s]:
        """The results of records that are due, and the records that make them due."""
        new = np.flatnonzero(self._new_due < self.count)
        rows = self._old.followed_by(self.new.take(new))
        at = np.concatenate([self._old_due, self._new_due[new]])
        order = rows.order_at(at)
        rows, at = rows.take(order), at[order]
        timestamps = rows.times - self._delays[rows.sides]
        due = WaitingRecords.of(rows, timestamps, self.rows, self._step.codecs[0] if self._alike else None)
        batch, values = self.records.batch, self._joined(rows.sides, due)
        headers, held = self._named(due, at)
        return ColumnarBatch(due.keys, values, timestamps, batch.order[at], headers, batch.place, held or {}), at

    def _joined(self, sides: Int64s, due: WaitingRecords) -> Sequence[Any]:
        """The results of records of these sides without a partner."""
        if self._step.objects is None:
            joined = self._join.joined
            return [
                joined(side, key, value, None)
                for side, key, value in zip(sides.tolist(), due.keys, due.values, strict=True)
            ]
        return self._step.objects.of_one_side(due.cells, sides == LEFT, certain=False)

    def write(self) -> None:
        """Write what has changed."""
        writes = WaitingWrites()
        writes.remove(EXPIRE, self._old_due, self._old)
        still_there = np.flatnonzero(~is_in(self.met.keys, self._old.keys))
        writes.remove(JOIN, self.met_at[still_there], self.met.take(still_there))
        stay = (self._new_due == self.count) & (self.new_met == self.count)
        writes.add(ADD, self.added, self.new, stay)
        writes.write(self.rows, self.new.times, self._all_gone_before())

    def _all_gone_before(self) -> int:
        """A time before which no row is left; `NO_TIME` if that is not known."""
        return NO_TIME

    def _new_rows(self) -> WaitingRows:
        """The rows of the records that are added."""
        batch, rows = self.records.batch, self.added
        sides, numbers = self.records.nodes[rows], self.rows.next_number + np.arange(len(rows))
        times = batch.timestamps[rows] + self._delays[sides]
        keys = waiting_keys(times, sides, self._keys.take(pa.array(batch.keys.codes[rows])), numbers)
        if self._alike:
            headers = None if batch.headers is None else [batch.headers[row] for row in rows.tolist()]
            values = waiting_records(sides, headers, self._step.cells.take(pa.array(rows)))
        else:
            records = zip(sides.tolist(), rows.tolist(), values_at(batch.values, rows), strict=True)
            waiting = [WaitingRecord(side, value, batch.headers_of(row)) for side, row, value in records]
            values = pa.array(self.rows.store.codec.cells(waiting), pa.binary())
        self.rows.store.codec.check_all(keys, values)
        return WaitingRows(keys, values, times, sides)

    def _met_rows(self) -> tuple[WaitingRows, Int64s]:
        """The rows of earlier steps that meet a partner, in the order of the pairs, and the records that each one meets first."""
        pairs, nodes = self._step.pairs, self.records.nodes
        at = np.flatnonzero(pairs.partners < 0)
        at = at[self.outer[1 - nodes[pairs.rows[at]]]]
        sides = 1 - nodes[pairs.rows[at]]
        # In a self-join a row may be met on both sides.
        firsts = np.sort(np.unique(2 * pairs.places[-1 - pairs.partners[at]] + sides, return_index=True)[1])
        at, sides = at[firsts], sides[firsts]
        times = pairs.times[at] + self._delays[sides]
        may_wait = times >= self.rows.earliest
        at, sides, times = at[may_wait], sides[may_wait], times[may_wait]
        codes = self.records.batch.keys.codes[pairs.rows[at]]
        prefixes = waiting_prefixes(times, sides, self._keys.take(pa.array(codes)))
        # The store is read in the order of the rows, and the rows found are put back into the order of the pairs.
        order = sorted_rows(prefixes)
        found = self.rows.store.rows.scan_prefixes(prefixes.take(pa.array(order)))
        asked = order[found.ranges]
        # Rows of longer keys may have the same first bytes.
        sizes = pc.add(pc.binary_length(prefixes.take(pa.array(asked))), NUMBER_BYTES)
        own = np.flatnonzero(pc.equal(pc.binary_length(found.keys), sizes).to_numpy(zero_copy_only=False))
        own = own[np.argsort(asked[own], kind="stable")]
        rows = WaitingRows.of(found.keys.take(pa.array(own)), found.values.take(pa.array(own)))
        return rows, pairs.rows[at[asked[own]]]


def is_in(cells: pa.BinaryArray, others: pa.BinaryArray) -> Bools:
    """Which cells are among others."""
    found: Bools = pc.is_in(cells, value_set=others).to_numpy(zero_copy_only=False)
    return found


def _first_of_each(partners: Int64s, rows: Int64s, count: int) -> Int64s:
    """For each of n records the first of `rows`, which rise, whose partner it is; n: none."""
    first = np.full(count, count, np.int64)
    own = np.flatnonzero(partners >= 0)[::-1]
    first[partners[own]] = rows[own]
    return first
