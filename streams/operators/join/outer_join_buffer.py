"""What becomes of the records of a left or outer stream join that find nobody; one class per mode.

`StrictOuterJoinBuffer`: a record waits until it ceases to be open, then gives its one row.
`CompatOuterJoinBuffer`: Kafka Streams' own way (KIP-633), its oddities included: records that come too late to wait
give their row at once and may still be joined later; a scan is gated by a `min` that may skip rows, and by the wall clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from streams.model.record import Headers, HeldRecord, Record
from streams.model.waiting import LEFT, RIGHT
from streams.model.windows import JoinWindows
from streams.operators.stores.time_ordered_buffer import NEVER, DueRecord, TimeOrderedBuffer

Emit = Callable[[int, Any, Any, int, Headers], None]
"""`(side, key, value, timestamp, headers)`: forward the row of a record without a partner."""

Attempt = Callable[[Callable[[], None], "HeldRecord | None"], None]


class OuterJoinBuffer(ABC):
    """The records of both sides that have found nobody yet.

    Args:
        rows: Where they wait.
        waits: By side: how long a record of it waits after its own timestamp, ms.
        emit: Forwards a row.
    """

    def __init__(self, rows: TimeOrderedBuffer, waits: tuple[int, int], emit: Emit) -> None:
        self._rows = rows
        self._waits = waits
        self._emit = emit

    @abstractmethod
    def expire(self, stream_time: int, side: int, record: Record) -> None:
        """A record of `side` came: emit the rows of those that wait no longer, before anything else comes of it."""

    @property
    @abstractmethod
    def oldest(self) -> int:
        """No record that waits is older than this, ms."""

    @abstractmethod
    def add(self, stream_time: int, side: int, record: Record) -> None:
        """The record found nobody."""

    @abstractmethod
    def joined(self, side: int, key: Any, timestamp: int) -> None:
        """The records of a side with this key and timestamp found somebody."""


class StrictOuterJoinBuffer(OuterJoinBuffer):
    """Rows by the time at which they cease to be open; what is due is what lies below stream time.

    Args:
        rows: Where they wait.
        waits: By side: how long a record of it waits after its own timestamp, ms.
        emit: Forwards a row.
        attempt: `OperatorContext.attempt`, so that a row whose joiner fails takes neither the others along nor the record that
            made it due.
    """

    def __init__(self, rows: TimeOrderedBuffer, waits: tuple[int, int], emit: Emit, attempt: Attempt) -> None:
        super().__init__(rows, waits, emit)
        self._attempt = attempt

    def expire(self, stream_time: int, side: int, record: Record) -> None:
        """See `OuterJoinBuffer`. A row has its own record's headers, since which record makes it due is chance."""
        for due in self._rows.take(stream_time):
            place = due.place
            time = place.time - self._waits[place.side]
            emit = partial(self._emit, place.side, due.key, due.value, time, due.headers)
            self._attempt(emit, due.held(time))

    @property
    def oldest(self) -> int:
        """See `OuterJoinBuffer`."""
        return self._rows.first_time - max(self._waits)

    def add(self, stream_time: int, side: int, record: Record) -> None:
        """See `OuterJoinBuffer`. The record is open, or it would have been dropped as late."""
        self._rows.add(record.timestamp + self._waits[side], side, record.key, record.value, record.headers)

    def joined(self, side: int, key: Any, timestamp: int) -> None:
        """See `OuterJoinBuffer`."""
        self._rows.remove_all(timestamp + self._waits[side], side, key)


class CompatOuterJoinBuffer(OuterJoinBuffer):
    """As Kafka Streams 4.3 does it (`KStreamKStreamJoin.emitNonJoinedOuterRecords`).

    Args:
        rows: Where they wait, by their timestamps.
        waits: By side: its `after` (for a right record `before`) plus grace; may be negative.
        emit: Forwards a row.
        grace_ms: The grace that is part of `waits`.
        state: A dict that survives restarts.
        now_ms: The step's wall clock.
        interval_ms: How often at most it scans, by the wall clock.
    """

    def __init__(
        self,
        rows: TimeOrderedBuffer,
        waits: tuple[int, int],
        emit: Emit,
        grace_ms: int,
        state: dict[str, Any],
        now_ms: int,
        interval_ms: int,
    ) -> None:
        super().__init__(rows, waits, emit)
        self._grace_ms = grace_ms
        self._state = state
        self._now_ms = now_ms
        self._interval_ms = interval_ms

    def expire(self, stream_time: int, side: int, record: Record) -> None:
        """See `OuterJoinBuffer`. Only a record that is not out of order scans; rows get its headers."""
        if record.timestamp != stream_time:
            return
        if _wrapped(self._state.get("min", NEVER) + self._waits[side]) >= stream_time:
            return
        if self._now_ms < self._state.get("next_emit", 0):
            return
        self._state["next_emit"] = self._now_ms + self._interval_ms
        self._scan(stream_time, record.headers)

    def _scan(self, stream_time: int, headers: Headers) -> None:
        self._state["min"] = NEVER
        met_open: set[int] = set()
        due: list[DueRecord] = []
        for one in self._rows.all():
            place = one.place
            self._state["min"] = place.time
            if len(met_open) == 2:
                break
            if place.time + self._waits[place.side] >= stream_time:
                met_open.add(place.side)
                continue
            due.append(one)
        for one in due:
            self._rows.remove(one.place)
            self._emit(one.place.side, one.key, one.value, one.place.time, headers)

    @property
    def oldest(self) -> int:
        """See `OuterJoinBuffer`."""
        return self._rows.first_time

    def add(self, stream_time: int, side: int, record: Record) -> None:
        """See `OuterJoinBuffer`. A record whose window has passed gives its row at once, grace or not."""
        if max(0, record.timestamp + self._waits[side] - self._grace_ms) < stream_time:
            self._emit(side, record.key, record.value, record.timestamp, record.headers)
            return
        self._state["min"] = min(self._state.get("min", NEVER), record.timestamp)
        self._rows.add(record.timestamp, side, record.key, record.value, record.headers)

    def joined(self, side: int, key: Any, timestamp: int) -> None:
        """See `OuterJoinBuffer`."""
        self._rows.remove_all(timestamp, side, key)


def waits_of(windows: JoinWindows, strict: bool) -> tuple[int, int]:
    """How long a right and a left record wait, ms: `waits` of an `OuterJoinBuffer`, by side."""
    ahead = {RIGHT: windows.before_ms, LEFT: windows.after_ms}
    waits = {side: (max(0, ms) if strict else ms) + windows.grace_ms for side, ms in ahead.items()}
    return waits[RIGHT], waits[LEFT]


def _wrapped(number: int) -> int:
    """What Java's 64 bits make of it; the gate relies on it."""
    return (number + 2**63) % 2**64 - 2**63
