"""Aggregations in windows that depend on the records of a key: the common part of sessions and sliding windows.

The windows depend only on the times of a key's records, not on the aggregates. So a kernel decides first about all records of a
batch. It takes them key by key and writes down operations, each of which adds a record to a window, or copies the contents of
another window into it. Then the operations are carried out: for built-in aggregates on arrays (`FieldAccumulators`), for functions
one after the other, in the order of the records (`_Calls`).

A closed window is not changed any more. A record that is in time may merge with a closed session, but the result is a new window.
So if built-in aggregates emit on close, the windows of a batch close after all its records have been added.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, binary_column, rows_where
from state.headers import decode_headers
from state.numba_kernels import kernel
from streams.model.record import NO_TIME, HeldRecord, Record, ValueAndTimestamp, Window, Windowed
from streams.operators.aggregate.accumulators import FieldAccumulators, in_arrays
from streams.operators.aggregate.aggregates import W, WindowedAggregation
from streams.operators.aggregate.column_aggregate import (
    FieldRows,
    PickedFields,
    coded_keys,
    concerns_records,
    rows_of_fields,
)
from streams.operators.aggregate.column_rows import FieldValues, RowsByKey, by_key
from streams.operators.aggregate.functions import AggregationFunctions, FieldAggregates
from streams.operators.aggregate.open_windows import NO_ROW, Closing, OpenWindows, StepWindows
from streams.operators.columnar import (
    NULL_KEY,
    Changes,
    ColumnarBatch,
    HeldRows,
    Int64s,
    KeyColumn,
    OneByOne,
    WindowedKeys,
    each_value,
    null_values,
)
from streams.operators.expressions import Bools
from streams.operators.operator import OperatorContext, drop_each, forward_in_one, part_of
from streams.operators.stores.window import HeldUpdate

if TYPE_CHECKING:
    from typing_extensions import Self

# --- The arrays that kernels read and write. A window is a number, and so are its contents; a window with other bounds is another
# one.

KEYS, STARTS, ENDS, TIMES, FIRST_UPDATES, LAST_ROWS = range(6)
"""The columns of windows."""
KEY, AT, ALIVE, COUNT, OPERATIONS, TOUCHED, APART, FAILED, FORGOTTEN = range(9)
"""The entries of a kernel's state, for when the operations do not fit: the key, its row, the numbers of the key's windows, of all
windows, of operations and of windows that the row has touched; whether the key's windows are apart, whether the row cannot be
added, and whether the store refuses some window.
"""
GONE: Final = -1
"""The time of a window that another one has merged into itself."""
_NEVER: Final = -1
_PLACE_BITS: Final = 24
"""The bits of the number of windows that one row may touch: with the row's number, the order of updates fits 64 bits."""
_LEAST_OPERATIONS: Final = 1 << 12


class StoredWindows(NamedTuple):
    """The stored windows that a batch may touch, by key, then in the order of the store.

    Attributes:
        starts: int64[S], ms.
        ends: int64[S], ms.
        times: int64[S], the timestamps of their results, ms.
        bounds: int64[K + 1]: the windows of the k-th key are [bounds[k], bounds[k + 1]).
        cells: Their local values.
    """

    starts: Int64s
    ends: Int64s
    times: Int64s
    bounds: Int64s
    cells: list[bytes]


class KeyedRows(NamedTuple):
    """The rows of a batch by key.

    Attributes:
        order: The order of the rows.
        keys: binary[K], the bytes of the keys that have rows.
        timestamps: int64[n], ms.
        close_times: int64[n]: a window that ends before this time is closed when the row arrives.
        failing: bool[n], the rows that cannot be added to a window.
    """

    order: RowsByKey
    keys: BinaryColumn
    timestamps: Int64s
    close_times: Int64s
    failing: Bools

    @classmethod
    def of(
        cls, codes: npt.NDArray[np.int32], data: Sequence[bytes], taken: Bools, timestamps: Int64s, close_times: Int64s
    ) -> KeyedRows:
        """Makes the rows `taken`, which have keys, from the code of each row's key and the bytes of the keys (`coded_keys`)."""
        order = by_key(codes, taken, len(data))
        keys = pa.array([data[code] for code in order.codes.tolist()], pa.binary())
        return cls(order, keys, timestamps, close_times, np.zeros(len(timestamps), np.bool_))

    @property
    def span(self) -> tuple[Int64s, Int64s]:
        """The smallest and the largest timestamp of each key's rows, ms."""
        times, firsts = self.timestamps[self.order.rows], self.order.bounds[:-1]
        return np.minimum.reduceat(times, firsts), np.maximum.reduceat(times, firsts)

    def bounds_of(self, requests: npt.NDArray[np.int32]) -> Int64s:
        """int64[K + 1]: the beginning of the results for each key; `requests` are the numbers of the keys, in order."""
        return np.searchsorted(requests, np.arange(len(self.keys) + 1))

    def cells_of(self, numbers: Int64s) -> BinaryColumn:
        """The bytes of the keys with these numbers, which may repeat."""
        return self.keys.take(pa.array(numbers))


