"""Aggregation in sessions (Kafka Streams: `KStreamSessionWindowAggregate`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streams.model.record import Change, Headers, Record, Window, Windowed
from streams.operators.aggregate.open_windows import OpenWindows
from streams.operators.aggregate.session_retention import SessionRetention
from streams.operators.aggregate.stream_aggregate import Aggregator, Initializer
from streams.operators.aggregate.window_aggregate import STREAM_TIME
from streams.operators.idle_time import NO_LIMIT, advanced
from streams.operators.processor import Processor, ProcessorContext
from streams.operators.stores.session import SessionStore

if TYPE_CHECKING:
    from streams.model.windows import SessionWindows

Merger = Callable[[Any, Any, Any], Any]


class SessionAggregate(Processor):
    """Aggregate per key and session.

    A record at t joins the sessions of its key with end >= t - gap and start <= t + gap into one: the aggregates are
    merged in order of their ends, beginning with the initial one, then the record is added. It is late if the end of what
    it would make is < stream time - grace - gap; so an old record that touches a younger session is not. Each session
    that was merged is deleted downstream (time: its end), then the new one follows (time: its end); no deletion if all
    that was met is exactly [t, t]. Results have no headers. Null keys are dropped and do not advance stream time; null
    values are aggregated like any value.

    Emitting on close: a session's result once end + gap + grace < stream time, by end, start, bytes of the key.

    Args:
        store: Name of a session store.
        windows: Gap and grace.
        initializer: `() -> aggregate`; None for a reduce, whose first value is taken as it is.
        aggregator: `(key, value, aggregate) -> aggregate`.
        merger: `(key, aggregate, aggregate) -> aggregate`.
        open_store: Name of a key-value store of bytes for the index of open sessions: emit on close; None: every update.
        view: Makes the result of the stored aggregate, where they differ.
        caching: Emit the last value of a session once, at the end of the step; False: every update.
        send_old: Whether `Change.old` is wanted downstream.
        asked_for_retention: The store's retention is what the user asked for; else sessions stay as long as they can
            matter.
    """

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        initializer: Initializer | None,
        aggregator: Aggregator,
        merger: Merger,
        open_store: str | None = None,
        view: Callable[[Any], Any] | None = None,
        caching: bool = True,
        send_old: bool = False,
        asked_for_retention: bool = False,
    ) -> None:
        self.store_name = store
        self.windows = windows
        self.initializer = initializer
        self.aggregator = aggregator
        self.merger = merger
        self.open_name = open_store
        self.view = view
        self.caching = caching
        self.send_old = send_old
        self.asked_for_retention = asked_for_retention

    def init(self, ctx: ProcessorContext) -> None:
        """Open the stores and take up stream time."""
        super().init(ctx)
        self.store: SessionStore = ctx.store(self.store_name)
        self._open = None if self.open_name is None else OpenWindows(ctx, self.open_name)
        self._stream_time: int = ctx.state.get(STREAM_TIME, -1)
        self._retention = SessionRetention(ctx.state, self.windows)

    def process(self, record: Record) -> None:
        """Merge what the record touches, add it, then emit what it closes."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        at, gap = record.timestamp, self.windows.gap_ms
        self._stream_time = max(self._stream_time, at)
        close_time = self._stream_time - self.windows.grace_ms - gap
        found = list(self.store.find_sessions(record.key, at - gap, at + gap))
        merged, aggregate = Window(at, at), None if self.initializer is None else self.initializer()
        for session, value in found:
            starts = aggregate is None and self.initializer is None
            aggregate = value if starts else self.merger(record.key, aggregate, value)
            merged = Window(min(merged.start, session.start), max(merged.end, session.end))
        if merged.end < close_time:
            self.ctx.drop(record, "late")
        else:
            starts = aggregate is None and self.initializer is None
            added = record.value if starts else self.aggregator(record.key, record.value, aggregate)
            # Written before what it takes the place of is deleted: a record that fails must not take the others with it.
            self.store.put(record.key, merged.start, merged.end, added)
            if merged != (at, at):
                for session, value in found:
                    self._delete(record.key, session, value, stays=session == merged)
            self._added(record.key, merged, added, self._told(merged, found))
        if self._open is not None:
            self._emit_closed(self._open, close_time, at, record.headers)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Stream time moves on: emit what that closes. A session's result has the time of its end."""
        time = self._stream_time = advanced(self._stream_time, elapsed_ms, limit)
        if self._open is None:
            return limit
        self._emit_closed(self._open, time - self.windows.grace_ms - self.windows.gap_ms, time, ())
        first_end = self._open.first_end
        return min(limit, NO_LIMIT if first_end is None else first_end)

    def flush(self) -> None:
        """Emit each session's last value, in order of time; tell the store what can never be read again."""
        for key, old, new in self.store.take_updates():
            if old is not None or new is not None:
                self.ctx.attempt(lambda key=key, old=old, new=new: self._forward(key, new, old))  # type: ignore[misc]
        time = self._stream_time if self.asked_for_retention else self._retention.needed_time(self._stream_time)
        if self._open is not None and self._open.first_end is not None:
            # In compat mode a session may be closed and not emitted yet.
            time = min(time, self._open.first_end + self.windows.gap_ms + self.windows.grace_ms)
        self.ctx.expire(self.store_name, time)

    def close(self) -> None:
        """Keep stream time."""
        self.ctx.state[STREAM_TIME] = self._stream_time
        if self._open is not None:
            self._open.let_go()

    def _told(self, merged: Window, found: list[tuple[Window, Any]]) -> Any:
        """The value of the session before this update, as far as it was not deleted downstream just now."""
        # Without a cache Kafka Streams does not tell the old value of a session that stays as it is.
        if merged.start != merged.end or not found or (self.ctx.mode == "compat" and not self.caching):
            return None
        return found[0][1]

    def _delete(self, key: Any, session: Window, value: Any, stays: bool) -> None:
        if not stays:
            self.store.put(key, session.start, session.end, None)
        if self._open is not None:
            self._open.remove(self.store.codec.key(key), session.start, session.end, session.end)
        else:
            self._changed(Windowed(key, session), None, value)

    def _added(self, key: Any, session: Window, value: Any, before: Any) -> None:
        self._retention.add(session.start, session.end)
        if self._open is not None:
            self._open.add(self.store.codec.key(key), session.start, session.end, session.end)
        else:
            self._changed(Windowed(key, session), value, before)

    def _changed(self, key: Windowed, new: Any, old: Any) -> None:
        """Forward an update, or hold it back until the end of the step."""
        if not self.caching:
            self._forward(key, new, old)
            return
        self.store.hold_update(key, new, old)

    def _forward(self, key: Windowed, new: Any, old: Any, headers: Headers = ()) -> None:
        change = Change(self._viewed(new), self._viewed(old) if self.send_old else None)
        self.ctx.forward(Record(key, change, key.window.end, headers))

    def _viewed(self, stored: Any) -> Any:
        return stored if self.view is None or stored is None else self.view(stored)

    def _emit_closed(self, open_sessions: OpenWindows, close_time: int, timestamp: int, headers: Headers) -> None:
        for key_bytes, start, end in open_sessions.close(close_time - 1, timestamp):
            key = self.store.codec.read_key(key_bytes)
            value = self.store.fetch(key, start, end)
            if value is not None:
                self._forward(Windowed(key, Window(start, end)), value, None, headers)
