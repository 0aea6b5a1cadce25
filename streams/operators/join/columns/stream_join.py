"""A stream-stream join over the columns of a step: `StreamStreamJoin` for both sides at once.

Stream time at a record is a running maximum, so which records are open is known for all of them at once, and the pairs are found
by sorting (`partners`). Joiners are called once for each pair, in order. A partner is decoded for each pair from the bytes of its
store, also within the step, because that is what the one-by-one way gives to a joiner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streams.model.waiting import LEFT, RIGHT
from streams.operators.columnar import ColumnarBatch, Int64s
from streams.operators.join.columns.pair_step import PairStep
from streams.operators.join.columns.partners import Partners, Reach
from streams.operators.join.columns.records import Bools, JoinRecords, store_keys
from streams.operators.join.columns.stored_step import check_lengths, forward_in_one
from streams.operators.join.stream_stream_join import StreamStreamJoin


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
        check_lengths(self._sides[LEFT].join.windows)
        records = JoinRecords.of([batches[at] for at in self._order])
        _JoinStep(self._sides, records).run()


class _JoinStep(PairStep):
    """One step.

    Args:
        sides: The operators by side.
        records: The step's records; the index of their node is the side.
    """

    def __init__(self, sides: Sequence[StreamStreamJoin], records: JoinRecords) -> None:
        self._sides, self._is_strict = sides, sides[LEFT].is_strict
        timestamps = records.batch.timestamps
        time = np.maximum(np.maximum.accumulate(timestamps), sides[LEFT].time.now)
        is_open = records.complete
        if self._is_strict:
            is_open &= timestamps >= records.by_node([one.oldest_open(time) for one in sides])
        super().__init__(sides[LEFT].join, [one.store.codec for one in sides], records, time, is_open, is_open)

    def run(self) -> None:
        """Compute everything, then write, then forward."""
        stores = [one.store for one in self._sides]
        keys = store_keys(self.batch.keys, self.codecs)
        latest = [one.latest_in(one.side.store) for one in self._sides]
        partners = Partners(stores, keys, self.timestamps, latest)
        results = self.results(partners.find(self.is_open, self.records.nodes, self._reach()), self._sides[LEFT].buffer)
        puts = [self.rows_of(self.is_open & (self.records.nodes == side), side, keys[side]) for side in (RIGHT, LEFT)]
        self._write(puts)
        results.write()
        self._drop(results.without_key)
        self._forward(results.batch, results.places)

    def _reach(self) -> Reach:
        """Where open records look for partners: the times that `StreamStreamJoin` scans for each of them."""
        sides = self._sides
        lower = self.timestamps - self.records.by_node([one.back_ms for one in sides])
        upper = self.timestamps + self.records.by_node([one.ahead_ms for one in sides])
        if self._is_strict:
            oldest = self.records.by_node([one.oldest_partner(self.time) for one in sides])
        else:
            upper = np.maximum(upper, 0)
            oldest = self.records.by_node([one.oldest_visible(self._newest_in(one.side.other)) for one in sides])
        return Reach(self.is_open, 1 - self.records.nodes, np.maximum(np.maximum(lower, oldest), 0), upper)

    def _newest_in(self, side: int) -> Int64s:
        """The newest time in the store of a side as of each record."""
        operator = self._sides[side]
        kept = self.is_open & (self.records.nodes == side)
        newest: Int64s = np.maximum.accumulate(np.where(kept, self.timestamps, operator.newest_in(operator.side.store)))
        return newest

    def _write(self, puts: Sequence[tuple[pa.BinaryArray, Int64s, pa.BinaryArray]]) -> None:
        self._sides[LEFT].time.observe(int(self.time[-1]))
        for operator, (keys, times, values) in zip(self._sides, puts, strict=True):
            if len(times):
                operator.store.put_columns(keys, times, values)
                operator.kept(int(times.max()))

    def _drop(self, without_key: Int64s) -> None:
        """Drop the records that give nothing, in order."""
        dropped: Bools = ~self.is_open
        dropped[without_key] = False
        for rows, reason in self.drops(dropped, self.records.nodes):
            self._sides[self.records.nodes[rows[0]]].ctx.drop_batch(self.batch.take(rows), reason)

    def _forward(self, results: ColumnarBatch, places: Int64s) -> None:
        """Forward the results of both sides in one order, as the left side's; each side counts its own."""
        ctxs = [one.ctx for one in self._sides]
        forward_in_one(ctxs, results, self.records.nodes[places // 2])
