"""Aggregation in sliding windows (KIP-450; Kafka Streams: `KStreamSlidingWindowAggregate`).

There is one window for each distinct set of records of a key within the time difference d: for a record at t, the
*left* window [t - d, t], and the *right* window [t + 1, t + 1 + d] if it contains any record. A window's timestamp, the
largest of its records, shows where the record before t is, so the records themselves need not be stored.
"""

from __future__ import annotations

from typing import Any

from streams.model.record import Headers, Record, ValueAndTimestamp, Window, Windowed
from streams.model.windows import SlidingWindows
from streams.operators.aggregate.windowed import HeldUpdate, WindowedAggregation
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.window import TypedTimestampedWindowStore


class SlidingAggregate(WindowedAggregation[SlidingWindows]):
    """Aggregates per key and sliding window.

    A window accepts records while its end >= stream time - grace; a record at t is late for all windows if
    t + d < stream time - grace. Null keys and null values are dropped. Results have the largest timestamp of the window's
    records. Order of updates: the windows that contain the record, newest first, then the right window of the previous record,
    the record's own left window, its own right window. Below d, where all left windows are the same, [0, d]: `_process_early`.

    Emit on close: a window's result is emitted once end + grace < stream time, by start, then bytes of the key.

    Args:
        store: Name of a timestamped window store.
        windows: See `WindowedAggregation`, as the others.
    """

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self.store: TypedTimestampedWindowStore
        # Window -> its key, its value before the step, the new one with its time, headers; shared by all streams of a cogroup.
        self._updates: dict[tuple[bytes, int], tuple[Windowed, Any, ValueAndTimestamp, Headers]] = self.store.updates

    def process(self, record: Record) -> None:
        """Update all windows that the record belongs to, then emit the windows that it closes."""
        if record.key is None or record.value is None:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")
            return
        difference = self.windows.difference_ms
        if difference == 0 and self.ctx.mode == "compat":
            raise ValueError("Kafka Streams cannot make sliding windows with a time difference of 0; strict mode can")
        close_time = self._time.observe(record.timestamp) - self.windows.grace_ms
        if record.timestamp + difference < close_time:
            self.ctx.drop(record, "late")
        elif record.timestamp < difference:
            self._process_early(record, close_time)
            return
        else:
            self._process(record, close_time)
        self._emit_closed(record.timestamp, record.headers)

    def _flush_pending(self) -> None:
        """Emit each window's last value, in order of time."""
        updates = sorted(self._updates.values(), key=lambda update: update[2].timestamp)
        self._updates.clear()
        self._emit_pending(
            HeldUpdate(key, old, new.value, new.timestamp, headers) for key, old, new, headers in updates
        )

    def _process(self, record: Record, close_time: int) -> None:
        """Process a record at t >= d."""
        at, difference = record.timestamp, self.windows.difference_ms
        previous: int | None = None
        before: ValueAndTimestamp | None = None
        around: ValueAndTimestamp | None = None
        starts: set[int] = set()
        found = list(self.store.fetch_range(record.key, at - 2 * difference, at + 1, reverse=True))
        for start, held in found:
            starts.add(start)
            if start + difference < at:
                before, previous = held, held.timestamp
                break
            if start == at + 1:
                continue
            if start + difference == at:
                if held.timestamp >= at:
                    self._add(record, start, held, close_time)
                    return
                previous = held.timestamp
            elif around is None:
                around = held
            self._add(record, start, held, close_time)
        self._add_right_of_previous(record, previous, starts, close_time)
        if at - difference not in starts:
            holds_previous = before is not None and before.timestamp >= at - difference
            base = before.value if before is not None and holds_previous else self.functions.initial()
            # The window may be the right window of the previous record, just created with the same content; it is emitted again,
            # as in Kafka Streams.
            made = self.store.fetch(record.key, at - difference) if previous == at - difference - 1 else None
            emitted = None if made is None else made.value
            self._add(record, at - difference, ValueAndTimestamp(base, at), close_time, is_new=True, emitted=emitted)
        self._add_right(record, around, starts, close_time)

    def _process_early(self, record: Record, close_time: int) -> None:
        """Process a record at t < d, whose left window is [0, d], shared by all such records."""
        at = record.timestamp
        first: ValueAndTimestamp | None = None
        around: ValueAndTimestamp | None = None
        starts: set[int] = set()
        for start, held in list(self.store.fetch_range(record.key, 0, at + 1)):
            starts.add(start)
            if start == 0:
                first = held
            elif start <= at:
                around = held
                self._add(record, start, held, close_time)
        if around is None and first is not None and first.timestamp > at:
            around = first
        self._add_right(record, around, starts, close_time)
        if first is not None and first.timestamp < at:
            self._add_right_of_previous(record, first.timestamp, starts, close_time)
        self._add(record, 0, first or ValueAndTimestamp(self.functions.initial(), at), close_time, is_new=first is None)

    def _add_right_of_previous(self, record: Record, previous: int | None, starts: set[int], close_time: int) -> None:
        """Create the right window of the previous record, with this record only."""
        if previous is None or previous + 1 in starts or previous + 1 + self.windows.difference_ms < record.timestamp:
            return
        empty = ValueAndTimestamp(self.functions.initial(), record.timestamp)
        self._add(record, previous + 1, empty, close_time, is_new=True)

    def _add_right(self, record: Record, around: ValueAndTimestamp | None, starts: set[int], close_time: int) -> None:
        """Create the record's right window: the content of the newest window around the record, if it is later."""
        start = record.timestamp + 1
        if start not in starts and around is not None and around.timestamp > record.timestamp:
            self._put(record, start, around, None, close_time, is_new=True)

    def _add(
        self,
        record: Record,
        start: int,
        held: ValueAndTimestamp,
        close_time: int,
        *,
        is_new: bool = False,
        emitted: Any = None,
    ) -> None:
        """Add the record to a window with this content, or to a new window that starts with this content.

        `emitted` is the value that was emitted for a new window before, if any.
        """
        value = self.functions.added(record.key, record.value, held.value)
        new = ValueAndTimestamp(value, max(held.timestamp, record.timestamp))
        # Kafka Streams reports the content from which a new window was created as its old value, although it was never emitted.
        was_forwarded = not is_new or (self.ctx.mode == "compat" and not self.caching)
        self._put(record, start, new, held.value if was_forwarded else emitted, close_time, is_new)

    def _put(self, record: Record, start: int, new: ValueAndTimestamp, old: Any, close_time: int, is_new: bool) -> None:
        end = start + self.windows.difference_ms
        if end < close_time:
            self.ctx.drop(record, "late")
            return
        key = self.store.codec.key(record.key)
        self.store.put(record.key, start, new.value, new.timestamp)
        if self._open is not None:
            if is_new:
                self._open.add(key, start, end, record.timestamp)
            return
        windowed = Windowed(record.key, Window(start, end))
        if not self.caching:
            self._forward(HeldUpdate(windowed, old, new.value, new.timestamp, record.headers))
            return
        place = (key, start)
        first = self._updates[place][1] if place in self._updates else old
        self._updates[place] = (windowed, first, new, record.headers)
