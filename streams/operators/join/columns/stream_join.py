"""Stream-stream joins over the columns of a step: of two streams, and of a stream with itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from streams.model.record import LEFT, MAX_TIME, NO_TIME, RIGHT, Headers, Record
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
    JoinSide,
    OuterJoinBuffer,
    StreamJoin,
    StrictOuterJoinBuffer,
    waits_of,
)
from streams.operators.operator import Operator, OperatorContext
from streams.operators.stores.codec import Codec
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import SharedStreamTime, StreamTime
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


# --- Two streams joined within a time window (Kafka Streams: `KStreamKStreamJoin`); one instance per side.
#
# Strict mode: T is the largest timestamp that reached the join from either side, null keys and values included. A left
# record at l is open while l + max(0, after) + grace >= T, a right one at r while r + max(0, before) + grace >= T. A record
# that is not open on arrival is late and gives nothing; a pair in the window is emitted if both are open when the later one
# arrives; a record of an outer side without a partner gives one result when it ceases to be open. Within grace, the result
# therefore does not depend on the order of arrival. Compat mode: no record is late; a match is limited by the other store's
# retention (before + after + grace) relative to that store's own newest record, and range queries are clamped at 0, as in
# Kafka Streams; for compat mode's records without a partner see `outer_join_buffer`.

Times = TypeVar("Times", int, Int64s)


class StreamStreamJoin(Operator):
    """One side of a join.

    Args:
        join: The parameters that both sides share.
        buffer: Key-value store of the records without a partner (`serdes.waiting`); None: an inner join.
    """

    def __init__(self, join: StreamJoin, side: JoinSide, buffer: str | None = None) -> None:
        self.join = join
        self.side = side
        self.buffer_name = buffer
        # From this side's point of view, a partner is in [t - back, t + ahead].
        self.back_ms, self.ahead_ms = join.reach(side.side)
        self.grace_ms = join.windows.grace_ms
        self.retention_ms = join.windows.size_ms + join.windows.grace_ms

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and the shared stream time."""
        super().init(ctx)
        self.store: TypedWindowStore = ctx.store(self.side.store)
        self.other_store: TypedWindowStore = ctx.store(self.side.other_store)
        self.state = ctx.shared_state(self.side.state_name)
        self.time = SharedStreamTime(self.state, sides=2)
        self.is_strict = ctx.mode == "strict"
        self.buffer = self._open_buffer(ctx)

    def _open_buffer(self, ctx: OperatorContext) -> OuterJoinBuffer | None:
        if self.buffer_name is None:
            return None
        rows = TimeOrderedBuffer(ctx.store(self.buffer_name), self.join.key_serde, self.buffer_name, self.state)
        waits = waits_of(self.join.windows, self.is_strict)
        if self.is_strict:
            return StrictOuterJoinBuffer(rows, waits, self._emit_alone, ctx.attempt)
        interval_ms = ctx.emit_interval_ms
        return CompatOuterJoinBuffer(rows, waits, self._emit_alone, self.grace_ms, self.state, ctx.now_ms, interval_ms)

    def lead(self, group: Sequence[StreamStreamJoin]) -> None:
        # By side: RIGHT is 0, LEFT is 1.
        self._sides = sorted(group, key=lambda one: one.side.side)
        self._side_of = np.array([one.side.side for one in group])

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Join, store, forward, for both sides."""
        check_lengths(self.join.windows)
        _JoinStep(self._sides, JoinRecords.of(batch, self._side_of)).run()

    def process(self, record: Record) -> None:
        """Join with the other side's records, then store the record for the other side."""
        time = self.time.observe(record.timestamp)
        if self.is_strict and self.buffer is not None:
            self.buffer.expire(time, self.side.side, record)
        if record.key is None or record.value is None:
            self._without_key_or_value(record)
            return
        if self.is_strict and record.timestamp < self.oldest_open(time):
            self.ctx.drop(record, "late")
            return
        if not self.is_strict and self.buffer is not None:
            self.buffer.expire(time, self.side.side, record)
        found = self._join(record, time)
        if not found and self.buffer is not None and self.join.is_outer(self.side.side):
            self.buffer.add(time, self.side.side, record)
        self._keep(record)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance the stream time of both sides: emit the results of records that no longer wait."""
        least = self.time.common_limit(limit)
        if least is None:
            return limit
        time = self.time.advance(elapsed_ms, least)
        if self.buffer is None:
            return least
        for side in (LEFT, RIGHT):
            self.buffer.expire(time, side, Record(None, None, time))
        return min(least, self.buffer.oldest)

    def flush(self) -> None:
        """Expire rows that no record can match any more."""
        self.ctx.expire(self.side.store, self.time.now if self.is_strict else self.newest_in(self.side.store))

    def _join(self, record: Record, time: int) -> bool:
        """Emit the pairs, oldest partner first, and return whether there were any."""
        joined_at = None
        side, buffer = self.side, self.buffer if self.join.is_outer(self.side.other) else None
        for timestamp, other in self._partners(record, time):
            if buffer is not None and timestamp != joined_at:
                buffer.joined(side.other, record.key, timestamp)
            joined_at = timestamp
            joined = self.join.joined(side.side, record.key, record.value, other)
            self.ctx.forward(Record(record.key, joined, max(timestamp, record.timestamp), record.headers))
        return joined_at is not None

    def _without_key_or_value(self, record: Record) -> None:
        """On an outer side, a value without a key gives its result at once (KIP-962)."""
        if record.value is not None and self.join.is_outer(self.side.side):
            self._emit_alone(self.side.side, None, record.value, record.timestamp, record.headers)
        else:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")

    def _emit_alone(self, side: int, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.ctx.forward(Record(key, self.join.joined(side, key, value, None), timestamp, headers))

    def _partners(self, record: Record, time: int) -> Iterator[tuple[int, Any]]:
        earliest, latest = record.timestamp - self.back_ms, record.timestamp + self.ahead_ms
        if self.is_strict:
            return self.other_store.fetch_range(record.key, max(0, earliest, self.oldest_partner(time)), latest)
        oldest = self.oldest_visible(self.newest_in(self.side.other_store))
        return self.other_store.fetch_range(record.key, max(0, earliest, oldest), max(0, latest))

    # The formulas of the module's docstring, for a time or an array of times.

    def oldest_open(self, time: Times) -> Times:
        """In strict mode, the time of the oldest record of this side that is open at a stream time."""
        return time - max(0, self.ahead_ms) - self.grace_ms

    def oldest_partner(self, time: Times) -> Times:
        """In strict mode, the time of the oldest record of the other side that is open at a stream time."""
        return time - max(0, self.back_ms) - self.grace_ms

    def oldest_visible(self, newest: Times) -> Times:
        """In compat mode, the time of the oldest visible row of the other store, whose newest row has this time."""
        return newest - self.retention_ms + 1

    def _keep(self, record: Record) -> None:
        self.kept(record.timestamp)
        self.store.put(record.key, record.timestamp, record.value)

    def latest_in(self, store: str) -> int:
        """A time that no row in a store is newer than, so that later ones need not be looked for."""
        # A store without this entry was written by a program of another form.
        latest: int = self.state.get(store, MAX_TIME)
        return latest

    def kept(self, timestamp: int) -> None:
        """Note the newest time in this side's store, which compat mode uses."""
        self.state[self.side.store] = max(self.newest_in(self.side.store), timestamp)

    def newest_in(self, store: str) -> int:
        newest: int = self.state.get(store, NO_TIME)
        return newest


