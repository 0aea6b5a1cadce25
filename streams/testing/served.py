"""The stores of a test driver as they are served: over copies of their own, which follow the driver's commits before each look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from state.changelog import commits_topic
from state.kafka.topics import TopicPartition
from state.restore.task_stores import TaskStateManager
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.application.restore import ReplicaTask
from streams.runtime.global_tables import GlobalTables, global_store_specs
from streams.runtime.settings import TaskSettings
from streams.serve.copies import TaskCopy
from streams.serve.global_copy import GlobalCopy
from streams.serve.served import Served, replica_task
from streams.testing.memory import MemoryDisks
from streams.testing.query import DriverQuery
from streams.testing.simulation import SimulatedKafka
from streams.topology.topology import Topology


def served_by_driver(
    topology: Topology, settings: TaskSettings, kafka: SimulatedKafka, queries: Sequence[DriverQuery]
) -> Served:
    """Serves the stores of a driver's queries, with as many tasks as they have now."""
    app = settings.application_id
    stateful = [query for query in queries if query.sub.stores]
    tasks = {query.sub.name: query.tasks for query in stateful}
    disks = MemoryDisks()

    def make(task: ReplicaTask) -> TaskStateManager:
        return disks.stores(kafka, task.place.identity(), list(task.specs), 0)

    copies: dict[TopicPartition, TaskCopy] = {}
    for query in stateful:
        for number in range(query.tasks):
            task = replica_task(app, query.sub, number, query.tasks)
            copies[commits_topic(app, query.sub.name), number] = TaskCopy(kafka, task, make)

    def forward() -> Mapping[TopicPartition, TaskCopy]:
        for copy in copies.values():
            copy.bring_forward()
        return copies

    tables = list(topology.global_tables.values())
    store = TaskStore(MemoryTable(), global_store_specs(tables), MemoryTable())
    global_copy = GlobalCopy(kafka, GlobalTables(tables, store, settings), store, lambda: 0)

    def global_forward() -> GlobalCopy:
        global_copy.bring_forward()
        return global_copy

    subs = [query.sub for query in stateful]
    return Served(topology, app, subs, tasks, forward, kafka, global_forward)
