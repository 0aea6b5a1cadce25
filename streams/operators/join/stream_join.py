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

# --- The common part of joins of two streams: the results of pairs, and of records without a partner.


@dataclass(frozen=True, slots=True)
class StepResults:
    """The results of a step.

    Attributes:
        batch: The results in order.
        places: int64[m], the order of the results. A result of record i is at 2i + 1. A result of a waiting record that record i
            makes due is at 2i.
        without_key: int64[k], the records of an outer side that have no key. Their results are emitted at once.
        write: Writes the changed rows of the buffer of waiting records.
        refused: The rows on which the joiner has failed.
        alone: int64[2], by side (`RIGHT`, `LEFT`), the number of records of an outer side that can no longer find a partner.
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
        is_open: bool[n], which records are processed.
        stored: bool[n], which records are stored.
        only_time: Whether only the timestamps count. The records are placeholders, or are already dropped or failed.
        alone: Whether there is only one record, which may fail.
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
        # Both sides forward in one order, through the left side. Each side counts its own results.
        forward_in_one([one.ctx for one in self.sides], results.batch, nodes[results.places // 2])
        for one in results.refused:
            one.meets_policy_of(self.sides[nodes[one.at]].ctx)

    @abstractmethod
    def keys(self) -> list[StoreKeys]:
        """The keys of the records, for the store of each side."""

    @abstractmethod
    def find(self, keys: Sequence[StoreKeys]) -> Pairs:
        """The pairs of the records."""

    @abstractmethod
    def stored_by_side(self) -> list[tuple[int, Bools]]:
        """The sides whose stores get records, in the order of the writes, and bool[n]: which records each store gets."""

    def count_alone(self, results: StepResults) -> None:
        """Counts the records of outer sides that have found no partner, for metrics."""

    @abstractmethod
    def drop(self, dropped: Bools) -> None:
        """Drops these records, in order: they are late, or have no key or value."""

    def results(self, pairs: Pairs, buffer: OuterJoinBuffer | None) -> StepResults:
        """The results of all pairs, and of records without a partner if there is a buffer for them."""
        values = (self._made(pairs) or self._called(pairs)) if len(pairs.rows) else ()
        # The pair on which the joiner fails counts as a match, too.
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
        """Which open records may be without a partner, and the pairs whose partners may be waiting."""
        return self.is_open, pairs

    def ends(self, pairs: Pairs) -> tuple[Int64s, Int64s]:
        """The times of the buffer's rows for the records, and for the pairs' partners, ms: here, their timestamps.

        A row is due when stream time is more than `OuterJoinBuffer.waits` after its time.
        """
        return self.timestamps, pairs.times

    @property
    def triggers(self) -> Bools:
        """Which records may start a scan in compat mode."""
        return self.is_open

    def _joined_objects(self) -> JoinedObjects | None:
        """Makes results from the bytes of values. None if the joiner is not `fields(...)`, or the bytes are not plain JSON."""
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
        """The joiner's results for values as objects. If it fails, only the results of the pairs before that."""
        joiner, keys, rows = self.join.joiner, self.batch.keys, pairs.rows
        objects, from_left = keys.objects, self.is_left[rows].tolist()
        columns = (keys.codes[rows].tolist(), self.arguments(rows), self.partners_of(pairs), from_left)
        return self.until_failure(
            joiner(objects[key], value, other) if is_left else joiner(objects[key], other, value)
            for key, value, other, is_left in zip(*columns, strict=True)
        )

    def _made(self, pairs: Pairs) -> Sequence[Any]:
        """The results, made from the bytes of values; empty if that is impossible."""
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
        """The records of outer sides that have a value but no key. They cannot have a partner, so they are emitted at once."""
        outer = self.records.by_node([self.join.is_outer(side) for side in range(2)])
        return rows_where((self.batch.keys.codes == NULL_KEY) & self.records.has_value & (outer != 0))

    def _alone(self, rows: Int64s) -> ColumnarBatch:
        """The results of records that are emitted at once, without a partner."""
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
        # Records without a key are not stored, so their bytes come from the batch.
        cells = value_column(take_values(self.batch.values, rows), JsonSerde(), "")
        with self.at_fault():
            return self._objects.of_one_side(cells, self.is_left[rows], certain=True)
        return ()


