"""`TaskStore`: all stores of one task, and the entry point of `state.stores`.

A step reads and writes the byte stores (`store(name)`); nothing reaches the tables. Then either `apply(position)`
writes everything and the position at once, after Kafka's commit, or `discard()` forgets it. `position` is the committed step
that the tables hold: possibly behind Kafka, never ahead.

Stores with `persistent=False` are in a table in memory, which the caller may retain between steps. A fresh table has no
offsets, so a restore starts from the beginning of the changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from state.stores.changelog_records import ChangelogBatch, Int64s, changelog_batches
from state.stores.position import StoreOrigin, StorePosition
from state.stores.spec import StoreSpec
from state.stores.table_stores import ByteStore, RestoredPart, TableStores
from state.tables.buffer_memory import DEFAULT_SPILL_BYTES, BufferMemory, delete_left_scratch
from state.tables.kept import KeptTables
from state.tables.memory import MemoryTable
from state.tables.open import open_table
from state.tables.rocks_options import DEFAULT_SETTINGS, RocksSettings
from state.tables.sizes import RangeSize
from state.tables.table import CheckpointedTable, OrderedTable, Row

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
        volatile: MemoryTable | None = None,
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
        """Store -> estimated size of its committed rows (`SizedTable`); stores of a table that cannot tell are left out."""
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

    def apply(self, position: StorePosition, halfway: Callable[[], None] | None = None) -> None:
        """Writes the step's changes and the position, all or nothing. The write survives a kill of the process."""
        for state in self._states:
            state.apply(position, halfway if state is self._main else None)
        self._memory.clear()

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
        offsets: Sequence[int] | Int64s | None = None,
        next_offset: int | None = None,
        origin: StoreOrigin | None = None,
    ) -> int:
        """Writes changelog records (in offset order) to the table at once, with the offset that follows."""
        records = ChangelogBatch(_binary(keys), _binary(values), np.asarray(timestamps, np.int64))
        first = self.offsets.get(store, 0)
        if offsets is None:
            offsets = np.arange(first, first + len(records))
        places = np.asarray(offsets, np.int64)
        if next_offset is None:
            next_offset = int(places[-1]) + 1 if len(places) else first
        return self._state_of[store].restore(store, RestoredPart(records, places), next_offset, origin)

    def restored(self, position: StorePosition, parts: Mapping[str, RestoredPart] | None = None) -> dict[str, int]:
        """Completes a restore: the tables now hold this step."""
        rows: dict[str, int] = {}
        for state in self._states:
            rows |= state.restored(position, parts or {})
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
        """As `rows`, with the segment (8 bytes) in front of the keys of a segmented store, so that keys rise."""
        return self._state_of[store].local_rows(store)

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
    kept: KeptTables | None = None,
) -> TaskStore:
    """Opens a task's stores on disk: the database in `<directory>/db`, scratch databases beside it.

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