class PlacedRows(NamedTuple):
    """The windows of a batch: the stored ones first, then the windows that its rows have made.

    Attributes:
        keys: int64[N], the key of each window: its number in `KeyedRows`.
        starts: int64[N], ms.
        ends: int64[N], ms.
        times: int64[N], the timestamps of their results, ms; `GONE` for a window that was merged into another one.
        first_updates: int64[N], the place of each window's first update in the order of all updates; -1: none.
        last_rows: int64[N], the row of its last update.
        late: int64[n], the number of windows for which each row is late.
        are_kept: Whether the store accepts all of them.
    """

    keys: Int64s
    starts: Int64s
    ends: Int64s
    times: Int64s
    first_updates: Int64s
    last_rows: Int64s
    late: Int64s
    are_kept: bool

    @property
    def updated(self) -> Int64s:
        """The windows that have updates, in the order of their first updates."""
        at = np.flatnonzero(self.first_updates != _NEVER)
        return at[np.argsort(self.first_updates[at])]


Apply: TypeAlias = Callable[[Int64s, Int64s, Int64s], None]
"""Carries out operations `(rows, sources, windows)`; a key's operations are in the order of its rows. A source is a row, or ~w for
the contents of window w before the row, which come before the contents of the operation's window. A window that is its own source
has an update that changes nothing.
"""


def place(
    kernel: Any,
    keyed: KeyedRows,
    stored: StoredWindows,
    settings: tuple[int, ...],
    made_by_row: int,
    apply: Apply,
) -> PlacedRows:
    """Finds the windows of all rows with a kernel, which gets `settings` and makes at most `made_by_row` windows for one row."""
    order, found = keyed.order, len(stored.starts)
    most = found + made_by_row * len(order.rows)
    windows = np.empty((6, most), np.int64)
    windows[KEYS, :found] = np.repeat(np.arange(len(order.codes)), np.diff(stored.bounds))
    windows[STARTS, :found], windows[ENDS, :found] = stored.starts, stored.ends
    windows[TIMES, :found], windows[FIRST_UPDATES] = stored.times, _NEVER
    late = np.zeros(len(keyed.timestamps), np.int64)
    operations = np.empty((3, max(_LEAST_OPERATIONS, 2 * most)), np.int64)
    live, state = np.empty(most, np.int64), np.zeros(9, np.int64)
    state[COUNT] = found
    rows = (order.rows, order.bounds, stored.bounds, keyed.timestamps, keyed.close_times, keyed.failing)
    more = True
    while more:
        state[OPERATIONS] = 0
        more = kernel(*rows, *settings, windows, late, operations, live, state)
        of_rows, sources, targets = operations[:, : state[OPERATIONS]]
        apply(of_rows, sources, targets)
    keys, starts, ends, times, first_updates, last_rows = windows[:, : state[COUNT]]
    return PlacedRows(keys, starts, ends, times, first_updates, last_rows, late, not state[FORGOTTEN])


@kernel
def take_key(bounds: Any, stored_bounds: Any, live: Any, state: Any) -> bool:  # pragma: no cover - compiled
    """Turns to the next key if the current one has no more rows; returns whether it did. `live[:state[ALIVE]]` are its windows."""
    key = state[KEY]
    if state[AT] > bounds[key]:
        return False
    state[AT], state[ALIVE] = bounds[key], stored_bounds[key + 1] - stored_bounds[key]
    for index in range(state[ALIVE]):
        live[index] = stored_bounds[key] + index
    return True


@kernel
def first_live_from(times: Any, live: Any, alive: int, least: int) -> int:  # pragma: no cover - compiled
    """The index of the first window with a time of at least `least`, by binary search."""
    low, high = 0, alive
    while low < high:
        middle = (low + high) // 2
        if times[live[middle]] < least:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def new_window(start: int, end: int, time: int, windows: Any, state: Any) -> int:  # pragma: no cover - compiled
    """Adds a window of the key, without contents so far."""
    window: int = state[COUNT]
    windows[KEYS, window], windows[STARTS, window], windows[ENDS, window] = state[KEY], start, end
    windows[TIMES, window] = time
    state[COUNT] += 1
    return window


