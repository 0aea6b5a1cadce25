"""Joins of two streams, and of a stream with itself: the operators, and the results of a step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from state.columns import rows_where
from streams.model.record import LEFT, MAX_TIME, NO_TIME, RIGHT, Record
from streams.operators.aggregate.column_rows import ABSENT, INT, TEXT
from streams.operators.columnar import (
    NULL_KEY,
    ColumnarBatch,
    EncodedValues,
    Int64s,
    KeyColumn,
    null_values,
    take_values,
    value_column,
)
from streams.operators.expressions import computed
from streams.operators.join.joined_objects import JoinedObjects
from streams.operators.join.joins import JoinSide, StreamJoin
from streams.operators.join.pairs import (
    Bools,
    JoinRecords,
    Pairs,
    Partners,
    Reach,
    Refused,
    StoredStep,
    StoreKeys,
    WindowJoin,
    clamped,
    placed,
    store_keys,
)
from streams.operators.join.waiting import (
    CompatOuterJoinBuffer,
    CompatWaitingStep,
    JoinStep,
    OuterJoinBuffer,
    StrictWaitingStep,
    WaitingStep,
    waits_of,
)
from streams.operators.json_fields import fields_of, frame_of
from streams.operators.operator import Operator, OperatorContext, forward_in_one
from streams.operators.stores.codec import Codec
from streams.operators.stores.unmatched_buffer import UnmatchedBuffer
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import StreamTime
from streams.serdes.json import JsonSerde, is_plain_json

# --- What the joins of streams over columns have in common: the results of pairs and of records without a partner.


@dataclass(frozen=True, slots=True)
class StepResults:
    """The results of a step.

    Attributes:
        batch: The results in order.
        places: int64[m], the record that each result comes from, times two, plus one if it is a result of this very record.
        without_key: The records without a key that give their result at once.
        write: Writes what has changed of the waiting records.
        refused: What has failed.
        alone: int64[2], by side, the records of an outer side that have not met a partner, and no longer can.
    """

    batch: ColumnarBatch
    places: Int64s
    without_key: Int64s
    write: Callable[[], None]
    refused: Sequence[Refused]
    alone: Int64s


class PairStep(StoredStep):
    """One step.

    Args:
        sides: The operators by side; of a self-join, the one operator twice.
        records: The records; the index of their node is the side.
        time: int64[n], stream time at each record.
        is_open: Which records are processed.
        stored: Which records are stored.
        only_time: Whether the records have come before, or are none, and their time alone counts.
    """

    def __init__(
        self,
        sides: Sequence[Any],
        records: JoinRecords,
        time: Int64s,
        is_open: Bools,
        stored: Bools,
        only_time: bool,
        alone: bool,
    ) -> None:
        first, self.join = sides[LEFT], sides[LEFT].join
        codecs = [one.store.codec for one in sides]
        super().__init__(first.ctx, codecs, records, time, is_open, stored, self.join.keeps_values, alone)
        self.sides, self.only_time = sides, only_time
        self.is_left = records.nodes == LEFT
        self._objects = self._joined_objects()

    def run(self) -> None:
        """Compute everything, then write, then forward."""
        first, nodes = self.sides[LEFT], self.records.nodes
        keys = self.keys()
        results = self.results(self.find(keys), first.buffer)
        puts = [self.rows_of(chosen, side, keys[side]) for side, chosen in self.stored_by_side()]
        first.time.observe(int(self.time[-1]))
        for (side, _), rows in zip(self.stored_by_side(), puts, strict=True):
            self.sides[side].put(*rows)
        results.write()
        self.count_alone(results)
        if not self.only_time:
            dropped = ~self.is_open
            dropped[results.without_key] = False
            self.drop(dropped)
        # Both sides forward in one order, as the left side; each side counts its own.
        forward_in_one([one.ctx for one in self.sides], results.batch, nodes[results.places // 2])
        for one in results.refused:
            one.meets_policy_of(self.sides[nodes[one.at]].ctx)

    @abstractmethod
    def keys(self) -> list[StoreKeys]:
        """The records' keys in the store of each side."""

    @abstractmethod
    def find(self, keys: Sequence[StoreKeys]) -> Pairs:
        """The pairs of the records."""

    @abstractmethod
    def stored_by_side(self) -> list[tuple[int, Bools]]:
        """The sides in whose stores records are put, in this order, and bool[n]: which ones."""

    def count_alone(self, results: StepResults) -> None:
        """Counts the records of outer sides that have met none."""

    @abstractmethod
    def drop(self, dropped: Bools) -> None:
        """Drops records that give nothing, in order."""

    def results(self, pairs: Pairs, buffer: OuterJoinBuffer | None) -> StepResults:
        """The results of all pairs, and of records without a partner if there is a buffer for these."""
        values = (self._made(pairs) or self._called(pairs)) if len(pairs.rows) else ()
        # The partner at which a joiner has failed has met the record, too.
        met, pairs = pairs.first(len(values) + 1), pairs.first(len(values))
        times = np.maximum(self.timestamps[pairs.rows], pairs.times)
        results = [(self.of_rows(pairs.rows, values, times), 2 * pairs.rows + 1)]
        without_key = self.alone_without_key()
        if buffer is None:
            return StepResults(*placed(results), without_key, lambda: None, self.refused, np.zeros(2, np.int64))
        waiting = self._waiting(met, buffer)
        due, at = waiting.results()
        at_once = np.sort(np.concatenate([without_key, waiting.at_once]))
        alone = self._alone(at_once)
        results += [(due, 2 * at), (alone, 2 * at_once[: len(alone)] + 1)]
        return StepResults(
            *placed(results), without_key, waiting.write, [*waiting.refused, *self.refused], waiting.alone
        )

    def may_be_alone(self, pairs: Pairs) -> tuple[Bools, Pairs]:
        """The open records that may be without a partner, and the pairs with the partners that may be waiting."""
        return self.is_open, pairs

    def ends(self, pairs: Pairs) -> tuple[Int64s, Int64s]:
        """The times of the rows of records that wait, and of the pairs' partners: their timestamps, to which `waits` is added."""
        return self.timestamps, pairs.times

    @property
    def triggers(self) -> Bools:
        """Which records may start a scan in compat mode."""
        return self.is_open

    def _joined_objects(self) -> JoinedObjects | None:
        """Makes results of the bytes of values; None where these do not say all of the values, or results have to be computed."""
        values, (first, second) = self.batch.values, self.codecs
        if not (isinstance(values, EncodedValues) and is_plain_json(values.serde) and values.is_untouched):
            return None
        return JoinedObjects.of(self.join.fields) if first.writes_as(second) else None

    def _waiting(self, pairs: Pairs, buffer: OuterJoinBuffer) -> WaitingStep:
        may_be_alone, met = self.may_be_alone(pairs)
        ends, partner_ends = self.ends(met)
        step = JoinStep(
            self.join, self, may_be_alone & self.stored, self.triggers, met, self._objects, ends, partner_ends
        )
        return (
            CompatWaitingStep(step, buffer)
            if isinstance(buffer, CompatOuterJoinBuffer)
            else StrictWaitingStep(step, buffer)
        )

    def _called(self, pairs: Pairs) -> Sequence[Any]:
        """The results that the joiner gives for objects; those of the first pairs, if it fails."""
        joiner, keys, rows = self.join.joiner, self.batch.keys, pairs.rows
        objects, from_left = keys.objects, self.is_left[rows].tolist()
        columns = (keys.codes[rows].tolist(), self.arguments(rows), self.partners_of(pairs), from_left)
        return self.until_failure(
            joiner(objects[key], value, other) if is_left else joiner(objects[key], other, value)
            for key, value, other, is_left in zip(*columns, strict=True)
        )

    def _made(self, pairs: Pairs) -> Sequence[Any]:
        """The results made of the bytes of values; none where that is impossible."""
        if self._objects is None:
            return ()
        cells, partners = self.cells_of(pairs)
        is_left, certain = self.is_left[pairs.rows], np.arange(len(cells)) < len(self.records)
        left, right = np.where(is_left, pairs.rows, partners), np.where(is_left, partners, pairs.rows)
        with self.at_fault():
            return self._objects.of_pairs(cells, left, right, certain)
        return ()

    def partners_of(self, pairs: Pairs) -> list[Any]:
        """The partner's value of each pair."""
        return self.values_from(pairs, 1 - self.records.nodes[pairs.rows])

    def alone_without_key(self) -> Int64s:
        """The records of outer sides with a value, but no key, which give their result at once."""
        outer = self.records.by_node([self.join.is_outer(side) for side in range(2)])
        return rows_where((self.batch.keys.codes == NULL_KEY) & self.records.has_value & (outer != 0))

    def _alone(self, rows: Int64s) -> ColumnarBatch:
        """The results of records that give theirs at once, without a partner."""
        results = (self._made_alone(rows) or self._called_alone(rows)) if len(rows) else ()
        rows = rows[: len(results)]
        return self.of_rows(rows, results, self.timestamps[rows])

    def _called_alone(self, rows: Int64s) -> Sequence[Any]:
        sides, keys = self.records.nodes[rows].tolist(), self.batch.keys.take(rows)
        calls = zip(sides, keys, self.arguments(rows), strict=True)
        return self.until_failure(self.join.joined(side, key, value, None) for side, key, value in calls)

    def _made_alone(self, rows: Int64s) -> Sequence[Any]:
        if self._objects is None:
            return ()
        # Records without a key have no bytes in a store.
        cells = value_column(take_values(self.batch.values, rows), JsonSerde(), "")
        with self.at_fault():
            return self._objects.of_one_side(cells, self.is_left[rows], certain=True)
        return ()


