"""As-of join of two streams: joins each left record with the newest right record of its key that is not newer than itself.

T is the largest timestamp that reached the join, from either side (null keys and values count). A record is late, and
dropped, if its timestamp + grace < T. A left record waits until T > its timestamp + grace. From then on, no matching right record
can arrive in time, so the result does not depend on the order of arrival within grace. Of right records with the same key and
timestamp, the last to arrive counts. With a grace of 5, a left record at 20 waits until a record at 26 or later arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.model.record import LEFT, NO_TIME, RIGHT, Record, WaitingRecord
from streams.operators.aggregate.column_rows import grouped
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, KeyColumn, OneByOne, values_at
from streams.operators.join.joins import AsOf
from streams.operators.join.pairs import (
    FARTHEST_MS,
    JoinRecords,
    StoreKeys,
    newest_at,
    placed,
    runs,
    store_keys,
)
from streams.operators.join.waiting import ADD, EXPIRE, WaitingRecords, WaitingRows, WaitingWrites
from streams.operators.operator import Operator, OperatorContext, forward_in_one
from streams.operators.stores.unmatched_buffer import UnmatchedBuffer
from streams.operators.stores.window import TypedTimestampedWindowStore
from streams.operators.stream_time import SharedStreamTime
from streams.serdes.internal_columns import unmatched_keys


class AsOfJoin(Operator):
    """One side of the join. The result has the left record's time and headers.

    Null values are dropped. A null key is dropped; on the left of a left join it gives a result with None at once.

    Args:
        join: The parameters that both sides share.
        is_left: Whether this is the left side.
        store: Timestamped window store of the right records.
        waiting: Key-value store of the waiting left records (`serdes.waiting`).
        state_name: Name of the state that both sides share.
    """

    leaves_values = True
    makes_results = True

    def __init__(self, join: AsOf, is_left: bool, store: str, waiting: str, state_name: str) -> None:
        # Longer durations would overflow sums of 64 bits, and are longer than any log.
        within_ms, grace_ms = min(join.within_ms, FARTHEST_MS), min(join.grace_ms, FARTHEST_MS)
        self.join = replace(join, within_ms=within_ms, grace_ms=grace_ms)
        self.is_left = is_left
        self.store_name = store
        self.waiting_name = waiting
        self.state_name = state_name

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and the shared stream time."""
        super().init(ctx)
        self.store: TypedTimestampedWindowStore = ctx.store(self.store_name)
        state = ctx.shared_state(self.state_name)
        self.time = SharedStreamTime(state, sides=2)
        self.waiting = UnmatchedBuffer(ctx.store(self.waiting_name), self.join.key_serde, self.waiting_name, state)
        # Nodes that are not led process only their own records, and forward the results that these make due.
        self._sides, self._side_of = [self, self], np.array([LEFT if self.is_left else RIGHT])

    def lead(self, group: Sequence[AsOfJoin]) -> None:
        # By side: RIGHT is 0, LEFT is 1.
        self._sides = sorted(group, key=lambda one: one.is_left)
        self._side_of = np.array([LEFT if one.is_left else RIGHT for one in group])

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Join, store, forward, for both sides."""
        _AsOfStep(self._sides, JoinRecords.of(batch, self._side_of)).run()

    def skip(self, batch: ColumnarBatch) -> None:
        """Join the left records that a record's time makes due; the record itself has no result."""
        nothing = replace(batch, keys=KeyColumn.of([None] * len(batch)), values=[None] * len(batch))
        _AsOfStep(self._sides, JoinRecords.of(nothing, self._side_of)).run(drop=False)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance the stream time of both sides: join the left records that this makes due."""
        least = self.time.common_limit(limit)
        if least is None:
            return limit
        time = self.time.advance(elapsed_ms, least)
        if time != NO_TIME:
            self.skip(self.ctx.batch_of(Record(None, None, time)))
        return min(least, self.waiting.first_time)

    def flush(self) -> None:
        """Expire right records that no left record can match any more."""
        self.ctx.expire(self.store_name, self.time.now)


# --- A step of both sides at once.
#
# A left record is due when stream time has passed its time and the grace. From then on, a right record that it could match would
# be late. So its match does not depend on which later record makes it due, and may be any right record of the step.

_REASONS = ("null_value", "null_key", "late")


@dataclass(frozen=True, slots=True)
class _RightRows:
    """The right records of the step that are stored.

    Attributes:
        keys: The store keys of the step's records.
        rows: The records, in the order of the step.
        cells: The bytes of their keys.
        values: Their local values.
    """

    keys: StoreKeys
    rows: Int64s
    cells: pa.BinaryArray
    values: pa.BinaryArray


class _AsOfStep:
    """One step.

    Args:
        sides: The operators by side.
        records: The step's records; the index of their node is the side.
    """

    def __init__(self, sides: Sequence[AsOfJoin], records: JoinRecords) -> None:
        self._sides, self._left, self._records = sides, sides[LEFT], records
        self._batch, self._timestamps = records.batch, records.batch.timestamps
        self._time = np.maximum(np.maximum.accumulate(self._timestamps), self._left.time.now)
        self._grace = self._left.join.grace_ms
        self._open = records.complete & (self._timestamps + self._grace >= self._time)
        self._buffer, self._store = self._left.waiting, self._left.store

    def run(self, drop: bool = True) -> None:
        """Compute everything, then write, then forward. Without `drop`, records without a result are not counted as dropped."""
        right, new = self._right_rows(), self._new_rows()
        gone = int(self._time[-1]) - self._grace
        old = WaitingRows.of(*self._buffer.before((gone, gone)))
        old_due, new_due = (np.searchsorted(self._time, rows.times + self._grace, "right") for rows in (old, new))
        due = np.flatnonzero(new_due < len(self._time))
        without_key = self._without_key()
        joined = self._joined(old.followed_by(new.take(due)), np.concatenate([old_due, new_due[due]]), right)
        results, places = placed([joined, self._alone(without_key)])
        writes = WaitingWrites()
        writes.remove(EXPIRE, old_due, old)
        writes.add(ADD, self._open_rows(LEFT), new, new_due == len(self._time))
        changes = writes.made(self._buffer)
        self._left.time.observe(int(self._time[-1]))
        self._buffer.write(changes, new.times, (gone, gone))
        times = self._timestamps[right.rows]
        self._store.put_columns(right.cells, times, right.values, times)
        self._left.ctx.count_looked_up(
            self._looked_up + len(without_key),
            {"no_right_record": self._missing, "null_key": len(without_key)},
            self._left.state_name,
        )
        if drop:
            self._drop(without_key)
        forward_in_one([one.ctx for one in self._sides], results, self._records.nodes[places // 2])

    def _open_rows(self, side: int) -> Int64s:
        return np.flatnonzero(self._open & (self._records.nodes == side))

    def _right_rows(self) -> _RightRows:
        rows, codec = self._open_rows(RIGHT), self._store.codec
        (keys,) = store_keys(self._batch.keys, [codec])
        cells = keys.cells.take(pa.array(keys.codes[rows]))
        written = codec.cells(values_at(self._batch.values, rows))
        if None in written and len(self._batch) > 1:
            raise OneByOne("a value that is written as null deletes")
        values = codec.timestamped_column(cells, pa.array(written, pa.binary()), self._timestamps[rows])
        return _RightRows(keys, rows, cells, values)

    def _new_rows(self) -> WaitingRows:
        """The rows of the left records. All of them wait, some only within the step."""
        rows, batch, codec = self._open_rows(LEFT), self._batch, self._buffer.store.codec
        keys = pa.array(batch.keys.encoded(self._left.join.key_serde, self._buffer.name), pa.binary())
        sides, chosen = np.full(len(rows), LEFT), pa.array(batch.keys.codes[rows])
        cells = unmatched_keys(self._timestamps[rows], sides, keys.take(chosen))
        left = zip(rows.tolist(), values_at(batch.values, rows), strict=True)
        waiting = [(WaitingRecord(LEFT, value, batch.headers_of(row)),) for row, value in left]
        values = pa.array(codec.cells(waiting), pa.binary())
        codec.check_all(cells, values)
        return WaitingRows.of(cells, values)

    def _joined(self, rows: WaitingRows, at: Int64s, right: _RightRows) -> tuple[ColumnarBatch, Int64s]:
        """The results of rows that become due at the records `at`, and their places."""
        order = rows.order_at(at, rows.times)
        rows, at = rows.take(order), at[order]
        join, timestamps = self._left.join, rows.times
        due = WaitingRecords.of(rows, self._buffer, None)
        matches = self._matches(due, timestamps, right)
        there = np.array([match is not None for match in matches], np.bool_)
        self._looked_up, self._missing = len(matches), len(matches) - int(np.count_nonzero(there))
        chosen = np.arange(len(matches)) if join.is_left_join else np.flatnonzero(there)
        order_of, place = self._batch.order[at], self._batch.place
        batch = ColumnarBatch(due.keys, due.values, timestamps, order_of, due.headers, place, due.held)
        joined, places = self._called(batch.take(chosen), at[chosen], [matches[row] for row in chosen.tolist()])
        return joined, 2 * places

    def _called(self, left: ColumnarBatch, at: Int64s, matches: Iterable[Any]) -> tuple[ColumnarBatch, Int64s]:
        """The joiner's results, and the records that cause them. The policy applies to a left record on which the joiner fails."""
        joiner, values, kept = self._left.join.joiner, list[Any](), list[int]()
        for row, (key, value, match) in enumerate(zip(left.keys, left.values, matches, strict=False)):
            try:
                values.append(joiner(key, value, None if match is None else match.value))
                kept.append(row)
            except Exception as error:
                self._sides[self._records.nodes[at[row]]].ctx.refuse(left, row, error)
        if len(kept) < len(left):
            rows = np.array(kept, np.int64)
            left, at = left.take(rows), at[rows]
        return left.with_values(values), at

    def _matches(self, due: WaitingRecords, timestamps: Int64s, right: _RightRows) -> list[Any]:
        """The newest right record for each left one, with value and timestamp; None if there is none."""
        codec, earliest = self._store.codec, np.maximum(timestamps - self._left.join.within_ms, 0)
        cells = pa.array(codec.keys(due.keys), pa.binary())
        groups = pc.index_in(cells, value_set=right.keys.cells).fill_null(-1).to_numpy()[due.keys.codes]
        times = self._timestamps[right.rows]
        stored = np.flatnonzero(times >= self._store.earliest_start)
        by_time = stored[np.argsort(times[stored], kind="stable")]
        new, starts = grouped(right.keys.codes[right.rows], by_time, len(right.keys.cells))
        found = newest_at(groups.astype(np.int64), earliest, timestamps, times[new], starts)
        # The store may have a newer record. Of two right records with the same time, the step's is the later one.
        after = np.where(found >= 0, np.append(times[new], 0)[found] + 1, earliest)
        older = self._store.newest_cells(cells.take(pa.array(due.keys.codes)), after, timestamps)
        own = right.values.take(pa.array(np.append(new, 0)[found], mask=found < 0)).to_pylist()
        chosen = [stored or cell for stored, cell in zip(older, own, strict=True)]
        return [codec.read_timestamped(cell) for cell in chosen]

    def _without_key(self) -> Int64s:
        """The left records without a key, which have their results at once in a left join."""
        if not self._left.join.is_left_join:
            return np.empty(0, np.int64)
        null_key = self._batch.keys.codes == NULL_KEY
        return np.flatnonzero(null_key & self._records.has_value & (self._records.nodes == LEFT))

    def _alone(self, rows: Int64s) -> tuple[ColumnarBatch, Int64s]:
        batch = self._batch.take(rows)
        batch = batch.with_values(list(map(self._left.ctx.copy_of, batch.values)))
        joined, places = self._called(batch, rows, repeat(None))
        return joined, 2 * places + 1

    def _drop(self, without_key: Int64s) -> None:
        records = self._records
        null_key = records.has_value & (self._batch.keys.codes == NULL_KEY)
        null_key[without_key] = False
        reasons = np.select([~records.has_value, null_key, records.complete & ~self._open], range(len(_REASONS)), -1)
        rows = np.flatnonzero(reasons >= 0)
        for start, end in runs(reasons[rows], records.nodes[rows]):
            ctx = self._sides[records.nodes[rows[start]]].ctx
            ctx.drop_batch(self._batch.take(rows[start:end]), _REASONS[reasons[rows[start]]])
