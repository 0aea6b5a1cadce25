"""The local stores of a task on a simulated disk; everything else is the engine's own `TaskStateManager`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from state.commit.decide import TaskIdentity
from state.restore.task_stores import StoreSource, TaskStateManager, WorkerMemory
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore
from state.tables.buffer import DEFAULT_SPILL_BYTES
from state.tables.rocks_common import RocksSettings
from state.tables.table import MemoryTable
from streams.testing.simulation.disk import SimulatedMemory, SimulatedTable


class SimulatedStores(TaskStateManager):
    """The stores of one task for one step.

    Args:
        source: Kafka.
        identity: The task.
        specs: Its stores.
        table: The task's table on a disk.
        memory: The state that the worker process has from step to step.
        now_ms: The current time.
        spill_bytes: Bound of a step's write buffer.
        state_dir: A folder for what is beside the table, if there are snapshots; default: there are none.
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
