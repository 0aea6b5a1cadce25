"""`suppress`: delays the updates of a table (Kafka Streams: `KTableSuppressProcessorSupplier`).

The buffer is a store, in order of time and key bytes. So it survives restarts, may be larger than memory, and yields
the due updates without a scan of the others. Invariant: a key is in the buffer at most once, at the place of its first update. With
a time limit of 60, an update at 0 gives a key its place; an update at 50 replaces it there, and is emitted when stream time reaches
60.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import (
    NOTHING,
    BinaryColumn,
    binary_column,
    cell_sizes,
    joined,
    numbers_at,
    one_column,
    packed,
    sliced,
)
from state.headers import decode_headers
from state.stores.buffer_values import NULL, PLACE, UNKNOWN, headers_in, headers_part
from state.stores.suppressed_rows import PLACES_FROM, SAME_AS_PRIOR, update_parts
from streams.errors import SuppressBufferFullError
from streams.model.record import ValueAndTimestamp, Windowed
from streams.operators.columnar import (
    Changes,
    ColumnarBatch,
    HeldRows,
    Int64s,
    JsonValues,
    KeyColumn,
    window_ends,
)
from streams.operators.operator import Operator, OperatorContext
from streams.operators.stores.codec import Codec
from streams.operators.stores.key_value import TypedKeyValueStore, row_as_result
from streams.operators.stores.time_ordered_buffer import ExpiryIndex
from streams.operators.stream_time import NO_LIMIT, StreamTime
from streams.operators.table.suppress_rules import SuppressRules
from streams.operators.table.value_getter import Lookup
from streams.serdes.base import Serde

_HEAD_BEFORE_1_0 = struct.Struct(">qiiii")
# The timestamp, offset and partition of a record, as Kafka Streams' buffer counts them.
_RECORD_BYTES = 8 + 8 + 4
_CURRENT = "format"
_RECORDS, _BYTES = "records", "buffered_bytes"  # "bytes" was a count by other rules
_NO_UPDATES = ColumnarBatch(KeyColumn.of([]), [], np.empty(0, np.int64), np.empty(0, np.int64))


class BufferedUpdate(NamedTuple):
    """An update in the buffer (`state.stores.suppressed_rows`).

    Attributes:
        timestamp: The timestamp of the last update, ms.
        prior: The value before the first buffered update.
        old: The value before the last update.
        new: The value.
        headers: The encoded headers of the last update.
        topic: The topic of the last update, if its length counts for the buffer's bounds; else empty.
    """

    timestamp: int
    prior: bytes | None
    old: bytes | None
    new: bytes | None
    headers: bytes | None
    topic: bytes

    @classmethod
    def read(cls, data: bytes) -> BufferedUpdate:
        return UpdateColumns.read(binary_column([data])).each()[0]

    @classmethod
    def read_before_1_0(cls, data: bytes) -> BufferedUpdate:
        """Reads the format before 1.0: `timestamp(8) ∥ four lengths(4) ∥ prior ∥ old ∥ new ∥ headers ∥ topic`."""
        timestamp, *lengths = _HEAD_BEFORE_1_0.unpack_from(data)
        parts: list[bytes | None] = []
        at = _HEAD_BEFORE_1_0.size
        for length in lengths:
            parts.append(None if length == NULL else data[at : at + length])
            at += max(0, length)
        prior, old, new, headers = parts
        return cls(timestamp, prior, old, new, headers, data[at:])

    def bytes_in(self, row: bytes) -> int:
        """The size of the update in this row (its place and key) as Kafka Streams counts it, bytes.

        Source: `InMemoryTimeOrderedKeyValueChangeBuffer`, `BufferValue` and `ProcessorRecordContext.residentMemorySizeEstimate`.
        """
        # A value that is both the prior and the old one counts once.
        values = (self.prior, None if self.old == self.prior else self.old, self.new)
        headers = sum(len(name) + len(value or b"") for name, value in decode_headers(self.headers))
        return len(row) + sum(len(value or b"") for value in values) + _RECORD_BYTES + len(self.topic) + headers


class UpdateColumns(NamedTuple):
    """Many updates: the columns of `BufferedUpdate`."""

    timestamps: Int64s
    priors: BinaryColumn
    olds: BinaryColumn
    news: BinaryColumn
    headers: BinaryColumn
    topics: BinaryColumn

    @classmethod
    def of(cls, batch: ColumnarBatch, codec: Codec, topics: Sequence[bytes] | None) -> UpdateColumns:
        """The updates of a batch, as if each were the first one of its key; without `topics`, the topics are empty."""
        changes, nothing = Changes.of(batch.values), pa.nulls(len(batch), pa.binary())
        olds = nothing if changes.old is None else codec.values(changes.old)
        headers = nothing if batch.headers is None else binary_column(batch.headers)
        named = pa.repeat(NOTHING, len(batch)) if topics is None else binary_column(topics)
        return cls(batch.timestamps, olds, olds, codec.values(changes.new), headers, named)

    @classmethod
    def from_each(cls, updates: Sequence[BufferedUpdate]) -> UpdateColumns:
        timestamps, *cells = zip(*updates, strict=True)
        return cls(np.array(timestamps, np.int64), *map(binary_column, cells))

    @classmethod
    def read(cls, rows: BinaryColumn) -> UpdateColumns:
        """Reads the updates in n >= 1 rows."""
        parts = update_parts(rows)
        priors, olds, news = (_cells(rows, *part[:2], part[2] == NULL) for part in (parts.prior, parts.old, parts.new))
        same = parts.old[2] == SAME_AS_PRIOR
        olds = pc.if_else(pa.array(same), priors, olds) if same.any() else olds
        headers = pa.nulls(len(rows), rows.type)
        if (parts.headers[0] < parts.headers[1]).any():
            cells = _cells(rows, *parts.headers, None).to_pylist()
            headers = binary_column([headers_in(cell) for cell in cells])
        topics = _cells(rows, *parts.topic, None)
        return cls(numbers_at(rows, 0), priors, olds, news, headers, topics)

    def each(self) -> list[BufferedUpdate]:
        return list(map(BufferedUpdate, self.timestamps.tolist(), *(column.to_pylist() for column in self[1:])))

    def followed_by(self, other: UpdateColumns) -> UpdateColumns:
        columns = (one_column(pair) for pair in zip(self[1:], other[1:], strict=True))
        return UpdateColumns(np.append(self.timestamps, other.timestamps), *columns)

    def write(self, firsts: Int64s, places: Int64s) -> BinaryColumn:
        """Makes the buffer's rows, each with the prior value of its first update (which may be another one) and its place, ms."""
        count = len(firsts)
        priors = self.priors.take(pa.array(firsts))
        olds, news, headers, topics = (column[:count] for column in self[2:])
        same = pc.fill_null(pc.equal(priors, olds), False)
        old_sizes = np.where(same.to_numpy(zero_copy_only=False), SAME_AS_PRIOR, cell_sizes(olds, NULL))
        parts = [
            _numbers(">i8", self.timestamps[:count], ">i8", UNKNOWN, ">i4", cell_sizes(topics)),
            topics,
            *_headers_and_size(headers, cell_sizes(priors, NULL)),
            priors,
            _numbers(">i4", old_sizes),
            pc.if_else(same, pa.scalar(b"", olds.type), olds),
            _numbers(">i4", cell_sizes(news, NULL)),
            news,
            packed(places),
            NOTHING,
        ]
        return pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement="")


