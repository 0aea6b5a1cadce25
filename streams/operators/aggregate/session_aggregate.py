"""Aggregation in session windows (Kafka Streams: `KStreamSessionWindowAggregate`), and how long sessions can matter.

How long sessions can matter, which decides when a session store may expire them.

A record at t is on time if the resulting session ends at or after the close time c = stream time - grace - gap. If it touches
no open session, t >= c, and it can meet sessions that end at or after c - gap. If it touches an open session with start s, it
may be as old as s - gap, and meet sessions that end at or after s - 2 gap. What counts is therefore the oldest start of an
open session, tracked per segment of ends; a segment is dropped as a whole when it is closed. (Kafka Streams retains gap +
grace, by the store's own clock, and so loses parts of sessions.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streams.model.record import Record, Window, Windowed
from streams.model.windows import SessionWindows
from streams.operators.aggregate.aggregates import AggregationFunctions, HeldUpdate, WindowedAggregation
from streams.operators.aggregate.open_windows import OpenWindows
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s
from streams.operators.operator import OperatorContext, RecordOperator
from streams.operators.stores.codec import Codec
from streams.operators.stores.window import TypedSessionStore
from streams.operators.stream_time import NO_LIMIT

_OLDEST = "oldest_start"
_LEAST_SEGMENT_MS = 60_000


class SessionRetention:
    """The oldest start of the open sessions, in an operator's state.

    Args:
        state: The operator's state, which survives restarts.
        windows: Gap and grace.
    """

    def __init__(self, state: dict[str, Any], windows: SessionWindows) -> None:
        # Segment of ends -> the oldest start of a session that ends there; keys are text, as required by JSON.
        self._oldest: dict[str, int] = state.setdefault(_OLDEST, {})
        self._windows = windows
        self._nominal_ms = windows.wait_ms
        self._width = max(_LEAST_SEGMENT_MS, self._nominal_ms)

    def add(self, start: int, end: int) -> None:
        """Records that a session was written."""
        segment = str(end // self._width)
        if start < self._oldest.get(segment, start + 1):
            self._oldest[segment] = start

    def add_many(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        segments, of_sessions = np.unique(ends // self._width, return_inverse=True)
        oldest = np.full(len(segments), np.iinfo(np.int64).max)
        np.minimum.at(oldest, of_sessions, starts)
        for segment, start in zip(segments.tolist(), oldest.tolist(), strict=True):
            self.add(start, segment * self._width)

    def needed_time(self, stream_time: int) -> int:
        """The time to pass to the session store, whose retention is gap + grace: stream time, minus the extra time needed."""
        close_time = stream_time - self._nominal_ms
        for segment in [one for one in self._oldest if (int(one) + 1) * self._width <= close_time]:
            del self._oldest[segment]
        gap = self._windows.gap_ms
        needed = min(close_time - gap, min(self._oldest.values(), default=close_time) - 2 * gap)
        return needed + self._nominal_ms


# --- What a batch may read is known ahead: the sessions around the times of a key's records.


class _TimesOfKeys(NamedTuple):
    """The times of a step's records by key.

    Attributes:
        keys: The bytes of the keys, each once, in order.
        first: int64[n], the least time of each key's records, ms.
        last: int64[n], the largest one.
    """

    keys: list[bytes]
    first: Int64s
    last: Int64s

    @classmethod
    def of(cls, codec: Codec, batch: ColumnarBatch) -> _TimesOfKeys:
        """Those of the records with a key.

        Raises:
            Exception: A key cannot be written.
        """
        known = np.flatnonzero(batch.keys.codes != NULL_KEY)
        data = codec.keys(batch.keys)
        present = np.unique(batch.keys.codes[known]).tolist()
        keys = sorted({data[code] for code in present})
        place_of = {key: place for place, key in enumerate(keys)}
        place = np.array([place_of.get(key, -1) for key in data] or [-1], np.int64)[batch.keys.codes[known]]
        first = np.full(len(keys), np.iinfo(np.int64).max)
        last = np.full(len(keys), np.iinfo(np.int64).min)
        np.minimum.at(first, place, batch.timestamps[known])
        np.maximum.at(last, place, batch.timestamps[known])
        return cls(keys, first, last)


# --- Aggregation in sessions (Kafka Streams: `KStreamSessionWindowAggregate`).


class SessionAggregate(RecordOperator, WindowedAggregation[SessionWindows]):
    """Aggregates per key and session.

    A record at t merges the sessions of its key with end >= t - gap and start <= t + gap into one: the aggregates are merged in
    order of their ends, starting with the initial one, then the record is added. The record is late if the end of the merged
    session would be < stream time - grace - gap, so an old record that touches a younger session is not late. Each merged session
    is deleted downstream (time: its end), then the new one follows (time: its end); there is no deletion if the only session found
    is exactly [t, t]. Results have no headers. Null keys are dropped and do not advance stream time; null values are aggregated
    like any value.

    Emit on close: a session's result is emitted once end + gap + grace < stream time, by end, start, bytes of the key.

    Args:
        store: Name of a session store.
        windows: See `WindowedAggregation`, like the following.
        functions: Including a merger.
        open_store: See `WindowedAggregation`.
        caching: See `WindowedAggregation`.
        send_old: See `WindowedAggregation`.
        asked_for_retention: The user has set the store's retention; otherwise sessions stay as long as they can
            matter.
    """

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        functions: AggregationFunctions,
        open_store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
        asked_for_retention: bool = False,
    ) -> None:
        super().__init__(store, windows, functions, open_store, caching, send_old)
        self.asked_for_retention = asked_for_retention

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self.store: TypedSessionStore
        self.retention = SessionRetention(ctx.state, self.windows)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Process one record after the other, with one pass over the store.

        Raises:
            Exception: A key cannot be written; there has been no effect.
        """
        times, gap = _TimesOfKeys.of(self.store.codec, batch), self.windows.gap_ms
        if times.keys:
            self.store.read_ahead(times.keys, times.first - gap, times.last + gap)
        try:
            super().process_batch(batch)
        finally:
            self.store.forget()

    def process(self, record: Record) -> None:
        """Merge the sessions that the record touches, add the record, then emit the sessions that it closes."""
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        at, gap = record.timestamp, self.windows.gap_ms
        close_time = self._time.observe(at) - self.windows.wait_ms
        found = list(self.store.find_sessions(record.key, at - gap, at + gap))
        merged, aggregate = Window(at, at), self.functions.initial()
        for session, value in found:
            aggregate = self.functions.merged(record.key, aggregate, value)
            merged = Window(min(merged.start, session.start), max(merged.end, session.end))
        if merged.end < close_time:
            self.ctx.drop(record, "late")
        else:
            added = self.functions.added(record.key, record.value, aggregate)
            # Written before the replaced sessions are deleted: a record that fails must not lose the others.
            self.store.put(record.key, merged.start, merged.end, added)
            if merged != (at, at):
                for session, value in found:
                    self._delete(record.key, session, value, stays=session == merged)
            self._added(record.key, merged, added, self._forwarded_value(merged, found))
        self._emit_closed(at, record.headers)

    def _flush_pending(self) -> None:
        """Emit each session's last value, in order of time."""
        updates = self.store.take_updates()
        self._emit_pending(HeldUpdate(key, old, new, key.window.end) for key, old, new in updates)

    def _expiry_time(self) -> int:
        """Stream time, minus the extra time for which sessions are needed."""
        time = self._time.now
        return time if self.asked_for_retention else self.retention.needed_time(time)

    def _oldest_open(self, open_windows: OpenWindows) -> int:
        """The time of a session's result is its end."""
        first_end = open_windows.first_end
        return NO_LIMIT if first_end is None else first_end

    def _forwarded_value(self, merged: Window, found: list[tuple[Window, Any]]) -> Any:
        """The value of the session before this update, unless it was just deleted downstream."""
        # Without a cache, Kafka Streams does not forward the old value of a session whose bounds stay the same.
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
        self.retention.add(session.start, session.end)
        if self._open is not None:
            self._open.add(self.store.codec.key(key), session.start, session.end, session.end)
        else:
            self._changed(Windowed(key, session), value, before)

    def _changed(self, key: Windowed, new: Any, old: Any) -> None:
        """Forward an update, or buffer it until the end of the step."""
        if self.caching:
            self.store.hold_update(key, new, old)
        else:
            self._forward(HeldUpdate(key, old, new, key.window.end))
