"""Aggregation in sliding windows (KIP-450; Kafka Streams: `KStreamSlidingWindowAggregate`).

There is one window for each distinct set of records of a key within the time difference d: for a record at t, the
*left* window [t - d, t], and the *right* window [t + 1, t + 1 + d] if it contains any record. With d = 10, records at 20 and 27
have the left windows [10, 20] and [17, 27], and the first one has the right window [21, 31], which contains the second. The
timestamp of a window is the largest of its records, and so shows the time of the record before t without storing the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from state.columns import BinaryColumn
from state.numba_kernels import kernel
from streams.model.ownership import snapshot
from streams.model.record import Record, Window
from streams.model.windows import SlidingWindows
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.keyed_windows import (
    ALIVE,
    AT,
    FAILED,
    FORGOTTEN,
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
    drop_of_group,
    first_live_from,
    new_window,
    operate,
    place,
    take_key,
    touch,
)
from streams.operators.columnar import ColumnarBatch, Int64s, OneByOne
from streams.operators.operator import OperatorContext
from streams.operators.stores.codec import timestamp_of, timestamps_of
from streams.operators.stores.window import TypedTimestampedWindowStore

# --- The rule for sliding windows. `limits` are the row's time and close time, the difference, and the smallest start of a window
# that the store accepts.

_NONE: Final = -1
_OTHERS: Final = 8
"""The largest number of operations of a row besides adding it to existing windows."""


@kernel
def _slide(
    rows: Any,
    bounds: Any,
    stored_bounds: Any,
    timestamps: Any,
    close_times: Any,
    failing: Any,
    difference: int,
    earliest: int,
    windows: Any,
    late: Any,
    operations: Any,
    live: Any,
    state: Any,
) -> bool:  # pragma: no cover - compiled
    """Takes the rows key by key. Returns whether the operations were full before the last row."""
    while state[KEY] < len(bounds) - 1:
        take_key(bounds, stored_bounds, live, state)
        while state[AT] < bounds[state[KEY] + 1]:
            if state[OPERATIONS] + state[ALIVE] + _OTHERS > operations.shape[1]:
                return True
            row = rows[state[AT]]
            state[TOUCHED] = state[FAILED] = 0
            if timestamps[row] + difference < close_times[row]:
                late[row] = 1
            else:
                limits = (timestamps[row], close_times[row], difference, earliest)
                if failing[row]:
                    _take_row(row, limits, True, windows, late, operations, live, state)
                    late[row] = 0
                if not state[FAILED]:
                    _take_row(row, limits, False, windows, late, operations, live, state)
            state[AT] += 1
        state[KEY] += 1
    return False


@kernel
def _take_row(
    row: int, limits: Any, fails: bool, windows: Any, late: Any, operations: Any, live: Any, state: Any
) -> None:  # pragma: no cover - compiled
    """Adds the row to its windows. If adding it fails, only notes whether it would belong to any."""
    if limits[0] < limits[2]:
        _take_early(row, limits, fails, windows, late, operations, live, state)
    else:
        _take_later(row, limits, fails, windows, late, operations, live, state)


@kernel
def _take_later(
    row: int, limits: Any, fails: bool, windows: Any, late: Any, operations: Any, live: Any, state: Any
) -> None:  # pragma: no cover - compiled
    starts, times = windows[STARTS], windows[TIMES]
    time, _, difference, _ = limits
    low = first_live_from(starts, live, state[ALIVE], time - difference)
    high = first_live_from(starts, live, state[ALIVE], time + 1)
    has_left = low < high and starts[live[low]] == time - difference
    is_complete = has_left and times[live[low]] >= time
    previous, before, around, right = _NONE, _NONE, _NONE, _NONE
    if has_left:
        previous = times[live[low]]
    if low > 0 and starts[live[low - 1]] >= time - 2 * difference:
        before = live[low - 1]
        previous = times[before]
    if high > low and starts[live[high - 1]] > time - difference:
        around = live[high - 1]
    if not is_complete:
        right = _make_right(around, row, limits, fails, windows, late, operations, live, state)
    for index in range(high - 1, low - 1, -1):
        _add(live[index], row, limits, fails, windows, late, operations, state)
    if is_complete:
        return
    of_previous = _NONE
    if previous != _NONE and previous + 1 + difference >= time and not _has(previous + 1, starts, live, state):
        of_previous = _make(previous + 1, _NONE, row, limits, fails, windows, late, operations, live, state)
    if not has_left and not _has(time - difference, starts, live, state):
        base = before if before != _NONE and times[before] >= time - difference else _NONE
        _make(time - difference, base, row, limits, fails, windows, late, operations, live, state)
    elif of_previous != _NONE and starts[of_previous] == time - difference:
        # The right window of the previous record is also the left one of this record: as in Kafka Streams, it is emitted again.
        _show(of_previous, row, windows, operations, state)
    if right != _NONE:
        _show(right, row, windows, operations, state)


@kernel
def _take_early(
    row: int, limits: Any, fails: bool, windows: Any, late: Any, operations: Any, live: Any, state: Any
) -> None:  # pragma: no cover - compiled
    """Takes a row at t < d. All such rows have the left window [0, d]."""
    starts, times = windows[STARTS], windows[TIMES]
    time = limits[0]
    low = first_live_from(starts, live, state[ALIVE], 1)
    high = first_live_from(starts, live, state[ALIVE], time + 1)
    first = live[0] if low > 0 else _NONE
    first_time = times[first] if low > 0 else _NONE
    around = _NONE
    if high > low:
        around = live[high - 1]
    elif first_time > time:
        around = first
    right = _make_right(around, row, limits, fails, windows, late, operations, live, state)
    for index in range(low, high):
        _add(live[index], row, limits, fails, windows, late, operations, state)
    if right != _NONE:
        _show(right, row, windows, operations, state)
    if first != _NONE and first_time < time and not _has(first_time + 1, starts, live, state):
        _make(first_time + 1, _NONE, row, limits, fails, windows, late, operations, live, state)
    if first != _NONE:
        _add(first, row, limits, fails, windows, late, operations, state)
    else:
        _make(0, _NONE, row, limits, fails, windows, late, operations, live, state)


@kernel
def _make_right(
    around: int, row: int, limits: Any, fails: bool, windows: Any, late: Any, operations: Any, live: Any, state: Any
) -> int:  # pragma: no cover - compiled
    """Makes the right window of a row from the contents of the newest window around it, if that has later records."""
    time, close, difference, earliest = limits
    if around == _NONE or windows[TIMES, around] <= time or _has(time + 1, windows[STARTS], live, state):
        return _NONE
    if time + 1 + difference < close:
        late[row] += 1
        return _NONE
    if fails:
        return _NONE
    right = _insert(time + 1, difference, windows[TIMES, around], earliest, windows, live, state)
    operate(row, ~around, right, operations, state)
    return right


@kernel
def _make(
    start: int,
    base: int,
    row: int,
    limits: Any,
    fails: bool,
    windows: Any,
    late: Any,
    operations: Any,
    live: Any,
    state: Any,
) -> int:  # pragma: no cover - compiled
    """Makes a window from the row and the contents of another window, if there is one."""
    time, close, difference, earliest = limits
    if start + difference < close:
        late[row] += 1
        return _NONE
    if fails:
        state[FAILED] = 1
        return _NONE
    window = _insert(start, difference, time, earliest, windows, live, state)
    if base != _NONE:
        operate(row, ~base, window, operations, state)
    operate(row, row, window, operations, state)
    touch(window, row, windows, state)
    return window


@kernel
def _add(
    window: int, row: int, limits: Any, fails: bool, windows: Any, late: Any, operations: Any, state: Any
) -> None:  # pragma: no cover - compiled
    """Adds the row to an existing window."""
    time, close, difference, _ = limits
    if windows[STARTS, window] + difference < close:
        late[row] += 1
        return
    if fails:
        state[FAILED] = 1
        return
    windows[TIMES, window] = max(windows[TIMES, window], time)
    operate(row, row, window, operations, state)
    touch(window, row, windows, state)


@kernel
def _show(window: int, row: int, windows: Any, operations: Any, state: Any) -> None:  # pragma: no cover - compiled
    """Emits the contents of a window."""
    operate(row, ~window, window, operations, state)
    touch(window, row, windows, state)


@kernel
def _has(start: int, starts: Any, live: Any, state: Any) -> bool:  # pragma: no cover - compiled
    """Whether the key has a window that begins at `start`."""
    index = first_live_from(starts, live, state[ALIVE], start)
    return bool(index < state[ALIVE] and starts[live[index]] == start)


@kernel
def _insert(
    start: int, difference: int, time: int, earliest: int, windows: Any, live: Any, state: Any
) -> int:  # pragma: no cover - compiled
    """Adds a window of the key. The next rows find it if the store accepts it. `live` is sorted by start."""
    window: int = new_window(start, start + difference, time, windows, state)
    if start < earliest:
        state[FORGOTTEN] = 1
        return window
    index = first_live_from(windows[STARTS], live, state[ALIVE], start)
    for later in range(state[ALIVE], index, -1):
        live[later] = live[later - 1]
    live[index] = window
    state[ALIVE] += 1
    return window


# --- The operator.


class SlidingAggregate(KeyedAggregation[SlidingWindows]):
    """Aggregates per key and sliding window.

    A window accepts records while its end >= stream time - grace; a record at t is late for all windows if
    t + d < stream time - grace. Null keys and null values are dropped. Results have the largest timestamp of the window's
    records. Order of updates: the windows that contain the record, newest first, then the right window of the previous record,
    the record's own left window, its own right window. For records before d, whose left window is [0, d], see `_take_early`.

    Emit on close: a window's result is emitted once end + grace < stream time, by start, then bytes of the key.

    Args:
        store: Name of a timestamped window store.
    """

    made_by_row = 3
    takes_null_values = False
    keeps_headers = True

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self.store: TypedTimestampedWindowStore

    def call(self, batch: ColumnarBatch, functions: Sequence[AggregationFunctions]) -> None:
        """Refuses all records if Kafka Streams would."""
        if not self._is_impossible:
            super().call(batch, functions)
            return
        taken, dropped = self.taken(batch)
        drop_of_group(self._group, batch, dropped)
        error = ValueError("Kafka Streams cannot make sliding windows with a time difference of 0; strict mode can")
        for row in np.flatnonzero(taken).tolist():
            self._group[batch.node(row)].ctx.refuse(batch, row, error)

    @property
    def _is_impossible(self) -> bool:
        return self.windows.difference_ms == 0 and self.ctx.mode == "compat"

    def stored(self, keyed: KeyedRows) -> StoredWindows:
        difference, (earliest, latest) = self.windows.difference_ms, keyed.span
        found = self.store.fetch_ranges(keyed.keys, np.maximum(earliest - 2 * difference, 0), latest + 1)
        bounds, times = keyed.bounds_of(found.requests), timestamps_of(found.values)
        return StoredWindows(found.starts, found.starts + difference, times, bounds, found.values.to_pylist())

    def placed(self, keyed: KeyedRows, stored: StoredWindows, apply: Apply) -> PlacedRows:
        if self._is_impossible:
            raise OneByOne
        settings = self.windows.difference_ms, self.store.earliest_start
        return place(_slide, keyed, stored, settings, self.made_by_row, apply)

    def updates(
        self,
        functions: AggregationFunctions,
        record: Record,
        operations: Sequence[Operation],
        windows: WindowsOfBatch,
    ) -> list[WindowUpdate]:
        """The windows that the record changes, each with the largest timestamp of its records."""
        begun: dict[int, bytes | None] = {}  # content that new windows took from others
        last: dict[int, WindowUpdate] = {}
        updates: list[WindowUpdate] = []
        for source, window in operations:
            if source >= 0:
                last[window] = self._added(functions, record, window, begun.get(window), windows)
            elif source != ~window:
                begun[window] = windows.cells[~source]
                continue
            elif window in last:
                last[window] = last[window] if self._shows_origin else last[window]._replace(old=last[window].cell)
            else:
                cell = begun[window]
                assert cell is not None, "it is the content of another window"
                last[window] = WindowUpdate(window, self.read(cell), cell, None, timestamp_of(cell))
            updates.append(last[window])
        return updates

    def _added(
        self, functions: AggregationFunctions, record: Record, window: int, begun: bytes | None, windows: WindowsOfBatch
    ) -> WindowUpdate:
        """Adds the record to a window, or to a new window that begins with the contents of another one."""
        codec, old = self.store.codec, windows.cells[window]
        before = begun if old is None else old
        original = functions.original() if before is None else None
        aggregate = snapshot(original) if before is None else self.read(before)
        if old is None and self._shows_origin:
            old = codec.timestamped(aggregate, record.timestamp) if before is None else before
        time = record.timestamp if before is None else max(record.timestamp, timestamp_of(before))
        added = snapshot(record.value) if not functions.reads or self.ctx.results_change else record.value
        value = functions.added(record.key, added, aggregate)
        if value is None and functions.may_change(aggregate):
            before_call = original if before is None else self.read(before)
            functions.explain_nothing(functions.aggregator, aggregate, before_call, codec)
        return WindowUpdate(
            window, value, codec.fitting(windows.keys[window], codec.timestamped(value, time)), old, time
        )

    @property
    def _shows_origin(self) -> bool:
        """Whether a new window's old value is the value that it was made from, even if never emitted, as in Kafka Streams."""
        return self.ctx.mode == "compat" and not self.caching

    def keeps(self, window: Window) -> bool:
        return window.start >= self.store.earliest_start

    @property
    def looks_from_ms(self) -> int:
        """Only records whose left windows have the full length check for closed windows."""
        return self.windows.difference_ms

    def read(self, cell: bytes | None) -> Any:
        return self.store.codec.old_value(cell)

    def local(self, keys: BinaryColumn, values: BinaryColumn, times: Int64s) -> BinaryColumn:
        return self.store.codec.timestamped_column(keys, values, times)

    def put(self, keys: BinaryColumn, starts: Int64s, ends: Int64s, cells: BinaryColumn, times: Int64s) -> None:
        self.store.put_columns(keys, starts, cells, times)
