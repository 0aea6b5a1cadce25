"""A stream-stream join over the columns of a step: `StreamStreamJoin` for both sides at once.

Stream time at a record is a running maximum, so which records are open is known for all of them at once, and the pairs are found
by sorting (`partners`). Joiners are called once for each pair, in order. A partner is decoded for each pair from the bytes of its
store, also within the step, because that is what the one-by-one way gives to a joiner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from state.kafka.columns import binary_column
from streams.model.waiting import LEFT, RIGHT
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, OneByOne
from streams.operators.join.columns.partners import Pairs, Partners, Reach
from streams.operators.join.columns.records import Bools, JoinRecords, StoreKeys, placed, read_by, runs, store_keys
from streams.operators.join.columns.waiting import JoinStep, WaitingStep
from streams.operators.join.columns.waiting_compat import CompatWaitingStep
from streams.operators.join.columns.waiting_strict import StrictWaitingStep
from streams.operators.join.outer_join_buffer import CompatOuterJoinBuffer
from streams.operators.join.stream_stream_join import StreamStreamJoin

_FARTHEST_MS = 2**60
"""Windows up to this length, about 36 million years, leave room for sums of 64 bits."""


class StreamJoinTogether:
    """Both sides of a stream-stream join, for a step's records.

    Args:
        operators: The two sides.
    """

    def __init__(self, operators: Sequence[StreamStreamJoin]) -> None:
        # By side: RIGHT is 0, LEFT is 1.
        self._sides = sorted(operators, key=lambda one: one.side.side)
        self._order = [operators.index(one) for one in self._sides]

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        """Join, store, forward; see `BatchProcessor`."""
        left = self._sides[LEFT]
        if max(abs(left.back_ms), abs(left.ahead_ms), left.grace_ms) > _FARTHEST_MS:
            raise OneByOne("the windows are too long for sums of 64 bits")
        records = JoinRecords.of([batches[at] for at in self._order])
        _JoinStep(self._sides, records).run()


class _JoinStep:
    """One step.

    Args:
        sides: The operators by side.
        records: The step's records; the index of their node is the side.
    """

    def __init__(self, sides: Sequence[StreamStreamJoin], records: JoinRecords) -> None:
        self._sides = sides
        self._records = records
        self._batch = records.batch
        self._timestamps = records.batch.timestamps
        self._is_left = records.nodes == LEFT
        self._time = np.maximum(np.maximum.accumulate(self._timestamps), sides[LEFT].time.now)
        self._complete = records.complete
        self._open = self._complete
        if sides[LEFT].is_strict:
            oldest_open = self._by_side([one.oldest_open(self._time) for one in sides])
            self._open = self._complete & (self._timestamps >= oldest_open)
        self._cells = self._written(self._open)
        self._column = binary_column(self._cells)

    def run(self) -> None:
        """Compute everything, then write, then forward."""
        keys = store_keys(self._batch.keys, [one.store.codec for one in self._sides])
        latest = [one.latest_in(one.side.store) for one in self._sides]
        partners = Partners([one.store for one in self._sides], keys, self._timestamps, latest)
        pairs = partners.find(self._open, self._records.nodes, self._reach())
        results = [(self._joined(pairs), 2 * pairs.rows + 1)]
        at_once, waiting = self._alone_without_key(), self._waiting(pairs)
        without_key = at_once
        if waiting is not None:
            due, at = waiting.results()
            at_once = np.sort(np.concatenate([without_key, waiting.at_once]))
            results += [(due, 2 * at), (self._alone(at_once), 2 * at_once + 1)]
        self._check_unchanged(np.concatenate([pairs.rows, at_once]))
        puts = [self._rows_of(side, keys[side]) for side in (RIGHT, LEFT)]
        self._write(puts)
        if waiting is not None:
            waiting.write()
        self._drop(without_key)
        self._forward(*placed(results))

    def _by_side(self, columns: Sequence[Int64s | int]) -> Int64s:
        return np.where(self._is_left, columns[LEFT], columns[RIGHT])

    def _reach(self) -> Reach:
        """Where open records look for partners: the times that `StreamStreamJoin` scans for each of them."""
        sides = self._sides
        lower = self._timestamps - self._by_side([one.back_ms for one in sides])
        upper = self._timestamps + self._by_side([one.ahead_ms for one in sides])
        if sides[LEFT].is_strict:
            oldest = self._by_side([one.oldest_partner(self._time) for one in sides])
        else:
            upper = np.maximum(upper, 0)
            oldest = self._by_side([one.oldest_visible(self._newest_in(one.side.other)) for one in sides])
        return Reach(self._open, 1 - self._records.nodes, np.maximum(np.maximum(lower, oldest), 0), upper)

    def _newest_in(self, side: int) -> Int64s:
        """The newest time in the store of a side as of each record."""
        operator = self._sides[side]
        kept = self._open & (self._records.nodes == side)
        newest: Int64s = np.maximum.accumulate(
            np.where(kept, self._timestamps, operator.newest_in(operator.side.store))
        )
        return newest

    def _joined(self, pairs: Pairs) -> ColumnarBatch:
        """The results of all pairs."""
        batch, joiner, cells = self._batch, self._sides[LEFT].join.joiner, self._cells
        values, objects = batch.values, batch.keys.objects
        found = zip(pairs.partners.tolist(), pairs.stored_cells, strict=True)
        data = [cells[partner] if cell is None else cell for partner, cell in found]
        from_left = self._is_left[pairs.rows]
        others = read_by(1 - self._records.nodes[pairs.rows], [one.store.codec for one in self._sides], data)
        columns = (pairs.rows.tolist(), batch.keys.codes[pairs.rows].tolist(), others, from_left.tolist())
        results = [
            joiner(objects[key], values[row], other) if is_left else joiner(objects[key], other, values[row])
            for row, key, other, is_left in zip(*columns, strict=True)
        ]
        return self._results(pairs.rows, results, np.maximum(self._timestamps[pairs.rows], pairs.times))

    def _results(self, rows: Int64s, values: list[Any], timestamps: Int64s) -> ColumnarBatch:
        """Results of these rows, with their keys and headers."""
        batch, headers = self._batch, self._batch.headers
        return replace(
            batch,
            keys=batch.keys.take(rows),
            values=values,
            timestamps=timestamps,
            order=batch.order[rows],
            headers=None if headers is None else [headers[row] for row in rows.tolist()],
        )

    def _written(self, chosen: Bools) -> list[bytes | None]:
        """The bytes of some records' values in their stores; None for the others."""
        cells: list[bytes | None] = [None] * len(chosen)
        codecs = [one.store.codec for one in self._sides]
        alike = codecs[LEFT].writes_as(codecs[RIGHT])
        for side, codec in enumerate(codecs):
            rows = np.flatnonzero(chosen & (alike | (self._records.nodes == side))).tolist()
            written = codec.cells([self._batch.values[row] for row in rows])
            for row, cell in zip(rows, written, strict=True):
                if cell is None:
                    raise OneByOne("a value that is written as null is not stored")
                cells[row] = cell
            if alike:
                break
        return cells

    def _check_unchanged(self, rows: Int64s) -> None:
        """Leave joiners that change their arguments to the one-by-one way, where each result is written before the next joiner."""
        if self._sides[LEFT].join.keeps_values:
            return
        joined = np.zeros(len(self._records), np.bool_)
        joined[rows] = True
        joined &= self._open
        written, before = self._written(joined), self._cells
        if any(written[row] != before[row] for row in np.flatnonzero(joined).tolist()):
            raise OneByOne("the joiner changes its arguments")

    def _alone_without_key(self) -> Int64s:
        """The records of outer sides with a value, but no key, which give their result at once."""
        outer = self._by_side([one.join.is_outer(one.side.side) for one in self._sides])
        return np.flatnonzero((self._batch.keys.codes == NULL_KEY) & self._records.has_value & (outer != 0))

    def _waiting(self, pairs: Pairs) -> WaitingStep | None:
        """The waiting records; None for an inner join."""
        buffer = self._sides[LEFT].buffer
        if buffer is None:
            return None
        step = JoinStep(self._sides, self._records, self._time, self._open, pairs, self._column)
        if isinstance(buffer, CompatOuterJoinBuffer):
            return CompatWaitingStep(step, buffer)
        return StrictWaitingStep(step, buffer)

    def _alone(self, rows: Int64s) -> ColumnarBatch:
        """The results of records that give theirs at once, without a partner."""
        join, batch = self._sides[LEFT].join, self._batch
        sides, keys = self._records.nodes[rows].tolist(), batch.keys.take(rows)
        columns = zip(sides, keys, (batch.values[row] for row in rows.tolist()), strict=True)
        results = [join.joined(side, key, value, None) for side, key, value in columns]
        return self._results(rows, results, self._timestamps[rows])

    def _rows_of(self, side: int, keys: StoreKeys) -> tuple[pa.BinaryArray, Int64s, pa.BinaryArray]:
        """The rows to put into the store of a side: keys, times, values."""
        rows = np.flatnonzero(self._open & (self._records.nodes == side))
        values = self._column.take(pa.array(rows))
        key_cells = keys.cells.take(pa.array(keys.codes[rows]))
        self._sides[side].store.codec.check_all(key_cells, values)
        return key_cells, self._timestamps[rows], values

    def _write(self, puts: Sequence[tuple[pa.BinaryArray, Int64s, pa.BinaryArray]]) -> None:
        self._sides[LEFT].time.observe(int(self._time[-1]))
        for operator, (keys, times, values) in zip(self._sides, puts, strict=True):
            if len(times):
                operator.store.put_columns(keys, times, values)
                operator.kept(int(times.max()))

    def _drop(self, without_key: Int64s) -> None:
        """Drop the records that give nothing, in order."""
        dropped: Bools = ~self._open
        dropped[without_key] = False
        rows = np.flatnonzero(dropped)
        # As in `StreamStreamJoin`: a record without a key is one without a value only if it has a key.
        reasons = np.where(self._complete[rows], 0, np.where(self._batch.keys.codes[rows] == NULL_KEY, 1, 2))
        sides = self._records.nodes[rows]
        for start, end in runs(reasons, sides):
            reason = ("late", "null_key", "null_value")[reasons[start]]
            self._sides[sides[start]].ctx.drop_batch(self._batch.take(rows[start:end]), reason)

    def _forward(self, results: ColumnarBatch, places: Int64s) -> None:
        """Forward the results of both sides in one order, as the left side's; each side counts its own."""
        if not len(results):
            return
        from_right = len(places) - int(self._is_left[places // 2].sum())
        self._sides[RIGHT].ctx.count_forwarded(from_right)
        self._sides[LEFT].ctx.count_forwarded(-from_right)
        self._sides[LEFT].ctx.forward_batch(results)
