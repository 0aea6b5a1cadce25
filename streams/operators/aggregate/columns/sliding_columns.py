"""Aggregates of declared fields in sliding windows, over the columns of a step: the kernel, and the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from state.columns import BinaryColumn
from state.numba_kernels import kernel
from streams.model.windows import SlidingWindows
from streams.operators.aggregate.aggregates import FieldAggregates
from streams.operators.aggregate.columns.accumulators import FieldAccumulators
from streams.operators.aggregate.columns.column_aggregate import (
    FieldRows,
    KeyedColumnAggregate,
    KeyedRows,
    PickedFields,
)
from streams.operators.aggregate.columns.column_rows import KeyOrder, first_live_from
from streams.operators.aggregate.sliding_aggregate import SlidingAggregate
from streams.operators.columnar import Changes, ColumnarBatch, KeyColumn, OneByOne, WindowedKeys

# --- Puts the rows of a step into sliding windows: the vectorised form of `SlidingAggregate`'s rule.
#
# Lateness depends on stream time alone, so the keys are independent of each other, and are taken one after the other. Each window
# has a slot of accumulators, its own number; the kernel writes what happens to the slots into a buffer of operations. A row may
# touch hundreds of windows, so the buffer has a bound: the kernel stops when it is full, and continues when it has been emptied.

Int64s = npt.NDArray[np.int64]

NEVER: Final = -1
_NONE = -1
_PLACE_BITS = 24
"""Windows that one row may touch: with the number of the row, the order of updates fits 64 bits."""
_LEAST_BUFFER = 1 << 20
_MADE_BY_A_ROW = 3

_KEYS, _STARTS, _TIMES, _WRITTEN, _LAST_ROWS = range(5)
"""The columns of windows."""
_KEY, _AT, _ALIVE, _COUNT, _LATE, _OPS, _TOUCHED = range(7)
"""What the kernel remembers when its buffer is full: the key, its row, how many windows the key has so far, and all together."""


class StoredWindows(NamedTuple):
    """The stored windows of the step's keys, by key, then start.

    Attributes:
        starts: int64[S].
        times: int64[S], the largest timestamp of the records of each window.
        bounds: int64[K + 1]: those of the k-th key are [bounds[k], bounds[k + 1]).
    """

    starts: Int64s
    times: Int64s
    bounds: Int64s


class SlidWindows(NamedTuple):
    """All windows that the step has found or made, the stored ones first.

    Attributes:
        keys: int64[N], the key of each window: its number in `KeyOrder`.
        starts: int64[N].
        times: int64[N], the largest timestamp of its records, after the step.
        written: int64[N], the place of its first update in the order of all updates; -1 = none.
        last_rows: int64[N], the row of its last update.
        failed: int64[f], the rows that failed because their values have no fields.
        late: How many rows, and windows of rows, were late.
    """

    keys: Int64s
    starts: Int64s
    times: Int64s
    written: Int64s
    last_rows: Int64s
    failed: Int64s
    late: int


def slide(
    order: KeyOrder,
    stored: StoredWindows,
    timestamps: Int64s,
    close_times: Int64s,
    failing: npt.NDArray[np.bool_],
    difference: int,
    apply: Callable[[Int64s, Int64s], None],
) -> SlidWindows:
    """Put the rows into windows.

    Raises:
        OneByOne: A row touches too many windows.
    """
    if len(order.codes) and _most_of_a_key(order, stored) >= 1 << _PLACE_BITS:
        raise OneByOne
    found, most = len(stored.starts), most_windows(order, stored)
    windows = np.empty((5, most), np.int64)
    windows[_KEYS, :found] = np.repeat(np.arange(len(order.codes)), np.diff(stored.bounds))
    windows[_STARTS, :found], windows[_TIMES, :found] = stored.starts, stored.times
    windows[_WRITTEN] = NEVER
    failed = np.zeros(len(timestamps), np.bool_)
    operations = np.empty((2, max(_LEAST_BUFFER, 2 * most)), np.int64)
    live, state = np.empty(most, np.int64), np.zeros(7, np.int64)
    state[_COUNT] = found
    rows = (order.rows, order.bounds, stored.bounds, timestamps, close_times, failing)
    more = True
    while more:
        state[_OPS] = 0
        more = _slide(*rows, difference, windows, failed, operations, live, state)
        apply(operations[0, : state[_OPS]], operations[1, : state[_OPS]])
    made = windows[:, : state[_COUNT]]
    return SlidWindows(
        made[_KEYS],
        made[_STARTS],
        made[_TIMES],
        made[_WRITTEN],
        made[_LAST_ROWS],
        np.flatnonzero(failed),
        int(state[_LATE]),
    )


def most_windows(order: KeyOrder, stored: StoredWindows) -> int:
    """How many windows, and so slots, there may be after the step."""
    return len(stored.starts) + _MADE_BY_A_ROW * len(order.rows)


def _most_of_a_key(order: KeyOrder, stored: StoredWindows) -> int:
    return int((_MADE_BY_A_ROW * np.diff(order.bounds) + np.diff(stored.bounds)).max())


@kernel
def _slide(
    rows: Any,
    bounds: Any,
    stored_bounds: Any,
    timestamps: Any,
    close_times: Any,
    failing: Any,
    difference: int,
    windows: Any,
    failed: Any,
    operations: Any,
    live: Any,
    state: Any,
) -> bool:  # pragma: no cover - compiled
    """Takes the rows key by key; returns whether the buffer was full before the last one."""
    while state[_KEY] < len(bounds) - 1:
        key = state[_KEY]
        if state[_AT] <= bounds[key]:
            # The key's windows as of now, by start, are `live[: state[_ALIVE]]`.
            state[_AT], state[_ALIVE] = bounds[key], stored_bounds[key + 1] - stored_bounds[key]
            for index in range(state[_ALIVE]):
                live[index] = stored_bounds[key] + index
        while state[_AT] < bounds[key + 1]:
            if state[_OPS] + state[_ALIVE] + 2 * _MADE_BY_A_ROW > operations.shape[1]:
                return True
            row = rows[state[_AT]]
            time, close = timestamps[row], close_times[row]
            state[_TOUCHED] = 0
            if time + difference < close:
                state[_LATE] += 1
            elif failing[row]:
                failed[row] = True
            elif time < difference:
                _take_early(row, time, close, difference, windows, operations, live, state)
            else:
                _take(row, time, close, difference, windows, operations, live, state)
            state[_AT] += 1
        state[_KEY] += 1
    return False


@kernel
def _take(
    row: int, time: int, close: int, difference: int, windows: Any, operations: Any, live: Any, state: Any
) -> None:  # pragma: no cover - compiled
    starts, times = windows[_STARTS], windows[_TIMES]
    low = first_live_from(starts, live, state[_ALIVE], time - difference)
    high = first_live_from(starts, live, state[_ALIVE], time + 1)
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
        right = _make_right(around, time, close, difference, windows, operations, live, state)
    for index in range(high - 1, low - 1, -1):
        _add(live[index], row, time, close, difference, windows, operations, state)
    if is_complete:
        return
    if previous != _NONE and previous + 1 + difference >= time and not _has(previous + 1, starts, live, state):
        _make(previous + 1, _NONE, row, time, close, difference, windows, operations, live, state)
    # The right window of the previous record may be the left one of this record, too.
    if not has_left and not _has(time - difference, starts, live, state):
        base = before if before != _NONE and times[before] >= time - difference else _NONE
        _make(time - difference, base, row, time, close, difference, windows, operations, live, state)
    if right != _NONE:
        _touch(right, row, windows, state)


@kernel
def _take_early(
    row: int, time: int, close: int, difference: int, windows: Any, operations: Any, live: Any, state: Any
) -> None:  # pragma: no cover - compiled
    starts, times = windows[_STARTS], windows[_TIMES]
    low = first_live_from(starts, live, state[_ALIVE], 1)
    high = first_live_from(starts, live, state[_ALIVE], time + 1)
    first = live[0] if low > 0 else _NONE
    first_time = times[first] if low > 0 else _NONE
    around = _NONE
    if high > low:
        around = live[high - 1]
    elif first_time > time:
        around = first
    right = _make_right(around, time, close, difference, windows, operations, live, state)
    for index in range(low, high):
        _add(live[index], row, time, close, difference, windows, operations, state)
    if right != _NONE:
        _touch(right, row, windows, state)
    if first != _NONE and first_time < time and not _has(first_time + 1, starts, live, state):
        _make(first_time + 1, _NONE, row, time, close, difference, windows, operations, live, state)
    if first != _NONE:
        _add(first, row, time, close, difference, windows, operations, state)
    else:
        _make(0, _NONE, row, time, close, difference, windows, operations, live, state)


@kernel
def _make_right(
    around: int, time: int, close: int, difference: int, windows: Any, operations: Any, live: Any, state: Any
) -> int:  # pragma: no cover - compiled
    """Makes the right window of a row with what the newest window around the row holds before it, if that is later."""
    if around == _NONE or windows[_TIMES, around] <= time or _has(time + 1, windows[_STARTS], live, state):
        return _NONE
    if time + 1 + difference < close:
        state[_LATE] += 1
        return _NONE
    right = _insert(time + 1, windows[_TIMES, around], windows, live, state)
    _operate(~around, right, operations, state)
    return right


@kernel
def _make(
    start: int,
    base: int,
    row: int,
    time: int,
    close: int,
    difference: int,
    windows: Any,
    operations: Any,
    live: Any,
    state: Any,
) -> None:  # pragma: no cover - compiled
    """Makes a window of the row and what another window holds, if any."""
    if start + difference < close:
        state[_LATE] += 1
        return
    window = _insert(start, time, windows, live, state)
    if base != _NONE:
        _operate(~base, window, operations, state)
    _operate(row, window, operations, state)
    _touch(window, row, windows, state)


@kernel
def _add(
    window: int, row: int, time: int, close: int, difference: int, windows: Any, operations: Any, state: Any
) -> None:  # pragma: no cover - compiled
    """Adds the row to a window that is there."""
    if windows[_STARTS, window] + difference < close:
        state[_LATE] += 1
        return
    windows[_TIMES, window] = max(windows[_TIMES, window], time)
    _operate(row, window, operations, state)
    _touch(window, row, windows, state)


@kernel
def _operate(row: int, window: int, operations: Any, state: Any) -> None:  # pragma: no cover - compiled
    operations[0, state[_OPS]], operations[1, state[_OPS]] = row, window
    state[_OPS] += 1


@kernel
def _touch(window: int, row: int, windows: Any, state: Any) -> None:  # pragma: no cover - compiled
    if windows[_WRITTEN, window] == NEVER:
        windows[_WRITTEN, window] = (row << _PLACE_BITS) + state[_TOUCHED]
    windows[_LAST_ROWS, window] = row
    state[_TOUCHED] += 1


@kernel
def _has(start: int, starts: Any, live: Any, state: Any) -> bool:  # pragma: no cover - compiled
    """Whether the key has a window that begins at `start`."""
    index = first_live_from(starts, live, state[_ALIVE], start)
    return bool(index < state[_ALIVE] and starts[live[index]] == start)


@kernel
def _insert(start: int, time: int, windows: Any, live: Any, state: Any) -> int:  # pragma: no cover - compiled
    """A new window of the key, without records as yet."""
    window: int = state[_COUNT]
    windows[_KEYS, window], windows[_STARTS, window], windows[_TIMES, window] = state[_KEY], start, time
    index = first_live_from(windows[_STARTS], live, state[_ALIVE], start)
    for later in range(state[_ALIVE], index, -1):
        live[later] = live[later - 1]
    live[index] = window
    state[_COUNT] += 1
    state[_ALIVE] += 1
    return window


# --- Aggregates of declared fields in sliding windows, over the columns of a whole step.


class _Step(NamedTuple):
    """What a step changes, and has not changed yet; see `WindowsOfStep`.

    Attributes:
        operator: The operator.
        rows: The rows.
        keyed: Their keys.
        windows: The windows of these.
        stored: The local values of the stored windows, which come first.
        accumulators: The accumulators of all windows after the step.
        updated: int64[u], the windows that are updated, in the order of their first updates.
        values: binary[u], their local values.
    """

    operator: SlidingColumnAggregate
    rows: FieldRows
    keyed: KeyedRows
    windows: SlidWindows
    stored: list[bytes]
    accumulators: FieldAccumulators
    updated: Int64s
    values: BinaryColumn

    @property
    def late(self) -> int:
        return self.windows.late

    @property
    def failed(self) -> Int64s:
        return self.windows.failed

    def write(self) -> None:
        """In the order of the windows' first updates."""
        windows, at = self.windows, self.updated
        keys = self.keyed.cells_of(windows.keys[at])
        self.operator.store.put_columns(keys, windows.starts[at], self.values, windows.times[at])

    def results(self) -> ColumnarBatch:
        windows, rows, operator = self.windows, self.rows, self.operator
        at = self.updated[np.argsort(windows.times[self.updated], kind="stable")]
        starts, stored = windows.starts[at], self.stored
        old = None
        if operator.send_old:
            view, read = operator.fields.result, operator.store.codec.old_value
            old = [view(read(stored[one])) if one < len(stored) else None for one in at.tolist()]
        inner = KeyColumn(windows.keys[at].astype(np.int32), self.keyed.objects)
        given = rows.batch.headers
        headers = given and [given[row] for row in windows.last_rows[at].tolist()]
        return ColumnarBatch(
            WindowedKeys(inner, starts, starts + operator.windows.difference_ms),
            Changes(self.accumulators.values(at), old),
            windows.times[at],
            np.arange(len(at)),
            headers,
        )


