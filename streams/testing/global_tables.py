"""The global tables of a driver: one copy for all tasks, read before each step."""

from __future__ import annotations

from typing import Any

from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.runtime.globals.global_tables import GlobalTables, global_store_specs
from streams.runtime.settings import TaskSettings
from streams.testing.simulation import SimulatedKafka
from streams.topology.topology import Topology


class MemoryGlobalTables:
    """Updates the global tables of a topology from their topics.

    Args:
        topology: The topology, which may have no global tables.
        settings: The application's settings.
        kafka: The topics.
    """

    def __init__(self, topology: Topology, settings: TaskSettings, kafka: SimulatedKafka) -> None:
        self._nodes = list(topology.global_tables.values())
        self._settings = settings
        self._kafka = kafka
        self.restart()

    def restart(self) -> None:
        """Clears all tables; the next `catch_up` reads the topics from the start."""
        store = TaskStore(MemoryTable(), global_store_specs(self._nodes))
        self._tables = GlobalTables(self._nodes, store, self._settings)

    def catch_up(self, now_ms: int) -> None:
        """Reads all new records."""
        for topic in self._tables.topics:
            for partition in range(self._kafka.partition_count(topic)):
                columns = self._kafka.columns(topic, partition, self._tables.position(topic, partition))
                if columns is not None:
                    self._tables.update(columns, now_ms)

    @property
    def stores(self) -> dict[str, Any]:
        """Typed stores by name."""
        return dict(self._tables.stores)

    @property
    def counters(self) -> dict[str, int]:
        """The counts of dropped records, since the start or the last restart."""
        return self._tables.counters
