"""`suppress`: the buffered updates as bytes, the batches of a step, and the operator (Kafka Streams: `KTableSuppressProcessor`)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import BinaryColumn, binary_column, decode_headers, encode_headers, sliced
from streams.errors import SuppressBufferFullError
from streams.model.record import Change, Headers, Record, ValueAndTimestamp, Windowed
from streams.operators.columnar import (
    Changes,
    ColumnarBatch,
    Int64s,
    JsonValues,
    KeyColumn,
    packed,
    window_ends,
)
from streams.operators.operator import Operator, OperatorContext
from streams.operators.stores.codec import Codec
from streams.operators.stores.found_rows import TableLookup
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.operators.stores.time_ordered_buffer import ExpiryIndex
from streams.operators.stream_time import NO_LIMIT, StreamTime
from streams.operators.table.value_getter import Lookup, ValueGetter
from streams.serdes.base import Serde

HELD = struct.Struct(">qiiii")
NONE = -1
# The timestamp, offset and partition of a record, as Kafka Streams' buffer counts them.
_RECORD_BYTES = 8 + 8 + 4


@dataclass(frozen=True, slots=True)
class BufferedUpdate:
    """An update in the buffer: `timestamp(8) ∥ four lengths(4) ∥ prior ∥ old ∥ new ∥ headers ∥ topic`.

    Attributes:
        timestamp: Of the last update, ms.
        prior: The value before the first buffered update.
        old: The value before the last update.
        new: The value.
        headers: Of the last update.
        topic: The topic of the last update, if its length counts for the buffer's bounds; else empty.
    """

    timestamp: int
    prior: bytes | None
    old: bytes | None
    new: bytes | None
    headers: Headers
    topic: str = ""

    def bytes_in(self, row: bytes) -> int:
        """The bytes that the update counts for at this row, its place and key, as in Kafka Streams.

        Source: `InMemoryTimeOrderedKeyValueChangeBuffer`, `BufferValue` and `ProcessorRecordContext.residentMemorySizeEstimate`.
        """
        # One value that is both the prior and the old one counts once.
        values = (self.prior, None if self.old == self.prior else self.old, self.new)
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(row) + sum(len(value or b"") for value in values) + _RECORD_BYTES + len(self.topic) + headers

    def write(self) -> bytes:
        headers = encode_headers(self.headers) if self.headers else None
        parts = (self.prior, self.old, self.new, headers)
        lengths = (NONE if part is None else len(part) for part in parts)
        return HELD.pack(self.timestamp, *lengths) + b"".join(part or b"" for part in parts) + self.topic.encode()

    @classmethod
    def read(cls, data: bytes) -> BufferedUpdate:
        timestamp, *lengths = HELD.unpack_from(data)
        parts: list[bytes | None] = []
        at = HELD.size
        for length in lengths:
            parts.append(None if length == NONE else data[at : at + length])
            at += max(0, length)
        prior, old, new, headers = parts
        decoded = tuple(decode_headers(headers)) if headers is not None else ()
        return cls(timestamp, prior, old, new, decoded, data[at:].decode())


# --- The updates of a step for `suppress` where each of them may make others due: what is buffered and emitted, record by record.
#
# The order of the events matters, so they are played one after the other, but in memory: the buffer is read once before and
# written once afterwards.

_TIME = 8
_Row: TypeAlias = tuple[int, bytes]
"""Place and key bytes, which sort as the buffer's rows do."""


