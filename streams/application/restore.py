"""Rebuilds the stores of a whole application from its changelogs: all sub-topologies, all tasks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from state.changelog.topics import commits_topic
from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from state.restore.listener import RestoreListener
from state.restore.rebuild import RebuiltTask, TaskPlace, rebuild_task
from state.restore.verify import LINKED, VerifiedTask, verify_task
from state.snapshots.settings import NO_SNAPSHOTS, SnapshotSettings
from streams.application.prepare import commits_topics, known_names
from streams.application.topology_manifest import own_manifest
from streams.config import StreamsConfig
from streams.errors import ConfigError, TopologyError
from streams.topology.graph import StoreNode
from streams.topology.plan import SubTopology, build_plan
from streams.topology.topology import Topology

_Done = TypeVar("_Done")


@dataclass(frozen=True)
class StoredTask:
    """One task that has stores, and its place in Kafka."""

    place: TaskPlace
    stores: dict[str, StoreNode]


def stateful_subs(topology: Topology, application_id: str, known: Sequence[str] = ()) -> list[SubTopology]:
    """The sub-topologies that have stores.

    Raises:
        TopologyError: No sub-topology has stores.
    """
    subs = [sub for sub in build_plan(topology, application_id, known).sub_topologies if sub.stores]
    if not subs:
        raise TopologyError(f"{application_id} has no stores: all its operators are stateless.")
    return subs


def stored_tasks(topology: Topology, config: StreamsConfig) -> list[StoredTask]:
    """All tasks with stores. Their number is that of the partitions of the commits topics.

    Raises:
        ConfigError: The application has never run on this cluster.
        TopologyError: The application has no stores.
    """
    app = config.application_id
    with KafkaAdmin(config.client) as admin:
        found = commits_topics(topology, app, admin)
        known = known_names(found, app, own_manifest(config), admin)
    tasks = []
    for sub in stateful_subs(topology, app, known):
        if sub.name not in found:
            raise ConfigError(
                f"application {app!r} has left no state on this cluster: there is no topic "
                f"{commits_topic(app, sub.name)!r}. Check the application id and the cluster, or run the application first"
            )
        count = found[sub.name].partitions
        for task in range(count):
            place = TaskPlace(app, sub.name, task, count, sub.topology_hash)
            tasks.append(StoredTask(place, sub.stores))
    return tasks


def restore_tasks(
    tasks: list[StoredTask],
    config: StreamsConfig,
    into: Path,
    listener: RestoreListener | None = None,
    keep: Callable[[str], bool] = lambda store: True,
    parallel: int = 1,
    snapshots: SnapshotSettings = NO_SNAPSHOTS,
) -> Iterator[RebuiltTask]:
    """Rebuilds tasks in a folder, each up to its last commit, and yields each when it is done, in the given order.

    Raises:
        StreamsError: A changelog cannot be read, or does not match the last commit.
    """
    kafka = LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)

    def rebuild(task: StoredTask) -> RebuiltTask:
        specs = [node.spec for node in task.stores.values() if keep(node.name)]
        return rebuild_task(kafka, task.place, specs, into, listener, snapshots)

    yield from _in_parallel(rebuild, tasks, parallel)


def verify_tasks(
    tasks: list[StoredTask],
    config: StreamsConfig,
    into: Path,
    listener: RestoreListener | None = None,
    parallel: int = 1,
) -> Iterator[VerifiedTask]:
    """Compares the local state of tasks with what their changelogs give, and yields each task when it is done, in order.

    Raises:
        StreamsError: A changelog cannot be read, or does not match the last commit, or the local state is damaged.
    """
    kafka = LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)

    def verify(task: StoredTask) -> VerifiedTask:
        specs = [node.spec for node in task.stores.values()]
        return verify_task(kafka, task.place, specs, config.state_dir, into, listener)

    try:
        yield from _in_parallel(verify, tasks, parallel)
    finally:
        shutil.rmtree(into / LINKED, ignore_errors=True)


def _in_parallel(function: Callable[[StoredTask], _Done], tasks: list[StoredTask], parallel: int) -> Iterator[_Done]:
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="restore")
    try:
        yield from pool.map(function, tasks)
    finally:
        # After an error or Ctrl-C, waiting tasks are cancelled, and running ones finish first.
        pool.shutdown(wait=True, cancel_futures=True)
