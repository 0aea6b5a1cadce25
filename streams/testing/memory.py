"""The surroundings of a test driver's tasks, in memory: disks, global tables, limits of output topics, rows of lake sinks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from state.columns import RecordColumns, binary_column
from state.commit.decide import TaskIdentity
from state.kafka.topics import TopicLimits, limits_of
from state.restore.task_stores import StoreSource, TaskStateManager, WorkerMemory
from state.stores.spec import StoreSpec
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.application.given_tables import given_rows, records_of, write_rows
from streams.engine.graph.global_tables import GlobalTables, global_store_specs
from streams.engine.graph.settings import TaskSettings
from streams.lake.writer import DELETED, arrow_schema, row_batch
from streams.testing.simulation import SimulatedKafka, SimulatedStores, SimulatedTable
from streams.topology.graph import DeltaTable, Graph, LakeSink
from streams.topology.topology import Topology


class MemoryDisks:
    """The disks of an application, in memory."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], SimulatedTable] = {}
        self._memories: dict[str, WorkerMemory] = {}

    def stores(
        self, source: StoreSource, identity: TaskIdentity, specs: Sequence[StoreSpec], now_ms: int
    ) -> TaskStateManager:
        """The stores of a task, for one step."""
        place = identity.sub_topology, identity.task
        table = self._tables.setdefault(place, SimulatedTable(location=str(identity)))
        memory = self._memories.setdefault(identity.sub_topology, WorkerMemory())
        return SimulatedStores(source, identity, specs, table, memory, now_ms)

    def crash(self, sub_topology: str, wipe_state: bool) -> None:
        """Ends the process of all tasks of a sub-topology, and optionally wipes their disk."""
        self._memories.pop(sub_topology, None)
        for place in [place for place in self._tables if place[0] == sub_topology]:
            if wipe_state:
                del self._tables[place]
            else:
                self._tables[place].crash()

    def close(self) -> None:
        """Deletes everything."""
        self._tables.clear()


class FolderDisks(MemoryDisks):
    """RocksDB, in a temporary folder."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="streams-test-")

    def stores(
        self, source: StoreSource, identity: TaskIdentity, specs: Sequence[StoreSpec], now_ms: int
    ) -> TaskStateManager:
        """The stores of a task, for one step."""
        memory = self._memories.setdefault(identity.sub_topology, WorkerMemory())
        return TaskStateManager(source, identity, specs, self._folder.name, memory=memory, clock_ms=lambda: now_ms)

    def crash(self, sub_topology: str, wipe_state: bool) -> None:
        """Ends the process of all tasks of a sub-topology, and optionally wipes their disk."""
        self._memories.pop(sub_topology, None)
        if wipe_state:
            for folder in Path(self._folder.name).glob(f"*/{sub_topology}"):
                shutil.rmtree(folder)

    def close(self) -> None:
        """Deletes everything."""
        self._folder.cleanup()


class MemoryGlobalTables:
    """Updates the global tables of a topology from their topics.

    Args:
        topology: The topology, which may have no global tables.
        settings: The application's settings.
        kafka: The topics.
    """

    def __init__(self, topology: Topology, settings: TaskSettings, kafka: SimulatedKafka) -> None:
        self._nodes = list(topology.global_tables.values())
        self._given = given_rows(topology)
        self._settings = settings
        self._kafka = kafka
        self.restart()

    def restart(self) -> None:
        """Clears all tables; the next `catch_up` reads the topics from the start."""
        store = TaskStore(MemoryTable(), global_store_specs(self._nodes))
        self._tables = GlobalTables(self._nodes, store, self._settings)

    def write_given(self, now_ms: int) -> None:
        """Writes the rows that the program gives, as a start does, and reads all tables. What needs Spark is left to the test."""
        app = self._settings.application_id
        for given in self._given:
            if (topic := given.topic.topic_name(app)) not in self._kafka.topics:
                self._kafka.create_topic(topic, 1, "compact")
            if not callable(given.frame):
                write_rows(self._kafka, app, given, records_of(given), now_ms)
        self.catch_up(now_ms)

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


class MemoryTopics:
    """`OutputTopics` of the test driver.

    Args:
        partitions: The number of partitions of a topic.
        configs: Settings by topic; None: every topic exists and accepts every record.
        named: The topics that the program names, which always exist.
        now_ms: The driver's clock.
    """

    def __init__(
        self,
        partitions: Callable[[str], int],
        configs: Mapping[str, Mapping[str, str]] | None,
        named: Callable[[], Collection[str]],
        now_ms: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._configs = configs
        self._named = named
        self.now_ms = now_ms

    def limits(self, topic: str) -> TopicLimits | None:
        """The limits of a topic, or None if it does not exist, as for `OutputTopics`."""
        if self._configs is not None and topic not in self._configs and topic not in self._named():
            return None
        return limits_of(self._partitions(topic), (self._configs or {}).get(topic, {}))


def find_sink(topology: Graph, name: str) -> LakeSink:
    """The sink with this name, or the sink that writes a table with this name or path.

    Raises:
        LookupError: There is no such sink, or several write the table.
    """
    sinks = topology.lake_sinks
    found = [sinks[name]] if name in sinks else [sink for sink in sinks.values() if _table(sink) == name]
    if len(found) != 1:
        known = ", ".join(f"{sink.name} ({sink.target_text})" for sink in sinks.values()) or "none"
        raise LookupError(
            f"{len(found)} lake sinks are called {name!r} or write a table of that name; there are: {known}"
        )
    return found[0]


def table_rows(sink: LakeSink, topic: str, kafka: SimulatedKafka) -> list[dict[str, Any]]:
    """The current rows of the table: all rows if each record is a row, else the last row of each key.

    Args:
        sink: The sink.
        topic: The real name of its internal topic.
        kafka: The simulated Kafka.
    """
    layout, schema = sink.layout, arrow_schema(sink.layout)
    rows: list[dict[str, Any]] = []
    for partition in range(kafka.partition_count(topic) if topic in kafka.topics else 0):
        records = list(kafka.log(topic, partition).readable(0))
        if records:
            columns = RecordColumns(
                topic,
                partition,
                np.arange(len(records), dtype=np.int64),
                np.array([record.timestamp for record in records], np.int64),
                binary_column([record.key for record in records]),
                binary_column([record.value for record in records]),
            )
            rows += row_batch(columns, layout, schema).to_pylist()
    if layout.keys:
        last = {repr([row[key] for key in layout.keys]): row for row in rows}
        rows = [row for row in last.values() if not row[DELETED]]
    return [{name: row[name] for name in layout.names} for row in rows]


def _table(sink: LakeSink) -> str | None:
    return sink.target.name if isinstance(sink.target, DeltaTable) else None
