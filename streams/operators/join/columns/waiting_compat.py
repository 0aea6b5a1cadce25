"""The waiting records of a step in compat mode: `CompatOuterJoinBuffer` over columns.

A record in order may trigger a scan, which makes all rows due whose windows have passed; what a scan leaves behind decides about
the next one. A compiled loop over the records plays the scans (`scans`), on the rows that any of them may see: those that may
become due by the end of the step, those that the step adds, and the first ones behind, at which a scan ends.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.tables.binary_columns import sorted_rows
from streams.operators.columnar import HeldRows, Int64s
from streams.operators.join.columns.records import Bools
from streams.operators.join.columns.scans import scans
from streams.operators.join.columns.waiting import JoinStep, WaitingStep
from streams.operators.join.columns.waiting_rows import WaitingRecords, WaitingRows
from streams.operators.join.outer_join_buffer import CompatOuterJoinBuffer
from streams.serdes.waiting import TIME_SIDE_BYTES


class CompatWaitingStep(WaitingStep):
    """See `WaitingStep`.

    Args:
        step: What is known of the step.
        buffer: The buffer.
    """

    def __init__(self, step: JoinStep, buffer: CompatOuterJoinBuffer) -> None:
        self._buffer = buffer
        self._least, self._scanned = buffer.least, False
        super().__init__(step, buffer)

    def write(self) -> None:
        """See `WaitingStep`."""
        super().write()
        if self._scanned:
            self._buffer.scanned()
        self._buffer.note_least(self._least)

    def _wait(self) -> Bools:
        until = self.records.batch.timestamps + self.waits[self.records.nodes] - self._buffer.grace_ms
        waits: Bools = np.maximum(until, 0) >= self.time
        return waits

    def _due(self) -> tuple[WaitingRows, Int64s, Int64s]:
        nothing = WaitingRows.of(pa.array([], pa.binary()), pa.array([], pa.binary()))
        none = np.empty(0, np.int64)
        new_due = np.full(len(self.new), self.count, np.int64)
        triggers = self._step.may_be_alone & (self.records.batch.timestamps == self.time)
        if not self._buffer.may_scan or not self._would_scan(triggers):
            self._least = min(self._least, int(self.new.times.min(initial=self._least)))
            return nothing, none, new_due
        first = int(self.time[-1]) - int(self.waits.min())
        before = WaitingRows.of(*self.rows.columns_before(first))
        behind = self._rows_behind(first)
        return self._play(triggers, before, behind)

    def _would_scan(self, triggers: Bools) -> bool:
        """Whether there is a scan, and not only records that wait for the first one."""
        added = np.full(self.count + 1, self._least, np.int64)
        added[self.added + 1] = self.new.times
        least = np.minimum.accumulate(added)[:-1]
        return bool((triggers & (least + self.waits[self.records.nodes] < self.time)).any())

    def _rows_behind(self, first: int) -> WaitingRows:
        """Rows of earlier steps that do not become due in this step: those that may decide about the least time of a scan.

        A scan ends behind the first row of each side that it meets. If only one side waits, the scan goes on to the last row.
        """
        met, open_sides, found = set(self.met.keys.to_pylist()), set[int](), []
        one_sided = not self.outer.all()
        for key in self.rows.keys_from(first, reverse=one_sided):
            found.append(key)
            if key in met:
                continue
            if one_sided or len(open_sides) == len(self.outer):
                break
            open_sides.add(key[TIME_SIDE_BYTES - 1])
        keys = pa.array(found, pa.binary())
        return WaitingRows.of(keys, pa.nulls(len(keys), pa.binary()))

    def _play(self, triggers: Bools, before: WaitingRows, behind: WaitingRows) -> tuple[WaitingRows, Int64s, Int64s]:
        """`_due` of these rows of earlier steps."""
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
        return None if headers is None else [headers[row] for row in at.tolist()], None
