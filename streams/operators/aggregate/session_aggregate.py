"""Aggregation in session windows (Kafka Streams: `KStreamSessionWindowAggregate`), and how long sessions have to be stored.

A record at t is on time if the resulting session ends at or after the close time c = stream time - grace - gap. If it touches
no open session, t >= c, and it can meet sessions that end at or after c - gap. If it touches an open session with start s, it
may be as old as s - gap, and meet sessions that end at or after s - 2 gap. So the oldest start of an open session decides which
sessions may expire. It is tracked per segment of ends, and a segment is dropped as a whole when it is closed. (Kafka Streams
retains gap + grace, by the store's own clock, and so loses parts of sessions.)

For example, gap 10, grace 5, stream time 100: c is 85. A new record alone must be at 85 or later, and can meet sessions that end at
75 or later. If an open session starts at 60, a record at 50 extends it, and can meet sessions that end at 40 or later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from state.columns import BinaryColumn
from state.numba_kernels import kernel
from streams.model.record import Record, Window
from streams.model.windows import SessionWindows
from streams.operators.aggregate.functions import AggregationFunctions, FieldAggregates
from streams.operators.aggregate.keyed_windows import (
    ALIVE,
    APART,
    AT,
    COUNT,
    ENDS,
    FORGOTTEN,
    GONE,
    KEY,
    OPERATIONS,
    STARTS,
    TIMES,
    TOUCHED,
    Apply,
    KeyedAggregation,
    KeyedRows,
    Operation,
    PlacedRows,
    StoredWindows,
    WindowsOfBatch,
    WindowUpdate,
    first_live_from,
    new_window,
    operate,
    place,
    take_key,
    touch,
)
from streams.operators.aggregate.open_windows import OpenWindows
from streams.operators.columnar import Int64s
from streams.operators.operator import OperatorContext
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

    def add(self, starts: Int64s, ends: Int64s) -> None:
        """Notes that sessions were written."""
        segments, of_sessions = np.unique(ends // self._width, return_inverse=True)
        oldest = np.full(len(segments), np.iinfo(np.int64).max)
        np.minimum.at(oldest, of_sessions, starts)
        for segment, start in zip(map(str, segments.tolist()), oldest.tolist(), strict=True):
            self._oldest[segment] = min(start, self._oldest.get(segment, start))

    def needed_time(self, stream_time: int) -> int:
        """The time to pass to the session store, whose retention is gap + grace: stream time, minus the extra time needed."""
        close_time = stream_time - self._nominal_ms
        for segment in [one for one in self._oldest if (int(one) + 1) * self._width <= close_time]:
            del self._oldest[segment]
        gap = self._windows.gap_ms
        needed = min(close_time - gap, min(self._oldest.values(), default=close_time) - 2 * gap)
        return needed + self._nominal_ms


# --- The rule for sessions. `limits` are the time and close time of a row, the gap, and the smallest end that is stored.
#
# `live` has the key's current sessions, by end, then start.


@kernel
def _merge(
    rows: Any,
    bounds: Any,
    stored_bounds: Any,
    timestamps: Any,
    close_times: Any,
    failing: Any,
    gap: int,
    earliest: int,
    windows: Any,
    late: Any,
    operations: Any,
    live: Any,
    state: Any,
) -> bool:  # pragma: no cover - compiled
    """Takes the rows key by key. Returns whether the operations were full before the last row."""
    while state[KEY] < len(bounds) - 1:
        if take_key(bounds, stored_bounds, live, state):
            state[APART] = _are_apart(gap, windows, live, state)
        while state[AT] < bounds[state[KEY] + 1]:
            if state[OPERATIONS] + state[ALIVE] + 1 > operations.shape[1]:
                return True
            row = rows[state[AT]]
            limits = (timestamps[row], close_times[row], gap, earliest)
            if not _take_row(row, limits, failing[row], windows, operations, live, state):
                late[row] = 1
            state[AT] += 1
        state[KEY] += 1
    return False


@kernel
def _are_apart(gap: int, windows: Any, live: Any, state: Any) -> bool:  # pragma: no cover - compiled
    """Whether the stored sessions of a key are more than a gap apart, as all sessions that these operators have written are."""
    apart = True
    for index in range(1, state[ALIVE]):
        apart = apart and windows[STARTS, live[index]] > windows[ENDS, live[index - 1]] + gap
    return apart


@kernel
def _take_row(
    row: int, limits: Any, fails: bool, windows: Any, operations: Any, live: Any, state: Any
) -> bool:  # pragma: no cover - compiled
    """Merges the sessions that a row touches, and adds the row; returns False if it is late."""
    time, close, gap, earliest = limits
    starts, ends = windows[STARTS], windows[ENDS]
    low = high = first_live_from(ends, live, state[ALIVE], time - gap)
    start, end = time, time
    while high < state[ALIVE] and (starts[live[high]] <= time + gap or not state[APART]):
        if starts[live[high]] <= time + gap:
            start, end = min(start, starts[live[high]]), max(end, ends[live[high]])
        high += 1
    if end < close or fails:
        return bool(end >= close)
    session = state[COUNT]
    for index in range(low, high):
        if starts[live[index]] == start and ends[live[index]] == end:
            session = live[index]
    if session == state[COUNT]:
        new_window(start, end, end, windows, state)
    state[ALIVE] = _take_in(low, high, session, row, time + gap, windows, operations, live, state)
    operate(row, row, session, operations, state)
    touch(session, row, windows, state)
    if end >= earliest:
        _insert(session, windows, live, state)
    else:
        state[FORGOTTEN] = 1
    return True


@kernel
def _take_in(
    low: int, high: int, session: int, row: int, latest: int, windows: Any, operations: Any, live: Any, state: Any
) -> int:  # pragma: no cover - compiled
    """Merges sessions in `live[low:high]` that start at `latest` or earlier into a session. Returns how many are left."""
    left = low
    state[TOUCHED] = 0
    for index in range(low, state[ALIVE]):
        found = live[index]
        if index >= high or windows[STARTS, found] > latest:
            live[left] = found
            left += 1
            continue
        operate(row, ~found, session, operations, state)
        if windows[STARTS, session] < windows[ENDS, session]:
            touch(found, row, windows, state)
        if found != session:
            windows[TIMES, found] = GONE
    return left


@kernel
def _insert(session: int, windows: Any, live: Any, state: Any) -> None:  # pragma: no cover - compiled
    at, start, end = state[ALIVE], windows[STARTS, session], windows[ENDS, session]
    while at > 0:
        other = live[at - 1]
        if windows[ENDS, other] < end or (windows[ENDS, other] == end and windows[STARTS, other] < start):
            break
        live[at] = other
        at -= 1
    live[at] = session
    state[ALIVE] += 1


# --- Aggregation in sessions (Kafka Streams: `KStreamSessionWindowAggregate`).


class SessionAggregate(KeyedAggregation[SessionWindows]):
    """Aggregates per key and session.

    A record at t merges the sessions of its key with end >= t - gap and start <= t + gap into one: the aggregates are merged in
    order of their ends, starting with the initial one, then the record is added. The record is late if the end of the merged
    session would be < stream time - grace - gap, so an old record that touches a younger session is not late. Each merged session
    is deleted downstream (time: its end), then the new one follows (time: its end); there is no deletion if the only session found
    is exactly [t, t]. Results have no headers. Null keys are dropped and do not advance stream time; null values are aggregated
    like any value.

    For example, with a gap of 5, records at 10, 14 and 12 give the sessions [10, 10]; then [10, 14], and the deletion of [10, 10]
    before it; then [10, 14] again, deleted before it, too.

    Emit on close: a session's result is emitted once end + gap + grace < stream time, by end, start, bytes of the key.

    Args:
        store: Name of a session store.
        functions: The functions, including a merger.
        asked_for_retention: Whether the user has set the store's retention; otherwise sessions stay as long as records can
            meet them.
    """

    made_by_row = 1
    takes_null_values = True
    keeps_headers = False

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        functions: AggregationFunctions,
        open_store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
        fields: FieldAggregates | None = None,
        asked_for_retention: bool = False,
    ) -> None:
        super().__init__(store, windows, functions, open_store, caching, send_old, fields)
        self.asked_for_retention = asked_for_retention

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self.store: TypedSessionStore
        self.retention = SessionRetention(ctx.state, self.windows)

    def stored(self, keyed: KeyedRows) -> StoredWindows:
        gap, (earliest, latest) = self.windows.gap_ms, keyed.span
        found = self.store.find_columns(keyed.keys, earliest - gap, latest + gap)
        return StoredWindows(
            found.starts, found.ends, found.ends, keyed.bounds_of(found.requests), found.values.to_pylist()
        )

    def placed(self, keyed: KeyedRows, stored: StoredWindows, apply: Apply) -> PlacedRows:
        return place(_merge, keyed, stored, (self.windows.gap_ms, self.store.earliest_end), self.made_by_row, apply)

    def updates(
        self,
        functions: AggregationFunctions,
        record: Record,
        operations: Sequence[Operation],
        windows: WindowsOfBatch,
    ) -> list[WindowUpdate]:
        """The deleted sessions that are merged, then the resulting session."""
        *merged, (_, session) = operations
        start, end = windows.bounds[session]
        cells, updates = [windows.cells[~source] for source, _ in merged], list[WindowUpdate]()
        aggregate = self._merged(functions, record.key, cells)
        if start < end:
            bounds = windows.bounds
            updates = [
                WindowUpdate(~source, None, None, cell, bounds[~source].end)
                for (source, _), cell in zip(merged, cells, strict=True)
            ]
        added = functions.added(record.key, record.value, aggregate)
        if added is None and functions.may_change(aggregate):
            before = self._merged(functions, record.key, cells)
            functions.explain_nothing(functions.aggregator, aggregate, before, self.store.codec)
        cell = self.store.codec.fitting(windows.keys[session], self.store.codec.value(added))
        # Without a cache, Kafka Streams does not forward the old value of a session whose bounds stay the same.
        known = start == end and (self.caching or self.ctx.mode == "strict")
        updates.append(WindowUpdate(session, added, cell, windows.cells[session] if known else None, end))
        return updates

    def _merged(self, functions: AggregationFunctions, key: Any, cells: Sequence[bytes | None]) -> Any:
        """Merges the aggregates of sessions, from their bytes."""
        aggregate = functions.initial()
        for number, cell in enumerate(cells):
            before, aggregate = aggregate, functions.merged(key, aggregate, self.read(cell))
            if aggregate is None and functions.may_change(before):
                before_call = self._merged(functions, key, cells[:number])
                functions.explain_nothing(functions.merger, before, before_call, self.store.codec)
        return aggregate

    def read(self, cell: bytes | None) -> Any:
        return self.store.codec.read_value(cell)

    def local(self, keys: BinaryColumn, values: BinaryColumn, times: Int64s) -> BinaryColumn:
        self.store.codec.check_all(keys, values)
        return values

    def put(self, keys: BinaryColumn, starts: Int64s, ends: Int64s, cells: BinaryColumn, times: Int64s) -> None:
        self.store.put_columns(keys, starts, ends, cells)
        for operator in self._group:
            assert isinstance(operator, SessionAggregate), "a group has operators of one class"
            operator.retention.add(starts, ends)

    def keeps(self, window: Window) -> bool:
        return window.end >= self.store.earliest_end

    def _expiry_time(self) -> int:
        """Stream time, minus the extra time for which sessions are needed."""
        time = self._time.now
        return time if self.asked_for_retention else self.retention.needed_time(time)

    def _oldest_open(self, open_windows: OpenWindows) -> int:
        """The oldest time of an open session's result, which is its end."""
        first_end = open_windows.first_end
        return NO_LIMIT if first_end is None else first_end