@kernel
def operate(row: int, source: int, window: int, operations: Any, state: Any) -> None:  # pragma: no cover - compiled
    at = state[OPERATIONS]
    operations[0, at], operations[1, at], operations[2, at] = row, source, window
    state[OPERATIONS] += 1


@kernel
def touch(window: int, row: int, windows: Any, state: Any) -> None:  # pragma: no cover - compiled
    """Notes an update of a window."""
    if windows[FIRST_UPDATES, window] == _NEVER:
        windows[FIRST_UPDATES, window] = (row << _PLACE_BITS) + state[TOUCHED]
    windows[LAST_ROWS, window] = row
    state[TOUCHED] += 1


# --- Functions, called one after the other.

Operation: TypeAlias = tuple[int, int]
"""Source and window, as in `Apply`."""


class WindowUpdate(NamedTuple):
    """The effect of a record on a window.

    Attributes:
        window: The window's number.
        value: The window's new aggregate; None: it is deleted.
        cell: The new local value.
        old: The local value that was forwarded before; None: there was none.
        time: The timestamp of the result, ms.
    """

    window: int
    value: Any
    cell: bytes | None
    old: bytes | None
    time: int


class WindowsOfBatch:
    """The windows of a batch while functions are called, by number.

    Attributes:
        keys: The bytes of each window's key.
        bounds: The start and end of each window.
        cells: The current local value of each window; None: it does not exist.
        times: The current timestamp of each window's result, ms.
        of_key: The numbers of each key's windows.
    """

    __slots__ = ("bounds", "cells", "keys", "of_key", "times")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.bounds: list[Window] = []
        self.cells: list[bytes | None] = []
        self.times: list[int] = []
        self.of_key: dict[bytes, list[int]] = {}

    def add(self, key: bytes, start: int, end: int, time: int = NO_TIME, cell: bytes | None = None) -> int:
        """Adds a window; returns its number."""
        number = len(self.keys)
        self.keys.append(key)
        self.bounds.append(Window(start, end))
        self.cells.append(cell)
        self.times.append(time)
        self.of_key.setdefault(key, []).append(number)
        return number


class _Result(NamedTuple):
    """An update that is forwarded with the record of a row: key, window, new and old value, and time in ms.

    Attributes:
        closed: The key's bytes, if the record has closed the window. The record is then not to blame for the result.
    """

    row: int
    key: Any
    window: Window
    new: Any
    old: Any
    time: int
    closed: bytes | None = None


