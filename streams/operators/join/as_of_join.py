"""As-of join of two streams: each left record with the newest right record of its key that is not newer than itself.

T is the largest timestamp that reached the join, from either side (null keys and values count). A record is late, and
dropped, if its timestamp + grace < T. A left record waits until T > its timestamp + grace: then no matching right record can
arrive in time any more, so the result does not depend on the order of arrival within grace. Of right records with the
same key and timestamp, the last to arrive counts.
"""

from __future__ import annotations

from functools import partial

from streams.model.record import Record
from streams.model.waiting import LEFT
from streams.operators.join.options import AsOf
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stores.window import TypedTimestampedWindowStore
from streams.operators.stream_time import SharedStreamTime


class AsOfJoin(Operator):
    """One side of the join. The result has the left record's time and headers.

    Null values are dropped. A null key is dropped; on the left of a left join it gives a result with None at once.

    Args:
        join: The parameters that both sides share.
        is_left: Whether this is the left side.
        store: Timestamped window store of the right records.
        waiting: Key-value store of the waiting left records (`serdes.waiting`).
        state_name: Name of the state that both sides share.
    """

    def __init__(self, join: AsOf, is_left: bool, store: str, waiting: str, state_name: str) -> None:
        self.join = join
        self.is_left = is_left
        self.store_name = store
        self.waiting_name = waiting
        self.state_name = state_name

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and the shared stream time."""
        super().init(ctx)
        self.store: TypedTimestampedWindowStore = ctx.store(self.store_name)
        state = ctx.shared_state(self.state_name)
        self.time = SharedStreamTime(state, sides=2)
        self.waiting = TimeOrderedBuffer(ctx.store(self.waiting_name), self.join.key_serde, self.waiting_name, state)

    def process(self, record: Record) -> None:
        """Join the left records that are due, then store this record."""
        time = self.time.observe(record.timestamp)
        self._join_due(time)
        if record.value is None:
            self.ctx.drop(record, "null_value")
        elif record.key is None:
            self._without_key(record)
        elif record.timestamp + self.join.grace_ms < time:
            self.ctx.drop(record, "late")
        elif self.is_left:
            wait_until = record.timestamp + self.join.grace_ms
            self.waiting.add(wait_until, LEFT, record.key, record.value, record.headers)
        else:
            self.store.put(record.key, record.timestamp, record.value, record.timestamp)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance the stream time of both sides: join the left records that this makes due."""
        least = self.time.common_limit(limit)
        if least is None:
            return limit
        self._join_due(self.time.advance(elapsed_ms, least))
        return min(least, self.waiting.first_time - self.join.grace_ms)

    def flush(self) -> None:
        """Expire right records that no left record can match any more."""
        self.ctx.expire(self.store_name, self.time.now)

    def _join_due(self, time: int) -> None:
        for due in self.waiting.take(time):
            row = Record(due.key, due.value, due.place.time - self.join.grace_ms, due.headers)
            # The rows are already removed: one that fails must not lose the others, nor the record that made them due.
            self.ctx.attempt(partial(self._join, row), due.held(row.timestamp))

    def _join(self, record: Record) -> None:
        earliest = max(0, record.timestamp - self.join.within_ms)
        newest = next(self.store.fetch_range(record.key, earliest, record.timestamp, reverse=True), None)
        if newest is None and not self.join.is_left_join:
            return
        value = None if newest is None else newest[1].value
        self.ctx.forward(record.with_value(self.join.joiner(record.key, record.value, value)))

    def _without_key(self, record: Record) -> None:
        if self.is_left and self.join.is_left_join:
            self.ctx.forward(record.with_value(self.join.joiner(None, record.value, None)))
        else:
            self.ctx.drop(record, "null_key")
