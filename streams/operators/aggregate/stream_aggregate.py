"""`count`, `reduce` and `aggregate` of a grouped stream (Kafka Streams: `KStreamAggregate`, `KStreamReduce`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from streams.model.record import Change, Headers, Record
from streams.operators.processor import Processor, ProcessorContext
from streams.operators.stores.key_value import CachedRow, TimestampedKeyValueStore, drain_pending, result_of

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]


class StreamAggregate(Processor):
    """Aggregate per key. Null keys and null values are dropped; the result's time is the largest of its records.

    Args:
        store: Name of a timestamped key-value store.
        initializer: `() -> aggregate`; None for a reduce, whose first value is taken as it is.
        aggregator: `(key, value, aggregate) -> aggregate`; None deletes, the next record starts anew.
        caching: Emit the last value of a key once, at the end of the step; False: every update.
        send_old: Whether `Change.old` is wanted downstream.
    """

    def __init__(
        self,
        store: str,
        initializer: Initializer | None,
        aggregator: Aggregator,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        self.store_name = store
        self.initializer = initializer
        self.aggregator = aggregator
        self.caching = caching
        self.send_old = send_old

    def init(self, ctx: ProcessorContext) -> None:
        """Open the store."""
        super().init(ctx)
        self.store: TimestampedKeyValueStore = ctx.store(self.store_name)
        if self.caching:
            self.store.use_cache()

    def process(self, record: Record) -> None:
        """Add one record to the aggregate of its key."""
        if record.key is None or record.value is None:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")
            return
        entry = self.store.entry(record.key)
        entry.set(*updated(entry, record, self.initializer, self.aggregator))
        if self.caching:
            self.store.pending[entry.key] = (record.key, record.headers, entry)
        else:
            self._emit(record.key, record.headers, entry)

    def flush(self) -> None:
        """Emit each key's last value, in order of time."""
        for key, headers, entry in drain_pending(self.store, self.store.pending):
            self.ctx.attempt(partial(self._emit, key, headers, entry), result_of(entry, headers))

    def _emit(self, key: Any, headers: Headers, entry: CachedRow) -> None:
        old = self.store.codec.read_value(entry.stored[8:]) if self.send_old and entry.stored is not None else None
        entry.sent(self.store.write(entry))
        self.ctx.forward(Record(key, Change(entry.value, old), entry.timestamp, headers))


def updated(
    entry: CachedRow, record: Record, initializer: Initializer | None, aggregator: Aggregator
) -> tuple[Any, int]:
    """Value and timestamp of an aggregate after one more record."""
    value, timestamp = entry.value, record.timestamp
    if value is not None:
        timestamp = max(timestamp, entry.timestamp)
    elif initializer is None:
        return record.value, timestamp
    else:
        value = initializer()
    return aggregator(record.key, record.value, value), timestamp