def _headers_and_size(headers: BinaryColumn, sizes: Int64s) -> list[BinaryColumn]:
    """The partition, the headers, and the size of the part that contains both."""
    if headers.null_count == len(headers):
        return [_numbers(">i4", np.full(len(sizes), UNKNOWN), ">i4", 0, ">i4", sizes)]
    partitions = _numbers(">i4", np.full(len(sizes), UNKNOWN))
    return [partitions, binary_column(list(map(headers_part, headers.to_pylist()))), _numbers(">i4", sizes)]


def _numbers(*kinds_and_numbers: Any) -> BinaryColumn:
    """Joins numbers of these kinds in each cell; the kind comes before its numbers."""
    kinds, numbers = kinds_and_numbers[::2], kinds_and_numbers[1::2]
    # A number that is the same in every cell has no length; there may be no cells.
    count = next(len(column) for column in numbers if np.ndim(column))
    cells = np.empty(count, [(str(at), kind) for at, kind in enumerate(kinds)])
    for at, column in enumerate(numbers):
        cells[str(at)] = column
    size = cells.dtype.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, pa.py_buffer(cells)]).cast(pa.binary())


def _cells(rows: BinaryColumn, starts: Any, ends: Any, nulls: npt.NDArray[np.bool_] | None) -> BinaryColumn:
    """The bytes from `starts` to `ends` in the rows' data, which are every other cell of a column over that data."""
    kind = np.int64 if isinstance(rows, pa.LargeBinaryArray) else np.int32
    bounds, count = np.column_stack([starts, ends]).ravel().astype(kind), len(starts)
    cells = pa.Array.from_buffers(rows.type, 2 * count - 1, [None, pa.py_buffer(bounds), rows.buffers()[2]])
    return cells.take(pa.array(np.arange(0, 2 * count, 2), mask=nulls))


