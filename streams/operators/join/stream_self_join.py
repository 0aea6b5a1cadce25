"""A stream joined with itself, over one store (Kafka Streams: `KStreamKStreamSelfJoin`, KIP-862).

Strict mode gives exactly the results of two nodes with a store each (`stream_stream_join`): each record is first a left one,
then a right one, and joins itself if its own time is within the window. Compat mode gives the results of Kafka Streams 4.3 with
`topology.optimization=all`, including its flaws: left and outer joins become inner ones, and a record joins itself whatever
the window, unless it is older than the store's retention.
"""

from __future__ import annotations

from typing import Any

from streams.model.record import Headers, Record
from streams.model.times import NO_TIME
from streams.model.waiting import LEFT, RIGHT
from streams.operators.join.options import StreamJoin
from streams.operators.join.outer_join_buffer import StrictOuterJoinBuffer, waits_of
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import StreamTime

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