@dataclass
class UpdatesInTurn:
    """What the updates of a batch do to the buffer.

    Args:
        codec: That of the table.
        places: The store of places, which are the times of the keys' first updates.

    Raises:
        Exception: An update cannot be written; nothing has happened.
    """

    batch: ColumnarBatch
    codec: Codec
    buffer: ExpiryIndex
    places: TypedKeyValueStore
    _emitted: list[tuple[int, _Row, BufferedUpdate]] = field(init=False, default_factory=list)
    _final: dict[_Row, BufferedUpdate | None] = field(init=False, default_factory=dict)
    _times: dict[_Row, int] = field(init=False, default_factory=dict)
    _place_of: dict[bytes, tuple[int | None, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        batch = self.batch
        changes = batch.values if isinstance(batch.values, Changes) else Changes.of(batch.values)
        cells = self.codec.key_cells(batch.keys).dictionary_encode()
        self._keys, self._codes = cells.dictionary.to_pylist(), cells.indices.to_pylist()
        self._news = self.codec.values(changes.new).to_pylist()
        self._olds = [None] * len(batch) if changes.old is None else self.codec.values(changes.old).to_pylist()
        self._current = self._buffered(cells.dictionary)

    def _buffered(self, keys: pa.BinaryArray) -> list[tuple[_Row, BufferedUpdate] | None]:
        """What the buffer has for each key."""
        places = self.places.rows.get_columns(keys).to_pylist()
        known = [code for code, place in enumerate(places) if place is not None]
        data = [places[code] + self._keys[code] for code in known]
        held = self.buffer.get_columns(pa.array(data, pa.binary())).to_pylist()
        found: list[tuple[_Row, BufferedUpdate] | None] = [None] * len(places)
        for code, row, update in zip(known, data, held, strict=True):
            found[code] = _row(row), BufferedUpdate.read(update)
        return found

    def run(self, dues: Int64s) -> None:
        """Plays the updates."""
        last_due = int(dues[-1])
        passed, stored = self.buffer.rows_up_to(packed(np.array([max(0, last_due + 1)]))[0].as_py())
        rows = [_row(data) for data in passed.to_pylist()]
        waiting = dict(zip(rows, map(BufferedUpdate.read, stored.to_pylist()), strict=True))
        heap, code_of = list(rows), {key: code for code, key in enumerate(self._keys)}
        current, timestamps, headers = self._current, self.batch.timestamps.tolist(), self.batch.headers
        for at, (code, due) in enumerate(zip(self._codes, dues.tolist(), strict=True)):
            known, own = current[code], None if headers is None else headers[at]
            if known is None:
                row, prior = (timestamps[at], self._keys[code]), self._olds[at]
                heappush(heap, row)
                self._place_of[row[1]] = row[0], timestamps[at]
            else:
                row, prior = known[0], known[1].prior
            decoded = tuple(decode_headers(own)) if own else ()
            held = BufferedUpdate(timestamps[at], prior, self._olds[at], self._news[at], decoded)
            current[code] = row, held
            self._final[row], self._times[row] = held, timestamps[at]
            while heap and heap[0][0] <= due:
                row = heappop(heap)
                which = code_of.get(row[1])
                own_update = None if which is None else current[which]
                held = waiting[row] if own_update is None else own_update[1]
                if which is not None:
                    current[which] = None
                self._emitted.append((at, row, held))
                self._final[row], self._times[row] = None, held.timestamp
                self._place_of[row[1]] = None, held.timestamp
        self._new = [row for row in heap if self._final.get(row) is not None]
        self._passed = rows

    def put(self) -> None:
        """Writes what has become of the buffer.

        Raises:
            OversizedRowError: A row does not fit the changelog; nothing has happened.
        """
        rows = pa.array([_data(row) for row in self._final], pa.binary())
        values = binary_column([None if one is None else one.write() for one in self._final.values()])
        try:
            self.buffer.check_all(rows, values)
        except Exception:
            self.buffer.put_back([_data(row) for row in self._passed])
            raise
        times = np.maximum(np.array(list(self._times.values()), np.int64), 0)
        self.buffer.put_columns(rows, values, times, [_data(row) for row in self._new])
        if self._place_of:
            at = [
                None if place is None else place.to_bytes(_TIME, "big", signed=True)
                for place, _ in self._place_of.values()
            ]
            stamps = np.maximum(np.array([time for _, time in self._place_of.values()], np.int64), 0)
            self.places.rows.put_columns(pa.array(self._place_of, pa.binary()), pa.array(at, pa.binary()), stamps)

    def results(self, old: str | None) -> ColumnarBatch:
        """The updates that are emitted, each at the record that made it due; `old` as in `DueUpdates.results`."""
        rows = pa.array([_data(row) for _, row, _ in self._emitted], pa.binary())
        due = DueUpdates(rows, [held for _, _, held in self._emitted], self.codec).results(old, by_window=False)
        causes = self.batch.take(np.array([at for at, _, _ in self._emitted], np.int64))
        return replace(due, order=causes.order, place=causes.place, held=causes.held)


def _row(data: bytes) -> _Row:
    return int.from_bytes(data[:_TIME], "big", signed=True), data[_TIME:]


def _data(row: _Row) -> bytes:
    return row[0].to_bytes(_TIME, "big", signed=True) + row[1]


# --- The updates of a step for `suppress` as columns: new ones, what the buffer then holds, and the ones that are due.


class KeptUpdates(NamedTuple):
    """The updates of a step, with one row for each key, in the order of the keys' first updates.

    Attributes:
        keys: binary[K].
        places: int64[K], the place of each key's first update, ms.
        by_window: Whether places follow from the keys.
        firsts: int64[K], the times of the first updates, ms.
        timestamps: int64[K], the times of the last updates, ms.
        first_olds: binary[K], the values before the first updates.
        olds: binary[K], the values before the last ones.
        news: binary[K], the last values.
        headers: binary[K], of the last updates.
    """

    keys: BinaryColumn
    places: Int64s
    by_window: bool
    firsts: Int64s
    timestamps: Int64s
    first_olds: BinaryColumn
    olds: BinaryColumn
    news: BinaryColumn
    headers: BinaryColumn

    @classmethod
    def of(cls, batch: ColumnarBatch, codec: Codec, by_window: bool) -> KeptUpdates:
        """The updates of a batch.

        Raises:
            SerdeError: A key or a value cannot be written.
        """
        changes = batch.values if isinstance(batch.values, Changes) else Changes.of(batch.values)
        cells = codec.key_cells(batch.keys).dictionary_encode()
        codes = cells.indices.to_numpy()
        every = np.arange(len(codes))
        first, last = np.empty(len(cells.dictionary), np.int64), np.empty(len(cells.dictionary), np.int64)
        first[codes[::-1]], last[codes] = every[::-1], every
        news = codec.values(changes.new)
        olds = pa.nulls(len(codes), pa.binary()) if changes.old is None else codec.values(changes.old)
        headers = pa.nulls(len(codes), pa.binary()) if batch.headers is None else binary_column(batch.headers)
        places = window_ends(batch.keys) if by_window else batch.timestamps
        return cls(
            cells.dictionary,
            places[first],
            by_window,
            batch.timestamps[first],
            batch.timestamps[last],
            olds.take(pa.array(first)),
            olds.take(pa.array(last)),
            news.take(pa.array(last)),
            headers.take(pa.array(last)),
        )


class HeldUpdates(NamedTuple):
    """What the buffer holds for the keys of a step.

    Attributes:
        updates: The step's updates.
        rows: binary[K], their rows in the buffer.
        held: binary[K], the rows' values.
        new: bool[K] as indices, the keys that were not in the buffer.
    """

    updates: KeptUpdates
    rows: BinaryColumn
    held: BinaryColumn
    new: Int64s

    @classmethod
    def of(cls, updates: KeptUpdates, buffer: ExpiryIndex, places: TypedKeyValueStore | None) -> HeldUpdates:
        """The rows for some updates.

        Raises:
            OversizedRowError: A row does not fit the changelog.
        """
        at = updates.places.copy()
        if places is not None:
            known = places.rows.get_columns(updates.keys)
            kept = np.flatnonzero(known.is_valid().to_numpy(zero_copy_only=False))
            at[kept] = np.frombuffer(b"".join(known.drop_null().to_pylist()), ">i8")
        rows = pc.binary_join_element_wise(packed(at), updates.keys, _nothing())
        before = buffer.get_columns(rows)
        there = before.is_valid().to_numpy(zero_copy_only=False)
        priors = updates.first_olds
        if there.any():
            known_priors = binary_column([BufferedUpdate.read(data).prior for data in before.drop_null().to_pylist()])
            which = np.arange(len(there))
            which[there] = len(there) + np.arange(len(known_priors))
            priors = pa.concat_arrays([priors, known_priors]).take(pa.array(which))
        held = _written(updates.timestamps, [priors, updates.olds, updates.news, updates.headers])
        buffer.check_all(rows, held)
        return cls(updates, rows, held, np.flatnonzero(~there))

    def put(self, buffer: ExpiryIndex, places: TypedKeyValueStore | None) -> int:
        """Buffers the updates; returns how many rows the buffer has more than before."""
        updates, new = self.updates, pa.array(self.new)
        buffer.put_columns(self.rows, self.held, np.maximum(updates.timestamps, 0), self.rows.take(new).to_pylist())
        if places is not None and len(new):
            at = packed(updates.places[self.new])
            places.rows.put_columns(updates.keys.take(new), at, np.maximum(updates.firsts[self.new], 0))
        return len(self.new)


class DueUpdates(NamedTuple):
    """The updates that are due, in order.

    Attributes:
        rows: binary[n], their rows in the buffer.
        held: The rows' values.
        codec: That of the table.
    """

    rows: BinaryColumn
    held: Sequence[BufferedUpdate]
    codec: Codec

    @classmethod
    def of(cls, rows: BinaryColumn, data: BinaryColumn, codec: Codec) -> DueUpdates:
        """The updates in some rows of the buffer."""
        return cls(rows, [BufferedUpdate.read(one) for one in data.to_pylist()], codec)

    @property
    def timestamps(self) -> Int64s:
        return np.array([one.timestamp for one in self.held], np.int64)

    def remove(self, buffer: ExpiryIndex, places: TypedKeyValueStore | None) -> None:
        nothing, times = pa.nulls(len(self.held), pa.binary()), np.maximum(self.timestamps, 0)
        buffer.put_columns(self.rows, nothing, times, ())
        if places is not None:
            places.rows.put_columns(self._keys, nothing, times)

    def results(self, old: str | None, by_window: bool) -> ColumnarBatch:
        """The updates to forward."""
        at = [row for row, one in enumerate(self.held) if one.new is not None or not by_window]
        held = [self.held[row] for row in at]
        news, read = binary_column([one.new for one in held]), self.codec.read_values
        olds = None if old is None else read([getattr(one, old) for one in held])
        headers = [encode_headers(one.headers) if one.headers else None for one in held]
        keys = [self.codec.read_key(key) for key in self._keys.take(pa.array(at, pa.int64())).to_pylist()]
        shared = self.codec.holds_json and not pc.any(pc.equal(news, b"null")).as_py()  # JSON's null is read as None
        return ColumnarBatch(
            KeyColumn.of(keys),
            Changes(JsonValues(news, lambda: read(news.to_pylist())) if shared else read(news.to_pylist()), olds),
            np.array([one.timestamp for one in held], np.int64),
            np.arange(len(held)),
            headers if any(headers) else None,
        )

    @property
    def _keys(self) -> BinaryColumn:
        return sliced(self.rows, _TIME)


def _written(timestamps: Int64s, parts: Sequence[BinaryColumn]) -> BinaryColumn:
    """`BufferedUpdate.write` for columns: prior, old, new and headers."""
    lengths = [pc.fill_null(pc.binary_length(part).cast(pa.int32()), -1).to_numpy() for part in parts]
    heads = np.empty(len(timestamps), [("time", ">i8"), *((f"length{at}", ">i4") for at in range(len(parts)))])
    heads["time"] = timestamps
    for at, column in enumerate(lengths):
        heads[f"length{at}"] = column
    size = heads.dtype.itemsize
    front = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(heads), [None, pa.py_buffer(heads)])
    return pc.binary_join_element_wise(front.cast(pa.binary()), *(pc.fill_null(one, b"") for one in parts), _nothing())


def _nothing() -> pa.Scalar:
    return pa.scalar(b"", pa.binary())


# --- `suppress`: delays the updates of a table (Kafka Streams: `KTableSuppressProcessorSupplier`).
#
# The buffer is a store, in order of time and key bytes. It therefore survives restarts, may be larger than memory, and yields
# the due updates without a scan of the rest. Invariant: a key is in the buffer at most once, at the place of its first update.

_PLACE = struct.Struct(">q")
_RECORDS, _BYTES = "records", "buffered_bytes"  # "bytes" was a count by other rules


@dataclass(frozen=True)
class SuppressRules:
    """When updates are emitted.

    Attributes:
        wait_ms: How far stream time must be beyond an update's place, ms: grace (and a session's gap) until a window
            closes, else the time limit.
        by_window: An update's place is its window's end, and deletions are never emitted; else its timestamp.
        inclusive_end: The windows' ends are inclusive, so a window closes one millisecond later (strict mode).
        max_records: Maximum number of buffered keys; None: no bound.
        max_bytes: Maximum number of buffered bytes, as `BufferedUpdate.bytes_in` counts; None: no bound.
        emit_early: What to do at a bound: emit the oldest, or fail.
    """

    wait_ms: int
    by_window: bool
    inclusive_end: bool
    max_records: int | None
    max_bytes: int | None
    emit_early: bool


class Suppress(Operator):
    """Emits the last update of each key (and window) when it is due.

    After each update, every buffered update whose place is <= stream time - wait is emitted, by place, then by bytes of the key;
    stream time is the largest timestamp of the updates that arrived here, and survives restarts. A later update of a buffered
    key replaces value, timestamp and headers, but not the place.

    Strict mode differs where the windows' ends are inclusive: they close one millisecond later, as in their aggregation.
    (Kafka Streams emits, and if another record comes in that millisecond, emits again.)

    Args:
        buffer: Name of a key-value store of bytes: place and key bytes -> update.
        places: Name of a key-value store of bytes: key bytes -> place, where the place does not follow from the key; else None.
        key_serde: Serde of the table's keys.
        value_serde: Serde of its values.
        rules: When updates are emitted.
        send_old: Whether children need `Change.old`.
    """

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
        self._buffer = ExpiryIndex(ctx.store(self.buffer_name))
        self._places: TypedKeyValueStore | None = None if self.places_name is None else ctx.store(self.places_name)
        self.codec = Codec(f"{ctx.application_id}-{self.buffer_name}-changelog", self.key_serde, self.value_serde)
        self._time = StreamTime(ctx.state)
        self._emits_together = False
        self._bounded = self.rules.max_records is not None or self.rules.max_bytes is not None
        later = self.rules.inclusive_end and ctx.mode == "strict"
        self._wait_ms = self.rules.wait_ms + (1 if later else 0)
        self._counts_bytes = self.rules.max_bytes is not None
        counts = {name for name, kept in ((_RECORDS, self._bounded), (_BYTES, self._counts_bytes)) if kept}
        for stale in {_RECORDS, _BYTES} - counts:
            ctx.state.pop(stale, None)
        if counts - ctx.state.keys():
            ctx.state.update(dict.fromkeys(counts, 0))
            self._count_again(ctx.store(self.buffer_name))

    def process(self, record: Record) -> None:
        """Buffer an update, then emit the due ones."""
        self._time.observe(record.timestamp)
        self._hold(record, record.value)
        # During a flush the table above sends the last value of each key, not in order of time: the update that advances
        # stream time may come before another update of a window that it closes.
        if not self.ctx.flushing:
            self._emit_due()

    def process_batch(self, batch: ColumnarBatch) -> None:
        """`process` for all records of a batch. At the end of a step, no update is emitted before the last one is buffered.

        Raises:
            Exception: An update cannot be written; there has been no effect.
        """
        if self._counts_bytes or (not self.ctx.flushing and (self._bounded or self._places is None)):
            self.ctx.attempt_each(batch, self.process)
            return
        if not self.ctx.flushing:
            self._process_in_turn(batch)
            return
        updates = KeptUpdates.of(batch, self.codec, self.rules.by_window)
        held = HeldUpdates.of(updates, self._buffer, self._places)
        self._time.observe(int(batch.timestamps.max(initial=self._time.now)))
        self._count(held.put(self._buffer, self._places), 0)
        self._emits_together = True

    def _process_in_turn(self, batch: ColumnarBatch) -> None:
        """`process` for all records of a batch; each may make others due."""
        assert self._places is not None, "see process_batch"
        times = np.maximum.accumulate(np.maximum(batch.timestamps, self._time.now))
        updates = UpdatesInTurn(batch, self.codec, self._buffer, self._places)
        updates.run(times - self._wait_ms)
        updates.put()
        self._time.observe(int(times[-1]))
        self.ctx.forward_batch(updates.results(self._seen))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time: emit the updates that this makes due."""
        self._time.advance(elapsed_ms, limit)
        self._emit_due()
        return min(limit, self._oldest_buffered())

    def flush(self) -> None:
        """Emit the updates that are due by the end of the step."""
        self._emit_due()

    def _emit_due(self) -> None:
        due = self._time.now - self._wait_ms
        if due >= 0 and self._emits_together:
            self._emit_together(_PLACE.pack(due + 1))
        elif due >= 0:
            for row, held in self._buffer.up_to(_PLACE.pack(due + 1)):
                self._emit(row, held)
        if self._bounded and self._is_over():
            self._make_room()

    def close(self) -> None:
        self._buffer.close()

    # The buffer --------------------------------------------------------------------------------------------------------

    def _hold(self, record: Record, change: Change) -> None:
        key = self.codec.key(record.key)
        place = self._place(record, key)
        row = _PLACE.pack(place) + key
        before = self._buffer.get(row)
        old = self.codec.value(change.old)
        prior = old if before is None else BufferedUpdate.read(before).prior
        # Strict mode leaves the topic out: at the end of a step, a cache above passes on updates of more than one record.
        topic = (self.ctx.topic or "") if self._counts_bytes and self.ctx.mode == "compat" else ""
        held = BufferedUpdate(record.timestamp, prior, old, self.codec.value(change.new), record.headers, topic)
        self._buffer.put(row, held.write(), max(0, record.timestamp), is_new=before is None)
        if before is None and self._places is not None:
            self._places.put(key, _PLACE.pack(place), max(0, record.timestamp))
        if self._bounded:
            known = 0 if before is None else BufferedUpdate.read(before).bytes_in(row)
            self._count(1 if before is None else 0, held.bytes_in(row) - known)

    def _oldest_buffered(self) -> int:
        """A lower bound of the buffered updates' times, ms: their windows' starts, or their own times."""
        row = self._buffer.first
        if row is None:
            return NO_LIMIT
        if self.rules.by_window:
            windowed: Windowed = self.codec.read_key(row[_PLACE.size :])
            return windowed.window.start
        return int(_PLACE.unpack_from(row)[0])

    def _place(self, record: Record, key: bytes) -> int:
        place = _known_place(self._places, record.key, key)
        return record.timestamp if place is None else place

    def _emit(self, row: bytes, data: bytes) -> None:
        """Remove one update from the buffer and forward it."""
        held, key_bytes = BufferedUpdate.read(data), row[_PLACE.size :]
        self._buffer.remove(row, max(0, held.timestamp))
        if self._places is not None:
            self._places.put(key_bytes, None, max(0, held.timestamp))
        self._count(-1, -held.bytes_in(row))
        if held.new is None and self.rules.by_window:
            return
        key, new = self.codec.read_key(key_bytes), self.codec.read_value(held.new)
        # The value emitted before this one is the value before the first buffered update. Kafka Streams sends the value before
        # the last one, which was never forwarded.
        seen = held.old if self.ctx.mode == "compat" else held.prior
        old = self.codec.read_value(seen) if self.send_old else None
        self.ctx.forward(Record(key, Change(new, old), held.timestamp, held.headers))

    def _emit_together(self, end: bytes) -> None:
        """Remove all updates in front of a place from the buffer, and forward them."""
        due = DueUpdates.of(*self._buffer.rows_up_to(end), self.codec)
        if not due.held:
            return
        due.remove(self._buffer, self._places)
        self._count(-len(due.held), 0)
        self.ctx.forward_batch(due.results(self._seen, self.rules.by_window))

    @property
    def _seen(self) -> str | None:
        """The attribute of a buffered update that is the old value; see `_emit`."""
        if not self.send_old:
            return None
        return "old" if self.ctx.mode == "compat" else "prior"

    # Its bounds --------------------------------------------------------------------------------------------------------

    def _count(self, records: int, size: int) -> None:
        if self._bounded:
            state = self.ctx.state
            state[_RECORDS] = state.get(_RECORDS, 0) + records
            if self._counts_bytes:
                state[_BYTES] = state.get(_BYTES, 0) + size

    def _count_again(self, buffer: TypedKeyValueStore) -> None:
        """Counts the buffered updates where the state has no counts: at the first start, after a rescale, with a new bound."""
        for row, held in buffer.all():
            self._count(1, BufferedUpdate.read(held).bytes_in(row))

    def _is_over(self) -> bool:
        rules, state = self.rules, self.ctx.state
        too_many = rules.max_records is not None and state.get(_RECORDS, 0) > rules.max_records
        return too_many or (rules.max_bytes is not None and state.get(_BYTES, 0) > rules.max_bytes)

    def _make_room(self) -> None:
        if not self.rules.emit_early:
            held, size = self.ctx.state[_RECORDS], self.ctx.state.get(_BYTES)
            raise SuppressBufferFullError(
                f"the buffer of '{self.ctx.node}' in task {self.ctx.task_id} holds {held} updates"
                f"{f' in {size} bytes' if self._counts_bytes else ''}, more than its bounds "
                f"(max_records={self.rules.max_records}, max_bytes={self.rules.max_bytes}) allow, and it must not emit early. "
                f"Raise the bounds, or use BufferConfig.unbounded(): the buffer lies in a store"
            )
        for row, held in self._buffer.up_to(None):
            self._emit(row, held)
            if not self._is_over():
                break


@dataclass(frozen=True)
class SuppressValueGetter:
    """A suppressed table as other operators see it: as last emitted.

    Attributes:
        parent: The table above.
    """

    parent: ValueGetter
    buffer: str
    places: str | None
    key_serde: Serde
    value_serde: Serde

    @property
    def stores(self) -> tuple[str, ...]:
        own = (self.buffer,) if self.places is None else (self.buffer, self.places)
        return (*self.parent.stores, *own)

    reads_each = True

    def open(self, ctx: OperatorContext, forwarded: bool = False) -> Lookup:
        """Look-ups see the value before a buffered update; its timestamp is no longer known, so it is -1."""
        above, rows = self.parent.open(ctx, forwarded), ctx.store(self.buffer)
        places = None if self.places is None else ctx.store(self.places)
        codec = Codec(f"{ctx.application_id}-{self.buffer}-changelog", self.key_serde, self.value_serde)

        def lookup(key: Any, as_of: int | None) -> ValueAndTimestamp | None:
            key_bytes = codec.key(key)
            place = _known_place(places, key, key_bytes)
            held = None if place is None else rows.get(_PLACE.pack(place) + key_bytes)
            if held is None:
                return above(key, as_of)
            prior = codec.read_value(BufferedUpdate.read(held).prior)
            return None if prior is None else ValueAndTimestamp(prior, -1)

        return lookup

    def open_together(self, tables: Mapping[str, TableLookup]) -> TableLookup:
        raise NotImplementedError("the buffer is looked up key by key")


def _known_place(places: TypedKeyValueStore | None, key: Any, key_bytes: bytes) -> int | None:
    """The place that a key has in the buffer, or would have; None where it depends on the update's time."""
    if places is None:
        windowed: Windowed = key
        return windowed.window.end
    known = places.get(key_bytes)
    return None if known is None else int(_PLACE.unpack(known)[0])