_Held: TypeAlias = tuple[bytes, int, int]
"""Place and key of a row; the number of its first update (for the prior value) and of its last one (for everything else)."""


class Turn:
    """The effect of a batch on the buffer: each update is held, and then all updates that are due or exceed the bounds are emitted.

    This is decided one update after another, but with numbers instead of updates: the buffer is first read as columns, and
    afterwards written as columns. The batch's updates have the first numbers, and updates that were in the buffer have the next
    ones.

    Args:
        suppress: The operator.
        batch: The updates; may be empty.

    Raises:
        SerdeError: A key or a value cannot be written.
    """

    def __init__(self, suppress: Suppress, batch: ColumnarBatch) -> None:
        self._of, self._batch, self._count = suppress, batch, len(batch)
        cells = suppress.codec.key_cells(batch.keys)
        self._keys = cells.to_pylist()
        self._places = PLACES_FROM + (window_ends(batch.keys) if suppress.places is None else batch.timestamps)
        self._updates = UpdateColumns.of(batch, suppress.codec, suppress.topics_of(batch))
        self._sized = self._updates.each() if suppress.counts_bytes else []
        self.records, self.size = (suppress.ctx.state.get(count, 0) for count in (_RECORDS, _BYTES))
        self._stored: list[bytes] = []
        self._unread: list[bytes] = []
        self._held: dict[bytes, _Held] = {}
        self._find(cells)
        # The events in order: a row, the numbers of its first and last update, the update that causes the event, and whether it is
        # emitted.
        self._rows: list[bytes] = []
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._causes: list[int] = []
        self._emitted: list[bool] = []

    def _find(self, cells: BinaryColumn) -> None:
        """Reads the buffered updates of the batch's keys."""
        places = self._of.places
        if places is None:
            rows = joined(packed(self._places), cells).unique()
        else:
            keys = cells.unique()
            rows = joined(places.rows.get_columns(keys), keys).drop_null()
        for row, data in zip(rows.to_pylist(), self._of.buffer.rows.get_columns(rows).to_pylist(), strict=True):
            if data is not None:
                self._held[row[PLACE.size :]] = self._next_stored(row)
                self._stored.append(data)

    def _next_stored(self, row: bytes) -> _Held:
        number = self._count + len(self._stored) + len(self._unread)
        return row, number, number

    def run(self, ends: Sequence[bytes], bounded: bool) -> None:
        """Decides which updates are held and which are emitted.

        Args:
            ends: For each update, the first row that is not due after it; without updates, the first row that is not due now.
            bounded: Whether the buffer must be within its bounds after each update.

        Raises:
            SuppressBufferFullError: The buffer exceeds its bounds and must not emit early.
        """
        index, places, early = self._of.index, self._places.tolist(), self._of.rules.emit_early
        for at, end in enumerate(ends):
            if places:
                self._hold(at, places[at])
            while (row := index.first) is not None and (row < end or (bounded and self._is_over)):
                if row >= end and not early:
                    raise self._full()
                self._emit(at, row)

    def _hold(self, at: int, place: int) -> None:
        key = self._keys[at]
        before = self._held.get(key)
        if before is None:
            row, first = PLACE.pack(place) + key, at
            self._of.index.add(row)
            self.records += 1
        else:
            row, first, _ = before
        held = self._held[key] = row, first, at
        self._happens(held, at, False)
        if self._of.counts_bytes:
            self.size += self._bytes_of(held) - (0 if before is None else self._bytes_of(before))

    def _emit(self, at: int, row: bytes) -> None:
        self._of.index.pop()
        held = self._held.pop(row[PLACE.size :], None)
        if held is None:
            held = self._next_stored(row)
            self._unread.append(row)
        self.records -= 1
        self._happens(held, at, True)
        if self._of.counts_bytes:
            self.size -= self._bytes_of(held)

    def _happens(self, held: _Held, at: int, emitted: bool) -> None:
        self._rows.append(held[0])
        self._firsts.append(held[1])
        self._lasts.append(held[2])
        self._causes.append(at)
        self._emitted.append(emitted)

    @property
    def _is_over(self) -> bool:
        rules = self._of.rules
        too_many = rules.max_records is not None and self.records > rules.max_records
        return too_many or (rules.max_bytes is not None and self.size > rules.max_bytes)

    def _full(self) -> SuppressBufferFullError:
        rules, ctx = self._of.rules, self._of.ctx
        return SuppressBufferFullError(
            f"the buffer of '{ctx.node}' in task {ctx.task_id} holds {self.records} updates"
            f"{f' in {self.size} bytes' if self._of.counts_bytes else ''}, more than its bounds "
            f"(max_records={rules.max_records}, max_bytes={rules.max_bytes}) allow, and it must not emit early. "
            f"Raise the bounds, or use BufferConfig.unbounded(): the buffer lies in a store"
        )

    def _bytes_of(self, held: _Held) -> int:
        self._read()
        row, first, last = held
        return self._update(last)._replace(prior=self._update(first).prior).bytes_in(row)

    def _update(self, number: int) -> BufferedUpdate:
        if number < self._count:
            return self._sized[number]
        return BufferedUpdate.read(self._stored[number - self._count])

    def _read(self) -> None:
        """Reads the emitted updates that have not been read yet."""
        if self._unread:
            self._stored += self._of.buffer.rows.get_columns(binary_column(self._unread)).to_pylist()
            self._unread = []

    def finish(self) -> ColumnarBatch:
        """Writes the changes, and returns the emitted updates in order, each with the update that has made it due.

        Raises:
            Exception: A row does not fit the changelog, or cannot be read; nothing is written.
        """
        if not self._rows:
            return _NO_UPDATES
        self._read()
        if self._stored:
            self._updates = self._updates.followed_by(UpdateColumns.read(binary_column(self._stored)))
        rows, emitted = binary_column(self._rows), np.array(self._emitted)
        firsts, lasts = np.array(self._firsts), np.array(self._lasts)
        places_of_held = numbers_at(rows, 0)[~emitted] - PLACES_FROM
        values = self._updates.write(firsts[~emitted], places_of_held)  # the batch's updates are held in their order
        results = _NO_UPDATES
        if emitted.any():
            results = self._results(firsts, lasts, emitted)
            values = values.take(pa.array(np.cumsum(~emitted) - 1, mask=emitted))
        times, buffer, places = self._updates.timestamps[lasts], self._of.buffer, self._of.places
        buffer.codec.check_all(rows, values)
        buffer.rows.put_columns(rows, values, times)
        if places is not None and len(moved := np.flatnonzero(emitted | (firsts == lasts))):
            rows, times = rows.take(pa.array(moved)), times[moved]
            at = pc.binary_slice(rows, 0, PLACE.size).take(pa.array(np.arange(len(moved)), mask=emitted[moved]))
            places.rows.put_columns(sliced(rows, PLACE.size), at, times)
        return results

    def _results(self, firsts: Int64s, lasts: Int64s, emitted: npt.NDArray[np.bool_]) -> ColumnarBatch:
        codec, updates, read = self._of.codec, self._updates, self._of.codec.read_values
        if self._of.rules.by_window:
            emitted = emitted & updates.news.is_valid().to_numpy(zero_copy_only=False)[lasts]
        at = np.flatnonzero(emitted)
        first, last = pa.array(firsts[at]), pa.array(lasts[at])
        news, headers, olds = updates.news.take(last), updates.headers.take(last).to_pylist(), None
        if self._of.send_old:
            # The value emitted before this one is the value before the first buffered update. Kafka Streams sends the value before
            # the last one, which was never forwarded.
            seen = updates.olds.take(last) if self._of.ctx.mode == "compat" else updates.priors.take(first)
            olds = read(seen.to_pylist())
        shared = codec.holds_json and not pc.any(pc.equal(news, b"null")).as_py()  # JSON's null is read as None
        results = ColumnarBatch(
            KeyColumn.of([codec.read_key(self._rows[row][PLACE.size :]) for row in at.tolist()]),
            Changes(JsonValues(news, lambda: read(news.to_pylist())) if shared else read(news.to_pylist()), olds),
            updates.timestamps[lasts[at]],
            np.arange(len(at)),
            headers if any(headers) else None,
        )
        # The record that has advanced time, or exceeded the bounds, is not to blame.
        held = HeldRows(
            lambda row: row_as_result(
                codec,
                results.keys[row],
                self._rows[at[row]][PLACE.size :],
                int(results.timestamps[row]),
                results.headers_of(row),
            ),
            np.arange(len(at)),
        )
        if not self._count:
            return replace(results, held=held)
        causes = self._batch.with_values(range(self._count)).take(np.array(self._causes)[at])
        return replace(results, order=causes.order, place=causes.place, held=held)

    def undo(self) -> None:
        """Restores the index to its state before `run`."""
        happened = list(zip(self._rows, self._firsts, self._causes, self._emitted, strict=True))
        added = {row for row, first, cause, emitted in happened if not emitted and first == cause}
        self._of.index.undo(added, [row for row, first, _, emitted in happened if emitted and first >= self._count])


