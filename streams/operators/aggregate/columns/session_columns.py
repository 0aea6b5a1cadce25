"""Aggregates of declared fields in sessions, over the columns of a step: the kernel that merges rows, and the operator."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from state.columns import BinaryColumn
from state.numba_kernels import kernel
from streams.model.windows import SessionWindows
from streams.operators.aggregate.aggregates import FieldAggregates
from streams.operators.aggregate.columns.accumulators import FieldAccumulators
from streams.operators.aggregate.columns.column_aggregate import (
    FieldRows,
    KeyedColumnAggregate,
    KeyedRows,
    PickedFields,
)
from streams.operators.aggregate.columns.column_rows import KeyOrder, first_live_from
from streams.operators.aggregate.session_aggregate import SessionAggregate
from streams.operators.columnar import Changes, ColumnarBatch, KeyColumn, OneByOne, WindowedKeys

# --- Merges the rows of a step into sessions: the vectorised form of `SessionAggregate`'s rule.
#
# Lateness depends on stream time alone, a running maximum over all rows, so the keys are independent of each other: their rows are
# merged one key after the other, into the key's stored sessions. Sessions of a key are more than a gap apart, so a row touches at
# most two.

Int64s = npt.NDArray[np.int64]

LATE: Final = 1
FAILED: Final = 2
"""What becomes of a row (0: it is in a session): it is late; its value has no fields, though it is in time."""

GONE: Final = -1
NEVER: Final = -1
_PLACES = 4  # in the order of writes and updates, for each row


class StoredSessions(NamedTuple):
    """The stored sessions of the step's keys, by key, then end.

    Attributes:
        starts: int64[S].
        ends: int64[S].
        bounds: int64[K + 1]: those of the k-th key are [bounds[k], bounds[k + 1]).
    """

    starts: Int64s
    ends: Int64s
    bounds: Int64s


class MergedSessions(NamedTuple):
    """All sessions that the step has found or made, the stored ones first; a session of other bounds is another session.

    Attributes:
        keys: int64[N], the key of each session: its number in `KeyOrder`.
        starts: int64[N].
        ends: int64[N].
        written: int64[N], the place of its first write in the order of all writes; -1 = not written.
        updated: int64[N], the place of its first update in the order of all updates.
        made: bool[N], whether a row was added to it, so that it was in the store after the row.
        slots: int64[N], the slot of its accumulators; -1 = merged into another session, or not in the store any more.
        statuses: uint8[n], what became of each row.
        op_rows: int64[m], the operations on the accumulators, those of each key in processing order: a row to add; or ~s, to merge
            the accumulators of slot s behind those of the operation's slot, before the next row is added.
        op_slots: int64[m]: the slot of each operation. Slot s < S begins with the accumulators of stored session s.
        slot_count: The number of slots.
    """

    keys: Int64s
    starts: Int64s
    ends: Int64s
    written: Int64s
    updated: Int64s
    made: npt.NDArray[np.bool_]
    slots: Int64s
    statuses: npt.NDArray[np.uint8]
    op_rows: Int64s
    op_slots: Int64s
    slot_count: int


def merge_sessions(
    order: KeyOrder,
    stored: StoredSessions,
    timestamps: Int64s,
    close_times: Int64s,
    failing: npt.NDArray[np.bool_],
    gap: int,
) -> MergedSessions:
    """Merge the rows into sessions.

    Raises:
        OneByOne: Stored sessions of a key are not more than a gap apart, so this way of merging does not apply.
    """
    n, s = len(order.rows), len(stored.starts)
    most = n + s
    keys, starts, ends = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    starts[:s], ends[:s] = stored.starts, stored.ends
    keys[:s] = np.repeat(np.arange(len(order.codes)), np.diff(stored.bounds))
    written, updated = np.full(most, NEVER, np.int64), np.full(most, NEVER, np.int64)
    made = np.zeros(most, np.bool_)
    slots = np.arange(most, dtype=np.int64)
    statuses = np.zeros(len(timestamps), np.uint8)
    op_rows, op_slots = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    live = np.empty(most, np.int64)
    count, ops, slot_count = _merge(
        order.rows,
        order.bounds,
        stored.bounds,
        timestamps,
        close_times,
        failing,
        gap,
        keys,
        starts,
        ends,
        written,
        updated,
        made,
        slots,
        statuses,
        op_rows,
        op_slots,
        live,
    )
    if count < 0:
        raise OneByOne
    return MergedSessions(
        keys[:count],
        starts[:count],
        ends[:count],
        written[:count],
        updated[:count],
        made[:count],
        slots[:count],
        statuses,
        op_rows[:ops],
        op_slots[:ops],
        slot_count,
    )


@kernel
def _replace(live: Any, alive: int, low: int, high: int, session: int) -> int:  # pragma: no cover - compiled
    """Puts one session in place of `live[low:high]`, at most two; returns how many there are then."""
    if high == low:
        for later in range(alive, low, -1):
            live[later] = live[later - 1]
    elif high == low + 2:
        for later in range(low + 1, alive - 1):
            live[later] = live[later + 1]
    live[low] = session
    return alive + 1 - (high - low)


@kernel
def _merge(  # noqa: PLR0912 - one compiled loop over the rows
    rows: Any,
    bounds: Any,
    stored_bounds: Any,
    timestamps: Any,
    close_times: Any,
    failing: Any,
    gap: int,
    keys: Any,
    starts: Any,
    ends: Any,
    written: Any,
    updated: Any,
    made: Any,
    slots: Any,
    statuses: Any,
    op_rows: Any,
    op_slots: Any,
    live: Any,
) -> tuple[int, int, int]:  # pragma: no cover - compiled
    """Fills the arrays; returns how many sessions, operations and slots there are; -1 sessions if stored ones are not apart."""
    count = stored_bounds[len(stored_bounds) - 1]
    ops, slot_count = 0, count
    for key in range(len(bounds) - 1):
        # The key's sessions in the store as of now, by end: `live[0:alive]`.
        alive = 0
        for session in range(stored_bounds[key], stored_bounds[key + 1]):
            if alive and starts[session] <= ends[session - 1] + gap:
                return -1, 0, 0
            live[alive] = session
            alive += 1
        for at in range(bounds[key], bounds[key + 1]):
            row = rows[at]
            time = timestamps[row]
            low = high = first_live_from(ends, live, alive, time - gap)
            start, end = time, time
            while high < alive and starts[live[high]] <= time + gap:
                start, end = min(start, starts[live[high]]), max(end, ends[live[high]])
                high += 1
            if end < close_times[row]:
                statuses[row] = LATE
                continue
            if failing[row]:
                statuses[row] = FAILED
                continue
            if low == high:
                slot = slot_count
                slot_count += 1
            else:
                slot = slots[live[low]]
                if high == low + 2:
                    op_rows[ops], op_slots[ops] = ~slots[live[low + 1]], slot
                    ops += 1
            op_rows[ops], op_slots[ops] = row, slot
            ops += 1
            place = _PLACES * row
            if low < high and starts[live[low]] == start and ends[live[low]] == end:
                session = live[low]
                made[session] = True
                if written[session] == NEVER:
                    written[session], updated[session] = place, place
                continue
            for found in range(low, high):
                session = live[found]
                slots[session] = GONE
                if written[session] == NEVER:
                    # Each record writes its session first; its updates begin with what it replaces.
                    written[session], updated[session] = place + 1 + found - low, place + found - low
            keys[count], starts[count], ends[count], slots[count], made[count] = key, start, end, slot, True
            written[count], updated[count] = place, place + 2
            alive = _replace(live, alive, low, high, count)
            count += 1
    return count, ops, slot_count


# --- Aggregates of declared fields in sessions, over the columns of a whole step.


class _Step(NamedTuple):
    """What a step changes, and has not changed yet; see `WindowsOfStep`.

    Attributes:
        operator: The operator.
        keyed: The keys.
        merged: Their sessions.
        before: The accumulators of the stored sessions, which come first.
        accumulators: The accumulators of all sessions after the step.
        written: int64[w], the sessions to write, in the order of their first writes.
        values: binary[w], null for those to delete.
    """

    operator: SessionColumnAggregate
    keyed: KeyedRows
    merged: MergedSessions
    before: list[Any]
    accumulators: FieldAccumulators
    written: Int64s
    values: BinaryColumn

    @property
    def late(self) -> int:
        return int((self.merged.statuses == LATE).sum())

    @property
    def failed(self) -> Int64s:
        return np.flatnonzero(self.merged.statuses == FAILED)

    @property
    def cells(self) -> BinaryColumn:
        """The bytes of the keys of the sessions to write."""
        return self.keyed.cells_of(self.merged.keys[self.written])

    def write(self) -> None:
        merged, at = self.merged, self.written
        self.operator.store.put_columns(self.cells, merged.starts[at], merged.ends[at], self.values)
        self.operator.retention.add_many(merged.starts[merged.made], merged.ends[merged.made])

    def results(self) -> ColumnarBatch:
        merged, stored = self.merged, len(self.before)
        held = self.written
        held = held[(merged.slots[held] != GONE) | (held < stored)]
        held = held[np.lexsort((merged.updated[held], merged.ends[held]))]
        old = None
        if self.operator.send_old:
            view = self.operator.fields.result
            old = [view(self.before[session]) if session < stored else None for session in held.tolist()]
        inner = KeyColumn(merged.keys[held].astype(np.int32), self.keyed.objects)
        return ColumnarBatch(
            WindowedKeys(inner, merged.starts[held], merged.ends[held]),
            Changes(self.accumulators.values(merged.slots[held]), old),
            merged.ends[held],
            np.arange(len(held)),
        )


class SessionColumnAggregate(KeyedColumnAggregate[SessionWindows], SessionAggregate):
    """Aggregates fields of JSON values per key and session; see `SessionAggregate`.

    Args:
        store: Name of a session store of JSON values.
        windows: Gap and grace.
        fields: The aggregates.
        caching: See `WindowedAggregation`. Only an operator with caching gets columns.
        send_old: See `WindowedAggregation`.
        asked_for_retention: See `SessionAggregate`.
    """

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        fields: FieldAggregates,
        caching: bool = True,
        send_old: bool = False,
        asked_for_retention: bool = False,
    ) -> None:
        super().__init__(store, windows, fields.functions, None, caching, send_old, asked_for_retention)
        self.fields = fields

    def computed(self, rows: FieldRows, keyed: KeyedRows, close_times: Int64s, picked: PickedFields) -> _Step:
        gap = self.windows.gap_ms
        found = self.store.find_columns(keyed.cells, keyed.earliest - gap, keyed.latest + gap)
        bounds = np.searchsorted(found.requests, np.arange(len(keyed.keys) + 1))
        stored = StoredSessions(found.starts, found.ends, bounds)
        merged = merge_sessions(keyed.order, stored, rows.batch.timestamps, close_times, picked.failing, gap)
        if merged.made.any() and merged.ends[merged.made].min() < self.store.earliest_end:
            raise OneByOne  # the store does not take all sessions, so later records do not meet them
        before = [self.store.codec.read_value(value) for value in found.values.to_pylist()]
        accumulators = FieldAccumulators(self.fields, picked.columns, before, merged.slot_count)
        accumulators.apply(merged.op_rows, merged.op_slots)
        accumulators.check()
        written = np.flatnonzero(merged.written != NEVER)
        written = written[np.argsort(merged.written[written])]
        values = accumulators.written(merged.slots[written], self.store.codec)
        step = _Step(self, keyed, merged, before, accumulators, written, values)
        self.store.codec.check_all(step.cells, values)
        return step