class _Calls:
    """Calls functions for the records of a batch, in their order.

    A record whose function fails belongs to no window, and a function that returns None deletes its window. In both cases, the
    windows of the next records of the key are found again.

    Args:
        operators: The operators of the streams of a cogroup; a single operator otherwise.
        functions: The functions of each operator.
        batch: The records.
    """

    def __init__(
        self,
        operators: Sequence[KeyedAggregation[Any]],
        functions: Sequence[AggregationFunctions],
        batch: ColumnarBatch,
    ) -> None:
        self._operators, self._functions, self._batch = operators, functions, batch
        self._first = first = operators[0]
        self._nodes = np.zeros(len(batch), np.int64) if batch.nodes is None else batch.nodes
        self._taken, self._dropped = first.taken(batch)
        self._times = first.stream_times(batch, self._taken)
        codes, data = coded_keys(first.store.codec, batch.keys)
        close_times = self._times - first.windows.wait_ms
        self._keyed = keyed = KeyedRows.of(codes, data, self._taken, batch.timestamps, close_times)
        self._key_of = np.zeros(len(batch), np.int64)
        self._key_of[keyed.order.rows] = np.repeat(np.arange(len(keyed.keys)), np.diff(keyed.order.bounds))
        self._found_until = [len(batch)] * len(keyed.keys)
        """The first row of each key from which its records' windows have to be found again."""
        self._windows = WindowsOfBatch()
        self._operations: list[list[Operation]] = [[] for _ in range(len(batch))]
        self._late: list[int] = [0] * len(batch)
        """The number of windows for which each record is late."""
        self._updated: dict[int, None] = {}
        """The windows that have updates, in the order of their first updates."""
        self._number_of: dict[tuple[bytes, Window], int] = {}
        """The numbers of windows, if results are emitted on close."""
        self._results: list[_Result] = []
        stored = first.stored(keyed)
        keys = keyed.cells_of(np.repeat(np.arange(len(keyed.keys)), np.diff(stored.bounds))).to_pylist()
        columns = (stored.starts.tolist(), stored.ends.tolist(), stored.times.tolist(), stored.cells)
        self._find(keyed, range(len(batch)), stored, list(map(self._windows.add, keys, *columns)))

    def run(self) -> None:
        """Makes the calls, and writes and forwards their results."""
        batch, rows = self._batch, np.flatnonzero(self._taken)
        nodes, key_of, cells = self._nodes.tolist(), self._key_of.tolist(), self._windows.cells
        records = map(Record, batch.keys.take(rows), each_value(batch.values, rows), batch.timestamps[rows].tolist())
        for row, record in zip(rows.tolist(), records, strict=True):
            if row >= self._found_until[key_of[row]]:
                self._find_again(row)
            operator, functions = self._operators[nodes[row]], self._functions[nodes[row]]
            operations = self._operations[row]
            try:
                updates = operator.updates(functions, record, operations, self._windows) if operations else []
                shown = operator.shown(updates)
            except Exception as error:
                operator.ctx.refuse(batch, row, error)
                self._late[row], self._found_until[key_of[row]] = 0, row + 1
                continue
            self._keep_updates(operator, row, record.key, updates)
            for (new, old), one in zip(shown, updates, strict=False):
                self._results.append(_Result(row, record.key, self._windows.bounds[one.window], new, old, one.time))
            if operator.open_windows is not None and (not operations or record.timestamp >= operator.looks_from_ms):
                self._close(operator, row)
            if any(source >= 0 and cells[window] is None for source, window in operations):
                self._found_until[key_of[row]] = row + 1
        self._finish()

    def _find(self, keyed: KeyedRows, rows: Sequence[int], stored: StoredWindows, numbers: list[int]) -> None:
        """Finds the windows of these rows; `numbers` are the numbers of the stored windows."""
        found = [np.empty((3, 0), np.int64)]
        placed = self._first.placed(keyed, stored, lambda *columns: found.append(np.array(columns)))
        made = slice(len(numbers), None)
        bounds = placed.starts[made].tolist(), placed.ends[made].tolist()
        numbers += map(self._windows.add, keyed.cells_of(placed.keys[made]).to_pylist(), *bounds)
        for row, late in zip(rows, placed.late.tolist(), strict=True):
            self._operations[row], self._late[row] = [], late
        for row, source, window in zip(*np.concatenate(found, 1).tolist(), strict=True):
            known = source if source >= 0 else ~numbers[~source]
            self._operations[rows[row]].append((known, numbers[window]))

    def _find_again(self, row: int) -> None:
        """Finds the windows of the next records of a row's key."""
        number, order, windows = int(self._key_of[row]), self._keyed.order, self._windows
        rows = order.rows[order.bounds[number] : order.bounds[number + 1]]
        rows = rows[np.searchsorted(rows, row) :][:_FOUND_AGAIN]
        key = self._keyed.keys.slice(number, 1)
        there = [one for one in windows.of_key.get(key[0].as_py(), []) if windows.cells[one] is not None]
        numbers = sorted(filter(self._is_kept, there), key=self._end_and_start)
        starts, ends = np.array([windows.bounds[one] for one in numbers], np.int64).reshape(-1, 2).T
        times, cells = (
            np.array([windows.times[one] for one in numbers], np.int64),
            [windows.cells[one] or b"" for one in numbers],
        )
        bounds = np.array([0, len(numbers)])
        mine = RowsByKey(np.arange(len(rows)), np.zeros(1, np.int64), np.array([0, len(rows)]))
        _, _, timestamps, close_times, failing = self._keyed
        keyed = KeyedRows(mine, key, timestamps[rows], close_times[rows], failing[rows])
        self._find(keyed, rows.tolist(), StoredWindows(starts, ends, times, bounds, cells), numbers)
        self._found_until[number] = int(rows[-1]) + 1

    def _is_kept(self, number: int) -> bool:
        return self._first.keeps(self._windows.bounds[number])

    def _end_and_start(self, number: int) -> tuple[int, int]:
        start, end = self._windows.bounds[number]
        return end, start

    def _keep_updates(
        self, operator: KeyedAggregation[Any], row: int, key: Any, updates: Sequence[WindowUpdate]
    ) -> None:
        """Takes over a record's updates. Those not forwarded at once wait for the window to close, or for the step's end."""
        windows, open_windows = self._windows, operator.open_windows
        for window, value, cell, old, time in updates:
            place = data, bounds = windows.keys[window], windows.bounds[window]
            if open_windows is not None:
                self._number_of[place] = window
                if cell is None and window == updates[-1].window and updates[-1].cell is not None:
                    self._updated[window] = None
                    continue  # a session that takes itself in stays open
                if cell is None:
                    open_windows.remove(data, *bounds, bounds.end)
                elif windows.cells[window] is None or len(self._operators) > 1:
                    open_windows.add(data, *bounds, bounds.end)
            elif operator.caching:
                held = operator.store.updates
                before = held[place].old if place in held else old
                headers = self._batch.headers[row] if operator.keeps_headers and self._batch.headers else None
                held[place] = HeldUpdate(key, bounds, before, value, time, headers)
            windows.cells[window], windows.times[window] = cell, time
            self._updated[window] = None

    def _close(self, operator: KeyedAggregation[Any], row: int) -> None:
        """Adds the results of the windows that a record closes."""
        for data, bounds in operator.closed(int(self._times[row]), int(self._batch.timestamps[row])):
            number = self._number_of.get((data, bounds))
            time = bounds.end
            try:
                key = operator.store.codec.read_key(data)
                if number is None:
                    found = operator.store.get(Windowed(key, bounds))
                else:
                    found = ValueAndTimestamp(operator.read(self._windows.cells[number]), self._windows.times[number])
                if found is not None and found.value is not None:
                    time = found.timestamp
                    value = operator.functions.viewed(found.value)
                    self._results.append(_Result(row, key, bounds, value, None, time, data))
            except Exception as error:
                cause = self._batch.take(np.array([row]))
                held = HeldRecord(data, None, time, cause.headers_of(0), bounds)
                operator.ctx.refuse(replace(cause, held={0: held}), 0, error)

    def _finish(self) -> None:
        """Drops late records, and writes and forwards the results of the calls."""
        batch, windows, numbers = self._batch, self._windows, list(self._updated)
        late = np.repeat(np.arange(len(batch)), self._late)
        drop_of_group(self._operators, batch, {**self._dropped, "late": late})
        for node, operator in enumerate(self._operators):
            observed = self._times[self._taken & (self._nodes == node)]
            if len(observed):
                operator.observe(int(observed[-1]))
        keys, cells = (binary_column([column[one] for one in numbers]) for column in (windows.keys, windows.cells))
        starts, ends = np.array([windows.bounds[one] for one in numbers], np.int64).reshape(-1, 2).T
        self._first.put(keys, starts, ends, cells, np.array([windows.times[one] for one in numbers], np.int64))
        _forward(self._operators, batch, self._nodes, self._results)


