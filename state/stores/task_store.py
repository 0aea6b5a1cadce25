"""`TaskStore`: all stores of one task, and the entry point of `state.stores`.

A step reads and writes the byte stores (`store(name)`); nothing reaches the tables. Then either `apply(position)`
writes everything and the position at once, after Kafka's commit, or `discard()` forgets it. `position` is the committed step
that the tables hold: possibly behind Kafka, never ahead.

Stores with `persistent=False` are in a table in memory, which the caller may retain between steps. A fresh table has no
offsets, so a restore starts from the beginning of the changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.errors import StateError
from state.stores.buffer_values import PLACE
from state.stores.byte_stores import KeyValueBytesStore, SessionBytesStore, VersionedBytesStore, WindowBytesStore
from state.stores.changelog_records import ChangelogBatch, Int64s, LocalRows, changelog_batches, local_rows
from state.stores.codec import pack_long, pack_store_prefix
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
from state.stores.spec import RowFormat, StoreKind, StoreSpec
from state.tables.buffer import DEFAULT_SPILL_BYTES, BufferMemory, WriteBuffer, delete_left_scratch
from state.tables.open_tables import OpenTables, open_table
from state.tables.rocks_common import DEFAULT_SETTINGS, RocksSettings
from state.tables.table import (
    CheckpointedTable,
    Columns,
    KeyRange,
    MemoryTable,
    OrderedTable,
    RangeSize,
    Row,
    SizedTable,
    columns_of,
)

ByteStore = KeyValueBytesStore | WindowBytesStore | SessionBytesStore | VersionedBytesStore
# From this many rows a sorted file beats a batch: 1.7-2.5 us of CPU a row against 2.1-3.8 (116 bytes, 5k-200k rows).
_BULK_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class RestoredPart:
    """Changelog records of one store, in the order of their offsets."""

    records: ChangelogBatch
    offsets: Int64s


class TableStores:
    """One table with its stores."""

    def __init__(self, table: OrderedTable, specs: Sequence[StoreSpec], memory: BufferMemory) -> None:
        self.table = table
        self.specs = {spec.name: spec for spec in specs}
        self.stores: dict[str, ByteStore] = {}
        self.buffers: dict[str, WriteBuffer] = {}
        self.segments: dict[str, Segments] = {}
        self._places: dict[str, dict[bytes, bytes]] = {}
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
        """Store -> estimated size of its committed rows; empty if the table cannot estimate."""
        if not isinstance(self.table, SizedTable):
            return {}
        ranges = [_rows_of(self._entries[name].store_id) for name in self.specs]
        return dict(zip(self.specs, self.table.sizes(ranges), strict=True))

    def is_empty(self, name: str) -> bool:
        """Whether the committed store has no rows."""
        lower, upper = _rows_of(self._entries[name].store_id)
        return next(self.table.scan(lower, upper), None) is None

    def apply(self, position: StorePosition, halfway: Callable[[], None] | None = None, durable: bool = True) -> None:
        """Writes the step's rows and its position in one atomic write; `halfway` and `durable` are as for `OrderedTable.write`."""
        self._places.clear()
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
            self._write(list(parts), deleted_ranges, halfway, durable)
        for name, segments in self.segments.items():
            segments.written(first[name])
        self.meta = meta
        self._clear()

    def _sorted_changes(self, name: str) -> Iterator[Columns]:
        """A store's writes in key order, without rows that expired in their own step: they would outlive the range deletion."""
        segments = self.segments.get(name)
        for keys, values in self.buffers[name].sorted_changes():
            dead = 0
            if segments is not None and segments.bound:
                alive = segments.prefix(segments.bound)
                if len(keys) and keys[0].as_py() < alive:
                    dead = pc.sum(pc.less(keys, pa.scalar(alive, pa.binary()))).as_py()
            yield (keys[dead:], values[dead:]) if dead else (keys, values)

    def _write(
        self,
        parts: Sequence[Columns],
        delete_ranges: Sequence[KeyRange],
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        """Writes rows in key order: many of them as a file, few as a batch."""
        if sum(len(keys) for keys, _ in parts) >= _BULK_ROWS:
            self._write_file(parts, delete_ranges, halfway)
        else:
            keys, values = (pa.concat_arrays(columns) for columns in zip(*parts, strict=True))
            self.table.write_columns(keys, values, delete_ranges, halfway, durable)

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

    def restored(self, position: StorePosition, parts: Mapping[str, RestoredPart], durable: bool) -> dict[str, int]:
        """Declares the table to be at a position, together with the last records before it, in one atomic write."""
        meta = self.meta.changed(step=(position.query_id, position.version, position.written_ms))
        meta.offsets |= {n: o for n, o in position.changelog_offsets.items() if n in self.specs}
        meta.origins = {name: position.origin(name) for name in self.specs}
        meta.segments = {name: segments.to_json_after(UNLOGGED) for name, segments in self.segments.items()}
        mine = {name: part for name, part in parts.items() if name in self.specs}
        return self._load(mine, meta, expire=True, durable=durable)

    def _load(
        self, parts: Mapping[str, RestoredPart], meta: TableMetadata, expire: bool = False, durable: bool = True
    ) -> dict[str, int]:
        """Writes records and metadata in one atomic write; returns the number of rows of each store."""
        changes: list[Columns] = []
        loaded: dict[str, LocalRows] = {}
        for name in sorted(parts, key=self.prefix):
            part, segments = parts[name], self.segments.get(name)
            rows = loaded[name] = local_rows(
                self.specs[name], self.prefix(name), segments, part.records, part.offsets, self._places_of(name)
            )
            if segments is not None:
                meta.segments[name] = segments.to_json_after(UNLOGGED, rows.firsts)
            if self.specs[name].kind is StoreKind.VERSIONED and len(part.records):
                newest = self._stream_time(name, int(part.records.timestamps.max()))
                changes.append(columns_of([(self.prefix(name), newest)]))
            changes.append((rows.keys, rows.values))
        concerned = {name: s for name, s in self.segments.items() if expire or name in parts}
        deleted_ranges = [key_range for segments in concerned.values() for key_range in segments.dead_ranges()]
        self._write([columns_of([(META_KEY, meta.to_bytes())]), *changes], deleted_ranges, durable=durable)
        for name, segments in concerned.items():
            segments.restored(loaded[name].firsts if name in loaded else {})
        self.meta = meta
        return {name: len(rows) for name, rows in loaded.items()}

    def _places_of(self, name: str) -> dict[bytes, bytes] | None:
        """Key -> place of a store's suppressed updates, read once for a restore; None for other stores."""
        if self.specs[name].rows is not RowFormat.SUPPRESSED:
            return None
        if name not in self._places:
            rows = (key for key, _ in self.rows(name))
            self._places[name] = {key[PLACE.size :]: key[: PLACE.size] for key in rows if key[:1] >= b"\x80"}
        return self._places[name]

    def _stream_time(self, name: str, restored: int) -> bytes:
        """The value of a versioned store's stream-time row."""
        data = self.table.get(self.prefix(name))
        return pack_long(restored) if data is None else max(data, pack_long(restored))

    def reset(self, name: str) -> None:
        """Empties a store, so that it can be restored from the start; earlier expiry is forgotten too."""
        meta = self.meta.changed()
        meta.offsets.pop(name, None)
        meta.origins.pop(name, None)
        self._places.pop(name, None)
        segments = self.segments.get(name)
        if segments is not None:
            segments.clear()
            meta.segments[name] = segments.to_json()
        self.table.write([(META_KEY, meta.to_bytes())], [_rows_of(self._entries[name].store_id)])
        self.meta = meta

    def reset_all(self) -> None:
        """Empties all stores and deletes the table's metadata; has no effect on a new table."""
        self._places.clear()
        for segments in self.segments.values():
            segments.clear()
        if self.meta == TableMetadata():
            return
        self.meta = TableMetadata()
        deleted_ranges = [_rows_of(self._entries[name].store_id) for name in self.specs]
        self.table.write([(META_KEY, self.meta.to_bytes())], deleted_ranges)

    def rows(self, name: str, with_segments: bool = False) -> Iterator[Row]:
        """Committed rows without store id, and without segment unless wanted; dead segments are left out.

        With segments, keys are in ascending order, which is the same in every table.
        """
        lower, upper = _rows_of(self._entries[name].store_id)
        skip = len(lower)
        segments = self.segments.get(name)
        if segments is not None:
            lower = segments.prefix(segments.bound)
            skip = skip if with_segments else len(lower)
        # A versioned store's own stream time is under the bare prefix; its versions have at least 8 bytes of time.
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


__all__ = ["RestoredPart", "StoreOrigin", "StorePosition", "TaskStore", "open_task_store"]

Release = Callable[[OrderedTable, bool], None]
"""Ends the use of a database; the second argument says whether the step failed."""


class TaskStore:
    """The stores of a task over its tables.

    Args:
        table: The task's database.
        specs: The stores of its sub-topology.
        volatile: The table of the `persistent=False` stores; default: a fresh one.
        memory: Bound of the write buffers; default: none.
        release: Ends the use of the database; default: closes it.
    """

    def __init__(
        self,
        table: OrderedTable,
        specs: Sequence[StoreSpec],
        volatile: OrderedTable | None = None,
        memory: BufferMemory | None = None,
        release: Release | None = None,
    ) -> None:
        self._release = release or (lambda table, failed: table.close())
        self.specs: Mapping[str, StoreSpec] = {spec.name: spec for spec in specs}
        self._memory = memory or BufferMemory()
        volatile_specs = [spec for spec in specs if not spec.persistent]
        self._volatile = (
            [TableStores(volatile or MemoryTable(), volatile_specs, self._memory)] if volatile_specs else []
        )
        self._attach(table)

    def _attach(self, table: OrderedTable) -> None:
        self.table = table
        self._main = TableStores(table, [spec for spec in self.specs.values() if spec.persistent], self._memory)
        self._states = [self._main, *self._volatile]
        self._state_of = {name: state for state in self._states for name in state.specs}

    def replace_table(self, exchange: Callable[[Callable[[], None]], OrderedTable]) -> None:
        """Replaces the database of the stores on disk, which must have no pending writes."""
        self.discard()
        self._attach(exchange(lambda: self._release(self.table, True)))

    def checkpoint(self, folder: Path) -> bool:
        """Makes a second set of the database's files (`CheckpointedTable`); False if the table is not on disk."""
        if not isinstance(self.table, CheckpointedTable):
            return False
        self.table.checkpoint(folder)
        return True

    def snapshot(self) -> TaskStore:
        """The rows and the position that are committed now, to read. Later writes do not change them. Close it before this one."""
        volatile = self._volatile[0].table.snapshot() if self._volatile else None
        return TaskStore(self.table.snapshot(), list(self.specs.values()), volatile)

    def store(self, name: str) -> ByteStore:
        """The byte store of this name.

        Raises:
            KeyError: The topology has no such store.
        """
        return self._state_of[name].stores[name]

    @property
    def logged_stores(self) -> list[str]:
        """Names of the stores that have a changelog."""
        return [name for name, spec in self.specs.items() if spec.logged]

    @property
    def position(self) -> StorePosition | None:
        """The step that the tables hold; None before the first one was applied or restored."""
        step = self._main.meta.step
        return None if step is None else StorePosition(step[0], step[1], self.offsets, step[2])

    @property
    def offsets(self) -> dict[str, int]:
        """Store -> next changelog offset. A store without an entry must be restored from the start."""
        return {name: state.meta.offsets[name] for name, state in self._state_of.items() if name in state.meta.offsets}

    @property
    def origins(self) -> dict[str, StoreOrigin]:
        """Store -> origin of its rows; empty stores have none."""
        return {name: state.meta.origins[name] for name, state in self._state_of.items() if name in state.meta.origins}

    @property
    def expired_before(self) -> dict[str, int]:
        """Segmented store -> time below which its rows never matter again, ms."""
        return {name: segments.before_ms for state in self._states for name, segments in state.segments.items()}

    @property
    def trim_offsets(self) -> dict[str, int]:
        """Segmented logged store -> first changelog offset that the applied state still needs."""
        return {name: offset for state in self._states for name, offset in state.trim_offsets().items()}

    def sizes(self) -> dict[str, RangeSize]:
        """Store -> estimated size of its committed rows (`SizedTable`); left out if the table cannot estimate it."""
        return {name: size for state in self._states for name, size in state.sizes().items()}

    def changelog(self) -> Iterator[tuple[str, ChangelogBatch]]:
        """The step's changelog records by logged store: the last value of each key, in a stable order.

        The records of a store come as one batch, or in parts of bounded size if the step has spilled.
        """
        for name in self.logged_stores:
            buffer = self._state_of[name].buffers[name]
            if buffer.dirty:
                for batch in changelog_batches(self.specs[name], buffer.written()):
                    yield name, batch

    def apply(self, position: StorePosition, halfway: Callable[[], None] | None = None, durable: bool = True) -> None:
        """Writes the step's changes and the position, all or nothing.

        If the write is not `durable`, a kill of the process may take the stores back to an earlier step, until the next durable
        write or `flush`. The missing rows are then restored from the changelogs.
        """
        for state in self._states:
            state.apply(position, halfway if state is self._main else None, durable)
        self._memory.clear()

    def flush(self) -> None:
        """Makes all written rows survive a kill of the process."""
        self.table.write([])

    def discard(self) -> None:
        for state in self._states:
            state.discard()
        self._memory.clear()

    def expire(self, store: str, before_ms: int) -> None:
        """Expires the rows of a windowed (or session) store whose start (or end) is below `before_ms`.

        Segments entirely below the bound are hidden at once and leave the table with the next `apply` or `restore`.
        """
        segments = self._state_of[store].segments.get(store)
        if segments is not None:
            segments.expire(before_ms)

    def restore(
        self,
        store: str,
        keys: Sequence[bytes | None] | pa.BinaryArray,
        values: Sequence[bytes | None] | pa.BinaryArray,
        timestamps: Sequence[int] | Int64s,
        *,
        headers: pa.BinaryArray | None = None,
        offsets: Sequence[int] | Int64s | None = None,
        next_offset: int | None = None,
        origin: StoreOrigin | None = None,
    ) -> int:
        """Writes changelog records (in offset order) to the table at once, with the offset that follows."""
        records = ChangelogBatch(_binary(keys), _binary(values), np.asarray(timestamps, np.int64), headers)
        first = self.offsets.get(store, 0)
        if offsets is None:
            offsets = np.arange(first, first + len(records))
        places = np.asarray(offsets, np.int64)
        if next_offset is None:
            next_offset = int(places[-1]) + 1 if len(places) else first
        return self._state_of[store].restore(store, RestoredPart(records, places), next_offset, origin)

    def restored(
        self, position: StorePosition, parts: Mapping[str, RestoredPart] | None = None, durable: bool = True
    ) -> dict[str, int]:
        """Completes a restore: the tables now hold this step. `durable` is as for `apply`."""
        rows: dict[str, int] = {}
        for state in self._states:
            rows |= state.restored(position, parts or {}, durable)
        return rows

    def reset(self, store: str | None = None) -> None:
        """Empties one store, or all stores and the position. Earlier rows have no effect from now on."""
        if store is not None:
            self._state_of[store].reset(store)
            return
        for state in self._states:
            state.reset_all()

    def rows(self, store: str) -> Iterator[Row]:
        """Committed rows of a store in the order of their local keys: (Kafka Streams' key bytes, local value).

        The keys of a versioned store end with the version's timestamp(8).
        """
        return self._state_of[store].rows(store)

    def local_rows(self, store: str) -> Iterator[Row]:
        """`rows`, but each key of a segmented store begins with its segment (8 bytes), so that keys are in ascending order."""
        return self._state_of[store].rows(store, with_segments=True)

    def close(self, failed: bool = False) -> None:
        """Forgets writes that were not applied, and ends the use of the table."""
        self._memory.clear()
        self._release(self.table, failed)

    def __enter__(self) -> TaskStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_task_store(
    directory: Path,
    specs: Sequence[StoreSpec],
    spill_bytes: int = DEFAULT_SPILL_BYTES,
    settings: RocksSettings = DEFAULT_SETTINGS,
    volatile: MemoryTable | None = None,
    kept: OpenTables | None = None,
) -> TaskStore:
    """Opens a task's stores on disk: the database in `<directory>/db`, scratch databases next to it.

    Raises:
        StateLockedError: Another process has it open.
        StateCorruptedError: The database is damaged; delete the directory and restore.
    """
    path = directory / "db"
    table = open_table(path, settings) if kept is None else kept.take(path, settings)

    def release(table: OrderedTable, failed: bool) -> None:
        if kept is None:
            table.close()
        elif failed:
            kept.close(path, table)
        else:
            kept.give_back(path, table)

    try:
        # Only with the lock held: the scratch of a live process must not be touched.
        delete_left_scratch(directory)
        return TaskStore(table, specs, volatile, BufferMemory(spill_bytes, directory, settings), release)
    except BaseException:
        release(table, True)
        raise


def _binary(column: Sequence[bytes | None] | pa.BinaryArray) -> pa.BinaryArray:
    return column if isinstance(column, pa.Array) else pa.array(column, pa.binary())