# --- Two streams joined within a time window (Kafka Streams: `KStreamKStreamJoin`); one instance per side.
#
# Strict mode: T is the largest timestamp that reached the join from either side, null keys and values included. A left
# record at l is open while l + max(0, after) + grace >= T, a right one at r while r + max(0, before) + grace >= T. A record
# that is not open on arrival is late and gives nothing; a pair in the window is emitted if both are open when the later one
# arrives; a record of an outer side without a partner gives one result when it ceases to be open. Within grace, the result
# therefore does not depend on the order of arrival. Compat mode: no record is late; a match is limited by the other store's
# retention (before + after + grace) relative to that store's own newest record, and range queries are clamped at 0, as in
# Kafka Streams; for records without a partner see `OuterJoinBuffer`.

Times = TypeVar("Times", int, Int64s)


class StreamStreamJoin(WindowJoin):
    """One side of a join.

    Args:
        join: The parameters that both sides share.
        buffer: Key-value store of the records without a partner (`UnmatchedBuffer`); None: an inner join.
    """

    def __init__(self, join: StreamJoin, side: JoinSide, buffer: str | None = None) -> None:
        super().__init__(side.store, side.state_name, sides=2)
        self.join = replace(join, windows=clamped(join.windows))
        self.side = side
        self.buffer_name = buffer
        # From this side's point of view, a partner is in [t - back, t + ahead].
        self.back_ms, self.ahead_ms = self.join.reach(side.side)
        self.grace_ms = self.join.windows.grace_ms
        self.retention_ms = self.join.windows.size_ms + self.grace_ms

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and the shared stream time."""
        super().init(ctx)
        # Kafka Streams has no bound that is a field, so there is one rule.
        self.is_strict |= self.join.windows.bound is not None
        self.buffer = self._open_buffer(ctx)
        # Where nodes are not led, each one processes its own records, and forwards what these make due.
        self.lead([self])

    def _open_buffer(self, ctx: OperatorContext) -> OuterJoinBuffer | None:
        if self.buffer_name is None:
            return None
        windows, by_field = self.join.windows, self.join.windows.bound is not None
        rows = UnmatchedBuffer(ctx.store(self.buffer_name), self.join.key_serde, self.buffer_name, self.state, by_field)
        if by_field:
            longest = max(0, windows.before_ms, windows.after_ms)
            return OuterJoinBuffer(rows, (self.grace_ms, self.grace_ms), longest=longest)
        waits = waits_of(windows, self.is_strict)
        if self.is_strict:
            return OuterJoinBuffer(rows, waits)
        return CompatOuterJoinBuffer(rows, waits, self.grace_ms, self.state, ctx.now_ms, ctx.emit_interval_ms)

    def lead(self, group: Sequence[StreamStreamJoin]) -> None:
        # By side: RIGHT is 0, LEFT is 1.
        both = group if len(group) == 2 else [self, self._opposite()]
        self._sides = sorted(both, key=lambda one: one.side.side)
        self._side_of = np.array([one.side.side for one in group])

    def _opposite(self) -> StreamStreamJoin:
        """The other side, with this side's context."""
        other = self.with_store(self.side.other_store)
        other.side, other.back_ms, other.ahead_ms = self.side.opposite, self.ahead_ms, self.back_ms
        return other

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Join, store, forward, for both sides."""
        _JoinStep(self._sides, JoinRecords.of(batch, self._side_of)).run()

    def skip(self, batch: ColumnarBatch) -> None:
        """Stream time passes: in strict mode, records cease to be open."""
        if self.is_strict:
            self._join_batch(batch, self._side_of)
        else:
            self.time.observe(int(batch.timestamps[0]))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance the stream time of both sides: emit the results of records that no longer wait."""
        least = self.time.common_limit(limit)
        if least is None:
            return limit
        time = self.time.advance(elapsed_ms, least)
        if self.buffer is None:
            return least
        self._join_batch(self.ctx.batch_of(Record(None, None, time)), np.array([LEFT, RIGHT]))
        return min(least, self.buffer.oldest)

    def _join_batch(self, batch: ColumnarBatch, nodes: Int64s) -> None:
        """What a time makes due, seen from these sides."""
        times = batch.take(np.zeros(len(nodes), np.int64))
        nothing = replace(times, keys=KeyColumn.of([None] * len(nodes)), values=[None] * len(nodes))
        _JoinStep(self._sides, JoinRecords(nothing, nodes, np.zeros(len(nodes), np.bool_)), only_time=True).run()

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


