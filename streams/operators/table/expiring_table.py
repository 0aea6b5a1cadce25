"""A table whose rows are deleted some time after their last update (TTL). Kafka Streams has no TTL for tables."""

from __future__ import annotations

from streams.model.record import RIGHT, Record
from streams.operators.operator import OperatorContext, RecordOperator
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stream_time import StreamTime
from streams.operators.table.table_materializer import TableMaterializer
from streams.operators.table.table_steps import TableSource
from streams.serdes.base import Serde


class ExpiringTable(RecordOperator, TableSource):
    """Deletes a row of time t, downstream too, when stream time reaches t + ttl, which is the time of the deletion.

    Stream time is the largest timestamp that reached the table, so nothing depends on a clock, steps or restarts. An update
    that would be expired already is dropped as late. Deadlines are in a store ordered by time, one per row, and one more for
    each update that brings a deadline forward: a row's deadline is moved when due if the row was updated since.

    Args:
        store: Name of a timestamped key-value store.
        deadlines: Name of the store of deadlines (`serdes.waiting`).
        ttl_ms: How long a row stays.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`.
    """

    def __init__(
        self,
        store: str,
        deadlines: str,
        key_serde: Serde,
        ttl_ms: int,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.rows_name = store
        self.deadlines_name = deadlines
        self.key_serde = key_serde
        self.ttl_ms = ttl_ms

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self._time = StreamTime(ctx.state)
        self._table: TableMaterializer
        self._rows: TypedTimestampedKeyValueStore = ctx.store(self.rows_name)
        self._deadlines = TimeOrderedBuffer(
            ctx.store(self.deadlines_name), self.key_serde, self.deadlines_name, ctx.state
        )

    def process(self, record: Record) -> None:
        """Delete the expired rows, then set or delete this one."""
        time = self._time.observe(record.timestamp)
        self._expire(time)
        if record.key is None:
            self.ctx.drop(record, "null_key")
        elif record.timestamp + self.ttl_ms <= time:
            self.ctx.drop(record, "late")
        else:
            if record.value is not None and self._needs_deadline(record):
                self._deadlines.add(record.timestamp + self.ttl_ms, RIGHT, record.key, b"", ())
            self._table.update(record, record.value)

    def _needs_deadline(self, record: Record) -> bool:
        """Whether the row is new, or an out-of-order update makes it expire earlier than before."""
        held = self._rows.get(record.key)
        return held is None or record.timestamp < held.timestamp

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time: delete the rows that this expires. Rows that expire later have a later time."""
        self._expire(self._time.advance(elapsed_ms, limit))
        return limit

    def _expire(self, time: int) -> None:
        expired = []
        for due in self._deadlines.take(time + 1):
            found = self._rows.get(due.key)
            if found is None:
                continue
            deadline = found.timestamp + self.ttl_ms
            if deadline > time:
                self._deadlines.remove_all(deadline, RIGHT, due.key)
                self._deadlines.add(deadline, RIGHT, due.key, b"", ())
            else:
                expired.append((deadline, due.place.key, due.key))
        # By their own deadlines: the ones found may be older, from before an update.
        for deadline, _, key in sorted(expired, key=lambda one: one[:2]):
            if self._rows.get(key) is not None:
                self._table.update(Record(key, None, deadline), None)
