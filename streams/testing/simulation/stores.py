"""The local stores of a task on a simulated disk; everything else is the engine's own `TaskStateManager`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from state.commit.decide import TaskIdentity
from state.restore.task_stores import StoreSource, TaskStateManager, WorkerMemory
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore
from state.tables.memory import MemoryTable
from state.tables.rocks_options import RocksSettings
from streams.testing.simulation.disk import SimulatedTable


class SimulatedStores(TaskStateManager):
    """The stores of one task for one step.

    Args:
        source: Kafka.
        identity: The task.
        specs: Its stores.
        table: The task's table on a disk.
        memory: The state that the worker process has from step to step.
        now_ms: The current time.
    """

    def __init__(
        self,
        source: StoreSource,
        identity: TaskIdentity,
        specs: Sequence[StoreSpec],
        table: SimulatedTable,
        memory: WorkerMemory,
        now_ms: int = 0,
    ) -> None:
        super().__init__(
            source,
            identity,
            specs,
            table.location,
            memory=memory,
            clock_ms=lambda: now_ms,
            open_store=self._open_table,
        )
        self._table = table

    def _open_table(
        self,
        _folder: Path,
        specs: Sequence[StoreSpec],
        _spill_bytes: int,
        _settings: RocksSettings,
        volatile: MemoryTable | None,
    ) -> TaskStore:
        self._table.lock(self)
        return TaskStore(self._table, specs, volatile)
