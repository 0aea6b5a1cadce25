"""Aggregation in tumbling, hopping and other windows of time (Kafka Streams: `KStreamWindowAggregate`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from streams.model.record import Change, Headers, Record, Window, Windowed
from streams.operators.aggregate.stream_aggregate import Aggregator, Initializer, updated
from streams.operators.idle_time import advanced
from streams.operators.processor import Processor, ProcessorContext
from streams.operators.stores.key_value import CachedRow, TimestampedWindowStore, drain_pending, result_of

if TYPE_CHECKING:
    from streams.model.custom_windows import Windows
    from streams.model.windows import TimeWindows

STREAM_TIME = "stream_time"


class WindowAggregate(Processor):
    """Aggregate per key and window.

    A window takes a record while its end > stream time - grace, decided per window; stream time is the largest
    timestamp that reached this operator with a key. It is kept in state, so that a restart forgets no lateness (Kafka
    Streams does). Null keys are dropped and do not advance it; null values are aggregated like any value.

    Args:
        store: Name of a timestamped window store.
        windows: Which windows, and grace.
        initializer: `() -> aggregate`; None for a reduce.
        aggregator: `(key, value, aggregate) -> aggregate`.
        caching: Emit the last value of a window once, at the end of the step; False: every update.
        send_old: Whether `Change.old` is wanted downstream.
        view: Makes the result of the stored aggregate, where they differ.
    """

    def __init__(
        self,
        store: str,
        windows: TimeWindows | Windows,
        initializer: Initializer | None,
        aggregator: Aggregator,
        caching: bool = True,
        send_old: bool = False,
        view: Callable[[Any], Any] | None = None,
    ) -> None:
        self.store_name = store
        self.windows = windows
        self.initializer = initializer
        self.aggregator = aggregator
        self.caching = caching
        self.send_old = send_old
        self.view = view

    def init(self, ctx: ProcessorContext) -> None:
        """Open the store and take up stream time."""
        super().init(ctx)
        self.store: TimestampedWindowStore = ctx.store(self.store_name)
        if self.caching:
            self.store.use_cache()
        self._stream_time: int = ctx.state.get(STREAM_TIME, -1)

    def process(self, record: Record) -> None:
        """Add one record to each of its windows that is still open."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        self._stream_time = max(self._stream_time, record.timestamp)
        close_time = self._stream_time - self.windows.grace_ms
        key = self.store.codec.key(record.key)
        for start in self.windows.starts(record.timestamp):
            if self.windows.end_of(start) <= close_time:
                self.ctx.drop(record, "late")
                continue
            entry = self.store.entry(key, start)
            entry.set(*updated(entry, record, self.initializer, self.aggregator))
            if self.caching:
                self.store.pending[(key, start)] = (record.key, record.headers, entry)
            else:
                self._emit(record.key, record.headers, entry)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Stream time moves on, which closes windows."""
        self._stream_time = advanced(self._stream_time, elapsed_ms, limit)
        return limit

    def flush(self) -> None:
        """Emit each window's last value, in order of time; tell the store what can never be read again."""
        for key, headers, entry in drain_pending(self.store, self.store.pending):
            self.ctx.attempt(partial(self._emit, key, headers, entry), result_of(entry, headers))
        self.ctx.expire(self.store_name, self._stream_time)

    def close(self) -> None:
        """Keep stream time."""
        self.ctx.state[STREAM_TIME] = self._stream_time

    def _emit(self, key: Any, headers: Headers, entry: CachedRow) -> None:
        old = self.store.codec.read_value(entry.stored[8:]) if self.send_old and entry.stored is not None else None
        entry.sent(self.store.write(entry))
        windowed = Windowed(key, Window(entry.start, self.windows.end_of(entry.start)))
        change = Change(self._viewed(entry.value), self._viewed(old))
        self.ctx.forward(Record(windowed, change, entry.timestamp, headers))

    def _viewed(self, stored: Any) -> Any:
        return stored if self.view is None or stored is None else self.view(stored)
