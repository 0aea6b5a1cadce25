"""A disk in memory that survives the process, except for writes that were not flushed; and a task's local stores on it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from state.commit.decide import TaskIdentity
from state.errors import StateLockedError
from state.restore.task_stores import StoreSource, TaskStateManager, WorkerMemory
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore
from state.tables.buffer import DEFAULT_SPILL_BYTES, BufferMemory
from state.tables.rocks_common import RocksSettings
from state.tables.table import KeyRange, MemoryTable, RowChange
from streams.testing.simulation.kafka import Hook, NothingHappens, RequestEvent

_PARTS = ("0", "1")
_LENGTHS = struct.Struct(">II")


class SimulatedTable(MemoryTable):
    """An ordered table whose every write is atomic, and flushed before it returns if it is durable, as in `state.tables.rocks`.

    Args:
        hook: Called for every write and flush.
        location: The name of the disk.

    Attributes:
        hook: The function that is called for every write and flush.
        atomic: False: a crash during a write leaves part of it, so that a test can show why writes must be atomic.
        owner: The process that has the table open.
        last_owner: The process that had it open last. If it ends, writes that were not flushed are lost.
    """

    atomic = True

    def __init__(self, hook: Hook | None = None, location: str = "disk") -> None:
        super().__init__()
        self.location = location
        self.owner: object = None
        self.last_owner: object = None
        self.hook: Hook = hook or NothingHappens()
        self._unflushed: list[RowChange] = []

    def lock(self, owner: object) -> None:
        """Opens the table for one process."""
        if self.owner not in (None, owner):
            raise StateLockedError(self.location, 0, "simulated")
        self.owner = self.last_owner = owner

    def close(self) -> None:
        self.owner = None

    def crash(self) -> None:
        """Ends the process that had the table open last; the lock and all writes that were not flushed are lost."""
        for key, value in reversed(self._unflushed):
            super().write([(key, value)])
        self._unflushed = []
        self.owner = None

    def write(
        self,
        changes: Iterable[RowChange],
        delete_ranges: Sequence[KeyRange] = (),
        halfway: Callable[[], None] | None = None,
        durable: bool = True,
    ) -> None:
        written = RequestEvent("write", self.location)
        self.hook.before(written)
        doomed = [row for lower, upper in delete_ranges for row in self.scan(lower, upper)]
        changes = list(changes)
        self._unflushed += [*doomed, *((key, self.get(key)) for key, _ in changes)]
        super().write([], delete_ranges)
        if self.atomic:
            super().write(changes)
        else:
            self._write_torn(changes)
        if halfway is not None:
            halfway()
        if not durable:
            return
        flushed = RequestEvent("flush", self.location)
        self.hook.before(flushed)
        self._unflushed = []
        self.hook.after(flushed)

    def checkpoint(self, folder: Path) -> None:
        """Makes a checkpoint (`CheckpointedTable`) of two files, each with half of the rows."""
        folder.mkdir()
        rows = list(self._rows.items())
        for name, part in zip(_PARTS, (rows[: len(rows) // 2], rows[len(rows) // 2 :]), strict=True):
            (folder / name).write_bytes(b"".join(_LENGTHS.pack(len(key), len(row)) + key + row for key, row in part))

    def load(self, folder: Path) -> None:
        """Replaces the rows by the rows of a checkpoint. If the process crashes in between, the table is empty."""
        self._rows.clear()
        self.hook.before(RequestEvent("exchange", self.location))
        for name in _PARTS:
            data, at = (folder / name).read_bytes(), 0
            while at < len(data):
                key, row = _LENGTHS.unpack_from(data, at)
                middle = at + _LENGTHS.size + key
                self._rows[data[at + _LENGTHS.size : middle]] = data[middle : middle + row]
                at = middle + row

    def _write_torn(self, changes: list[RowChange]) -> None:
        for change in changes:
            super().write([change])
            self._unflushed = []
            self.hook.after(RequestEvent("write", self.location, "in part"))


class SimulatedMemory(BufferMemory):
    """The memory of a task's write buffers, with a scratch database that a crash loses.

    Args:
        limit: Bound in bytes.
        table: The task's table.
    """

    def __init__(self, limit: int, table: SimulatedTable) -> None:
        super().__init__()
        self.limit = limit
        self._table = table

    def _open_scratch(self) -> MemoryTable:
        self._table.hook.before(RequestEvent("spill", self._table.location))
        return MemoryTable()


class SimulatedStores(TaskStateManager):
    """The stores of one task for one step.

    Args:
        source: Kafka.
        table: The task's table on a disk.
        memory: The state that the worker process has from step to step.
        now_ms: The current time.
        spill_bytes: Bound of a step's write buffer.
        state_dir: A folder for the files next to the table, if there are snapshots; default: there are none.
        options: Snapshots and replicas, see `TaskStateManager`.
    """

    def __init__(
        self,
        source: StoreSource,
        identity: TaskIdentity,
        specs: Sequence[StoreSpec],
        table: SimulatedTable,
        memory: WorkerMemory,
        now_ms: int = 0,
        spill_bytes: int = DEFAULT_SPILL_BYTES,
        state_dir: Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            source,
            identity,
            specs,
            state_dir or table.location,
            spill_bytes,
            memory=memory,
            clock_ms=lambda: now_ms,
            open_store=self._open_table,
            **options,
        )
        self._table = table

    def _open_table(
        self,
        _folder: Path,
        specs: Sequence[StoreSpec],
        spill_bytes: int,
        _settings: RocksSettings,
        volatile: MemoryTable | None,
    ) -> TaskStore:
        self._table.lock(self)
        return TaskStore(self._table, specs, volatile, SimulatedMemory(spill_bytes, self._table))
