"""Aggregations of grouped streams that call functions, over all time and in windows with a start, and emission on close."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from state.columns import rows_where
from streams.errors import TopologyError
from streams.model.ownership import snapshot
from streams.model.record import (
    NO_TIME,
    Change,
    Headers,
    HeldRecord,
    Record,
    ValueAndTimestamp,
    Window,
    Windowed,
)
from streams.model.windows import CalendarWindows, GroupingWindows, TimeWindows, Windows
from streams.operators.aggregate.column_rows import Assigned, Groups, assign, assign_to_calendar, group
from streams.operators.aggregate.folded_values import EveryUpdate, NewValues, PrivateValues, Update
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.open_windows import ClosedWindow, Closing, OpenWindows
from streams.operators.columnar import (
    NULL_KEY,
    Changes,
    ColumnarBatch,
    HeldRows,
    Int64s,
    KeyColumn,
    WindowedKeys,
    each_value,
    null_values,
    of_group,
)
from streams.operators.operator import Operator, OperatorContext, drop_each, forward_in_one
from streams.operators.pending import emit_pending, emit_together, write_together
from streams.operators.stores.key_value import CachedRow, TypedTimestampedKeyValueStore, result_of
from streams.operators.stores.window import TypedTimestampedWindowStore
from streams.operators.stream_time import StreamTime
from streams.operators.table.table_materializer import numbered

if TYPE_CHECKING:
    from typing_extensions import Self

W = TypeVar("W", bound=GroupingWindows)


class WindowedAggregation(Operator, Generic[W]):
    """Base of the aggregations per key and window.

    Stream time is the largest timestamp that reached the operator with a key. It is stored in the operator's state, so that a
    restart does not change which records are late (in Kafka Streams it does).

    Args:
        store: Name of the store of the results.
        windows: The windows and their grace.
        open_store: Name of a key-value store of bytes for the index of open windows, for emission on close; None: every update is
            emitted.
        caching: Whether to emit the last value of a window once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`. On close, a window has a single result without an old value.
    """

    def __init__(
        self,
        store: str,
        windows: W,
        functions: AggregationFunctions,
        open_store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        self.store_name = store
        self.windows = windows
        self.functions = functions
        self.open_name = open_store
        self.caching = caching
        self.send_old = send_old

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self.store: Any = ctx.store(self.store_name)
        self._time = StreamTime(ctx.state)
        self.open_windows = None if self.open_name is None else OpenWindows(ctx, self.open_name)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time, and emit the windows that it closes."""
        time = self._time.advance(elapsed_ms, limit)
        if self.open_windows is None:
            return limit
        self._emit_closed(time, ())
        return min(limit, self._oldest_open(self.open_windows))

    def flush(self) -> None:
        """Emit pending updates, and let the store expire rows that can never be read again."""
        self._flush_pending()
        time = self._expiry_time()
        if self.open_windows is not None and self.open_windows.first_end is not None:
            # In compat mode a closed window may not have been emitted yet.
            time = min(time, self.open_windows.first_end + self.windows.wait_ms)
        for store in self.expiring:
            self.ctx.expire(store, time)

    @property
    def expiring(self) -> tuple[str, ...]:
        """The stores that delete a window after its retention."""
        return (self.store_name,)

    def close(self) -> None:
        if self.open_windows is not None:
            self.open_windows.release()

    def _flush_pending(self) -> None:
        """Emit, or write, the updates that wait for the end of the step."""

    def _expiry_time(self) -> int:
        return self._time.now

    @property
    def _close_delay_ms(self) -> int:
        """How far stream time must be past a window's end to close it, ms."""
        return self.windows.wait_ms + (1 if self.windows.inclusive_end else 0)

    def _oldest_open(self, open_windows: OpenWindows) -> int:
        """The smallest timestamp of any later result, ms."""
        return open_windows.first_start

    def _emit_closed(self, timestamp: int, headers: Headers) -> None:
        """Emit the windows that stream time has closed, with the headers of the record that closed them, for emission on close."""
        for data, window in self.closed(self._time.now, timestamp):
            windowed = Windowed(self.store.codec.read_key(data), window)
            found = self.store.get(windowed)
            if found is not None:
                held = HeldRecord(data, None, found.timestamp, headers, window)
                self.ctx.attempt(partial(self._emit_result, windowed, found, headers), held)

    def _emit_result(self, key: Windowed, found: ValueAndTimestamp, headers: Headers) -> None:
        self.ctx.forward(Record(key, Change(self.functions.viewed(found.value), None), found.timestamp, headers))

    def closed(self, stream_time: int, timestamp: int) -> Iterator[tuple[bytes, Window]]:
        """The keys' bytes and windows that a stream time closes, for emission on close; they are removed from the open windows."""
        if self.open_windows is not None:
            for data, start, end in self.open_windows.close(stream_time - self._close_delay_ms, timestamp):
                yield data, Window(start, end)

    @property
    def stream_time(self) -> int:
        """Stream time, ms; `NO_TIME` before the first record."""
        return self._time.now

    def observe(self, timestamp: int) -> None:
        """Advance stream time."""
        self._time.observe(timestamp)


# --- The windows of a batch's records, and the records that are dropped, for all records at once.


class WindowPairs(NamedTuple):
    """The windows of a batch's records.

    Attributes:
        assigned: The pairs of a record and a window.
        dropped: Reason -> the rows that are dropped, a row once for each window.
    """

    assigned: Assigned
    dropped: Mapping[str, Int64s]

    @property
    def rows(self) -> Int64s:
        """int64[m], the row of each pair."""
        return self.assigned.rows


def without_windows(rows: Int64s) -> Assigned:
    """Each of these rows once, without a window."""
    return Assigned(rows, np.full(len(rows), -1, np.int64), np.empty(0, np.int64), NO_TIME)


def pairs_without_windows(batch: ColumnarBatch) -> WindowPairs:
    """The records that have a key and a value, without windows; the others are dropped."""
    no_key = batch.keys.codes == NULL_KEY
    no_value = null_values(batch.values) & ~no_key
    dropped = {"null_key": rows_where(no_key), "null_value": rows_where(no_value)}
    return WindowPairs(without_windows(rows_where(~(no_key | no_value))), dropped)


def window_pairs(batch: ColumnarBatch, windows: Windows, stream_time: int) -> WindowPairs:
    """Each record that has a key, with its windows that are open when the record arrives.

    Raises:
        Exception: A user's class of windows has failed.
    """
    has_key = batch.keys.codes != NULL_KEY
    rows = rows_where(has_key)
    assigned = assign_any(batch.timestamps[rows], windows, stream_time).within(rows)
    return WindowPairs(assigned, {"null_key": rows_where(~has_key), "late": assigned.late})


def assign_any(timestamps: Int64s, windows: Windows, stream_time: int) -> Assigned:
    """Assigns timestamps to windows of any class, as `assign` does for columns.

    Raises:
        TopologyError: A user-defined class of windows contradicts itself, so rows would be lost.
    """
    if type(windows) is TimeWindows:
        return assign(timestamps, windows, stream_time)
    if type(windows) is CalendarWindows:
        return assign_to_calendar(timestamps, windows, stream_time)
    pairs, late = list[tuple[int, int]](), list[int]()
    for row, timestamp in enumerate(timestamps.tolist()):
        stream_time = max(stream_time, timestamp)
        open_starts, closed = _open_starts(timestamp, windows, stream_time - windows.grace_ms)
        pairs += zip(repeat(row), open_starts, strict=False)
        late += [row] * closed
    rows, starts = np.array(pairs, np.int64).reshape(-1, 2).T
    return Assigned(rows, starts, np.array(late, np.int64), stream_time)


def _open_starts(timestamp: int, windows: Windows, close_time: int) -> tuple[list[int], int]:
    """The starts of the open windows of a timestamp, and the number of its closed windows.

    Raises:
        TopologyError: A user-defined class of windows contradicts itself, so rows would be lost.
    """
    starts, size_ms, found = list(windows.starts(timestamp)), windows.size_ms, list[int]()
    for start in starts:
        end = windows.end_of(start)
        if not (start <= timestamp < end and end - start <= size_ms):
            raise TopologyError(_contradiction(windows, start, end, timestamp))
        if end > close_time:
            found.append(start)
    return found, len(starts) - len(found)


def _contradiction(windows: Windows, start: int, end: int, timestamp: int) -> str:
    """Describes the contradiction in a window of a user's class."""
    if start <= timestamp < end:
        return (
            f"{windows!r} has a window from {start} to {end}, which is longer than its size_ms, {windows.size_ms}: its rows would "
            f"be forgotten before it closes. size_ms must be the length of the longest window."
        )
    return (
        f"{windows!r} gives a window from {start} to {end}, which does not contain the time {timestamp}: starts(t) must give the "
        f"starts of windows with start <= t < end_of(start)."
    )


# --- The common part of aggregations that call their functions for the records of a whole batch.


class FoldedAggregate(Operator):
    """An aggregation that calls its functions for a whole batch (`Fold`).

    A subclass sets `store_name`, `functions`, `caching` and `send_old`.
    """

    store_name: str
    functions: AggregationFunctions
    caching: bool
    send_old: bool
    store: Any

    @property
    def changes_in_place(self) -> bool:
        """Whether functions may change cached aggregates in place. Without a cache, every call gets a separate object."""
        return self.caching

    @property
    def leaves_values(self) -> bool:
        return self.functions.reads

    @property
    def makes_results(self) -> bool:
        """True: results are read from their bytes, or copied, if functions below may change them."""
        return True

    def init(self, ctx: OperatorContext) -> None:
        """Open the store."""
        super().init(ctx)
        self._group: Sequence[FoldedAggregate] = [self]
        self.store = ctx.store(self.store_name)
        if self.caching:
            self.store.use_cache(self.ctx.private_rows)

    def lead(self, group: Sequence[Self]) -> None:
        self._group = group

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Aggregate the records of the group."""
        nodes = range(len(self._group))
        batches = [batch] if batch.nodes is None else [batch.take(rows_where(batch.nodes == one)) for one in nodes]
        Fold([one.with_calls(mine) for one, mine in zip(self._group, batches, strict=True)]).run()

    def with_calls(self, batch: ColumnarBatch) -> RecordsOfOperator:
        """The records of the operator, and the calls that they cause."""
        pairs = self.pairs(batch)
        return RecordsOfOperator(self, batch, pairs, self.calls(batch, pairs))

    def process(self, record: Record) -> None:
        """Aggregates a single record, at a tenth of the cost of a batch of one. Other users of the store see each update."""
        # If a record fails in one window, it is not added to any window.
        rows = self.rows(record)
        values: Iterable[Any] = repeat(record.value)
        if len(rows) > 1 and self._parts_values:
            values = map(snapshot, values)
        for row, updated in [
            (row, self._updated(row, value, record)) for row, value in zip(rows, values, strict=False)
        ]:
            self._set(row, *updated, record)

    @property
    def _parts_values(self) -> bool:
        """Whether several windows of a record must not share one object as their value."""
        return not self.functions.reads or self.ctx.results_change

    def _updated(self, row: CachedRow, value: Any, record: Record) -> tuple[Any, int]:
        """Value and timestamp of a row after one more record; the timestamp is the largest of the records."""
        functions, before = self.functions, row.value
        original = functions.original() if before is None else None
        aggregate = snapshot(original) if before is None else before
        after = functions.added(record.key, value, aggregate)
        if after is None and functions.may_change(aggregate):
            before_call = original if before is None else self.read_again(row.cell)
            functions.explain_nothing(functions.aggregator, aggregate, before_call, self.store.codec)
        seen = None if after is None else self.store.codec.seen(after)
        return seen, record.timestamp if before is None else max(record.timestamp, row.timestamp)

    def read_again(self, cell: bytes | None) -> Any:
        """Returns an aggregate as it was before the call of a function.

        Args:
            cell: The aggregate's bytes; None: they are not known, unless the step runs with private rows.

        Raises:
            Exception: The step has to be repeated with private rows.
        """
        if cell is None:
            self.ctx.run_with_private_rows()
        return self.store.codec.read_value(cell)

    @abstractmethod
    def rows(self, record: Record) -> list[CachedRow]:
        """The rows of the store to which a record is added, in order; drops the record for closed windows."""

    @abstractmethod
    def pairs(self, batch: ColumnarBatch) -> WindowPairs:
        """The windows of all records of a batch, as `rows` finds them for one; changes nothing."""

    def begin(self, batch: ColumnarBatch, pairs: WindowPairs) -> None:
        """Drop the records that are in no pair."""
        drop_each(self.ctx, batch, pairs.dropped)

    def calls(self, batch: ColumnarBatch, pairs: WindowPairs) -> tuple[Iterable[Any], ...]:
        """The parts of each call of a function: functions, key, value."""
        values: Iterable[Any] = each_value(batch.values, pairs.rows)
        if self._parts_values and (pairs.rows[1:] == pairs.rows[:-1]).any():
            values = map(snapshot, values)
        return repeat(self.functions), batch.keys.take(pairs.rows).each(), values

    @abstractmethod
    def keep(self, key: Any, headers: Headers, row: CachedRow) -> None:
        """Leave an update pending until the end of the step."""

    def end(self, batch: ColumnarBatch, opened: Sequence[tuple[int, bytes, int]], failed: Collection[int]) -> None:
        """Called after all records of a batch have been aggregated.

        Args:
            batch: The records.
            opened: For each record that has begun an aggregate: its row, the bytes of its key, and the start of its window.
            failed: The rows of the records that have failed.
        """

    def _set(self, row: CachedRow, value: Any, timestamp: int, record: Record) -> None:
        row.set(value, timestamp)
        if self.caching:
            self.keep(record.key, record.headers, row)
        else:
            self._emit(record.key, record.headers, row)

    def results(self, batch: ColumnarBatch, rows: Int64s, starts: Int64s, updates: Sequence[Update]) -> ColumnarBatch:
        """Makes results from updates of the records in these rows."""
        records, codec, viewed = batch.take(rows), self.store.codec, self.functions.viewed_column
        olds = viewed([codec.old_value(one.before) for one in updates]) if self.send_old else None
        return replace(
            records,
            keys=self._keys(records.keys, starts),
            values=Changes(self._own([one.value for one in updates]), olds),
            timestamps=np.array([one.timestamp for one in updates], np.int64),
        )

    def _own(self, stored: Sequence[Any]) -> Sequence[Any]:
        """The table's values of aggregates; copied if they are shared."""
        found = self.functions.viewed_column(stored)
        return list(map(snapshot, found)) if self.ctx.results_change else found

    def _emit_updates(self) -> None:
        """Emit each pending row's last value, in order of time."""
        if self.caching:
            emit_together(self.ctx, self.store, self.functions.viewed_column, self.send_old, self._keys, self._result)
        emit_pending(self.ctx, self.store, self.store.pending, self._emit, self._result)

    def _emit(self, key: Any, headers: Headers, row: CachedRow) -> None:
        old = self.store.codec.old_value(row.stored) if self.send_old else None
        row.sent(self.store.write(row))
        viewed = self.functions.viewed
        self.ctx.forward(Record(self._key(key, row), Change(viewed(row.value), viewed(old)), row.timestamp, headers))

    def _keys(self, keys: KeyColumn, starts: Int64s) -> KeyColumn:
        """The keys of results, from the keys and window starts of rows."""
        return keys

    def _key(self, key: Any, row: CachedRow) -> Any:
        return key

    def _result(self, key: Any, headers: Headers, row: CachedRow) -> HeldRecord:
        """The record that errors name for the result of a row."""
        return result_of(row, headers)


# --- Aggregation in tumbling, hopping and other time windows (Kafka Streams: `KStreamWindowAggregate`).


class WindowAggregate(FoldedAggregate, WindowedAggregation[Windows]):
    """Aggregates per key and window; each update is a result.

    A window accepts a record while the window's end > stream time - grace, decided per window. With windows of 10, a grace of 5 and
    a stream time of 12, a record at 8 is added to `[0, 10)`; at a stream time of 15, it is late. Null keys are dropped and do not
    advance stream time; null values are aggregated like any value.

    Args:
        store: Name of a timestamped window store.
    """

    store: TypedTimestampedWindowStore

    def rows(self, record: Record) -> list[CachedRow]:
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return []
        close_time, key = self._time.observe(record.timestamp) - self.windows.grace_ms, self.store.codec.key(record.key)
        starts, late = _open_starts(record.timestamp, self.windows, close_time)
        for _ in range(late):
            self.ctx.drop(record, "late")
        return [self.store.entry_at(key, start) for start in starts]

    def pairs(self, batch: ColumnarBatch) -> WindowPairs:
        return window_pairs(batch, self.windows, self._time.now)

    def begin(self, batch: ColumnarBatch, pairs: WindowPairs) -> None:
        """Drop late records and records without a key, refuse records without a window, and advance stream time."""
        super().begin(batch, pairs)
        self._time.observe(pairs.assigned.stream_time)
        for row, error in pairs.assigned.failed.items():
            self.ctx.refuse(batch, row, error)

    def keep(self, key: Any, headers: Headers, row: CachedRow) -> None:
        self.store.pending[(row.key, row.start)] = (key, headers, row)

    def _flush_pending(self) -> None:
        self._emit_updates()

    def _keys(self, keys: KeyColumn, starts: Int64s) -> WindowedKeys:
        if type(self.windows) is TimeWindows:
            return WindowedKeys(keys, starts, starts + self.windows.size_ms)
        distinct, numbers = np.unique(starts, return_inverse=True)
        ends = np.fromiter(map(self.windows.end_of, distinct.tolist()), np.int64, len(distinct))
        return WindowedKeys(keys, starts, ends[numbers])

    def _key(self, key: Any, row: CachedRow) -> Windowed:
        return Windowed(key, self._window(row))

    def _result(self, key: Any, headers: Headers, row: CachedRow) -> HeldRecord:
        return result_of(row, headers, self._window(row))

    def _window(self, row: CachedRow) -> Window:
        return Window(row.start, self.windows.end_of(row.start))


# --- Windowed aggregation that emits each window once, when the window closes (KIP-825, `KStreamWindowAggregate`).


class WindowAggregateOnClose(WindowAggregate):
    """Aggregates per key and window, and emits a window's result when the window's end + grace <= stream time.

    Records are assigned to windows as in `WindowAggregate`. Results are ordered by window start (by end, if lengths differ),
    then by the bytes of the key. Each has the largest timestamp of its records and the headers of the record that closed it.
    Kafka Streams loses results when time jumps, because its store expires a window before the window is emitted; here a
    window stays until it was emitted.

    A window is written to the store once, at the end of the step, with and without caching.
    """

    def __init__(
        self,
        store: str,
        windows: Windows,
        functions: AggregationFunctions,
        open_store: str | None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, windows, functions, open_store, caching=True)

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self._unwritten: dict[tuple[bytes, int], CachedRow] = {}

    def process(self, record: Record) -> None:
        """Aggregate a record, then emit the windows that it closes."""
        super().process(record)
        if record.key is not None:
            self._emit_closed(record.timestamp, record.headers)

    def _set(self, row: CachedRow, value: Any, timestamp: int, record: Record) -> None:
        assert self.open_windows is not None, "results come on close"
        if row.value is None:
            self.open_windows.add(row.key, row.start, self.windows.end_of(row.start), record.timestamp)
        super()._set(row, value, timestamp, record)

    def begin(self, batch: ColumnarBatch, pairs: WindowPairs) -> None:
        """Drop late records and records without a key, refuse records without a window, and advance stream time."""
        self._before, self._refused = self._time.now, pairs.assigned.failed
        super().begin(batch, pairs)

    def keep(self, key: Any, headers: Headers, row: CachedRow) -> None:
        """Write the window at the end of the step."""
        self._unwritten[(row.key, row.start)] = row

    def end(self, batch: ColumnarBatch, opened: Sequence[tuple[int, bytes, int]], failed: Collection[int]) -> None:
        """Emit the windows that the records have closed. This can be done last, because a closed window gets no more records."""
        assert self.open_windows is not None, "results come on close"
        rows = rows_where(batch.keys.codes != NULL_KEY)
        ends = np.maximum.accumulate(np.maximum(batch.timestamps[rows], self._before)) - self._close_delay_ms
        done = ~np.isin(rows, [*failed, *self._refused])
        closing = self.open_windows.due(Closing(rows[done], ends[done]))
        end_of = {start: self.windows.end_of(start) for start in {start for _, _, start in opened}}
        closed = self.open_windows.close_in_turn(opened, end_of, batch, closing)
        found = zip(closed, self.store.entries([(one.key, one.start) for one in closed]), strict=True)
        results = [(one, row) for one, row in found if row.value is not None]
        if results:
            self.ctx.forward_batch(self._results(batch, *zip(*results, strict=True)))

    def _results(
        self, batch: ColumnarBatch, closed: Sequence[ClosedWindow], rows: Sequence[CachedRow]
    ) -> ColumnarBatch:
        """The results of windows, with the headers of the records that have closed them."""
        codec, causes = self.store.codec, batch.take(np.array([one.row for one in closed]))
        inner = codec.key_column([codec.read_key(one.key) for one in closed], [one.key for one in closed])
        starts, ends = (
            np.array(bounds, np.int64) for bounds in zip(*((one.start, one.end) for one in closed), strict=True)
        )
        return replace(
            causes,
            keys=WindowedKeys(inner, starts, ends),
            values=Changes(self._own([row.value for row in rows]), None),
            timestamps=np.array([row.timestamp for row in rows], np.int64),
            # The record that has advanced time is not to blame.
            held=HeldRows(
                lambda at: result_of(rows[at], causes.headers_of(at), self._window(rows[at])), np.arange(len(rows))
            ),
        )

    def _flush_pending(self) -> None:
        if write_together(self.store, list(self._unwritten.values())):
            self._unwritten.clear()
        for row in self._unwritten.values():
            self.store.write(row)
        self._unwritten.clear()


# --- `count`, `reduce` and `aggregate` of a grouped stream (Kafka Streams: `KStreamAggregate`, `KStreamReduce`).


class StreamAggregate(FoldedAggregate):
    """Aggregates per key. Null keys and null values are dropped. The result's time is the largest of its records.

    Args:
        store: Name of a timestamped key-value store.
        caching: Emit the last value of a key once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`.
    """

    store: TypedTimestampedKeyValueStore

    def __init__(
        self, store: str, functions: AggregationFunctions, caching: bool = True, send_old: bool = False
    ) -> None:
        self.store_name = store
        self.functions = functions
        self.caching = caching
        self.send_old = send_old

    def rows(self, record: Record) -> list[CachedRow]:
        if record.key is None or record.value is None:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")
            return []
        return [self.store.entry(record.key)]

    def pairs(self, batch: ColumnarBatch) -> WindowPairs:
        return pairs_without_windows(batch)

    def keep(self, key: Any, headers: Headers, row: CachedRow) -> None:
        self.store.pending[row.key] = (key, headers, row)

    def flush(self) -> None:
        self._emit_updates()


# --- The records of a batch aggregated together, over all time or in windows.
#
# A function is called once for each record and window, in the order of the records, as in Kafka Streams. Everything else happens
# once for a batch: values are read one after the other while the functions run, windows are assigned to whole columns, all groups
# are read from the store together, and results are written as columns (`streams.operators.pending`).


_MOST_UNSEEN = 1_000
"""The largest number of results that are checked together; until then, they are objects."""


class RecordsOfOperator(NamedTuple):
    """The records of one operator, and their windows."""

    operator: FoldedAggregate
    batch: ColumnarBatch
    pairs: WindowPairs
    calls: tuple[Iterable[Any], ...]


class Fold:
    """The calls of the functions for a batch, one for each pair of a record and a window.

    Args:
        parts: The records of each operator. The streams of a cogroup share a store, so their records are aggregated in one order.

    Raises:
        Exception: A key cannot be written, or the store cannot be read; there has been no effect.
    """

    def __init__(self, parts: Sequence[RecordsOfOperator]) -> None:
        self._parts = parts
        self._store = parts[0].operator.store
        # The records of one operator are already in order.
        self._sequence: Int64s | None = None
        if len(parts) > 1:
            order = np.concatenate([one.batch.order[one.pairs.rows] for one in parts])
            self._sequence = np.argsort(order, kind="stable")
        counts = [len(one.pairs.rows) for one in parts]
        self._which = self._in_order([np.full(count, number) for number, count in enumerate(counts)]).tolist()
        self._rows = self._in_order([one.pairs.rows for one in parts]).tolist()
        self._timestamps = self._in_order([one.batch.timestamps[one.pairs.rows] for one in parts])
        self._groups, self._entries = self._look_up()

    def _in_order(self, columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Joins the columns of the parts, in the order of the calls."""
        return columns[0] if self._sequence is None else np.concatenate(columns)[self._sequence]

    def run(self) -> None:
        """Calls the functions, and leaves the results pending; without a cache, writes and forwards every update."""
        for operator, batch, pairs, _ in self._parts:
            operator.begin(batch, pairs)
        groups = self._groups.of_rows.tolist()
        values = self._values(groups)
        # With a cache, a group has a single result.
        places = range(len(groups)) if isinstance(values, EveryUpdate) else groups
        done, begun = self._call(values, places)
        if isinstance(values, EveryUpdate):
            self._emit_every(values)
        else:
            self._keep_groups(rows_where(done), values, self._times(done, np.array(begun, np.int64)))
        failed = {self._rows[at] for at in rows_where(~done).tolist()}
        begun_rows = [(self._rows[at], self._entries[groups[at]]) for at in begun if done[at]]
        opened = [(row, entry.key, entry.start) for row, entry in begun_rows]
        for operator, batch, _, _ in self._parts:
            operator.end(batch, opened, failed)

    def _call(self, values: Any, places: Sequence[int]) -> tuple[npt.NDArray[np.bool_], list[int]]:
        """Calls the functions. Returns which calls are done (their records have not failed), and which begin an aggregate."""
        # An aggregate that several calls share must equal the value of its bytes. Other aggregates are kept as bytes between calls.
        seen, unseen = None, None
        if isinstance(values, list) and not all(one.operator.functions.counts for one in self._parts):
            seen, unseen = (None, list[Any]()) if self._may_wait else (self._store.codec.seen, None)
        done, end_of_failed = np.ones(len(self._rows), np.bool_), -1
        begun: list[int] = []
        calls = self._calls(places)
        for first_call in range(0, len(places), _MOST_UNSEEN):
            for at, (functions, key, value, place) in zip(
                range(first_call, first_call + _MOST_UNSEEN), calls, strict=False
            ):
                if at < end_of_failed:
                    continue
                try:
                    original, before = None, values[place]
                    if before is None:
                        begun.append(at)
                        original = functions.original()
                        before = original if functions.reads else snapshot(original)
                        after = functions.added(key, value, before)
                    else:
                        after = functions.apply(key, value, before)
                    if after is None and functions.may_change(before):
                        self._explain_nothing(at, functions, before, original, values)
                    values[place] = after if seen is None or after is None else seen(after)
                    if unseen is not None:
                        unseen.append(after)
                except Exception as error:
                    self._refuse(at, error)  # raises for a list
                    first, end_of_failed = self._calls_of_record(at)
                    values.restore(places[first:at])
                    done[first:end_of_failed] = False
            if unseen:
                self._see(unseen, first_call)
        return done, begun

    @property
    def _may_wait(self) -> bool:
        """Whether results can be checked some calls later: no code changes them until then, and a refused one repeats the step."""
        operators = [one.operator for one in self._parts]
        return self._store.codec.holds_json and all(one.changes_in_place and one.functions.reads for one in operators)

    def _see(self, unseen: list[Any], first: int) -> None:
        """Checks the results of the calls from `first` on, and forgets them.

        Raises:
            Exception: A result would be read back as something else.
        """
        codec = self._store.codec
        if not codec.all_seen(unseen):
            for at, value in enumerate(unseen, first):
                try:
                    codec.seen(value)
                except Exception as error:
                    self._refuse(at, error)
        unseen.clear()

    def _explain_nothing(
        self, at: int, functions: AggregationFunctions, aggregate: Any, original: Any, values: Any
    ) -> None:
        """Handles an aggregator that has returned None instead of an aggregate of `values`, or of a copy of the original.

        Raises:
            RecordError: The aggregator has changed the aggregate.
        """
        operator, groups = self._parts[0].operator, self._groups.of_rows
        if original is None:
            number, cell = groups[at], None
            if not isinstance(values, list):
                cell = values.cell(number)
            elif not (groups[:at] == number).any():
                cell = self._entries[number].cell
            original = operator.read_again(cell)
        functions.explain_nothing(functions.aggregator, aggregate, original, self._store.codec)

    def _values(self, groups: Sequence[int]) -> Any:
        """Makes the object that has the aggregate before and after each call, by the call's number."""
        operator, codec = self._parts[0].operator, self._store.codec
        if not operator.caching:
            return EveryUpdate(self._entries, codec, groups, self._timestamps.tolist())
        if operator.ctx.private_rows:
            return PrivateValues(self._entries, codec)
        stored = (one.value for one in self._entries)
        return list(stored) if operator.changes_in_place else NewValues(stored)

    def _look_up(self) -> tuple[Groups, list[CachedRow]]:
        """The groups of the calls, and the row of each in the store."""
        codes, number_of = [], dict[bytes, int]()
        for _, batch, pairs, _ in self._parts:
            mine, numbers = numbered(self._store.codec.keys(batch.keys), batch.keys.take(pairs.rows))
            codes.append(
                np.array([number_of.setdefault(key, len(number_of)) for key in mine] or [0], np.int32)[numbers]
            )
        groups = group(self._in_order(codes), self._in_order([one.pairs.assigned.starts for one in self._parts]))
        data = list(number_of)
        places = zip((data[code] for code in groups.codes.tolist()), groups.starts.tolist(), strict=True)
        return groups, self._store.entries(list(places))

    def _calls(self, places: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """The parts of each call: functions, key, value, and the place of its aggregate."""
        if len(self._parts) == 1:
            return zip(*self._parts[0].calls, places, strict=False)
        calls = [zip(*one.calls, strict=False) for one in self._parts]
        return ((*next(calls[which]), place) for which, place in zip(self._which, places, strict=True))

    def _refuse(self, at: int, error: Exception) -> None:
        """Applies the processing policy to the record of a call."""
        operator, batch, _, _ = self._parts[self._which[at]]
        operator.ctx.refuse(batch, self._rows[at], error)

    def _calls_of_record(self, at: int) -> tuple[int, int]:
        """The first call for the record of a call, and the first call for the next record."""
        first, end, record = at, at + 1, (self._which[at], self._rows[at])
        while first > 0 and (self._which[first - 1], self._rows[first - 1]) == record:
            first -= 1
        while end < len(self._rows) and (self._which[end], self._rows[end]) == record:
            end += 1
        return first, end

    def _times(self, done: npt.NDArray[np.bool_], begun: Int64s) -> list[int]:
        """The timestamp of each group after the calls: the largest timestamp of its records since its aggregate began."""
        groups, begun = self._groups.of_rows, begun[done[begun]]
        times = np.array([one.timestamp for one in self._entries], np.int64)
        since = np.zeros(len(times), np.int64)
        times[groups[begun]], since[groups[begun]] = NO_TIME, begun  # the last assignment to an index wins
        counted = rows_where(done & (np.arange(len(done)) >= since[groups]))
        np.maximum.at(times, groups[counted], self._timestamps[counted])
        found: list[int] = times.tolist()
        return found

    def _keep_groups(self, done: Int64s, values: Sequence[Any], times: Sequence[int]) -> None:
        """Keeps the groups of the calls that were made, until the end of the step, in the order of their first calls."""
        groups = self._groups.of_rows[done]
        first, last = np.full(len(values), -1), np.full(len(values), -1)
        first[groups[::-1]], last[groups] = done[::-1], done
        called = rows_where(last >= 0)
        for number in called[np.argsort(first[called])].tolist():
            entry, at = self._entries[number], int(last[number])
            entry.set(values[number], times[number])
            operator, batch, _, _ = self._parts[self._which[at]]
            row = self._rows[at]
            operator.keep(batch.keys[row], batch.headers_of(row), entry)

    def _emit_every(self, values: EveryUpdate) -> None:
        """Writes the groups, and forwards every update in the order of the calls."""
        values.write(self._store)
        at = np.array(list(values.updates), np.int64)
        which, rows = (np.array(column, np.int64)[at] for column in (self._which, self._rows))
        starts, updates = self._groups.starts[self._groups.of_rows[at]], list(values.updates.values())
        results = []
        for number, (operator, batch, _, _) in enumerate(self._parts):
            mine = rows_where(which == number)
            results.append(operator.results(batch, rows[mine], starts[mine], [updates[one] for one in mine.tolist()]))
        whole = of_group(results)
        nodes = np.zeros(len(whole), np.int64) if whole.nodes is None else whole.nodes
        forward_in_one([one.operator.ctx for one in self._parts], whole, nodes)
