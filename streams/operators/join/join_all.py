"""Several streams joined within a time window; one instance per stream. Kafka Streams only joins two at a time.

A combination has one record of each stream, all with the same key; the newest is at most `difference` newer than the
oldest. With a difference of 10, records at 20, 25 and 30 of three streams are a combination, but records at 20, 25 and 31 are not.
A combination gives one result, when the last of its records arrives. Strict mode: T is the largest timestamp that reached
the join from any stream, null keys and values included; a record at t is open while t + difference + grace >= T. A record that is
not open on arrival is late and has no result; a combination is emitted if all its records are open when the last one
arrives. Within grace, the results therefore do not depend on the order of arrival. Compat mode corresponds to that of
`stream_join`: no record is late; a match is limited by each other store's retention (2 * difference + grace) relative to
that store's own newest record.

Invariant: results of one record come in a fixed order: by the time, then the arrival, of the first stream's record, then of
the second's, and so on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from state.columns import rows_where
from streams.model.ownership import only_reads
from streams.operators.columnar import ColumnarBatch, Int64s
from streams.operators.join.joins import JoinAll
from streams.operators.join.pairs import (
    Bools,
    JoinRecords,
    Pairs,
    Partners,
    Reach,
    StoredStep,
    WindowJoin,
    clamped,
    store_keys,
)
from streams.operators.operator import OperatorContext, forward_in_one

Times = TypeVar("Times", int, Int64s)

Row = tuple[int, Any]
"""Timestamp in ms, and value."""


class StreamJoinAll(WindowJoin):
    """One stream's side of a join of several. A result has the time of the newest record, and the headers of the last to arrive.

    Null keys and null values are dropped.

    The cost of a record is proportional to its results: with m records of its key in the window of each of n streams, about
    m ** (n - 1). Nothing is combined while any other stream has no record in range.

    Args:
        join: The parameters that all sides share.
        name: This side's stream.
        stores: Window stores of all the streams, with duplicates, in the order of the join's streams.
        state_name: Name of the state that all sides share.
    """

    def __init__(self, join: JoinAll, name: str, stores: Sequence[str], state_name: str) -> None:
        self.stores = dict(zip(join.streams, stores, strict=True))
        super().__init__(self.stores[name], state_name, len(stores))
        self.join = replace(join, windows=clamped(join.windows))
        self.name = name
        self.difference_ms, self.grace_ms = self.join.windows.after_ms, self.join.windows.grace_ms

    def init(self, ctx: OperatorContext) -> None:
        """Open the store and the shared state."""
        super().init(ctx)
        # Nodes that are not led process only their own records.
        self.lead([self])

    def lead(self, group: Sequence[StreamJoinAll]) -> None:
        # Ordered as the join's streams, which is also the order of the stores.
        streams, named = self.join.streams, {one.name: one for one in group}
        self._sides = [named.get(name) or self._as(name) for name in streams]
        self._side_of = np.array([streams.index(one.name) for one in group])

    def _as(self, name: str) -> StreamJoinAll:
        """The side of another stream, with this side's context."""
        other = self.with_store(self.stores[name])
        other.name = name
        return other

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Join, store, forward, for all streams."""
        _JoinAllStep(self._sides, JoinRecords.of(batch, self._side_of)).run()

    def skip(self, batch: ColumnarBatch) -> None:
        """Advances stream time."""
        self.time.observe(int(batch.timestamps[0]))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance the stream time of all sides; no record waits."""
        least = self.time.common_limit(limit)
        if least is None:
            return limit
        self.time.advance(elapsed_ms, least)
        return least

    def oldest_open(self, time: Times) -> Times:
        """In strict mode, the time of the oldest record that is open at a stream time."""
        return time - self.difference_ms - self.grace_ms

    def oldest_visible(self, newest: Times) -> Times:
        """In compat mode, the time of the oldest visible row in another stream's store whose newest row is at `newest`."""
        return newest - (2 * self.difference_ms + self.grace_ms) + 1


def combinations(rows: Sequence[Sequence[Row]], span_ms: int, oldest: int, newest: int) -> Iterator[tuple[Row, ...]]:
    """All combinations of one row from each list. Together with the rows chosen before, they span at most `span_ms`."""
    if not rows:
        yield ()
        return
    first, *others = rows
    from_here = bisect_left(first, newest - span_ms, key=_time)
    to_here = bisect_right(first, oldest + span_ms, key=_time)
    for row in first[from_here:to_here]:
        for more in combinations(others, span_ms, min(oldest, row[0]), max(newest, row[0])):
            yield (row, *more)


def _time(row: Row) -> int:
    return row[0]


