"""Two streams joined within a time window (Kafka Streams: `KStreamKStreamJoin`); one instance per side.

Strict mode: T is the largest timestamp that reached the join from either side, null keys and values included. A left
record at l is open while l + max(0, after) + grace >= T, a right one at r while r + max(0, before) + grace >= T. A record
that is not open on arrival is late and gives nothing; a pair in the window is emitted if both are open when the later one
arrives; a record of an outer side without a partner gives one result when it ceases to be open. Within grace, the result
therefore does not depend on the order of arrival. Compat mode: no record is late; a match is limited by the other store's
retention (before + after + grace) relative to that store's own newest record, and range queries are clamped at 0, as in
Kafka Streams; for compat mode's records without a partner see `outer_join_buffer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from streams.model.record import Headers, Record
from streams.model.times import MAX_TIME, NO_TIME
from streams.model.waiting import LEFT, RIGHT
from streams.operators.columnar import Int64s
from streams.operators.join.options import JoinSide, StreamJoin
from streams.operators.join.outer_join_buffer import (
    CompatOuterJoinBuffer,
    OuterJoinBuffer,
    StrictOuterJoinBuffer,
    waits_of,
)
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import SharedStreamTime

Times = TypeVar("Times", int, Int64s)


class StreamStreamJoin(Operator):
    """One side of a join.

    Args:
        join: The parameters that both sides share.
        side: This side.
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