# --- A bound that is a field of the left value (`JoinWindows.until`), in both modes.
#
# U is the time in the field; without one, it is infinite. A right record at r joins a left one at l if l - before <= r <= l + after
# and r <= U. The end of a left record is e = max(l, min(l + after, U)), that of a right one e = r + max(0, before); a record is
# open while e + grace >= T. The rest is as in strict mode: so a left record without a partner gives its result when T passes U and
# the grace. If r is late by at most the grace, the left record that it could join is open: r + grace >= T and r <= e.


class LeftBound:
    """The ends of a step's records, and of their partners.

    Attributes:
        ends: int64[n], of the records.
        partner_ends: int64[m], of the partners in the pairs that `kept` has chosen.

    Raises:
        RecordError: A left record has no time in the field.
    """

    def __init__(self, join: StreamJoin, records: JoinRecords) -> None:
        self._join, self._records = join, records
        self._before, self._after = max(0, join.windows.before_ms), join.windows.after_ms
        self._times = records.batch.timestamps
        self._is_left = records.nodes == LEFT
        rows = rows_where(self._is_left & records.complete)
        self._until = np.full(len(records), MAX_TIME, np.int64)
        # Of values of their own: those of the step stay unread, so results can be made of their bytes.
        self._until[rows] = _bounds(join, take_values(records.batch.values, rows))
        self.ends = np.where(self._is_left, self._end(self._times, self._until), self._times + self._before)
        self.partner_ends = np.empty(0, np.int64)

    def _end(self, left: Int64s, until: Int64s) -> Int64s:
        return np.maximum(left, np.minimum(left + self._after, until))

    def kept(self, pairs: Pairs, left: Codec, oldest: Int64s) -> Int64s:
        """Which pairs are within the bound, of left records that end at `oldest` (by record) or later."""
        came_left = self._is_left[pairs.rows]
        times = self._times[pairs.rows]
        until = np.where(came_left, self._until[pairs.rows], self._until_of_partners(pairs, came_left, left))
        left_ends = self._end(np.where(came_left, times, pairs.times), until)
        in_time = np.where(came_left, pairs.times, times) <= until
        rows = rows_where(in_time & (left_ends >= oldest[pairs.rows]))
        self.partner_ends = np.where(came_left, pairs.times + self._before, left_ends)[rows]
        return rows

    def _until_of_partners(self, pairs: Pairs, came_left: Bools, left: Codec) -> Int64s:
        """The bound of each partner that is a left record; each row of the store is read once."""
        until = self._until[np.maximum(pairs.partners, 0)]
        stored = rows_where(~came_left & (pairs.partners < 0))
        distinct, places = np.unique(-1 - pairs.partners[stored], return_inverse=True)
        cells = pairs.stored.take(pa.array(distinct))
        values = left.encoded(cells)
        until[stored] = _bounds(self._join, left.read_values(cells.to_pylist()) if values is None else values)[places]
        return until


