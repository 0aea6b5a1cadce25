"""The stores of tasks under the test driver: in memory, or in RocksDB in a temporary folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from state.commit.decide import TaskIdentity
from state.restore.task_stores import StoreSource, TaskStateManager, WorkerMemory
from state.stores.spec import StoreSpec
from streams.testing.simulation import SimulatedStores, SimulatedTable


class Disks(Protocol):
    """The disks of an application."""

    def stores(
        self, source: StoreSource, identity: TaskIdentity, specs: Sequence[StoreSpec], now_ms: int
    ) -> TaskStateManager:
        """The stores of a task, for one step."""

    def crash(self, sub_topology: str, wipe_state: bool) -> None:
        """Ends the process of all tasks of a sub-topology, and optionally wipes their disk."""

    def close(self) -> None:
        """Deletes everything."""


class MemoryDisks:
    """Disks in memory."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], SimulatedTable] = {}
        self._memories: dict[str, WorkerMemory] = {}

    def stores(
        self, source: StoreSource, identity: TaskIdentity, specs: Sequence[StoreSpec], now_ms: int
    ) -> TaskStateManager:
        """See `Disks`."""
        place = identity.sub_topology, identity.task
        table = self._tables.setdefault(place, SimulatedTable(location=str(identity)))
        memory = self._memories.setdefault(identity.sub_topology, WorkerMemory())
        return SimulatedStores(source, identity, specs, table, memory, now_ms)

    def crash(self, sub_topology: str, wipe_state: bool) -> None:
        """See `Disks`."""
        self._memories.pop(sub_topology, None)
        for place in [place for place in self._tables if place[0] == sub_topology]:
            if wipe_state:
                del self._tables[place]
            else:
                self._tables[place].crash()

    def close(self) -> None:
        """See `Disks`."""
        self._tables.clear()


class FolderDisks:
    """RocksDB, in a temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="streams-test-")
        self._memories: dict[str, WorkerMemory] = {}

    def stores(
        self, source: StoreSource, identity: TaskIdentity, specs: Sequence[StoreSpec], now_ms: int
    ) -> TaskStateManager:
        """See `Disks`."""
        memory = self._memories.setdefault(identity.sub_topology, WorkerMemory())
        return TaskStateManager(source, identity, specs, self._folder.name, memory=memory, clock_ms=lambda: now_ms)

    def crash(self, sub_topology: str, wipe_state: bool) -> None:
        """See `Disks`."""
        self._memories.pop(sub_topology, None)
        if wipe_state:
            for folder in Path(self._folder.name).glob(f"*/{sub_topology}"):
                shutil.rmtree(folder)

    def close(self) -> None:
        """See `Disks`."""
        self._folder.cleanup()
