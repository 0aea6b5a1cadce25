"""The waiting records of a step in strict mode: `StrictOuterJoinBuffer` over columns.

Only open records have partners, and a record is due when it ceases to be open, so a partner always comes before that, and stream
time alone decides when a record without one is due.
"""

from __future__ import annotations

import numpy as np

from streams.operators.columnar import HeldRows, Int64s
from streams.operators.join.columns.records import Bools
from streams.operators.join.columns.waiting import WaitingStep, is_in
from streams.operators.join.columns.waiting_rows import WaitingRecords, WaitingRows


class StrictWaitingStep(WaitingStep):
    """See `WaitingStep`."""

    def _wait(self) -> Bools:
        return np.ones(self.count, np.bool_)

    def _due(self) -> tuple[WaitingRows, Int64s, Int64s]:
        found = WaitingRows.of(*self.rows.columns_before(int(self.time[-1])))
        old = found.take(np.flatnonzero(~is_in(found.keys, self.met.keys)))
        new_due = self._due_at(self.new.times)
        new_due[self.new_met < self.count] = self.count
        return old, self._due_at(old.times), new_due

    def _due_at(self, times: Int64s) -> Int64s:
        """The first record at which stream time is above each of these times; n for none."""
        return np.searchsorted(self.time, times, "right")

    def _named(self, due: WaitingRecords, at: Int64s) -> tuple[list[bytes | None] | None, HeldRows | None]:
        return due.headers, due.held

    def _all_gone_before(self) -> int:
        return int(self.time[-1])