class Suppress(Operator):
    """Emits the last update of each key (and window) when it is due.

    After each update, every buffered update whose place is <= stream time - wait is emitted, by place, then by bytes of the key.
    Stream time is the largest timestamp of the updates that arrived here, and survives restarts. A later update of a buffered
    key replaces value, timestamp and headers, but not the place.

    Strict mode differs where the windows' ends are inclusive: they close one millisecond later, as in their aggregation.
    (Kafka Streams emits, and if another record comes in that millisecond, emits again.)

    Args:
        buffer: Name of a key-value store of bytes: place and key bytes -> update.
        places: Name of a key-value store of bytes, key bytes -> place, if the place does not follow from the key; else None.
        key_serde: Serde of the table's keys.
        value_serde: Serde of the table's values.
        rules: When updates are emitted.
        send_old: Whether children need `Change.old`.
    """

    leaves_values = True
    makes_results = True

    def __init__(
        self,
        buffer: str,
        places: str | None,
        key_serde: Serde,
        value_serde: Serde,
        rules: SuppressRules,
        send_old: bool = False,
    ) -> None:
        self.buffer_name = buffer
        self.places_name = places
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.rules = rules
        self.send_old = send_old

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self.buffer: TypedKeyValueStore = ctx.store(self.buffer_name)
        self.places: TypedKeyValueStore | None = None if self.places_name is None else ctx.store(self.places_name)
        if not ctx.state.get(_CURRENT):
            self._take_over()
        self.index = ExpiryIndex(self.buffer)
        self.codec = Codec(f"{ctx.application_id}-{self.buffer_name}-changelog", self.key_serde, self.value_serde)
        self._time = StreamTime(ctx.state)
        later = self.rules.inclusive_end and ctx.mode == "strict"
        self._wait_ms = self.rules.wait_ms + (1 if later else 0)
        self.counts_bytes = self.rules.max_bytes is not None
        self._counts = (
            (_RECORDS, _BYTES) if self.counts_bytes else (_RECORDS,) if self.rules.max_records is not None else ()
        )
        for stale in {_RECORDS, _BYTES} - set(self._counts):
            ctx.state.pop(stale, None)
        if self._counts and not ctx.state.keys() >= set(self._counts):
            self._count_again()

    def _take_over(self) -> None:
        """Writes the rows of releases before 1.0 in the current format, under other keys."""
        for row, held in list(self.buffer.all()):
            place, key = PLACE.unpack_from(row)[0], row[PLACE.size :]
            if place < 0:
                continue
            update = BufferedUpdate.read_before_1_0(held)
            (written,) = UpdateColumns.from_each([update]).write(np.zeros(1, np.int64), np.array([place])).to_pylist()
            self.buffer.put(row, None, update.timestamp)
            self.buffer.put(PLACE.pack(PLACES_FROM + place) + key, written, update.timestamp)
            if self.places is not None:
                self.places.put(key, PLACE.pack(PLACES_FROM + place), update.timestamp)
        self.ctx.state[_CURRENT] = 3

    def _count_again(self) -> None:
        """Counts the buffered updates if the state has no counts: at the first start, after a rescale, or with a new bound."""
        records = size = 0
        for row, held in self.buffer.all():
            records, size = records + 1, size + BufferedUpdate.read(held).bytes_in(row)
        self.ctx.state.update(zip(self._counts, (records, size), strict=False))

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Buffer the updates; each may make others due."""
        times = np.maximum.accumulate(np.maximum(batch.timestamps, self._time.now))
        # During a flush the table above sends the last value of each key, not in order of time: the update that advances
        # stream time may come before another update of a window that it closes.
        if self.ctx.flushing:
            self._play(batch, [b""] * len(batch), bounded=False)
        else:
            self._play(batch, self._ends(times), bounded=True)
        self._time.observe(int(times[-1]))

    def skip(self, batch: ColumnarBatch) -> None:
        self._time.observe(int(batch.timestamps[0]))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time, and emit the updates that are then due."""
        self._time.advance(elapsed_ms, limit)
        self.flush()
        return min(limit, self._oldest_buffered())

    def flush(self) -> None:
        """Emit the updates that are due by the end of the step."""
        (end,), first = self._ends(np.array([self._time.now])), self.index.first
        if first is not None and (first < end or self._counts):
            self._play(_NO_UPDATES, [end], bounded=True)

    def close(self) -> None:
        self.index.close()

    def _ends(self, times: Int64s) -> list[bytes]:
        """The first row that is not due at each of these times."""
        ends: list[bytes] = packed(PLACES_FROM + np.maximum(times - self._wait_ms + 1, 0)).to_pylist()
        return ends

    def _play(self, batch: ColumnarBatch, ends: Sequence[bytes], bounded: bool) -> None:
        turn = Turn(self, batch)
        try:
            turn.run(ends, bounded)
            results = turn.finish()
        except Exception:
            turn.undo()
            raise
        self.ctx.state.update(zip(self._counts, (turn.records, turn.size), strict=False))
        self.ctx.forward_batch(results)

    def topics_of(self, batch: ColumnarBatch) -> list[bytes] | None:
        """The topics of the updates, if they count for the bounds. In strict mode they do not.

        At the end of a step, a cache above forwards updates that combine several records.
        """
        if not self.counts_bytes or self.ctx.mode == "strict":
            return None
        topics: list[bytes] = []
        for position in batch.order.tolist():
            with self.ctx.resume(batch.place(position)):
                topics.append((self.ctx.topic or "").encode())
        return topics

    def _oldest_buffered(self) -> int:
        """A lower bound of the buffered updates' times, ms: the starts of their windows, or their own times."""
        row = self.index.first
        if row is None:
            return NO_LIMIT
        if self.rules.by_window:
            windowed: Windowed = self.codec.read_key(row[PLACE.size :])
            return windowed.window.start
        return int(PLACE.unpack_from(row)[0]) - PLACES_FROM