def _bounds(join: StreamJoin, values: Sequence[Any]) -> Int64s:
    """`StreamJoin.until` of many values: of a column of them if it has nothing but times.

    Raises:
        RecordError: A value has no time in the field.
    """
    bound, every = join.windows.bound, np.ones(len(values), np.bool_)
    fields = None if bound is None else fields_of(values, bound.paths)
    if bound is not None and fields is not None:
        failed: dict[int, Exception] = {}
        times = computed(bound, frame_of(fields), every, failed)
        if (times.kinds == TEXT).any():
            times = computed(bound.to_timestamp(), frame_of(fields), every, failed)
        if not failed and ((times.kinds == INT) | (times.kinds == ABSENT)).all():
            return np.where(times.kinds == INT, np.minimum(times.ints, MAX_TIME), MAX_TIME)
    return np.array([join.until(value) for value in values], np.int64)


# --- A step of both sides at once.
#
# Stream time at a record is a running maximum, so which records are open is known for all of them at once, and the pairs are found
# by sorting (`partners`). Joiners are called once for each pair, in order. A partner is decoded for each pair from the bytes of its
# store, also within the step: so a joiner that changes its arguments changes no other pair.


class _JoinStep(PairStep):
    """One step; see `PairStep` for the arguments."""

    def __init__(self, sides: Sequence[StreamStreamJoin], records: JoinRecords, only_time: bool = False) -> None:
        self._is_strict = sides[LEFT].is_strict
        timestamps = records.batch.timestamps
        time = np.maximum(np.maximum.accumulate(timestamps), sides[LEFT].time.now)
        is_open = records.complete
        self._bound = LeftBound(sides[LEFT].join, records) if sides[LEFT].join.windows.bound is not None else None
        if self._bound is not None:
            is_open &= self._bound.ends + sides[LEFT].grace_ms >= time
        elif self._is_strict:
            is_open &= timestamps >= records.by_node([one.oldest_open(time) for one in sides])
        super().__init__(sides, records, time, is_open, is_open, only_time, only_time or len(records) == 1)

    @property
    def triggers(self) -> Bools:
        return self.is_open | self.only_time

    def keys(self) -> list[StoreKeys]:
        return store_keys(self.batch.keys, self.codecs)

    def find(self, keys: Sequence[StoreKeys]) -> Pairs:
        latest = [one.latest for one in self.sides]
        partners = Partners([one.store for one in self.sides], keys, self.timestamps, latest)
        found = partners.find(self.is_open, self.records.nodes, self._reach())
        if self._bound is None:
            return found
        kept = self._bound.kept(found, self.codecs[LEFT], self.time - self.sides[LEFT].grace_ms)
        return found.chosen(kept)

    def ends(self, pairs: Pairs) -> tuple[Int64s, Int64s]:
        if self._bound is None:
            return super().ends(pairs)
        return self._bound.ends, self._bound.partner_ends[: len(pairs.rows)]

    def stored_by_side(self) -> list[tuple[int, Bools]]:
        return [(side, self.is_open & (self.records.nodes == side)) for side in (RIGHT, LEFT)]

    def _reach(self) -> Reach:
        """Where open records look for partners."""
        sides = self.sides
        lower = self.timestamps - self.records.by_node([one.back_ms for one in sides])
        upper = self.timestamps + self.records.by_node([one.ahead_ms for one in sides])
        if self._is_strict:
            oldest = self.records.by_node([one.oldest_partner(self.time) for one in sides])
        else:
            upper = np.maximum(upper, 0)
            newest = [self.newest_in(side, node) for node, side in enumerate(sides)]
            oldest = self.records.by_node([one.oldest_visible(newest[one.side.other]) for one in sides])
        return Reach(self.is_open, 1 - self.records.nodes, np.maximum(np.maximum(lower, oldest), 0), upper)

    def drop(self, dropped: Bools) -> None:
        for rows, reason in self.drops(dropped, self.records.nodes):
            self.sides[self.records.nodes[rows[0]]].ctx.drop_batch(self.batch.take(rows), reason)

    def count_alone(self, results: StepResults) -> None:
        """An inner join does not know which of its records still may meet one."""
        outer = np.array([self.join.is_outer(side) for side in (RIGHT, LEFT)])
        if not outer.any():
            return
        looked_up = int(np.count_nonzero(self.is_open & outer[self.records.nodes])) + len(results.without_key)
        no_left, no_right = results.alone.tolist()  # by the side that was alone: RIGHT, LEFT
        missing = {"no_right_record": no_right, "no_left_record": no_left, "null_key": len(results.without_key)}
        self.sides[LEFT].ctx.count_looked_up(looked_up, missing, self.sides[LEFT].side.state_name)


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

    leaves_values = True
    makes_results = True

    def __init__(self, join: StreamJoin, store: str, buffer: str | None = None) -> None:
        self.join = replace(join, windows=clamped(join.windows))
        self.store_name = store
        self.buffer_name = buffer
        self.retention_ms = self.join.windows.size_ms + self.join.windows.grace_ms

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self.store: TypedWindowStore = ctx.store(self.store_name)
        self.time = StreamTime(ctx.state)
        self.waits = waits_of(self.join.windows, strict=True)
        self.buffer: OuterJoinBuffer | None = None
        if self.buffer_name is not None and ctx.mode == "strict":
            rows = UnmatchedBuffer(ctx.store(self.buffer_name), self.join.key_serde, self.buffer_name, ctx.state)
            self.buffer = OuterJoinBuffer(rows, self.waits)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Join, store, forward."""
        self._step(batch).run()

    def _step(self, batch: ColumnarBatch, only_time: bool = False) -> _SelfJoinStep:
        twice = batch.take(np.repeat(np.arange(len(batch)), 2))
        nodes, has_value = np.tile((LEFT, RIGHT), len(batch)), ~null_values(twice.values)
        return _SelfJoinStep(self, JoinRecords(twice, nodes, has_value), only_time)

    def skip(self, batch: ColumnarBatch) -> None:
        """Stream time passes: in strict mode, records cease to be open."""
        if self.ctx.mode == "strict":
            nothing = replace(batch, keys=KeyColumn.of([None] * len(batch)), values=[None] * len(batch))
            self._step(nothing, only_time=True).run()
        else:
            self.time.observe(int(batch.timestamps[0]))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time: emit the results of records that no longer wait."""
        time = self.time.advance(elapsed_ms, limit)
        if self.buffer is None:
            return limit
        if time != NO_TIME:
            self._step(self.ctx.batch_of(Record(None, None, time)), only_time=True).run()
        return min(limit, self.buffer.oldest)

    def flush(self) -> None:
        """Expire rows that no record can match any more."""
        self.ctx.expire(self.store_name, self.time.now)

    @property
    def newest(self) -> int:
        """Time of the newest record in the store, which in compat mode limits the visible rows."""
        newest: int = self.ctx.state.get(_NEWEST, NO_TIME)
        return newest

    def put(self, keys: pa.BinaryArray, times: Int64s, values: pa.BinaryArray) -> None:
        """Stores records, and notes their newest time in compat mode."""
        if len(times):
            self.store.put_columns(keys, times, values)
            if self.ctx.mode == "compat":
                self.ctx.state[_NEWEST] = max(self.newest, int(times.max()))


