"""A stream joined with itself over the columns of a step: `StreamSelfJoin` for all records at once.

Each record is taken twice, first as a left one, then as a right one, with one store for both, so that its partners are found as
those of two streams. That a record joins itself is added to the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streams.model.times import MAX_TIME
from streams.model.waiting import LEFT, RIGHT
from streams.operators.columnar import ColumnarBatch, Int64s
from streams.operators.encoded_values import null_values
from streams.operators.join.columns.pair_step import PairStep
from streams.operators.join.columns.partners import Pairs, Partners, Reach
from streams.operators.join.columns.records import Bools, JoinRecords, store_keys
from streams.operators.join.columns.stored_step import check_lengths
from streams.operators.join.stream_self_join import StreamSelfJoin


class StreamSelfJoinTogether:
    """See `BatchProcessor`.

    Args:
        operators: The only operator.
    """

    def __init__(self, operators: Sequence[StreamSelfJoin]) -> None:
        (self._operator,) = operators

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        """Join, store, forward; see `BatchProcessor`."""
        check_lengths(self._operator.join.windows)
        (batch,) = batches
        twice = batch.take(np.repeat(np.arange(len(batch)), 2))
        nodes, has_value = np.tile((LEFT, RIGHT), len(batch)), ~null_values(twice.values)
        _SelfJoinStep(self._operator, JoinRecords(twice, nodes, has_value)).run()


class _SelfJoinStep(PairStep):
    """One step.

    Args:
        operator: The operator.
        records: Each record of the step twice, as the left and as the right one.
    """

    def __init__(self, operator: StreamSelfJoin, records: JoinRecords) -> None:
        self._operator, self._is_strict = operator, operator.ctx.mode == "strict"
        timestamps, is_open = records.batch.timestamps, records.complete
        observed = timestamps if self._is_strict else np.where(is_open, timestamps, operator.time.now)
        time = np.maximum(np.maximum.accumulate(observed), operator.time.now)
        if self._is_strict:
            is_open &= timestamps + records.by_node(operator.waits) >= time
        stored = np.repeat(is_open[0::2] | is_open[1::2], 2)
        super().__init__(operator.join, [operator.store.codec] * 2, records, time, is_open, stored)
        both = is_open[0::2] & is_open[1::2]
        self._meets_itself = np.flatnonzero(both & self._in_its_own_reach()) * 2 + 1

    def run(self) -> None:
        """Compute everything, then write, then forward."""
        operator = self._operator
        (keys,) = store_keys(self.batch.keys, self.codecs[:1])
        partners = Partners([operator.store], [keys], self.timestamps, [MAX_TIME])
        # Once each, where both of it have looked.
        kept = self.stored & (self.records.nodes == RIGHT)
        pairs = self._with_themselves(partners.find(kept, np.zeros(len(kept), np.int64), self._reach()))
        results = self.results(pairs, operator.buffer)
        cells, times, values = self.rows_of(kept, RIGHT, keys)
        operator.time.observe(int(self.time[-1]))
        if len(times):
            operator.store.put_columns(cells, times, values)
            operator.kept(int(times.max()))
        results.write()
        self._drop(results.without_key)
        operator.ctx.forward_batch(results.batch)

    def partners_of(self, pairs: Pairs) -> list[Any]:
        """See `PairStep`. A record meets itself as it is, not as the store would give it."""
        found = super().partners_of(pairs)
        for at in np.flatnonzero(pairs.partners == pairs.rows).tolist():
            found[at] = self.batch.values[int(pairs.rows[at])]
        return found

    def alone_without_key(self) -> Int64s:
        """See `PairStep`. In compat mode, all joins of a stream with itself are inner ones."""
        return super().alone_without_key() if self._is_strict else np.empty(0, np.int64)

    def may_be_alone(self, pairs: Pairs) -> tuple[Bools, Pairs]:
        """See `PairStep`. A partner in the step has been met as a record of the other side."""
        alone = self.is_open.copy()
        alone[self._meets_itself - 1] = False
        met_as_left = (pairs.partners >= 0) & (self.records.nodes[pairs.rows] == RIGHT)
        return alone, replace(pairs, partners=pairs.partners - met_as_left)

    def _in_its_own_reach(self) -> Bools:
        """Whether each record joins itself, if it is open on both sides."""
        windows = self.join.windows
        if self._is_strict:
            return np.full(len(self.records) // 2, min(windows.before_ms, windows.after_ms) >= 0)
        in_reach: Bools = (self.timestamps > self.time - self._operator.retention_ms + 1)[0::2]
        return in_reach

    def _reach(self) -> Reach:
        """Where open records look for partners: the times that `StreamSelfJoin` scans for each of them."""
        back, ahead = zip(*(self.join.reach(side) for side in (RIGHT, LEFT)), strict=True)
        lower = self.timestamps - self.records.by_node(back)
        upper = self.timestamps + self.records.by_node(ahead)
        if self._is_strict:
            right, left = self._operator.waits
            oldest = self.time - self.records.by_node((left, right))
        else:
            upper, oldest = np.maximum(upper, 0), self._newest_before() - self._operator.retention_ms + 1
        stores = np.zeros(len(self.records), np.int64)
        return Reach(self.is_open, stores, np.maximum(np.maximum(lower, oldest), 0), upper)

    def _newest_before(self) -> Int64s:
        """The newest time in the store before each record."""
        first = self._operator.newest
        newest = np.maximum.accumulate(np.where(self.is_open, self.timestamps, first)[0::2])
        before: Int64s = np.repeat(np.append(first, newest[:-1]), 2)
        return np.maximum(before, first)

    def _with_themselves(self, pairs: Pairs) -> Pairs:
        """The pairs, and behind the earlier records of its own time each record that meets itself, as a right one."""
        rows = np.append(pairs.rows, self._meets_itself)
        partners = np.append(pairs.partners, self._meets_itself)
        times = np.append(pairs.times, self.timestamps[self._meets_itself])
        order = np.lexsort((times, rows))
        return replace(pairs, rows=rows[order], partners=partners[order], times=times[order])

    def _drop(self, without_key: Int64s) -> None:
        """Drop the records that give nothing, in order: as each of both, in compat mode once."""
        dropped: Bools = ~self.is_open
        dropped[without_key] = False
        if not self._is_strict:
            dropped[1::2] = False
        for rows, reason in self.drops(dropped, np.zeros(len(dropped), np.int64)):
            self._operator.ctx.drop_batch(self.batch.take(rows), reason)