# --- Two streams joined within a time window (Kafka Streams: `KStreamKStreamJoin`); one instance per side.
#
# Strict mode. Stream time T is the largest timestamp that has reached the join from either side, even with a null key or value.
# A left record at l is open while l + max(0, after) + grace >= T, a right record at r while r + max(0, before) + grace >= T.
#
# * A record that is not open on arrival is late, and is dropped.
# * A pair within the window is emitted if both records are open when the second one arrives.
# * A record of an outer side without a partner is emitted when it is no longer open, with None instead of the partner.
#
# So within the grace period, the results do not depend on the order of arrival. Example: a left join with before = after = 10 and
# grace = 5. The left record at 100 is open while T <= 115. A right record at 105 is joined with it, even if T is 115 already. If
# there is none, the first record after 115, of either side and any key, has (left, None) emitted, with the timestamp 100. A right
# record at 95 that arrives when T is 115 is late: 95 + 10 + 5 < 115.
#
# Compat mode, as in Kafka Streams. No record is late. A partner is found while its store retains it: its time must be less than
# before + after + grace before the newest record of that store. Times of range queries are at least 0. For records without a
# partner, the rules are those of `CompatOuterJoinBuffer`.

Times = TypeVar("Times", int, Int64s)


class StreamStreamJoin(WindowJoin):
    """One side of a join.

    Args:
        join: The parameters that both sides share.
        side: The side, and its stores.
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
        # Kafka Streams has no bounds that are fields, so there is nothing to be compatible with.
        self.is_strict |= self.join.windows.bound is not None
        self.buffer = self._open_buffer(ctx)
        # If `lead` is not called again, each node processes its own records, and emits the results that these make due.
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
        """Advance stream time for a record that has failed; in strict mode, emit the records that are no longer open."""
        if self.is_strict:
            self._join_batch(batch, self._side_of)
        else:
            self.time.observe(int(batch.timestamps[0]))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance the stream time of both sides, and emit the results of records that no longer wait."""
        least = self.time.common_limit(limit)
        if least is None:
            return limit
        time = self.time.advance(elapsed_ms, least)
        if self.buffer is None:
            return least
        self._join_batch(self.ctx.batch_of(Record(None, None, time)), np.array([LEFT, RIGHT]))
        return min(least, self.buffer.oldest)

    def _join_batch(self, batch: ColumnarBatch, nodes: Int64s) -> None:
        """Emits the results that become due at the batch's first timestamp, with a placeholder record for each of these sides."""
        times = batch.take(np.zeros(len(nodes), np.int64))
        nothing = replace(times, keys=KeyColumn.of([None] * len(nodes)), values=[None] * len(nodes))
        _JoinStep(self._sides, JoinRecords(nothing, nodes, np.zeros(len(nodes), np.bool_)), only_time=True).run()

    # The rules in the comment above this class, for a time or an array of times.

    def oldest_open(self, time: Times) -> Times:
        """In strict mode, the time of the oldest record of this side that is open at a stream time."""
        return time - max(0, self.ahead_ms) - self.grace_ms

    def oldest_partner(self, time: Times) -> Times:
        """In strict mode, the time of the oldest record of the other side that is open at a stream time."""
        return time - max(0, self.back_ms) - self.grace_ms

    def oldest_visible(self, newest: Times) -> Times:
        """In compat mode, the time of the oldest row that can be found in the other store if its newest row is at `newest`."""
        return newest - self.retention_ms + 1


# --- A bound that is a field of the left value (`JoinWindows.until`), in both modes.
#
# U is the time in the field, or infinite if the field is missing. A right record at r is joined with a left record at l if
# l - before <= r <= l + after and r <= U. A left record ends at e = max(l, min(l + after, U)), and a right record at
# e = r + max(0, before). A record is open while e + grace >= T. All other rules are as in strict mode.
#
# Example: before = 0, after = 1000, grace = 5, and a left record at 100 with U = 130. It ends at 130, so a right record at 130 is
# joined with it, and one at 131 is not. Without a partner, the left record is emitted when T is 136, and not only when it is 1106.
# A right record that is at most `grace` late finds its left record open, because r + grace >= T and r <= e.