# --- A step of a stream joined with itself.
#
# Each record is taken twice, first as a left one, then as a right one, with one store for both, so that its partners are found as
# those of two streams. That a record joins itself is added to the pairs.


class _SelfJoinStep(PairStep):
    """One step.

    Args:
        records: Each record of the step twice, as the left and as the right one.
    """

    def __init__(self, operator: StreamSelfJoin, records: JoinRecords, only_time: bool = False) -> None:
        self._operator, self._is_strict = operator, operator.ctx.mode == "strict"
        timestamps, is_open = records.batch.timestamps, records.complete
        observed = timestamps if self._is_strict else np.where(is_open, timestamps, operator.time.now)
        time = np.maximum(np.maximum.accumulate(observed), operator.time.now)
        if self._is_strict:
            is_open &= timestamps + records.by_node(operator.waits) >= time
        stored = np.repeat(is_open[0::2] | is_open[1::2], 2)
        super().__init__([operator] * 2, records, time, is_open, stored, only_time, alone=len(records) == 2)
        both = is_open[0::2] & is_open[1::2]
        self._meets_itself = rows_where(both & self._in_its_own_reach()) * 2 + 1

    def keys(self) -> list[StoreKeys]:
        return store_keys(self.batch.keys, self.codecs[:1])

    def find(self, keys: Sequence[StoreKeys]) -> Pairs:
        partners = Partners([self._operator.store], keys, self.timestamps, [MAX_TIME])
        ((_, stored),) = self.stored_by_side()
        return self._with_themselves(partners.find(stored, np.zeros(len(stored), np.int64), self._reach()))

    def stored_by_side(self) -> list[tuple[int, Bools]]:
        """Once each, where both of it have looked."""
        return [(RIGHT, self.stored & (self.records.nodes == RIGHT))]

    def partners_of(self, pairs: Pairs) -> list[Any]:
        found = super().partners_of(pairs)
        themselves = rows_where(pairs.partners == pairs.rows)
        for at, value in zip(themselves.tolist(), self.arguments(pairs.rows[themselves]), strict=True):
            found[at] = value
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
        """Where open records look for partners."""
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

    def drop(self, dropped: Bools) -> None:
        """Each record as both of it, in compat mode once."""
        if not self._is_strict:
            dropped[1::2] = False
        for rows, reason in self.drops(dropped, np.zeros(len(dropped), np.int64)):
            self._operator.ctx.drop_batch(self.batch.take(rows), reason)
