"""Rebuilds the stores of a whole application from its changelogs, and `Replica`, which keeps warm copies of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from state.errors import RestoreError
from state.kafka.topics import TopicPartition
from state.restore.follower import Clock, FollowedTask, Follower
from state.restore.place import CopiedTask
from state.restore.restorer import RestoreListener
from state.restore.snapshots import NO_SNAPSHOTS, SnapshotSettings
from state.restore.task_stores import StoreSource, TaskStateManager
from state.restore.verify import LINKED, RebuiltTask, VerifiedTask, rebuild_task, verify_task
from streams.application.prepare import kafka_of
from streams.application.stored_tasks import StoredTask
from streams.config import StreamsConfig

# --- All tasks, once

_Done = TypeVar("_Done")


def restore_tasks(
    tasks: list[StoredTask],
    config: StreamsConfig,
    into: Path,
    listener: RestoreListener | None = None,
    keep: Callable[[str], bool] = lambda store: True,
    parallel: int = 1,
    snapshots: SnapshotSettings = NO_SNAPSHOTS,
) -> Iterator[RebuiltTask]:
    """Rebuilds tasks in a folder, each up to its last commit, and yields each task once it is done, in the given order.

    Raises:
        StreamsError: A changelog cannot be read, or does not match the last commit.
    """
    kafka = kafka_of(config)

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
    kafka = kafka_of(config)

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


# --- `Replica`: keeps warm copies of tasks' stores by following their commits (Kafka Streams: standby tasks, KIP-441).
#
# The tasks of an application are shared among its replicas by a consumer group over the commits topics, whose
# partitions are the tasks. A copy's own position shows how far it is, also while it restores (`state.stores.dump`). A task
# whose step finds no local state on its host takes the copy over (`state.restore.copies`).

SERVED_AT_A_TIME = 4
"""The default number of copies that a serving process brings forward at a time."""


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """How far the copy of a task is.

    Attributes:
        version: The step that the copy holds; 0 = none yet.
        behind: The offsets that its changelogs have gained since, which is at least the number of records. None = not known yet.
        fault: Why the last attempt to update it failed; empty = it succeeded.
    """

    task: CopiedTask
    version: int = 0
    behind: int | None = None
    fault: str = ""

    @property
    def warm(self) -> bool:
        """Whether this replica has brought the copy to a commit and has kept up since then."""
        return self.behind is not None and not self.fault


class Replica(Follower[FollowedTask]):
    """Keeps warm copies of an application's stores.

    Args:
        tasks: All tasks of the application that have stores to keep.
        folder: Root of the copies, `replica_dir` of the settings.
        listener: Notified of the progress; called from several threads.
    """

    def __init__(
        self,
        source: StoreSource,
        tasks: Sequence[CopiedTask],
        folder: Path,
        listener: RestoreListener | None = None,
        parallel: int = 2,
        clock_s: Clock = time.monotonic,
    ) -> None:
        self._tasks = {task.commits: task for task in tasks}
        self._whole: dict[TopicPartition, Mapping[TopicPartition, int]] = {}
        """The ends of each task's logs at the last check whose commits its copy has."""
        self._seen: dict[TopicPartition, Mapping[TopicPartition, int]] = {}
        """Their ends at a later check. A task that never rests is ahead of its copy at every check."""

        def stores(task: CopiedTask) -> TaskStateManager:
            return TaskStateManager(source, task.place.identity(), list(task.specs), folder, listener=listener)

        def make(place: TopicPartition) -> FollowedTask:
            for known in (self._whole, self._seen):
                known.pop(place, None)
            return FollowedTask(source, self._tasks[place], stores, clock_s)

        super().__init__(source, make, self._tasks, parallel=parallel, kept_s=0, clock_s=clock_s)

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self._tasks})

    def follow(self, assigned: Collection[TopicPartition]) -> list[ReplicaPosition]:
        """Starts to update the copies that have fallen behind, and returns how far each copy is. Does not wait.

        Raises:
            RestoreError: The application has more tasks than when this replica was made, and the new ones would not be copied.
            KafkaClientError: A request to Kafka failed (`look`).
        """
        self._check_known(assigned)
        self.look(assigned)
        return [self._position(place, self.copies[place]) for place in sorted(self.copies)]

    def _position(self, place: TopicPartition, copy: FollowedTask) -> ReplicaPosition:
        ends = {log: self.ends.get(log, 0) for log in self.logs_of(place)}
        before = self._seen.setdefault(place, ends)
        reached = ends if copy.read_to >= ends[place] else before
        if copy.ready and copy.read_to >= reached[place]:
            self._whole[place], self._seen[place] = reached, ends
        whole = self._whole.get(place)
        behind = None if whole is None else sum(max(0, end - whole[log]) for log, end in ends.items())
        return ReplicaPosition(copy.task, copy.marker.version if copy.marker else 0, behind, copy.fault)

    def logs_of(self, place: TopicPartition) -> Sequence[TopicPartition]:
        return [place, *self._tasks[place].changelogs]

    def _check_known(self, assigned: Collection[TopicPartition]) -> None:
        topics = self.topics
        strange = sorted(place for place in assigned if place not in self._tasks and place[0] in topics)
        if strange:
            raise RestoreError(
                f"{strange[0][0]}: there is a task {strange[0][1]} that did not exist when this replica was started: the "
                f"application was rescaled. Start the replica again: it then keeps copies of all tasks"
            )
