"""Stream-stream joins over the columns of a step: of two streams, and of a stream with itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streams.model.record import LEFT, MAX_TIME, RIGHT
from streams.operators.columnar import (
    NULL_KEY,
    ColumnarBatch,
    EncodedValues,
    Int64s,
    null_values,
    take_values,
    value_column,
    values_at,
)
from streams.operators.join.columns.joined_objects import JoinedObjects
from streams.operators.join.columns.pairs import (
    Bools,
    JoinRecords,
    Pairs,
    Partners,
    Reach,
    StoredStep,
    check_lengths,
    forward_in_one,
    placed,
    store_keys,
)
from streams.operators.join.columns.waiting import CompatWaitingStep, JoinStep, StrictWaitingStep, WaitingStep
from streams.operators.join.stream_join import (
    CompatOuterJoinBuffer,
    OuterJoinBuffer,
    StreamJoin,
    StreamSelfJoin,
    StreamStreamJoin,
)
from streams.operators.stores.codec import Codec
from streams.serdes.json import JsonSerde, is_plain_json

# --- What the joins of streams over columns have in common: the results of pairs and of records without a partner.


@dataclass(frozen=True, slots=True)
class StepResults:
    """The results of a step.

    Attributes:
        batch: The results in order.
        places: int64[m], the record that each result comes from, times two, plus one if it is a result of this very record.
        without_key: The records without a key that have given their result at once.
        write: Writes what has changed of the waiting records.
    """

    batch: ColumnarBatch
    places: Int64s
    without_key: Int64s
    write: Callable[[], None]


class PairStep(StoredStep):
    """One step.

    Args:
        join: The join.
        codecs: The codecs of the stores by side.
        records: The records; the index of their node is the side.
        time: int64[n], stream time at each record.
        is_open: Which records are processed.
        stored: Which records are stored.
    """

    def __init__(
        self,
        join: StreamJoin,
        codecs: Sequence[Codec],
        records: JoinRecords,
        time: Int64s,
        is_open: Bools,
        stored: Bools,
    ) -> None:
        super().__init__(codecs, records, time, is_open, stored, join.keeps_values)
        self.join = join
        self.is_left = records.nodes == LEFT
        self._objects = self._joined_objects()

    def results(self, pairs: Pairs, buffer: OuterJoinBuffer | None) -> StepResults:
        """The results of all pairs, and of records without a partner if there is a buffer for these."""
        results = [(self._joined(pairs), 2 * pairs.rows + 1)]
        without_key = self.alone_without_key()
        if buffer is None:
            self.check_unchanged(pairs.rows)
            return StepResults(*placed(results), without_key, lambda: None)
        waiting = self._waiting(pairs, buffer)
        due, at = waiting.results()
        at_once = np.sort(np.concatenate([without_key, waiting.at_once]))
        results += [(due, 2 * at), (self._alone(at_once), 2 * at_once + 1)]
        self.check_unchanged(np.concatenate([pairs.rows, at_once]))
        return StepResults(*placed(results), without_key, waiting.write)

    def may_be_alone(self, pairs: Pairs) -> tuple[Bools, Pairs]:
        """The open records that may be without a partner, and the pairs with the partners that may be waiting."""
        return self.is_open, pairs

    def _joined_objects(self) -> JoinedObjects | None:
        """Makes results of the bytes of values; None where these do not say all of the values, or results have to be computed."""
        values, (first, second) = self.batch.values, self.codecs
        if not (isinstance(values, EncodedValues) and is_plain_json(values.serde) and values.is_untouched):
            return None
        return JoinedObjects.of(self.join.fields) if first.writes_as(second) else None

    def _waiting(self, pairs: Pairs, buffer: OuterJoinBuffer) -> WaitingStep:
        may_be_alone, met = self.may_be_alone(pairs)
        step = JoinStep(self.join, self.codecs, self.records, self.time, may_be_alone, met, self.column, self._objects)
        return (
            CompatWaitingStep(step, buffer)
            if isinstance(buffer, CompatOuterJoinBuffer)
            else StrictWaitingStep(step, buffer)
        )

    def _joined(self, pairs: Pairs) -> ColumnarBatch:
        results = self._called(pairs) if self._objects is None else self._made(pairs, self._objects)
        return self.of_rows(pairs.rows, results, np.maximum(self.timestamps[pairs.rows], pairs.times))

    def _called(self, pairs: Pairs) -> list[Any]:
        """The results that the joiner gives for objects."""
        joiner, keys, rows = self.join.joiner, self.batch.keys, pairs.rows
        values, objects, from_left = list(self.batch.values), keys.objects, self.is_left[rows]
        columns = (rows.tolist(), keys.codes[rows].tolist(), self.partners_of(pairs), from_left.tolist())
        return [
            joiner(objects[key], values[row], other) if is_left else joiner(objects[key], other, values[row])
            for row, key, other, is_left in zip(*columns, strict=True)
        ]

    def _made(self, pairs: Pairs, objects: JoinedObjects) -> EncodedValues:
        """The results made of the bytes of values."""
        cells, partners = self.cells_of(pairs)
        is_left, certain = self.is_left[pairs.rows], np.arange(len(cells)) < len(self.records)
        left, right = np.where(is_left, pairs.rows, partners), np.where(is_left, partners, pairs.rows)
        return objects.of_pairs(cells, left, right, certain)

    def partners_of(self, pairs: Pairs) -> list[Any]:
        """The partner's value of each pair."""
        return self.values_from(pairs, 1 - self.records.nodes[pairs.rows])

    def alone_without_key(self) -> Int64s:
        """The records of outer sides with a value, but no key, which give their result at once."""
        outer = self.records.by_node([self.join.is_outer(side) for side in range(2)])
        return np.flatnonzero((self.batch.keys.codes == NULL_KEY) & self.records.has_value & (outer != 0))

    def _alone(self, rows: Int64s) -> ColumnarBatch:
        """The results of records that give theirs at once, without a partner."""
        if self._objects is None:
            sides, keys = self.records.nodes[rows].tolist(), self.batch.keys.take(rows)
            columns = zip(sides, keys, values_at(self.batch.values, rows), strict=True)
            results: Sequence[Any] = [self.join.joined(side, key, value, None) for side, key, value in columns]
        else:
            # Records without a key have no bytes in a store.
            cells = value_column(take_values(self.batch.values, rows), JsonSerde(), "")
            results = self._objects.of_one_side(cells, self.is_left[rows], certain=True)
        return self.of_rows(rows, results, self.timestamps[rows])


# --- A stream-stream join over the columns of a step: `StreamStreamJoin` for both sides at once.
#
# Stream time at a record is a running maximum, so which records are open is known for all of them at once, and the pairs are found
# by sorting (`partners`). Joiners are called once for each pair, in order. A partner is decoded for each pair from the bytes of its
# store, also within the step, because that is what the one-by-one way gives to a joiner.


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


# --- A stream joined with itself over the columns of a step: `StreamSelfJoin` for all records at once.
#
# Each record is taken twice, first as a left one, then as a right one, with one store for both, so that its partners are found as
# those of two streams. That a record joins itself is added to the pairs.


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
        found = super().partners_of(pairs)
        for at in np.flatnonzero(pairs.partners == pairs.rows).tolist():
            found[at] = self.batch.values[int(pairs.rows[at])]
        return found

    def alone_without_key(self) -> Int64s:
        return super().alone_without_key() if self._is_strict else np.empty(0, np.int64)

    def may_be_alone(self, pairs: Pairs) -> tuple[Bools, Pairs]:
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
