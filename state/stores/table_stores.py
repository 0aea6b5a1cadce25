"""`TableStores`: the stores of one table, the table's metadata, and its two ways of writing: step and restore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from state.errors import StateError
from state.stores.changelog_records import ChangelogBatch, Int64s, LocalRows, local_rows
from state.stores.codec import pack_long, pack_store_prefix
from state.stores.keyvalue import KeyValueBytesStore
from state.stores.position import (
    META_KEY,
    STORES_KEY,
    StoreEntry,
    StoreOrigin,
    StorePosition,
    TableMetadata,
    read_meta,
    read_stores,
    stores_to_bytes,
)
from state.stores.segments import UNLOGGED, Segments
from state.stores.session import SessionBytesStore
from state.stores.spec import StoreKind, StoreSpec
from state.stores.versioned import VersionedBytesStore
from state.stores.window import WindowBytesStore
from state.tables.buffer import WriteBuffer
from state.tables.buffer_memory import BufferMemory
from state.tables.columns import columns_of
from state.tables.sizes import RangeSize, SizedTable
from state.tables.table import Columns, KeyRange, OrderedTable, Row

ByteStore = KeyValueBytesStore | WindowBytesStore | SessionBytesStore | VersionedBytesStore
# From this many rows a sorted file beats a batch: 1.7-2.5 us of CPU a row against 2.1-3.8 (116 bytes, 5k-200k rows).
_BULK_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class RestoredPart:
    """Changelog records of one store, in the order of their offsets."""

    records: ChangelogBatch
    offsets: Int64s


class TableStores:
    """One table with its stores.

    Args:
        table: The database.
        specs: The topology's stores in this table.
        memory: Shared memory of the write buffers.
    """

    def __init__(self, table: OrderedTable, specs: Sequence[StoreSpec], memory: BufferMemory) -> None:
        self.table = table
        self.specs = {spec.name: spec for spec in specs}
        self.stores: dict[str, ByteStore] = {}
        self.buffers: dict[str, WriteBuffer] = {}
        self.segments: dict[str, Segments] = {}
        self.meta: TableMetadata = read_meta(table)
        self._memory = memory
        self._entries = read_stores(table)
        self._register()
        for spec in specs:
            self._build(spec)

    def _register(self) -> None:
        """Gives new stores an id. A store whose layout changed gets a new one, and its old rows are deleted."""
        next_id = max((entry.store_id for entry in self._entries.values()), default=0) + 1
        deleted_ranges: list[KeyRange] = []
        changed = False
        for name, spec in self.specs.items():
            width = spec.segment_width_ms if spec.kind.segmented else 0
            old = self._entries.get(name)
            if old is not None and (old.kind, old.segment_ms) == (spec.kind.value, width):
                continue
            if old is not None:
                deleted_ranges.append(_rows_of(old.store_id))
                self.meta.offsets.pop(name, None)
                self.meta.segments.pop(name, None)
                self.meta.origins.pop(name, None)
            self._entries[name] = StoreEntry(next_id, spec.kind.value, width)
            next_id += 1
            changed = True
        if next_id > 0xFFFF:
            raise StateError(
                f"the store in {self.table.location} has used up its 65534 store ids; delete it to restore it"
            )
        if changed:
            changes = [(META_KEY, self.meta.to_bytes()), (STORES_KEY, stores_to_bytes(self._entries))]
            self.table.write(changes, deleted_ranges)

    def _build(self, spec: StoreSpec) -> None:
        store_id = self._entries[spec.name].store_id
        prefix = pack_store_prefix(store_id)
        buffer = self.buffers[spec.name] = WriteBuffer(self.table, self._memory, prefix)
        if spec.kind.segmented:
            segments = Segments(store_id, spec.segment_width_ms, self.meta.segments.get(spec.name))
            self.segments[spec.name] = segments
            kind = SessionBytesStore if spec.kind is StoreKind.SESSION else WindowBytesStore
            self.stores[spec.name] = kind(spec, buffer, segments)
        elif spec.kind is StoreKind.VERSIONED:
            self.stores[spec.name] = VersionedBytesStore(spec, buffer, prefix)
        else:
            self.stores[spec.name] = KeyValueBytesStore(spec, buffer, prefix)

    def prefix(self, name: str) -> bytes:
        """First bytes of a store's local keys."""
        return pack_store_prefix(self._entries[name].store_id)

    def sizes(self) -> dict[str, RangeSize]:
        """Store -> estimated size of its committed rows; empty if the table cannot tell."""
        if not isinstance(self.table, SizedTable):
            return {}
        ranges = [_rows_of(self._entries[name].store_id) for name in self.specs]
        return dict(zip(self.specs, self.table.sizes(ranges), strict=True))

    def is_empty(self, name: str) -> bool:
        """Whether the committed store has no rows."""
        lower, upper = _rows_of(self._entries[name].store_id)
        return next(self.table.scan(lower, upper), None) is None

    def apply(self, position: StorePosition, halfway: Callable[[], None] | None = None) -> None:
        """Writes the step's rows and its position in one atomic write; `halfway`: see `OrderedTable.write`."""
        first = {n: self.meta.offsets.get(n, 0) if s.logged else UNLOGGED for n, s in self.specs.items()}
        meta = TableMetadata(
            (position.query_id, position.version, position.written_ms),
            {name: offset for name, offset in position.changelog_offsets.items() if name in self.specs},
            {name: segments.to_json_after(first[name]) for name, segments in self.segments.items()},
            {name: position.origin(name) for name in self.specs},
        )
        deleted_ranges = [key_range for segments in self.segments.values() for key_range in segments.dead_ranges()]
        stores = sorted(self.buffers, key=self.prefix)
        parts = chain([columns_of([(META_KEY, meta.to_bytes())])], *(self._sorted_changes(name) for name in stores))
        if any(buffer.spilled for buffer in self.buffers.values()):
            self._write_file(parts, deleted_ranges, halfway)
        else:
            self._write(list(parts), deleted_ranges, halfway)
        for name, segments in self.segments.items():
            segments.written(first[name])
        self.meta = meta
        self._clear()

    def _sorted_changes(self, name: str) -> Iterator[Columns]:
        """A store's writes in key order; without rows that expired in their own step, which would outlive the range deletion."""
        segments = self.segments.get(name)
        for keys, values in self.buffers[name].sorted_changes():
            dead = 0
            if segments is not None and segments.bound:
                alive = pa.scalar(segments.prefix(segments.bound), pa.binary())
                dead = pc.sum(pc.less(keys, alive)).as_py()
            yield keys[dead:], values[dead:]

    def _write(
        self, parts: Sequence[Columns], delete_ranges: Sequence[KeyRange], halfway: Callable[[], None] | None = None
    ) -> None:
        """Writes rows in key order: many of them as a file, few as a batch."""
        if sum(len(keys) for keys, _ in parts) >= _BULK_ROWS:
            self._write_file(parts, delete_ranges, halfway)
        else:
            keys, values = (pa.concat_arrays(columns) for columns in zip(*parts, strict=True))
            self.table.write_columns(keys, values, delete_ranges, halfway)

    def _write_file(
        self, parts: Iterable[Columns], delete_ranges: Sequence[KeyRange], halfway: Callable[[], None] | None
    ) -> None:
        # The ranges may go before the rows come: their rows are dead already.
        if delete_ranges:
            self.table.write([], delete_ranges)
        self.table.write_sorted(parts, halfway)

    def restore(self, name: str, part: RestoredPart, next_offset: int, origin: StoreOrigin | None) -> int:
        """Writes changelog records of a store and the offset after them in one atomic write."""
        meta = self.meta.changed()
        meta.offsets[name] = next_offset
        if origin is not None:
            meta.origins[name] = origin
        return self._load({name: part}, meta)[name]

    def restored(self, position: StorePosition, parts: Mapping[str, RestoredPart]) -> dict[str, int]:
        """Declares the table to be at a position, together with the last records before it, in one atomic write."""
        meta = self.meta.changed(step=(position.query_id, position.version, position.written_ms))
        meta.offsets |= {n: o for n, o in position.changelog_offsets.items() if n in self.specs}
        meta.origins = {name: position.origin(name) for name in self.specs}
        meta.segments = {name: segments.to_json_after(UNLOGGED) for name, segments in self.segments.items()}
        return self._load({name: part for name, part in parts.items() if name in self.specs}, meta, expire=True)

    def _load(self, parts: Mapping[str, RestoredPart], meta: TableMetadata, expire: bool = False) -> dict[str, int]:
        """Writes records and metadata in one atomic write; returns the number of rows of each store."""
        changes: list[Columns] = []
        loaded: dict[str, LocalRows] = {}
        for name in sorted(parts, key=self.prefix):
            part, segments = parts[name], self.segments.get(name)
            rows = loaded[name] = local_rows(self.specs[name], self.prefix(name), segments, part.records, part.offsets)
            if segments is not None:
                meta.segments[name] = segments.to_json_after(UNLOGGED, rows.firsts)
            if self.specs[name].kind is StoreKind.VERSIONED and len(part.records):
                newest = self._stream_time(name, int(part.records.timestamps.max()))
                changes.append(columns_of([(self.prefix(name), newest)]))
            changes.append((rows.keys, rows.values))
        concerned = {name: s for name, s in self.segments.items() if expire or name in parts}
        deleted_ranges = [key_range for segments in concerned.values() for key_range in segments.dead_ranges()]
        self._write([columns_of([(META_KEY, meta.to_bytes())]), *changes], deleted_ranges)
        for name, segments in concerned.items():
            segments.restored(loaded[name].firsts if name in loaded else {})
        self.meta = meta
        return {name: len(rows) for name, rows in loaded.items()}

    def _stream_time(self, name: str, restored: int) -> bytes:
        """The value of a versioned store's stream-time row."""
        data = self.table.get(self.prefix(name))
        return pack_long(restored) if data is None else max(data, pack_long(restored))

    def reset(self, name: str) -> None:
        """Empties a store, so that it can be restored from the start; earlier expiry is forgotten too."""
        meta = self.meta.changed()
        meta.offsets.pop(name, None)
        meta.origins.pop(name, None)
        segments = self.segments.get(name)
        if segments is not None:
            segments.clear()
            meta.segments[name] = segments.to_json()
        self.table.write([(META_KEY, meta.to_bytes())], [_rows_of(self._entries[name].store_id)])
        self.meta = meta

    def reset_all(self) -> None:
        """Empties all stores and deletes the table's metadata; has no effect on a new table."""
        for segments in self.segments.values():
            segments.clear()
        if self.meta == TableMetadata():
            return
        self.meta = TableMetadata()
        deleted_ranges = [_rows_of(self._entries[name].store_id) for name in self.specs]
        self.table.write([(META_KEY, self.meta.to_bytes())], deleted_ranges)

    def rows(self, name: str) -> Iterator[Row]:
        """Committed rows without store id and segment, dead segments left out."""
        lower, upper = _rows_of(self._entries[name].store_id)
        skip = len(lower)
        segments = self.segments.get(name)
        if segments is not None:
            lower = segments.prefix(segments.bound)
            skip = len(lower)
        # A versioned store's own stream time is under the bare prefix; its versions have at least 8 bytes of time.
        shortest = skip + 8 if self.specs[name].kind is StoreKind.VERSIONED else skip
        return ((key[skip:], value) for key, value in self.table.scan(lower, upper) if len(key) >= shortest)

    def local_rows(self, name: str) -> Iterator[Row]:
        """As `rows`, with the segment in front of each key: in the order of these keys, which is the same in every table."""
        lower, upper = _rows_of(self._entries[name].store_id)
        skip = len(lower)
        segments = self.segments.get(name)
        if segments is not None:
            lower = segments.prefix(segments.bound)
        shortest = skip + 8 if self.specs[name].kind is StoreKind.VERSIONED else skip
        return ((key[skip:], value) for key, value in self.table.scan(lower, upper) if len(key) >= shortest)

    def discard(self) -> None:
        for segments in self.segments.values():
            segments.discard()
        self._clear()

    def _clear(self) -> None:
        for buffer in self.buffers.values():
            buffer.clear()

    def trim_offsets(self) -> Mapping[str, int]:
        """Store -> first changelog offset still needed, for stores whose changelog may be trimmed by stream time."""
        return {
            name: min(segments.first_offsets.values(), default=self.meta.offsets.get(name, 0))
            for name, segments in self.segments.items()
            if self.specs[name].logged
        }


def _rows_of(store_id: int) -> KeyRange:
    return pack_store_prefix(store_id), pack_store_prefix(store_id + 1)
