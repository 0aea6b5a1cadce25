"""Aggregation in sliding windows (KIP-450; Kafka Streams: `KStreamSlidingWindowAggregate`).

There is one window for each distinct set of records of a key within the time difference d: for a record at t, the
*left* window [t - d, t], and the *right* window [t + 1, t + 1 + d] if it contains any record. A window's timestamp, the
largest of its records, shows where the record before t is, so the records themselves need not be stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streams.model.record import Headers, Record, ValueAndTimestamp, Window, Windowed
from streams.model.windows import SlidingWindows
from streams.operators.aggregate.aggregates import HeldUpdate, WindowedAggregation
from streams.operators.operator import OperatorContext, RecordOperator
from streams.operators.stores.window import TypedTimestampedWindowStore


class _NewContent(NamedTuple):
    """A window that a record changes. All functions are called before the first one is written: a record may fail in one of them.

    Attributes:
        start: Its start, ms.
        old: Its content before, as forwarded.
        is_new: It did not exist.
    """

    start: int
    new: ValueAndTimestamp
    old: Any
    is_new: bool


class SlidingAggregate(RecordOperator, WindowedAggregation[SlidingWindows]):
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
        self._planned: list[_NewContent] = []
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
            self._emit_closed(record.timestamp, record.headers)
            return
        self._planned.clear()
        process = self._process_early if record.timestamp < difference else self._process
        process(record, close_time)
        for window in self._planned:
            self._put(record, window, close_time)
        if record.timestamp >= difference:
            self._emit_closed(record.timestamp, record.headers)

    def _flush_pending(self) -> None:
        """Emit each window's last value, in order of time."""
        updates = sorted(self._updates.values(), key=lambda update: update[2].timestamp)
        self._updates.clear()
        self._emit_pending(
            HeldUpdate(key, old, new.value, new.timestamp, headers) for key, old, new, headers in updates
        )

    def _process(self, record: Record, close_time: int) -> None:
        """Plan what changes for a record at t >= d."""
        at, difference = record.timestamp, self.windows.difference_ms
        previous: int | None = None
        before: ValueAndTimestamp | None = None
        around: tuple[int, int] | None = None
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
                    self._add(record, start, held)
                    return
                previous = held.timestamp
            elif around is None:
                around = start, held.timestamp
            self._add(record, start, held)
        self._add_right_of_previous(record, previous, starts)
        if at - difference not in starts:
            holds_previous = before is not None and before.timestamp >= at - difference
            base = before.value if before is not None and holds_previous else self.functions.initial()
            # The window may be the right window of the previous record, just created with the same content; it is emitted again,
            # as in Kafka Streams.
            taken = at >= close_time and at - difference >= self.store.earliest_start
            made = [one for one in self._planned if taken and one.start == at - difference]
            emitted = made[-1].new.value if made else None
            self._add(record, at - difference, ValueAndTimestamp(base, at), is_new=True, emitted=emitted)
        self._add_right(record, around, starts)

    def _process_early(self, record: Record, close_time: int) -> None:
        """Plan what changes for a record at t < d, whose left window is [0, d], shared by all such records."""
        at = record.timestamp
        first: ValueAndTimestamp | None = None
        around: tuple[int, int] | None = None
        starts: set[int] = set()
        for start, held in list(self.store.fetch_range(record.key, 0, at + 1)):
            starts.add(start)
            if start == 0:
                first = held
            elif start <= at:
                around = start, held.timestamp
                self._add(record, start, held)
        if around is None and first is not None and first.timestamp > at:
            around = 0, first.timestamp
        self._add_right(record, around, starts)
        if first is not None and first.timestamp < at:
            self._add_right_of_previous(record, first.timestamp, starts)
        self._add(record, 0, first or ValueAndTimestamp(self.functions.initial(), at), is_new=first is None)

    def _add_right_of_previous(self, record: Record, previous: int | None, starts: set[int]) -> None:
        """Create the right window of the previous record, with this record only."""
        if previous is None or previous + 1 in starts or previous + 1 + self.windows.difference_ms < record.timestamp:
            return
        empty = ValueAndTimestamp(self.functions.initial(), record.timestamp)
        self._add(record, previous + 1, empty, is_new=True)

    def _add_right(self, record: Record, around: tuple[int, int] | None, starts: set[int]) -> None:
        """Create the record's right window: the content of the newest window around the record (start, time), if it is later."""
        start = record.timestamp + 1
        if start not in starts and around is not None and around[1] > record.timestamp:
            # Read again: a function may have added the record to the object that was read before.
            content = self.store.fetch(record.key, around[0])
            assert content is not None, "it was found"
            self._planned.append(_NewContent(start, content, None, True))

    def _add(
        self,
        record: Record,
        start: int,
        held: ValueAndTimestamp,
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
        self._planned.append(_NewContent(start, new, held.value if was_forwarded else emitted, is_new))

    def _put(self, record: Record, window: _NewContent, close_time: int) -> None:
        start, new, old, is_new = window
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
