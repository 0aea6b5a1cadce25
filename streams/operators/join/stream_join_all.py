"""Several streams joined within a time window; one instance per stream. Kafka Streams joins two at a time only.

A combination has one record of each stream, all with the same key, of which the newest is at most `difference` newer than the
oldest. A combination gives one result, when the last of its records arrives. Strict mode: T is the largest timestamp that reached
the join from any stream, null keys and values included; a record at t is open while t + difference + grace >= T. A record that is
not open on arrival is late and gives nothing; a combination is emitted if all its records are open when the last one
arrives. Within grace, the results therefore do not depend on the order of arrival. Compat mode corresponds to that of
`stream_stream_join`: no record is late; a match is limited by each other store's retention (2 * difference + grace) relative to
that store's own newest record.

Invariant: results of one record come in a fixed order: by the time, then the arrival, of the first stream's record, next of
the second's, and so on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from streams.model.record import Record
from streams.model.times import MAX_TIME, NO_TIME
from streams.operators.columnar import Int64s
from streams.operators.join.options import JoinAll
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import SharedStreamTime

Times = TypeVar("Times", int, Int64s)

Row = tuple[int, Any]
"""Timestamp in ms, and value."""


class StreamJoinAll(Operator):
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
        self.join = join
        self.name = name
        self.stores = dict(zip(join.streams, stores, strict=True))
        self.state_name = state_name
        self.difference_ms, self.grace_ms = join.windows.after_ms, join.windows.grace_ms

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and the shared stream time."""
        super().init(ctx)
        self._opened: dict[str, TypedWindowStore] = {name: ctx.store(store) for name, store in self.stores.items()}
        self._state = ctx.shared_state(self.state_name)
        self.time = SharedStreamTime(self._state, len(self.stores))
        self.is_strict = ctx.mode == "strict"

    def process(self, record: Record) -> None:
        """Join with the records of the other streams, then store the record for them."""
        time = self.time.observe(record.timestamp)
        if record.key is None or record.value is None:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")
        elif self.is_strict and record.timestamp < self.oldest_open(time):
            self.ctx.drop(record, "late")
        else:
            self._join(record, time)
            self._keep(record)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance the stream time of all sides; no record waits."""
        least = self.time.common_limit(limit)
        if least is None:
            return limit
        self.time.advance(elapsed_ms, least)
        return least

    def flush(self) -> None:
        """Expire rows that no record can match any more."""
        store = self.stores[self.name]
        self.ctx.expire(store, self.time.now if self.is_strict else self._newest_in(store))

    def _join(self, record: Record, time: int) -> None:
        """Emit the combinations that the record completes."""
        rows = self._rows(record, time)
        for combination in combinations(rows, self.difference_ms, record.timestamp, record.timestamp):
            values = dict(zip(self._opened, (value for _, value in combination), strict=True))
            newest = max(timestamp for timestamp, _ in combination)
            self.ctx.forward(Record(record.key, self.join.joiner(record.key, values), newest, record.headers))

    def _rows(self, record: Record, time: int) -> list[list[Row]]:
        """For each stream its rows in range of the record (for the record's own only itself); empty if a stream has none."""
        rows = []
        for name, store in self._opened.items():
            if name == self.name:
                rows.append([(record.timestamp, record.value)])
                continue
            oldest = (
                self.oldest_open(time) if self.is_strict else self.oldest_visible(self._newest_in(self.stores[name]))
            )
            earliest = max(0, record.timestamp - self.difference_ms, oldest)
            rows.append(list(store.fetch_range(record.key, earliest, record.timestamp + self.difference_ms)))
            if not rows[-1]:
                return [[]]
        return rows

    def oldest_open(self, time: Times) -> Times:
        """In strict mode, the time of the oldest record that is open at a stream time."""
        return time - self.difference_ms - self.grace_ms

    def oldest_visible(self, newest: Times) -> Times:
        """In compat mode, the time of the oldest visible row of another stream's store, whose newest row has this time."""
        return newest - (2 * self.difference_ms + self.grace_ms) + 1

    def _newest_in(self, store: str) -> int:
        newest: int = self._state.get(store, NO_TIME)
        return newest

    @property
    def own_store(self) -> TypedWindowStore:
        return self._opened[self.name]

    @property
    def newest(self) -> int:
        """The newest time in this stream's store."""
        return self._newest_in(self.stores[self.name])

    @property
    def latest(self) -> int:
        """A time that no row in this stream's store is newer than, so that later ones need not be looked for."""
        # A store without this entry was written by a program of another form.
        latest: int = self._state.get(self.stores[self.name], MAX_TIME)
        return latest

    def _keep(self, record: Record) -> None:
        self.kept(record.timestamp)
        self.own_store.put(record.key, record.timestamp, record.value)

    def kept(self, timestamp: int) -> None:
        """Note the newest time in this stream's store, which compat mode uses."""
        self._state[self.stores[self.name]] = max(self.newest, timestamp)


def combinations(rows: Sequence[Sequence[Row]], span_ms: int, oldest: int, newest: int) -> Iterator[tuple[Row, ...]]:
    """All choices of one row of each list that, together with the rows chosen before, span at most `span_ms`."""
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
