"""`suppress`: delays the updates of a table (Kafka Streams: `KTableSuppressProcessorSupplier`).

The buffer is a store, in order of time and key bytes. It therefore survives restarts, may be larger than memory, and yields the
due updates without a scan of the rest. Invariant: a key is in the buffer at most once, at the place of its first update.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streams.errors import SuppressBufferFullError
from streams.model.record import Change, Record, ValueAndTimestamp, Windowed
from streams.operators.columnar import ColumnarBatch, OneByOne
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.codec import Codec
from streams.operators.stores.expiry_index import ExpiryIndex
from streams.operators.stores.found_rows import TableLookup
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.operators.stream_time import NO_LIMIT, StreamTime
from streams.operators.table.buffered_update import BufferedUpdate
from streams.operators.table.suppress_columns import DueUpdates, HeldUpdates, KeptUpdates
from streams.operators.table.suppress_in_turn import UpdatesInTurn
from streams.operators.table.value_getter import Lookup, ValueGetter
from streams.serdes.base import Serde

_TIME = struct.Struct(">q")
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
        """Buffer an update, then emit those that are due."""
        self._time.observe(record.timestamp)
        self._hold(record, record.value)
        # During a flush the table above sends the last value of each key, not in order of time: the update that advances
        # stream time may come before another update of a window that it closes.
        if not self.ctx.flushing:
            self._emit_due()

    def process_together(self, batch: ColumnarBatch) -> None:
        """`process` for all records of a batch. At the end of a step, no update is emitted before the last one is buffered.

        Raises:
            OneByOne: Each update may make others due, or its bytes count.
        """
        if self._counts_bytes:
            raise OneByOne
        if not self.ctx.flushing:
            self._process_in_turn(batch)
            return
        updates = KeptUpdates.of(batch, self.codec, self.rules.by_window)
        held = HeldUpdates.of(updates, self._buffer, self._places)
        self._time.observe(int(batch.timestamps.max(initial=self._time.now)))
        self._count(held.put(self._buffer, self._places), 0)
        self._emits_together = True

    def _process_in_turn(self, batch: ColumnarBatch) -> None:
        """`process` for all records of a batch, each of which may make others due."""
        if self._bounded or self._places is None:
            raise OneByOne
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
            self._emit_together(_TIME.pack(due + 1))
        elif due >= 0:
            for row, held in self._buffer.up_to(_TIME.pack(due + 1)):
                self._emit(row, held)
        if self._bounded and self._is_over():
            self._make_room()

    def close(self) -> None:
        self._buffer.close()

    # The buffer --------------------------------------------------------------------------------------------------------

    def _hold(self, record: Record, change: Change) -> None:
        key = self.codec.key(record.key)
        place = self._place(record, key)
        row = _TIME.pack(place) + key
        before = self._buffer.get(row)
        old = self.codec.value(change.old)
        prior = old if before is None else BufferedUpdate.read(before).prior
        # Strict mode leaves the topic out: at the end of a step, a cache above passes on updates of more than one record.
        topic = (self.ctx.topic or "") if self._counts_bytes and self.ctx.mode == "compat" else ""
        held = BufferedUpdate(record.timestamp, prior, old, self.codec.value(change.new), record.headers, topic)
        self._buffer.put(row, held.write(), max(0, record.timestamp), is_new=before is None)
        if before is None and self._places is not None:
            self._places.put(key, _TIME.pack(place), max(0, record.timestamp))
        if self._bounded:
            known = 0 if before is None else BufferedUpdate.read(before).bytes_in(row)
            self._count(1 if before is None else 0, held.bytes_in(row) - known)

    def _oldest_buffered(self) -> int:
        """A lower bound of the buffered updates' times, ms: their windows' starts, or their own times."""
        row = self._buffer.first
        if row is None:
            return NO_LIMIT
        if self.rules.by_window:
            windowed: Windowed = self.codec.read_key(row[_TIME.size :])
            return windowed.window.start
        return int(_TIME.unpack_from(row)[0])

    def _place(self, record: Record, key: bytes) -> int:
        place = _known_place(self._places, record.key, key)
        return record.timestamp if place is None else place

    def _emit(self, row: bytes, data: bytes) -> None:
        """Remove one update from the buffer and forward it."""
        held, key_bytes = BufferedUpdate.read(data), row[_TIME.size :]
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
        buffer, places, key_serde, value_serde: As in `Suppress`.
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

    def open(self, ctx: OperatorContext, forwarded: bool = False) -> Lookup:
        """Look-ups see the value before a buffered update; its timestamp is no longer known, so it is -1."""
        above, rows = self.parent.open(ctx, forwarded), ctx.store(self.buffer)
        places = None if self.places is None else ctx.store(self.places)
        codec = Codec(f"{ctx.application_id}-{self.buffer}-changelog", self.key_serde, self.value_serde)

        def lookup(key: Any, as_of: int | None) -> ValueAndTimestamp | None:
            key_bytes = codec.key(key)
            place = _known_place(places, key, key_bytes)
            held = None if place is None else rows.get(_TIME.pack(place) + key_bytes)
            if held is None:
                return above(key, as_of)
            prior = codec.read_value(BufferedUpdate.read(held).prior)
            return None if prior is None else ValueAndTimestamp(prior, -1)

        return lookup

    def open_together(self, tables: Mapping[str, TableLookup]) -> TableLookup:
        """Not possible: the buffer has no look-up for many keys."""
        raise OneByOne("suppressed tables are looked up one by one")


def _known_place(places: TypedKeyValueStore | None, key: Any, key_bytes: bytes) -> int | None:
    """The place that a key has in the buffer, or would have; None where it depends on the update's time."""
    if places is None:
        windowed: Windowed = key
        return windowed.window.end
    known = places.get(key_bytes)
    return None if known is None else int(_TIME.unpack(known)[0])