def _forward(
    operators: Sequence[KeyedAggregation[Any]], batch: ColumnarBatch, nodes: Int64s, results: Sequence[_Result]
) -> None:
    """Forwards results of the records of a batch. Each record belongs to one of the operators."""
    if not results:
        return
    rows, keys, windows, news, olds, times, closed = zip(*results, strict=True)
    first, at = operators[0], np.array(rows, np.int64)
    causes = batch.take(at)
    if first.open_windows is not None:
        made = [
            HeldRecord(data, None, time, (), window) for data, time, window in zip(closed, times, windows, strict=True)
        ]
        causes = replace(
            causes,
            held=HeldRows(lambda one: made[one]._replace(headers=causes.headers_of(one)), np.arange(len(made))),
        )
    forwarded = replace(
        causes,
        keys=windowed_keys(keys, windows),
        values=Changes(news, olds if first.send_old else None),
        timestamps=np.array(times, np.int64),
        headers=causes.headers if first.keeps_headers or first.open_windows is not None else None,
    )
    forward_in_one([one.ctx for one in operators], forwarded, nodes[at])


def drop_of_group(
    operators: Sequence[WindowedAggregation[Any]], batch: ColumnarBatch, dropped: Mapping[str, Int64s]
) -> None:
    """Drops records, each through its own operator."""
    nodes = np.zeros(len(batch), np.int64) if batch.nodes is None else batch.nodes
    for node, operator in enumerate(operators):
        drop_each(operator.ctx, batch, {reason: rows[nodes[rows] == node] for reason, rows in dropped.items()})


