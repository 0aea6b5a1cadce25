"""`deduplicate`: forwards the first record of its kind and drops repetitions within a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.foreign_key import CombinedKey
from streams.model.record import Record
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import StreamTime


class Deduplicate(Operator):
    """Drops a record if a record with the same key (and id) and a time less than `within_ms` away, either way, was forwarded.

    The first to arrive is forwarded, even if a later one is older. Stream time is the largest timestamp so far. A record older than
    stream time - grace is dropped as late, because what it may repeat is no longer known. Null keys are dropped.

    Args:
        store: Window store of what was forwarded: keys, or `CombinedKey(key, id)` if there is an id.
        within_ms: How far apart repetitions may be.
        grace_ms: How late a record may be.
        by: `(key, value) -> id`; None: only the key counts. A record whose id is None is always forwarded.
    """

    def __init__(self, store: str, within_ms: int, grace_ms: int, by: Callable[[Any, Any], Any] | None = None) -> None:
        self.store_name = store
        self.within_ms = within_ms
        self.grace_ms = grace_ms
        self.by = by

    def init(self, ctx: OperatorContext) -> None:
        """Open the store and restore stream time."""
        super().init(ctx)
        self._time = StreamTime(ctx.state)
        self._store: TypedWindowStore = ctx.store(self.store_name)

    def process(self, record: Record) -> None:
        """Forward or drop."""
        time = self._time.observe(record.timestamp)
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        if record.timestamp < time - self.grace_ms:
            self.ctx.drop(record, "late")
            return
        place = record.key
        if self.by is not None:
            found = self.by(record.key, record.value)
            if found is None:
                self.ctx.forward(record)
                return
            place = CombinedKey(record.key, found)
        earliest, latest = max(0, record.timestamp - self.within_ms + 1), record.timestamp + self.within_ms - 1
        if any(True for _ in self._store.fetch_range(place, earliest, latest)):
            self.ctx.drop(record, "duplicate")
            return
        self._store.put(place, record.timestamp, True)
        self.ctx.forward(record)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time."""
        self._time.advance(elapsed_ms, limit)
        return limit

    def flush(self) -> None:
        """Expire what no record can repeat any more."""
        self.ctx.expire(self.store_name, self._time.now)