# --- A stream-stream join over the columns of a step: `StreamStreamJoin` for both sides at once.
#
# Stream time at a record is a running maximum, so which records are open is known for all of them at once, and the pairs are found
# by sorting (`partners`). Joiners are called once for each pair, in order. A partner is decoded for each pair from the bytes of its
# store, also within the step, because that is what the one-by-one way gives to a joiner.


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


# --- A stream joined with itself, over one store (Kafka Streams: `KStreamKStreamSelfJoin`, KIP-862).
#
# Strict mode gives exactly the results of two nodes with a store each (`stream_stream_join`): each record is first a left one,
# then a right one, and joins itself if its own time is within the window. Compat mode gives the results of Kafka Streams 4.3
# with
# `topology.optimization=all`, including its flaws: left and outer joins become inner ones, and a record joins itself whatever
# the window, unless it is older than the store's retention.

_NEWEST = "newest"


class StreamSelfJoin(Operator):
    """Both sides of a self-join.

    Args:
        join: The parameters of the join.
        store: Window store of the records, with duplicates.
        buffer: Key-value store of the records without a partner; None: an inner join.
    """

    def __init__(self, join: StreamJoin, store: str, buffer: str | None = None) -> None:
        self.join = join
        self.store_name = store
        self.buffer_name = buffer
        self.retention_ms = join.windows.size_ms + join.windows.grace_ms

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self.store: TypedWindowStore = ctx.store(self.store_name)
        self.time = StreamTime(ctx.state)
        self.waits = waits_of(self.join.windows, strict=True)
        self.buffer: StrictOuterJoinBuffer | None = None
        if self.buffer_name is not None and ctx.mode == "strict":
            rows = TimeOrderedBuffer(ctx.store(self.buffer_name), self.join.key_serde, self.buffer_name, ctx.state)
            self.buffer = StrictOuterJoinBuffer(rows, self.waits, self._emit_alone, ctx.attempt)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Join, store, forward."""
        check_lengths(self.join.windows)
        twice = batch.take(np.repeat(np.arange(len(batch)), 2))
        nodes, has_value = np.tile((LEFT, RIGHT), len(batch)), ~null_values(twice.values)
        _SelfJoinStep(self, JoinRecords(twice, nodes, has_value)).run()

    def process(self, record: Record) -> None:
        """Join the record with earlier ones and with itself, then store it."""
        if self.ctx.mode == "strict":
            self._process_strict(record, self.time.observe(record.timestamp))
        elif record.key is None or record.value is None:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")
        else:
            self._process_compat(record, self.time.observe(record.timestamp))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time: emit the results of records that no longer wait."""
        time = self.time.advance(elapsed_ms, limit)
        if self.buffer is None:
            return limit
        self.buffer.expire(time, LEFT, Record(None, None, time))
        return min(limit, self.buffer.oldest)

    def flush(self) -> None:
        """Expire rows that no record can match any more."""
        self.ctx.expire(self.store_name, self.time.now)

    def _process_strict(self, record: Record, time: int) -> None:
        if self.buffer is not None:
            self.buffer.expire(time, LEFT, record)
        is_open = {side: record.timestamp + self.waits[side] >= time for side in (LEFT, RIGHT)}
        meets_itself = all(is_open.values()) and min(self.join.windows.before_ms, self.join.windows.after_ms) >= 0
        for side in (LEFT, RIGHT):
            if record.key is None or record.value is None:
                self._without_key_or_value(side, record)
            elif not is_open[side]:
                self.ctx.drop(record, "late")
            else:
                found = self._join_strict(side, record, time, meets_itself)
                if not found and self.buffer is not None and self.join.is_outer(side):
                    self.buffer.add(time, side, record)
        if record.key is not None and record.value is not None and any(is_open.values()):
            self.store.put(record.key, record.timestamp, record.value)

    def _join_strict(self, side: int, record: Record, time: int, meets_itself: bool) -> bool:
        """Join with earlier records of the other side and, for the right side, with itself; whether there was a match."""
        back_ms, ahead_ms = self.join.reach(side)
        other_side = RIGHT if side == LEFT else LEFT
        earliest = max(0, record.timestamp - back_ms, time - self.waits[other_side])
        found = meets_itself
        itself_due = meets_itself and side == RIGHT
        for timestamp, other in self.store.fetch_range(record.key, earliest, record.timestamp + ahead_ms):
            if itself_due and timestamp > record.timestamp:
                self._emit(record, LEFT, record.value, record.timestamp)
                itself_due = False
            found = True
            if self.buffer is not None and self.join.is_outer(other_side):
                self.buffer.joined(other_side, record.key, timestamp)
            self._emit(record, side, other, timestamp)
        if itself_due:
            self._emit(record, LEFT, record.value, record.timestamp)
        return found

    def _process_compat(self, record: Record, time: int) -> None:
        oldest = self.newest - self.retention_ms
        itself_due = record.timestamp > time - self.retention_ms + 1
        for side in (LEFT, RIGHT):
            back_ms, ahead_ms = self.join.reach(side)
            earliest, latest = max(0, record.timestamp - back_ms), max(0, record.timestamp + ahead_ms)
            for timestamp, other in self.store.fetch_range(record.key, max(earliest, oldest + 1), latest):
                if side == RIGHT and itself_due and timestamp > record.timestamp:
                    self._emit(record, LEFT, record.value, record.timestamp)
                    itself_due = False
                self._emit(record, side, other, timestamp)
        if itself_due:
            self._emit(record, LEFT, record.value, record.timestamp)
        self.kept(record.timestamp)
        self.store.put(record.key, record.timestamp, record.value)

    def _emit(self, record: Record, side: int, other: Any, timestamp: int) -> None:
        value = self.join.joined(side, record.key, record.value, other)
        self.ctx.forward(Record(record.key, value, max(timestamp, record.timestamp), record.headers))

    def _without_key_or_value(self, side: int, record: Record) -> None:
        if record.value is not None and self.join.is_outer(side):
            self._emit_alone(side, None, record.value, record.timestamp, record.headers)
        else:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")

    def _emit_alone(self, side: int, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.ctx.forward(Record(key, self.join.joined(side, key, value, None), timestamp, headers))

    @property
    def newest(self) -> int:
        """Time of the newest record in the store, which in compat mode limits the visible rows."""
        newest: int = self.ctx.state.get(_NEWEST, NO_TIME)
        return newest

    def kept(self, timestamp: int) -> None:
        """Note the time of a record in the store, in compat mode."""
        if self.ctx.mode == "compat":
            self.ctx.state[_NEWEST] = max(self.newest, timestamp)


# --- A stream joined with itself over the columns of a step: `StreamSelfJoin` for all records at once.
#
# Each record is taken twice, first as a left one, then as a right one, with one store for both, so that its partners are found as
# those of two streams. That a record joins itself is added to the pairs.


class _SelfJoinStep(PairStep):
    """One step.

    Args:
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