def rows_as_emitted(
    ctx: OperatorContext, above: Lookup, buffer: str, places: str | None, key_serde: Serde, value_serde: Serde
) -> Lookup:
    """Returns the look-up of a suppressed table's rows within a step, as they were last emitted.

    Look-ups see the value before a buffered update. Its timestamp is no longer known, so it is -1.

    Args:
        ctx: The context of the node that looks up rows.
        above: Looks up rows of the table above.
        buffer: The store of the buffered updates.
        places: The store of their places; None: the places follow from the keys.
        key_serde: Serde of the table's keys.
        value_serde: Serde of the table's values.
    """
    rows = ctx.store(buffer)
    known = None if places is None else ctx.store(places)
    codec = Codec(f"{ctx.application_id}-{buffer}-changelog", key_serde, value_serde)

    def lookup(key: Any, as_of: int | None) -> ValueAndTimestamp | None:
        key_bytes = codec.key(key)
        place = _known_place(known, key, key_bytes)
        held = None if place is None else rows.get(PLACE.pack(place) + key_bytes)
        if held is None:
            return above(key, as_of)
        prior = codec.read_value(BufferedUpdate.read(held).prior)
        return None if prior is None else ValueAndTimestamp(prior, -1)

    return lookup


def _known_place(places: TypedKeyValueStore | None, key: Any, key_bytes: bytes) -> int | None:
    """The place of a key in the buffer, even if it has no update there; None if the place depends on the update's time."""
    if places is None:
        windowed: Windowed = key
        return PLACES_FROM + windowed.window.end
    known = places.get(key_bytes)
    return None if known is None else int(PLACE.unpack(known)[0])
