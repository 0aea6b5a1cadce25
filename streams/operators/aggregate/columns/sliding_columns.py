"""Aggregates of declared fields in sliding windows, over the columns of a step: the kernel, and the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn
from state.numba_kernels import kernel
from streams.model.windows import SlidingWindows
from streams.operators.aggregate.aggregates import FieldAggregates
from streams.operators.aggregate.columns.accumulators import FieldAccumulators
from streams.operators.aggregate.columns.column_aggregate import (
    PickedFields,
    RowKeys,
    concerns_records,
    fail,
    process_one_by_one,
)
from streams.operators.aggregate.columns.column_rows import ColumnRows, KeyOrder, by_key, first_live_from, stream_times
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
#
# As with sessions (`session_columns`), there are two ways to the same results, writes and counts, and a step that cannot be
# processed at once goes record by record.


class _Step(NamedTuple):
    """What a step changes, and has not changed yet.

    Attributes:
        keys: The bytes of the keys that have rows.
        objects: These keys.
        stored: The local values of the stored windows, which come first.
        accumulators: The accumulators of all windows after the step.
        updated: int64[u], the windows that are updated, in the order of their first updates.
        values: binary[u], their local values.
    """

    rows: ColumnRows
    keys: list[bytes]
    objects: list[Any]
    windows: SlidWindows
    stored: list[bytes]
    accumulators: FieldAccumulators
    updated: Int64s
    values: BinaryColumn


class SlidingColumnAggregate(SlidingAggregate):
    """Aggregates fields of JSON values per key and sliding window; see `SlidingAggregate`.

    Args:
        store: Name of a timestamped window store of JSON values.
        windows: Time difference and grace.
        caching: See `WindowedAggregation`. Only an operator with caching gets columns.
        send_old: See `WindowedAggregation`.
    """

    def __init__(
        self,
        store: str,
        windows: SlidingWindows,
        fields: FieldAggregates,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, windows, fields.functions, None, caching, send_old)
        self._fields = fields
        self._step: _Step | None = None

    def process_columns(self, rows: ColumnRows) -> None:
        """Put all records of the step into windows, in their order."""
        row_keys = RowKeys(rows, self.store.codec.read_key)
        taken = row_keys.readable & ~rows.null_values
        self.ctx.drop_many(row_keys.missing, "null_key")
        self.ctx.drop_many(int((row_keys.readable & rows.null_values).sum()), "null_value")
        row_keys.fail(self.ctx)
        if not taken.any():
            return
        times = stream_times(rows, taken, self._time.now)
        picked = PickedFields(self._fields, rows, taken)
        try:
            step = self._slid(rows, row_keys, times - self.windows.grace_ms, picked)
        except Exception as error:
            if not concerns_records(error):
                raise
            process_one_by_one(self, picked, row_keys, rows, np.flatnonzero(taken))
            return
        self._time.observe(int(times[-1]))
        self._write(step)
        self.ctx.drop_many(step.windows.late, "late")
        for row in step.windows.failed.tolist():
            fail(self.ctx, rows, row, picked.errors[row])

    def _slid(self, rows: ColumnRows, row_keys: RowKeys, close_times: Int64s, picked: PickedFields) -> _Step:
        """The changes of the step, which are not made yet.

        Raises:
            Exception: They cannot be computed at once.
        """
        difference = self.windows.difference_ms
        if difference == 0 and self.ctx.mode == "compat":
            raise OneByOne  # every record fails
        order = by_key(rows.key_codes, picked.taken, len(rows.keys))
        codes = order.codes.tolist()
        keys, objects = [rows.keys[code] for code in codes], [row_keys.objects[code] for code in codes]
        stored, values = self._stored(rows, order, keys)
        codec = self.store.codec
        before = [codec.old_value(value) for value in values]
        accumulators = FieldAccumulators(self._fields, picked.columns, before, most_windows(order, stored))
        windows = slide(order, stored, rows.timestamps, close_times, picked.failing, difference, accumulators.apply)
        updated = np.flatnonzero(windows.written != NEVER)
        updated = updated[np.argsort(windows.written[updated])]
        if len(updated) and windows.starts[updated].min() < self.store.earliest_start:
            raise OneByOne  # the store does not take all windows, so later records do not meet them
        accumulators.check()
        stamps = windows.times[updated]
        data = codec.timestamped_column(_keys(keys, windows, updated), accumulators.written(updated, codec), stamps)
        return _Step(rows, keys, objects, windows, values, accumulators, updated, data)

    def _stored(self, rows: ColumnRows, order: KeyOrder, keys: list[bytes]) -> tuple[StoredWindows, list[bytes]]:
        """The stored windows that the rows may read, and their local values."""
        times, difference = rows.timestamps[order.rows], self.windows.difference_ms
        earliest, latest = (of.reduceat(times, order.bounds[:-1]) for of in (np.minimum, np.maximum))
        found = self.store.fetch_ranges(
            pa.array(keys, pa.binary()), np.maximum(earliest - 2 * difference, 0), latest + 1
        )
        values = found.values.to_pylist()
        stamps = np.array([int.from_bytes(value[:8], "big") for value in values], np.int64)
        bounds = np.searchsorted(found.requests, np.arange(len(keys) + 1))
        return StoredWindows(found.starts, stamps, bounds), values

    def _write(self, step: _Step) -> None:
        """Write the windows in the order of their first updates, and hold the updates until the end of the step."""
        windows, at = step.windows, step.updated
        self.store.put_columns(_keys(step.keys, windows, at), windows.starts[at], step.values, windows.times[at])
        self._step = step

    def _flush_pending(self) -> None:
        """Emit each window's last value, in order of time."""
        super()._flush_pending()
        if self._step is not None:
            step, self._step = self._step, None
            self.ctx.forward_batch(self._results(step))

    def _results(self, step: _Step) -> ColumnarBatch:
        """The updates, in order of time, then by arrival."""
        windows, codec, rows = step.windows, self.store.codec, step.rows
        at = step.updated[np.argsort(windows.times[step.updated], kind="stable")]
        starts, stored = windows.starts[at], step.stored
        old = None
        if self.send_old:
            view = self._fields.result
            old = [view(codec.old_value(stored[one])) if one < len(stored) else None for one in at.tolist()]
        inner = KeyColumn(windows.keys[at].astype(np.int32), step.objects)
        headers = rows.headers and [rows.headers[row] for row in windows.last_rows[at].tolist()]
        return ColumnarBatch(
            WindowedKeys(inner, starts, starts + self.windows.difference_ms),
            Changes(step.accumulators.values(at), old),
            windows.times[at],
            np.arange(len(at)),
            headers,
        )


def _keys(keys: list[bytes], windows: SlidWindows, at: Int64s) -> BinaryColumn:
    """The bytes of the keys of some windows."""
    return pa.array(keys, pa.binary()).take(pa.array(windows.keys[at]))
