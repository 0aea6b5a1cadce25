"""Rebuilds one task's stores from their changelogs in a separate folder, as of the task's last commit.

The engine does the same after a loss; this function does it on demand: to prove that a restore works, to measure it, or to
inspect state whose disk is elsewhere. Kafka is only read, so the application may run meanwhile. The folders have the layout
of a state directory, and an application can continue from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from state.changelog.topics import commits_topic
from state.commit.decide import TaskIdentity
from state.commit.last_marker import read_last_marker
from state.commit.marker import CommitMarker
from state.errors import RestoreError
from state.restore.listener import RestoreListener, RestoreReport
from state.restore.task_stores import StoreSource, TaskStateManager
from state.snapshots.settings import NO_SNAPSHOTS, SnapshotSettings
from state.stores.spec import StoreSpec


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task of an application, as far as Kafka knows it.

    Attributes:
        application_id: The application.
        sub_topology: Its sub-topology.
        task: Number of the task.
        tasks: How many there are.
        topology_hash: Current structure of the sub-topology.
    """

    application_id: str
    sub_topology: str
    task: int
    tasks: int
    topology_hash: str

    def identity(self, marker: CommitMarker) -> TaskIdentity:
        """The task, as of the query that wrote the marker."""
        return TaskIdentity(
            self.application_id, self.sub_topology, self.task, self.tasks, marker.query_id, self.topology_hash
        )

    def __str__(self) -> str:
        return f"task {self.task} of {self.tasks} of {self.application_id}/{self.sub_topology}"


@dataclass(frozen=True, slots=True)
class RebuiltTask:
    """A rebuilt task.

    Attributes:
        place: The task.
        version: Number of the step that the stores hold; 0 = the task has never committed, and there is nothing.
        report: Records, rows, bytes and seconds of each store.
        disk_bytes: Size of the folder.
    """

    place: TaskPlace
    version: int
    report: RestoreReport
    disk_bytes: int


def rebuild_task(
    source: StoreSource,
    place: TaskPlace,
    specs: Sequence[StoreSpec],
    into: Path,
    listener: RestoreListener | None = None,
    snapshots: SnapshotSettings = NO_SNAPSHOTS,
) -> RebuiltTask:
    """Restores the stores of a task up to its last commit marker.

    Raises:
        RestoreError: The changelogs lack what the marker promises, or the marker is from another topology or number of tasks.
        KafkaClientError: Reading failed.
    """
    marker = last_marker(source, place)
    if marker is None:
        return RebuiltTask(place, 0, RestoreReport(place.task, ()), 0)
    stores = TaskStateManager(source, place.identity(marker), specs, into, listener=listener, snapshots=snapshots)
    with stores.open() as store:
        stores.restore_to(store, marker)
    assert stores.report is not None, "restore_to leaves a report"
    return RebuiltTask(place, marker.version, stores.report, stores.directory.size_bytes)


def last_marker(source: StoreSource, place: TaskPlace) -> CommitMarker | None:
    """The last marker of a task; None if it has never committed.

    Raises:
        RestoreError: The marker is from another topology, or of another number of tasks.
    """
    found = read_last_marker(source, (commits_topic(place.application_id, place.sub_topology), place.task))
    if found is not None:
        _check(place, found.marker)
    return None if found is None else found.marker


def _check(place: TaskPlace, marker: CommitMarker) -> None:
    """Refuses stores of another structure, which would be read with the wrong kinds and serdes, and other tasks' stores."""
    if marker.topology_hash != place.topology_hash:
        raise RestoreError(
            f"{place}: the state was written by another topology (hash {marker.topology_hash}, now "
            f"{place.topology_hash}): operators, windows or stores have changed (`streams diff` tells which). Restore with "
            f"the program that wrote it"
        )
    if marker.tasks != place.tasks:
        raise RestoreError(
            f"{place}: the application has {marker.tasks} tasks now, it was rescaled. Start this command again: it then knows "
            f"them all"
        )