class LeftBound:
    """The ends of a step's records, and of their partners.

    Attributes:
        ends: int64[n], the end of each record, ms.
        partner_ends: int64[m], the end of the partner in each pair that `kept` has chosen, ms.

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
        # Bounds are read from a copy. The step's own values stay encoded, so results can be made from their bytes.
        self._until[rows] = _bounds(join, take_values(records.batch.values, rows))
        self.ends = np.where(self._is_left, self._end(self._times, self._until), self._times + self._before)
        self.partner_ends = np.empty(0, np.int64)

    def _end(self, left: Int64s, until: Int64s) -> Int64s:
        return np.maximum(left, np.minimum(left + self._after, until))

    def kept(self, pairs: Pairs, left: Codec, oldest: Int64s) -> Int64s:
        """The pairs within the bound whose left record is still open.

        Args:
            pairs: The pairs within the window.
            left: The codec of the left store.
            oldest: int64[n], for each record, the earliest end of a left record that is open, ms.
        """
        came_left = self._is_left[pairs.rows]
        times = self._times[pairs.rows]
        until = np.where(came_left, self._until[pairs.rows], self._until_of_partners(pairs, came_left, left))
        left_ends = self._end(np.where(came_left, times, pairs.times), until)
        in_time = np.where(came_left, pairs.times, times) <= until
        rows = rows_where(in_time & (left_ends >= oldest[pairs.rows]))
        self.partner_ends = np.where(came_left, pairs.times + self._before, left_ends)[rows]
        return rows

    def _until_of_partners(self, pairs: Pairs, came_left: Bools, left: Codec) -> Int64s:
        """The bound of each partner that is a left record, ms. Each row of the store is decoded once."""
        until = self._until[np.maximum(pairs.partners, 0)]
        stored = rows_where(~came_left & (pairs.partners < 0))
        distinct, places = np.unique(-1 - pairs.partners[stored], return_inverse=True)
        cells = pairs.stored.take(pa.array(distinct))
        values = left.encoded(cells)
        until[stored] = _bounds(self._join, left.read_values(cells.to_pylist()) if values is None else values)[places]
        return until


def _bounds(join: StreamJoin, values: Sequence[Any]) -> Int64s:
    """`StreamJoin.until` for each value, ms. The field is read as a column if all its cells are times or missing.

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
# Stream time at a record is a running maximum. So it is known at once which records are open, and sorting finds their pairs
# (`Partners`). The joiner is called once for each pair, in order. For each pair, the partner is decoded again from its stored
# bytes, even if it came in the same step. So a joiner that changes its arguments does not change other pairs.


class _JoinStep(PairStep):
    """One step. The arguments are as for `PairStep`."""

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
        """The ranges of time in which open records look for partners."""
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
        """Counts nothing in an inner join, which does not keep track of records without a partner."""
        outer = np.array([self.join.is_outer(side) for side in (RIGHT, LEFT)])
        if not outer.any():
            return
        looked_up = int(np.count_nonzero(self.is_open & outer[self.records.nodes])) + len(results.without_key)
        no_left, no_right = results.alone.tolist()  # right records without a left one, and left without a right one
        missing = {"no_right_record": no_right, "no_left_record": no_left, "null_key": len(results.without_key)}
        self.sides[LEFT].ctx.count_looked_up(looked_up, missing, self.sides[LEFT].side.state_name)


# --- A stream joined with itself, over one store (Kafka Streams: `KStreamKStreamSelfJoin`, KIP-862).
#
# Strict mode gives exactly the results of `StreamStreamJoin` with two nodes and two stores. Each record arrives first on the left
# side, then on the right side. It joins itself if a time difference of 0 is within the window.
#
# Compat mode gives the results of Kafka Streams 4.3 with `topology.optimization=all`, including its flaws. Left and outer joins
# become inner joins. A record joins itself even if the window excludes it, unless it is older than the store's retention.

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
        """Advance stream time for a record that has failed; in strict mode, emit the records that are no longer open."""
        if self.ctx.mode == "strict":
            nothing = replace(batch, keys=KeyColumn.of([None] * len(batch)), values=[None] * len(batch))
            self._step(nothing, only_time=True).run()
        else:
            self.time.observe(int(batch.timestamps[0]))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time, and emit the results of records that no longer wait."""
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
        """The time of the newest record in the store, ms. In compat mode, it limits which rows can be found."""
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
# Each record is taken twice, first as a left record, then as a right one. Both use the same store, and partners are found as in a
# join of two streams. The pairs of records with themselves are added afterwards.


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
        """Stores each record only once, with the right side, after the record has looked for partners on both sides."""
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
        """The ranges of time in which open records look for partners."""
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
        """The newest time in the store just before each record, ms."""
        first = self._operator.newest
        newest = np.maximum.accumulate(np.where(self.is_open, self.timestamps, first)[0::2])
        before: Int64s = np.repeat(np.append(first, newest[:-1]), 2)
        return np.maximum(before, first)

    def _with_themselves(self, pairs: Pairs) -> Pairs:
        """Adds the pairs of records with themselves, after the pairs with earlier records of the same time."""
        rows = np.append(pairs.rows, self._meets_itself)
        partners = np.append(pairs.partners, self._meets_itself)
        times = np.append(pairs.times, self.timestamps[self._meets_itself])
        order = np.lexsort((times, rows))
        return replace(pairs, rows=rows[order], partners=partners[order], times=times[order])

    def drop(self, dropped: Bools) -> None:
        """Drops each record once for each side; in compat mode, only once."""
        if not self._is_strict:
            dropped[1::2] = False
        for rows, reason in self.drops(dropped, np.zeros(len(dropped), np.int64)):
            self._operator.ctx.drop_batch(self.batch.take(rows), reason)
