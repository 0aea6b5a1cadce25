"""A join of several streams over the columns of a step: `StreamJoinAll` for all streams at once.

Each record looks for partners in the store of the next stream, of the one after that, and so on; the records that have some
in every store are combined one after the other, as without columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from streams.operators.columnar import ColumnarBatch, Int64s
from streams.operators.join.columns.pairs import (
    Bools,
    JoinRecords,
    Pairs,
    Partners,
    Reach,
    StoredStep,
    check_lengths,
    forward_in_one,
    store_keys,
)
from streams.operators.join.stream_join_all import Row, StreamJoinAll, combinations


class StreamJoinAllTogether:
    """See `BatchProcessor`.

    Args:
        operators: Those of all streams.
    """

    def __init__(self, operators: Sequence[StreamJoinAll]) -> None:
        # In the order of the join's streams, which is that of the stores.
        streams = operators[0].join.streams
        self._order = sorted(range(len(operators)), key=lambda at: streams.index(operators[at].name))
        self._sides = [operators[at] for at in self._order]

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        """Join, store, forward; see `BatchProcessor`."""
        check_lengths(self._sides[0].join.windows)
        _JoinAllStep(self._sides, JoinRecords.of([batches[at] for at in self._order])).run()


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
        super().__init__([one.own_store.codec for one in sides], records, time, is_open, is_open, keeps_values=False)

    def run(self) -> None:
        """Compute everything, then write, then forward."""
        sides, nodes = self._sides, self.records.nodes
        keys = store_keys(self.batch.keys, self.codecs)
        results, rows = self._results(Partners([one.own_store for one in sides], keys, self.timestamps, self._latest()))
        self.check_unchanged(rows)
        puts = [self.rows_of(self.is_open & (nodes == node), node, keys[node]) for node in range(len(sides))]
        self._first.time.observe(int(self.time[-1]))
        for side, (cells, times, values) in zip(sides, puts, strict=True):
            if len(times):
                side.own_store.put_columns(cells, times, values)
                side.kept(int(times.max()))
        for dropped, reason in self.drops(~self.is_open, nodes):
            sides[nodes[dropped[0]]].ctx.drop_batch(self.batch.take(dropped), reason)
        forward_in_one([one.ctx for one in sides], results, nodes[rows])

    def _latest(self) -> list[int]:
        return [one.latest for one in self._sides]

    def _results(self, partners: Partners) -> tuple[ColumnarBatch, Int64s]:
        """The results, and the record that each comes from."""
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
        for row in np.flatnonzero(asking).tolist():
            time, key = int(self.timestamps[row]), self.batch.keys[row]
            # From the record's own stream on; then from the first one on.
            around = [[(time, self.batch.values[row])], *(column[row] for column in columns)]
            first = count - int(self.records.nodes[row])
            ordered = [around[(first + stream) % count] for stream in range(count)]
            for combination in combinations(ordered, difference_ms, time, time):
                rows.append(row)
                values.append(joiner(key, dict(zip(names, (value for _, value in combination), strict=True))))
                times.append(max(timestamp for timestamp, _ in combination))
        at = np.array(rows, np.int64)
        return self.of_rows(at, values, np.array(times, np.int64)), at

    def _reach(self, asking: Bools, stores: Int64s) -> Reach:
        """Where records look for partners: the times that `StreamJoinAll` scans for each of them."""
        first = self._first
        if first.is_strict:
            oldest = first.oldest_open(self.time)
        else:
            newest = np.stack([self._newest_in(node) for node in range(len(self._sides))])
            oldest = first.oldest_visible(newest[stores, np.arange(len(stores))])
        lower = np.maximum(np.maximum(self.timestamps - first.difference_ms, oldest), 0)
        return Reach(asking, stores, lower, self.timestamps + first.difference_ms)

    def _newest_in(self, node: int) -> Int64s:
        """The newest time in the store of a stream as of each record."""
        kept = self.is_open & (self.records.nodes == node)
        newest: Int64s = np.maximum.accumulate(np.where(kept, self.timestamps, self._sides[node].newest))
        return newest

    def _rows_by_record(self, pairs: Pairs, stores: Int64s, asking: Bools) -> dict[int, list[Row]]:
        """The partners' times and values of the records that have partners in all stores."""
        wanted = np.flatnonzero(asking[pairs.rows])
        pairs = Pairs(pairs.rows[wanted], pairs.partners[wanted], pairs.times[wanted], pairs.stored, pairs.places)
        rows = zip(pairs.times.tolist(), self.values_from(pairs, stores[pairs.rows]), strict=True)
        records, counts = np.unique(pairs.rows, return_counts=True)
        return {row: list(islice(rows, count)) for row, count in zip(records.tolist(), counts.tolist(), strict=True)}