# --- A step of all streams at once.
#
# Each record looks for partners in the store of the next stream, then in the store after that, and so on. Records that have
# partners in every store are combined one after the other.


class _JoinAllStep(StoredStep):
    """One step.

    Args:
        sides: The operators by stream.
        records: The step's records; the index of their node is the stream.
    """

    def __init__(self, sides: Sequence[StreamJoinAll], records: JoinRecords) -> None:
        self._sides, self._first = sides, sides[0]
        timestamps, is_open = records.batch.timestamps, records.complete
        time = np.maximum(np.maximum.accumulate(timestamps), self._first.time.now)
        if self._first.is_strict:
            is_open &= timestamps >= self._first.oldest_open(time)
        codecs, keeps_values = [one.store.codec for one in sides], only_reads(self._first.join.joiner)
        super().__init__(sides[0].ctx, codecs, records, time, is_open, is_open, keeps_values, alone=len(records) == 1)

    def run(self) -> None:
        """Compute everything, then write, then forward."""
        sides, nodes = self._sides, self.records.nodes
        keys = store_keys(self.batch.keys, self.codecs)
        results, rows = self._results(
            Partners([one.store for one in sides], keys, self.timestamps, [one.latest for one in sides])
        )
        puts = [self.rows_of(self.is_open & (nodes == node), node, keys[node]) for node in range(len(sides))]
        self._first.time.observe(int(self.time[-1]))
        for side, stored in zip(sides, puts, strict=True):
            side.put(*stored)
        for dropped, reason in self.drops(~self.is_open, nodes):
            sides[nodes[dropped[0]]].ctx.drop_batch(self.batch.take(dropped), reason)
        forward_in_one([one.ctx for one in sides], results, nodes[rows])
        for one in self.refused:
            one.meets_policy_of(sides[nodes[one.at]].ctx)

    def _results(self, partners: Partners) -> tuple[ColumnarBatch, Int64s]:
        """The results, and the record that causes each."""
        count, joiner = len(self._sides), self._first.join.joiner
        names, difference_ms = self._first.join.streams, self._first.difference_ms
        asking, found = self.is_open, list[tuple[Int64s, Pairs]]()
        for step in range(1, count):
            stores = (self.records.nodes + step) % count
            pairs = partners.find(self.is_open, self.records.nodes, self._reach(asking, stores))
            found.append((stores, pairs))
            asking = np.zeros(len(asking), np.bool_)
            asking[pairs.rows] = True
        columns = [self._rows_by_record(pairs, stores, asking) for stores, pairs in found]
        rows, values, times = list[int](), list[Any](), list[int]()
        for row in rows_where(asking).tolist():
            time, key = int(self.timestamps[row]), self.batch.keys[row]
            # Starts with the record's own stream; reordered below to start with the first stream.
            around = [[(time, self.batch.values[row])], *(column[row] for column in columns)]
            first = count - int(self.records.nodes[row])
            ordered = [around[(first + stream) % count] for stream in range(count)]
            try:
                for combination in combinations(ordered, difference_ms, time, time):
                    arguments = (self.own(value) for _, value in combination)
                    values.append(joiner(key, dict(zip(names, arguments, strict=True))))
                    rows.append(row)
                    times.append(max(timestamp for timestamp, _ in combination))
            except Exception as error:
                self.fail(error, partly_done=bool(values))
        at = np.array(rows, np.int64)
        return self.of_rows(at, values, np.array(times, np.int64)), at

    def _reach(self, asking: Bools, stores: Int64s) -> Reach:
        """The ranges of time in which records look for partners."""
        first = self._first
        if first.is_strict:
            oldest = first.oldest_open(self.time)
        else:
            newest = np.stack([self.newest_in(side, node) for node, side in enumerate(self._sides)])
            oldest = first.oldest_visible(newest[stores, np.arange(len(stores))])
        lower = np.maximum(np.maximum(self.timestamps - first.difference_ms, oldest), 0)
        return Reach(asking, stores, lower, self.timestamps + first.difference_ms)

    def _rows_by_record(self, pairs: Pairs, stores: Int64s, asking: Bools) -> dict[int, list[Row]]:
        """Record -> the partners' times and values, for records that have partners in all stores."""
        wanted = rows_where(asking[pairs.rows])
        pairs = Pairs(pairs.rows[wanted], pairs.partners[wanted], pairs.times[wanted], pairs.stored, pairs.places)
        rows = zip(pairs.times.tolist(), self.values_from(pairs, stores[pairs.rows]), strict=True)
        records, counts = np.unique(pairs.rows, return_counts=True)
        return {row: list(islice(rows, count)) for row, count in zip(records.tolist(), counts.tolist(), strict=True)}
