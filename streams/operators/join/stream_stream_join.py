"""Two streams joined within a window of time (Kafka Streams: `KStreamKStreamJoin`); one instance per side.

Strict mode: T is the largest timestamp that reached the join from either side, null keys and values included. A left
record at l is open while l + max(0, after) + grace >= T, a right one at r while r + max(0, before) + grace >= T. What
is not open when it comes is late and gives nothing; a pair in the window is emitted if both are open when the later
one comes; a record of an outer side that found nobody gives one row when it ceases to be open. So within grace the
result does not depend on the order of arrival. Compat mode: no record is late; what bounds a match is the other store's
retention (before + after + grace) by the time of that store's own newest record, and probes are clamped at 0, as Kafka
Streams does it; for what it does with records without a partner see `unjoined`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from streams.model.record import Headers, Record
from streams.model.times import NO_TIME
from streams.model.waiting import LEFT, RIGHT
from streams.operators.join.outer_join_buffer import (
    CompatOuterJoinBuffer,
    OuterJoinBuffer,
    StrictOuterJoinBuffer,
    sides,
)
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import SharedStreamTime
from streams.serdes.base import Serde


class StreamStreamJoin(Operator):
    """One side of a join.

    Args:
        this_store: Window store of this side's records, duplicates kept.
        other_store: That of the other side.
        state_name: Name of the state that both sides share.
        before_ms: A right record at r joins a left one at l if l - before <= r <= l + after.
        after_ms: See above; either may be negative, their sum not.
        grace_ms: How long a record waits beyond its window.
        joiner: `(key, left value, right value) -> value`.
        is_left: Which side this is.
        unjoined_store: Key-value store of the records that found nobody (`serdes.waiting`); None: an inner join.
        key_serde: Of the keys in it.
        outer: This side's records give a row without a partner, too.
        other_outer: The other side's do.
    """

    def __init__(
        self,
        this_store: str,
        other_store: str,
        state_name: str,
        before_ms: int,
        after_ms: int,
        grace_ms: int,
        joiner: Callable[[Any, Any, Any], Any],
        is_left: bool,
        unjoined_store: str | None = None,
        key_serde: Serde | None = None,
        outer: bool = False,
        other_outer: bool = False,
    ) -> None:
        self.this_name = this_store
        self.other_name = other_store
        self.state_name = state_name
        self.joiner = joiner
        self.is_left = is_left
        self.before_ms, self.after_ms = before_ms, after_ms
        # As seen from this side: a partner lies in [t - back, t + ahead].
        self.back_ms, self.ahead_ms = (before_ms, after_ms) if is_left else (after_ms, before_ms)
        self.grace_ms = grace_ms
        self.retention_ms = before_ms + after_ms + grace_ms
        self.unjoined_name = unjoined_store
        self.key_serde = key_serde
        self.outer = outer
        self.other_outer = other_outer
        self.side, self.other_side = (LEFT, RIGHT) if is_left else (RIGHT, LEFT)

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and the shared time."""
        super().init(ctx)
        self.this_store: TypedWindowStore = ctx.store(self.this_name)
        self.other_store: TypedWindowStore = ctx.store(self.other_name)
        self._state = ctx.shared_state(self.state_name)
        self._time = SharedStreamTime(self._state, sides=2)
        self._strict = ctx.mode == "strict"
        self._unjoined = self._open_unjoined(ctx)

    def _open_unjoined(self, ctx: OperatorContext) -> OuterJoinBuffer | None:
        if self.unjoined_name is None:
            return None
        assert self.key_serde is not None, "records that wait need a key serde"
        rows = TimeOrderedBuffer(ctx.store(self.unjoined_name), self.key_serde, self.unjoined_name, self._state)
        waits = sides(self.before_ms, self.after_ms, self.grace_ms, self._strict)
        if self._strict:
            return StrictOuterJoinBuffer(rows, waits, self._emit_alone, ctx.attempt)
        interval_ms = ctx.emit_interval_ms
        return CompatOuterJoinBuffer(rows, waits, self._emit_alone, self.grace_ms, self._state, ctx.now_ms, interval_ms)

    def process(self, record: Record) -> None:
        """Join with what the other side holds, then keep the record for the other side."""
        time = self._time.observe(record.timestamp)
        if self._strict and self._unjoined is not None:
            self._unjoined.expire(time, self.side, record)
        if record.key is None or record.value is None:
            self._without_key_or_value(record)
            return
        # Arithmetic as in the module's text: how long a record of this side, and one of the other, stays open.
        if self._strict and record.timestamp + max(0, self.ahead_ms) + self.grace_ms < time:
            self.ctx.drop(record, "late")
            return
        if not self._strict and self._unjoined is not None:
            self._unjoined.expire(time, self.side, record)
        found = self._join(record, time)
        if not found and self.outer and self._unjoined is not None:
            self._unjoined.add(time, self.side, record)
        self._keep(record)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """The stream time of both sides moves on: emit the rows of records that wait no longer."""
        least = self._time.common_limit(limit)
        if least is None:
            return limit
        time = self._time.advance(elapsed_ms, least)
        if self._unjoined is None:
            return least
        for side in (LEFT, RIGHT):
            self._unjoined.expire(time, side, Record(None, None, time))
        return min(least, self._unjoined.oldest)

    def flush(self) -> None:
        """Rows that no record can meet any more may go."""
        self.ctx.expire(self.this_name, self._time.now if self._strict else self._newest_in(self.this_name))

    def _join(self, record: Record, time: int) -> bool:
        """Emit the pairs, oldest partner first; whether there were any."""
        joined_at = None
        for timestamp, other in self._partners(record, time):
            if self.other_outer and self._unjoined is not None and timestamp != joined_at:
                self._unjoined.joined(self.other_side, record.key, timestamp)
            joined_at = timestamp
            left, right = (record.value, other) if self.is_left else (other, record.value)
            joined = self.joiner(record.key, left, right)
            self.ctx.forward(Record(record.key, joined, max(timestamp, record.timestamp), record.headers))
        return joined_at is not None

    def _without_key_or_value(self, record: Record) -> None:
        """On an outer side a value without a key gives its row at once (KIP-962)."""
        if record.value is not None and self.outer:
            self._emit_alone(self.side, None, record.value, record.timestamp, record.headers)
        else:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")

    def _emit_alone(self, side: int, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        left, right = (value, None) if side == LEFT else (None, value)
        self.ctx.forward(Record(key, self.joiner(key, left, right), timestamp, headers))

    def _partners(self, record: Record, time: int) -> Iterator[tuple[int, Any]]:
        earliest, latest = record.timestamp - self.back_ms, record.timestamp + self.ahead_ms
        if self._strict:
            oldest_open = time - max(0, self.back_ms) - self.grace_ms
            return self.other_store.fetch_range(record.key, max(0, earliest, oldest_open), latest)
        oldest_visible = self._newest_in(self.other_name) - self.retention_ms + 1
        return self.other_store.fetch_range(record.key, max(0, earliest, oldest_visible), max(0, latest))

    def _keep(self, record: Record) -> None:
        """Store it; remember the newest time put into this side's store, which compat mode goes by."""
        self._state[self.this_name] = max(self._newest_in(self.this_name), record.timestamp)
        self.this_store.put(record.key, record.timestamp, record.value)

    def _newest_in(self, store: str) -> int:
        newest: int = self._state.get(store, NO_TIME)
        return newest