def windowed_keys(keys: Sequence[Any], windows: Sequence[Window]) -> WindowedKeys:
    starts, ends = np.array(windows, np.int64).T
    return WindowedKeys(KeyColumn.of(keys), starts, ends)


# --- The operators.

_MOST_TOGETHER: Final = 10_000
"""The largest number of records whose functions are called together: a record may touch hundreds of windows."""
_FOUND_AGAIN: Final = 32
"""The number of a key's records whose windows are found again."""


class _Folded(NamedTuple):
    """The result of folding the records of a step into built-in aggregates.

    Attributes:
        batch: The records.
        codes: int32[N], the code of each window's key.
        placed: The windows.
        before: The accumulators of the stored windows.
        accumulators: The accumulators of all windows.
        keys: The bytes of the keys of the windows that have updates, in the order of the updates.
        cells: The local values of these windows.
        in_time: bool[n], the records that belong to some window.
    """

    batch: ColumnarBatch
    codes: npt.NDArray[np.int32]
    placed: PlacedRows
    before: list[Any]
    accumulators: FieldAccumulators
    keys: BinaryColumn
    cells: BinaryColumn
    in_time: Bools


class KeyedAggregation(WindowedAggregation[W]):
    """Aggregates per key and window, where the windows depend on the times of the key's records.

    Args:
        fields: The built-in aggregates that `functions` also compute; None: the functions are the user's. Only an operator with
            caching gets columns of fields, for all records of a step at once.
    """

    made_by_row: ClassVar[int]
    """The largest number of windows that a record makes."""
    takes_null_values: ClassVar[bool]
    keeps_headers: ClassVar[bool]
    """Whether an update has the headers of the record that causes it."""

    def __init__(
        self,
        store: str,
        windows: W,
        functions: AggregationFunctions,
        open_store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
        fields: FieldAggregates | None = None,
    ) -> None:
        super().__init__(store, windows, functions, open_store, caching, send_old)
        self.fields = fields

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self._group: Sequence[KeyedAggregation[W]] = [self]
        self._folded: _Folded | None = None

    def lead(self, group: Sequence[Self]) -> None:
        self._group = group

    @abstractmethod
    def stored(self, keyed: KeyedRows) -> StoredWindows:
        """Reads the stored windows that the rows may touch."""

    @abstractmethod
    def placed(self, keyed: KeyedRows, stored: StoredWindows, apply: Apply) -> PlacedRows:
        """Finds the windows of the rows (`place`)."""

    @abstractmethod
    def updates(
        self,
        functions: AggregationFunctions,
        record: Record,
        operations: Sequence[Operation],
        windows: WindowsOfBatch,
    ) -> list[WindowUpdate]:
        """Calls the functions for a record; changes nothing.

        Raises:
            Exception: A function has failed, or its result cannot be stored.
        """

    @abstractmethod
    def read(self, cell: bytes | None) -> Any:
        """The aggregate in a local value; None for None."""

    @abstractmethod
    def local(self, keys: BinaryColumn, values: BinaryColumn, times: Int64s) -> BinaryColumn:
        """The local values for the bytes of aggregates. Raises `OversizedRowError`."""

    @abstractmethod
    def put(self, keys: BinaryColumn, starts: Int64s, ends: Int64s, cells: BinaryColumn, times: Int64s) -> None:
        """Writes windows; null deletes."""

    @abstractmethod
    def keeps(self, window: Window) -> bool:
        """Whether the store accepts a window."""

    @property
    def looks_from_ms(self) -> int:
        """The smallest timestamp at which a record in a window checks for closed ones, ms. Late records always check."""
        return 0

    def shown(self, updates: Sequence[WindowUpdate]) -> list[tuple[Any, Any]]:
        """The new and old values of updates that are forwarded at once; none with a cache, or if results are emitted on close."""
        if self.caching or self.open_windows is not None:
            return []
        viewed, send_old = self.functions.viewed, self.send_old
        return [(viewed(one.value), viewed(self.read(one.old)) if send_old else None) for one in updates]

    def taken(self, batch: ColumnarBatch) -> tuple[Bools, Mapping[str, Int64s]]:
        """bool[n], the records that may belong to windows; and reason -> the records that are dropped."""
        keyed = batch.keys.codes != NULL_KEY
        dropped = {"null_key": np.flatnonzero(~keyed)}
        if self.takes_null_values:
            return keyed, dropped
        nulls = keyed & null_values(batch.values)
        return keyed & ~nulls, {**dropped, "null_value": np.flatnonzero(nulls)}

    def stream_times(self, batch: ColumnarBatch, taken: Bools) -> Int64s:
        """int64[n], the stream time of each record's operator when it processes the record, ms."""
        times = np.full(len(batch), NO_TIME, np.int64)
        for node, operator in enumerate(self._group):
            mine = taken if batch.nodes is None else taken & (batch.nodes == node)
            times[mine] = np.maximum(np.maximum.accumulate(batch.timestamps[mine]), operator.stream_time)
        return times

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Aggregate the records of the group."""
        if isinstance(batch.values, FieldValues):
            self._process_fields(batch)
        else:
            self.call(batch, [one.functions for one in self._group])

    def skip(self, batch: ColumnarBatch) -> None:
        if self.taken(batch)[0].any():
            self._group[batch.node(0)].observe(int(batch.timestamps[0]))

    def call(self, batch: ColumnarBatch, functions: Sequence[AggregationFunctions]) -> None:
        """Calls functions for the records of the group."""
        if len(batch) > _MOST_TOGETHER:
            self.store.codec.keys(batch.keys)  # raises before any part of them is done
        for first in range(0, len(batch), _MOST_TOGETHER):
            rows = np.arange(first, min(first + _MOST_TOGETHER, len(batch)))
            _Calls(self._group, functions, batch if len(rows) == len(batch) else part_of(batch, rows)).run()

    def _process_fields(self, batch: ColumnarBatch) -> None:
        assert self.fields is not None, "others get no columns"
        rows, taken = rows_of_fields(self.ctx, self.store.codec, batch, self.takes_null_values)
        if not taken.any():
            return
        picked, times = PickedFields(self.fields, rows, taken), self.stream_times(rows.batch, taken)
        timestamps, close_times = rows.batch.timestamps, times - self.windows.wait_ms
        keyed = KeyedRows.of(rows.batch.keys.codes, rows.data, taken, timestamps, close_times)
        try:
            folded = self._fold(rows, keyed._replace(failing=picked.failing), picked)
        except Exception as error:
            if not concerns_records(error):
                raise
            self.call(picked.records(rows_where(taken)), [picked.functions])
            return
        self.observe(int(times[taken][-1]))
        self._folded, placed, at = folded, folded.placed, folded.placed.updated
        self.put(folded.keys, placed.starts[at], placed.ends[at], folded.cells, placed.times[at])
        self.ctx.drop_many(int(placed.late.sum()), "late")
        refused = [row for row in sorted(picked.errors) if not placed.late[row]]
        for row in refused:
            self.ctx.refuse(rows.batch, row, picked.errors[row])
        if self.open_windows is not None:
            self._folded = None
            looking = taken & (~folded.in_time | (timestamps >= self.looks_from_ms))
            looking[refused] = False
            at = rows_where(looking)
            self._close(folded, keyed, Closing(at, times[at] - self._close_delay_ms), self.open_windows)

    def _close(self, folded: _Folded, keyed: KeyedRows, closing: Closing, open_windows: OpenWindows) -> None:
        """Forwards the results of the windows that records close."""
        batch, placed, codec = folded.batch, folded.placed, self.store.codec
        begun = placed.first_updates >> _PLACE_BITS
        begun[: len(folded.before)] = -1
        gone = np.where(placed.times == GONE, placed.last_rows, NO_ROW)
        met = StepWindows(keyed.cells_of(placed.keys), placed.starts, placed.ends, begun, gone)
        found = open_windows.close_together(met, batch.timestamps, open_windows.due(closing))
        known = np.array([number for _, number in found if number is not None], np.int64)
        times = np.where(placed.times == GONE, placed.ends, placed.times)[known]
        values = zip(folded.accumulators.values(known), times.tolist(), strict=True)
        results = []
        for one, number in found:
            key, window = codec.read_key(one.key), Window(one.start, one.end)
            if number is not None:
                value, time = next(values)
            elif (stored := self.store.get(Windowed(key, window))) is not None:
                value, time = self.functions.viewed(stored.value), stored.timestamp
            else:
                continue
            results.append(_Result(one.row, key, window, value, None, time, one.key))
        _forward([self], batch, np.zeros(len(batch), np.int64), results)

    def _fold(self, rows: FieldRows, keyed: KeyedRows, picked: PickedFields) -> _Folded:
        """Adds the records of a step to built-in aggregates, without changing any state.

        Raises:
            Exception: Arrays cannot hold the results.
        """
        assert self.fields is not None, "see above"
        stored, made_by_row = self.stored(keyed), self.made_by_row
        if int((made_by_row * np.diff(keyed.order.bounds) + np.diff(stored.bounds)).max()) >= 1 << _PLACE_BITS:
            raise OneByOne
        before = [self.read(cell) for cell in stored.cells]
        count = len(before) + made_by_row * len(keyed.order.rows)
        accumulators = FieldAccumulators(self.fields, picked.columns, before, count, in_arrays)
        in_time = np.zeros(len(rows.batch), np.bool_)

        def apply(of_rows: Int64s, sources: Int64s, windows: Int64s) -> None:
            in_time[of_rows] = True
            others = sources != ~windows
            accumulators.apply(sources[others], windows[others])

        placed = self.placed(keyed, stored, apply)
        if not placed.are_kept:
            raise OneByOne
        accumulators.check()
        at = placed.updated
        keys, times = keyed.cells_of(placed.keys[at]), placed.times[at]
        values = accumulators.written(np.where(times == GONE, GONE, at), self.store.codec)
        cells = self.local(keys, values, times)
        codes = keyed.order.codes[placed.keys].astype(np.int32)
        return _Folded(rows.batch, codes, placed, before, accumulators, keys, cells, in_time)

    def _flush_pending(self) -> None:
        """Emit each window's last value, in order of time."""
        held, folded = list(self.store.updates.items()), self._folded
        self.store.updates.clear()
        self._folded = None
        changed = [(data, one) for (data, _), one in held if one.old is not None or one.new is not None]
        if changed:
            self._emit(sorted(changed, key=lambda update: update[1].time))
        if folded is not None:
            self.ctx.forward_batch(self._results(folded))

    def _emit(self, held: Sequence[tuple[bytes, HeldUpdate]]) -> None:
        """Forwards updates, with the bytes of their keys. An update that fails does not affect the others."""
        try:
            results = self._update_batch(held)
        except Exception:
            for one in held:
                self.ctx.attempt(partial(self._emit_one, one), _named(*one))
        else:
            self.ctx.forward_batch(results)

    def _emit_one(self, one: tuple[bytes, HeldUpdate]) -> None:
        self.ctx.forward_batch(self._update_batch([one]))

    def _update_batch(self, held: Sequence[tuple[bytes, HeldUpdate]]) -> ColumnarBatch:
        keys, windows, olds, news, times, headers = zip(*(one for _, one in held), strict=True)
        viewed = self.functions.viewed
        return ColumnarBatch(
            windowed_keys(keys, windows),
            Changes([*map(viewed, news)], [viewed(self.read(old)) for old in olds] if self.send_old else None),
            np.array(times, np.int64),
            np.arange(len(held)),
            list(headers) if any(headers) else None,
            held=HeldRows(lambda row: _named(*held[row]), np.arange(len(held))),
        )

    def _results(self, folded: _Folded) -> ColumnarBatch:
        batch, placed, stored, view = folded.batch, folded.placed, len(folded.before), self.functions.viewed
        updated = placed.updated
        names = np.flatnonzero((placed.times[updated] != GONE) | (updated < stored))
        at = updated[names]
        times = np.where(placed.times[at] == GONE, placed.ends[at], placed.times[at])
        order = np.argsort(times, kind="stable")
        at, names, times = at[order], names[order], times[order]
        olds = [view(folded.before[one]) if one < stored else None for one in at.tolist()] if self.send_old else None
        headers = batch.headers if self.keeps_headers else None
        results = ColumnarBatch(
            WindowedKeys(KeyColumn(folded.codes[at], batch.keys.objects), placed.starts[at], placed.ends[at]),
            Changes(folded.accumulators.values(np.where(placed.times[at] == GONE, GONE, at)), olds),
            times,
            np.arange(len(at)),
            headers and [headers[row] for row in placed.last_rows[at].tolist()],
        )

        def named(row: int) -> HeldRecord:
            window, data = results.keys[row].window, folded.keys[int(names[row])].as_py()
            return HeldRecord(data, None, int(times[row]), results.headers_of(row), window)

        return replace(results, held=HeldRows(named, np.arange(len(at))))


def _named(key: bytes, update: HeldUpdate) -> HeldRecord:
    """The record that errors name for an update at the end of a step, which no single record caused."""
    return HeldRecord(key, None, update.time, tuple(decode_headers(update.headers)), update.window)
