"""The local stores of a task on a simulated disk; all else is the engine's own `TaskStores`."""

from __future__ import annotations

from collections.abc import Sequence

from state.commit.decide import TaskIdentity
from state.restore.task_stores import StoreSource, TaskStores, WorkerMemory
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore
from streams.testing.simulation.disk import SimulatedTable


class SimulatedStores(TaskStores):
    """The stores of one task for one step.

    Args:
        source: Kafka.
        identity: the task.
        specs: its stores.
        table: the task's place on a disk.
        memory: what the worker process keeps from step to step.
        now_ms: batch time of the step.
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
        super().__init__(source, identity, specs, table.location, now_ms=now_ms, memory=memory)
        self._table = table

    def _open(self) -> TaskStore:
        self._table.lock(self)
        return TaskStore(self._table, self._specs, self._volatile())
