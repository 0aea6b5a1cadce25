"""Two streams joined within a window of time (Kafka Streams: `KStreamKStreamJoin`); one instance per side.

Strict mode: T is the largest timestamp that reached the join from either side, null keys and values included. A left
record at l is open while l + max(0, after) + grace >= T, a right one at r while r + max(0, before) + grace >= T. What
is not open when it comes is late and gives nothing; a pair in the window is emitted if both are open when the later
one comes. So within grace the result does not depend on the order of arrival. Compat mode: no record is late; what
bounds a match is the other store's retention (before + after + grace) by the time of that store's own newest record,
and probes are clamped at 0, as Kafka Streams does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from streams.operators.processor import Processor, ProcessorContext
from streams.operators.record import Record
from streams.operators.stores import WindowStore

STREAM_TIME = "stream_time"


class StreamStreamJoin(Processor):
    """One side of an inner join.

    Args:
        this_store: Window store of this side's records, duplicates kept.
        other_store: That of the other side.
        state_name: Name of the state that both sides share.
        before_ms: A right record at r joins a left one at l if l - before <= r <= l + after.
        after_ms: See above; either may be negative, their sum not.
        grace_ms: How long a record waits beyond its window.
        joiner: `(key, left value, right value) -> value`.
        is_left: Which side this is.
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
    ) -> None:
        self.this_name = this_store
        self.other_name = other_store
        self.state_name = state_name
        self.joiner = joiner
        self.is_left = is_left
        # As seen from this side: a partner lies in [t - back, t + ahead].
        self.back_ms, self.ahead_ms = (before_ms, after_ms) if is_left else (after_ms, before_ms)
        self.grace_ms = grace_ms
        self.retention_ms = before_ms + after_ms + grace_ms

    def init(self, ctx: ProcessorContext) -> None:
        """Open both stores and the shared time."""
        super().init(ctx)
        self.this_store: WindowStore = ctx.store(self.this_name)
        self.other_store: WindowStore = ctx.store(self.other_name)
        self._time = ctx.shared_state(self.state_name)
        self._strict = ctx.mode == "strict"

    def process(self, record: Record) -> None:
        """Join with what the other side holds, then keep the record for the other side."""
        time = self._time[STREAM_TIME] = max(self._time.get(STREAM_TIME, -1), record.timestamp)
        if record.key is None or record.value is None:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")
            return
        # Arithmetic as in the module's text: how long a record of this side, and one of the other, stays open.
        if self._strict and record.timestamp + max(0, self.ahead_ms) + self.grace_ms < time:
            self.ctx.drop(record, "late")
            return
        for timestamp, other in self._partners(record, time):
            left, right = (record.value, other) if self.is_left else (other, record.value)
            joined = self.joiner(record.key, left, right)
            self.ctx.forward(Record(record.key, joined, max(timestamp, record.timestamp), record.headers))
        self._keep(record)

    def flush(self) -> None:
        """Rows that no record can meet any more may go."""
        clock = STREAM_TIME if self._strict else self.this_name
        self.ctx.expire(self.this_name, self._time.get(clock, -1))

    def _partners(self, record: Record, time: int) -> Iterator[tuple[int, Any]]:
        earliest, latest = record.timestamp - self.back_ms, record.timestamp + self.ahead_ms
        if self._strict:
            oldest_open = time - max(0, self.back_ms) - self.grace_ms
            return self.other_store.fetch_range(record.key, max(0, earliest, oldest_open), latest)
        oldest_visible = self._time.get(self.other_name, -1) - self.retention_ms + 1
        return self.other_store.fetch_range(record.key, max(0, earliest, oldest_visible), max(0, latest))

    def _keep(self, record: Record) -> None:
        """Store it; remember the newest time put into this side's store, which compat mode goes by."""
        self._time[self.this_name] = max(self._time.get(self.this_name, -1), record.timestamp)
        self.this_store.put(record.key, record.timestamp, record.value)
