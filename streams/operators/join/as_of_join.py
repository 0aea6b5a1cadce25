"""As-of join of two streams: each left record with the newest right one of its key that is not newer than itself.

T is the largest timestamp that reached the join, from either side (null keys and values count). A record is late, and
dropped, if its timestamp + grace < T. A left record waits until T > its timestamp + grace: then no right record that
concerns it can come in time any more, so the result does not depend on the order of arrival within grace. Of right
records with one key and timestamp the last to come counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from streams.model.record import Record
from streams.model.waiting import LEFT
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stores.window import TypedTimestampedWindowStore
from streams.operators.stream_time import SharedStreamTime
from streams.serdes.base import Serde


class AsOfJoin(Operator):
    """One side of the join. The result has the left record's time and headers.

    Null values are dropped. A null key is dropped; on the left of a left join it gives a row with None at once.

    Args:
        store: Timestamped window store of the right records.
        waiting: Key-value store of the left records that wait (`serdes.waiting`).
        key_serde: Of the keys in it.
        state_name: Name of the state that both sides share.
        within_ms: How much older than the left record the right one may be.
        grace_ms: How late a record may be.
        joiner: `(key, left value, right value) -> value`.
        is_left: Which side this is.
        left_join: A left record that found nobody is joined with None; otherwise it gives nothing.
    """

    def __init__(
        self,
        store: str,
        waiting: str,
        key_serde: Serde,
        state_name: str,
        within_ms: int,
        grace_ms: int,
        joiner: Callable[[Any, Any, Any], Any],
        is_left: bool,
        left_join: bool,
    ) -> None:
        self.store_name = store
        self.waiting_name = waiting
        self.key_serde = key_serde
        self.state_name = state_name
        self.within_ms = within_ms
        self.grace_ms = grace_ms
        self.joiner = joiner
        self.is_left = is_left
        self.left_join = left_join

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and the shared time."""
        super().init(ctx)
        self._store: TypedTimestampedWindowStore = ctx.store(self.store_name)
        state = ctx.shared_state(self.state_name)
        self._time = SharedStreamTime(state, sides=2)
        self._waiting = TimeOrderedBuffer(ctx.store(self.waiting_name), self.key_serde, self.waiting_name, state)

    def process(self, record: Record) -> None:
        """Let go of left records whose time has come; then keep this one."""
        time = self._time.observe(record.timestamp)
        self._join_due(time)
        if record.value is None:
            self.ctx.drop(record, "null_value")
        elif record.key is None:
            self._without_key(record)
        elif record.timestamp + self.grace_ms < time:
            self.ctx.drop(record, "late")
        elif self.is_left:
            wait_until = record.timestamp + self.grace_ms
            self._waiting.add(wait_until, LEFT, record.key, record.value, record.headers)
        else:
            self._store.put(record.key, record.timestamp, record.value, record.timestamp)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """The stream time of both sides moves on: join what has waited long enough by that."""
        least = self._time.common_limit(limit)
        if least is None:
            return limit
        self._join_due(self._time.advance(elapsed_ms, least))
        return min(least, self._waiting.first_time - self.grace_ms)

    def flush(self) -> None:
        """Right records that no left one can meet any more may go."""
        self.ctx.expire(self.store_name, self._time.now)

    def _join_due(self, time: int) -> None:
        for due in self._waiting.take(time):
            row = Record(due.key, due.value, due.place.time - self.grace_ms, due.headers)
            # They are taken out already: one that fails must not take the others along, nor the record that made them due.
            self.ctx.attempt(partial(self._join, row), due.held(row.timestamp))

    def _join(self, record: Record) -> None:
        earliest = max(0, record.timestamp - self.within_ms)
        newest = next(self._store.fetch_range(record.key, earliest, record.timestamp, reverse=True), None)
        if newest is None and not self.left_join:
            return
        value = None if newest is None else newest[1].value
        self.ctx.forward(record.with_value(self.joiner(record.key, record.value, value)))

    def _without_key(self, record: Record) -> None:
        if self.is_left and self.left_join:
            self.ctx.forward(record.with_value(self.joiner(None, record.value, None)))
        else:
            self.ctx.drop(record, "null_key")