class SlidingColumnAggregate(KeyedColumnAggregate[SlidingWindows], SlidingAggregate):
    """Aggregates fields of JSON values per key and sliding window; see `SlidingAggregate`.

    Args:
        store: Name of a timestamped window store of JSON values.
        windows: Time difference and grace.
        fields: The aggregates.
        caching: See `WindowedAggregation`. Only an operator with caching gets columns.
        send_old: See `WindowedAggregation`.
    """

    takes_null_values = False

    def __init__(
        self,
        store: str,
        windows: SlidingWindows,
        fields: FieldAggregates,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, windows, fields.functions, None, caching, send_old)
        self.fields = fields

    def computed(self, rows: FieldRows, keyed: KeyedRows, close_times: Int64s, picked: PickedFields) -> _Step:
        difference = self.windows.difference_ms
        if difference == 0 and self.ctx.mode == "compat":
            raise OneByOne  # every record fails
        stored, values = self._stored(keyed)
        codec = self.store.codec
        before = [codec.old_value(value) for value in values]
        accumulators = FieldAccumulators(self.fields, picked.columns, before, most_windows(keyed.order, stored))
        windows = slide(
            keyed.order, stored, rows.batch.timestamps, close_times, picked.failing, difference, accumulators.apply
        )
        updated = np.flatnonzero(windows.written != NEVER)
        updated = updated[np.argsort(windows.written[updated])]
        if len(updated) and windows.starts[updated].min() < self.store.earliest_start:
            raise OneByOne  # the store does not take all windows, so later records do not meet them
        accumulators.check()
        stamps = windows.times[updated]
        keys = keyed.cells_of(windows.keys[updated])
        data = codec.timestamped_column(keys, accumulators.written(updated, codec), stamps)
        return _Step(self, rows, keyed, windows, values, accumulators, updated, data)

    def _stored(self, keyed: KeyedRows) -> tuple[StoredWindows, list[bytes]]:
        """The stored windows that the rows may read, and their local values."""
        earliest = np.maximum(keyed.earliest - 2 * self.windows.difference_ms, 0)
        found = self.store.fetch_ranges(keyed.cells, earliest, keyed.latest + 1)
        values = found.values.to_pylist()
        stamps = np.array([int.from_bytes(value[:8], "big") for value in values], np.int64)
        bounds = np.searchsorted(found.requests, np.arange(len(keyed.keys) + 1))
        return StoredWindows(found.starts, stamps, bounds), values
