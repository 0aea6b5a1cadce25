"""Aggregation in windows of time that emits each window once, when it is closed (KIP-825, `KStreamWindowAggregate`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streams.model.record import Change, Headers, Record, Window, Windowed
from streams.operators.aggregate.open_windows import OpenWindows
from streams.operators.aggregate.stream_aggregate import Aggregator, Initializer, updated
from streams.operators.aggregate.window_aggregate import STREAM_TIME
from streams.operators.idle_time import advanced
from streams.operators.processor import Processor, ProcessorContext
from streams.operators.stores.key_value import CachedRow, TimestampedWindowStore

if TYPE_CHECKING:
    from streams.model.custom_windows import Windows
    from streams.model.windows import TimeWindows


class WindowAggregateOnClose(Processor):
    """Aggregates per key and window, and emits a window's result when its end + grace <= stream time.

    Which records a window takes: as `WindowAggregate`. Results come by window start (end, where lengths differ), then by
    the bytes of the key, each with the largest timestamp of its records and the headers of the record that closed it.
    Kafka Streams loses results in a jump of time, since its store forgets a window before it is emitted; here a window
    stays until it was emitted.

    Args:
        store: Name of a timestamped window store.
        open_store: Name of a key-value store of bytes, for the index of open windows.
        windows: Which windows, and grace.
        initializer: `() -> aggregate`; None for a reduce.
        aggregator: `(key, value, aggregate) -> aggregate`.
        view: Makes the result of the stored aggregate, where they differ.
        caching: Write a window to the store once, at the end of the step; results are the same.
        send_old: Accepted as by all aggregations; a window has one result, and nothing before it.
    """

    def __init__(
        self,
        store: str,
        open_store: str,
        windows: TimeWindows | Windows,
        initializer: Initializer | None,
        aggregator: Aggregator,
        view: Callable[[Any], Any] | None = None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        self.store_name = store
        self.open_name = open_store
        self.windows = windows
        self.initializer = initializer
        self.aggregator = aggregator
        self.view = view
        self.caching = caching

    def init(self, ctx: ProcessorContext) -> None:
        """Open the stores and take up stream time."""
        super().init(ctx)
        self.store: TimestampedWindowStore = ctx.store(self.store_name)
        if self.caching:
            self.store.use_cache()
        self._open = OpenWindows(ctx, self.open_name)
        self._stream_time: int = ctx.state.get(STREAM_TIME, -1)
        self._unwritten: dict[tuple[bytes, int], CachedRow] = {}

    def process(self, record: Record) -> None:
        """Add one record to each of its windows that is still open, then emit what it closes."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        self._stream_time = max(self._stream_time, record.timestamp)
        close_time = self._stream_time - self.windows.grace_ms
        key = self.store.codec.key(record.key)
        for start in self.windows.starts(record.timestamp):
            end = self.windows.end_of(start)
            if end <= close_time:
                self.ctx.drop(record, "late")
            else:
                self._add(key, start, end, record)
        self._emit(close_time, record.timestamp, record.headers)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Stream time moves on: emit what that closes."""
        time = self._stream_time = advanced(self._stream_time, elapsed_ms, limit)
        self._emit(time - self.windows.grace_ms, time, ())
        return min(limit, self._open.first_start)

    def flush(self) -> None:
        """Write what is held back; tell the store what can never be read again."""
        for entry in self._unwritten.values():
            self.store.write(entry)
        self._unwritten.clear()
        time = self._stream_time
        if self._open.first_end is not None:
            # In compat mode a window may be closed and not emitted yet.
            time = min(time, self._open.first_end + self.windows.grace_ms)
        self.ctx.expire(self.store_name, time)

    def close(self) -> None:
        """Keep stream time."""
        self.ctx.state[STREAM_TIME] = self._stream_time
        self._open.let_go()

    def _add(self, key: bytes, start: int, end: int, record: Record) -> None:
        entry = self.store.entry(key, start)
        if entry.value is None:
            self._open.add(key, start, end, record.timestamp)
        entry.value, entry.timestamp = updated(entry, record, self.initializer, self.aggregator)
        if self.caching:
            self._unwritten[(key, start)] = entry
        else:
            self.store.write(entry)

    def _emit(self, close_time: int, timestamp: int, headers: Headers) -> None:
        for key, start, end in self._open.close(close_time, timestamp):
            entry = self.store.entry(key, start)
            if entry.value is not None:
                windowed = Windowed(self.store.codec.read_key(key), Window(start, end))
                value = entry.value if self.view is None else self.view(entry.value)
                self.ctx.forward(Record(windowed, Change(value, None), entry.timestamp, headers))
