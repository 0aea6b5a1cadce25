"""Rebuilds the stores of a whole application from its changelogs, and `Replica`, which keeps warm copies of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from state.changelog import changelog_topic, commits_topic
from state.commit.live import LiveKafka
from state.errors import RestoreError, StreamsError
from state.kafka.topics import TopicPartition
from state.restore.place import TaskPlace
from state.restore.restorer import RestoreListener
from state.restore.snapshots import NO_SNAPSHOTS, SnapshotSettings
from state.restore.task_stores import StoreSource
from state.restore.verify import LINKED, RebuiltTask, VerifiedTask, rebuild_task, verify_task
from state.stores.spec import StoreSpec
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


# --- `Replica`: keeps warm copies of tasks' stores by following their changelogs (Kafka Streams: standby tasks,
# KIP-441).
#
# The tasks of an application are shared among its replicas by a consumer group over the commits topics, whose
# partitions are the tasks. A copy is an ordinary local state in a folder of its own: each commit of its task brings
# it forward as a restore would, to that commit, so it never holds anything that is not committed, and says with its
# own position how far it is (`state.stores.dump` reads it meanwhile). A task whose step finds no local state on
# its host takes the copy over (`state.restore.copies`).

_RETRY_S = 5.0
SERVED_AT_A_TIME = 4
"""How many copies a process that serves brings forward at a time, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True)
class ReplicaTask:
    """A task that a replica may keep a copy of."""

    place: TaskPlace
    specs: tuple[StoreSpec, ...]

    @property
    def commits(self) -> TopicPartition:
        """The partition of its commit markers, which stands for the task in the consumer group."""
        return commits_topic(self.place.application_id, self.place.sub_topology), self.place.task

    @property
    def changelogs(self) -> list[TopicPartition]:
        return [(changelog_topic(self.place.application_id, spec.name), self.place.task) for spec in self.specs]


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """How far the copy of a task is.

    Attributes:
        version: The step that the copy holds; 0 = none yet.
        behind: Offsets that its changelogs have gained since; the number of records is at most that. None = not known yet.
        fault: Why the last attempt to bring it forward failed; empty = it did not.
    """

    task: ReplicaTask
    version: int = 0
    behind: int | None = None
    fault: str = ""

    @property
    def warm(self) -> bool:
        """Whether this replica has brought the copy to a commit, and did not fail to follow since."""
        return self.behind is not None and not self.fault


@dataclass(slots=True)
class _Copy:
    """A copy that this replica keeps.

    Attributes:
        ends: Where the task's logs ended when it was last brought forward.
        running: The attempt under way, if any, and the ends from which it was begun.
    """

    version: int = 0
    ends: Mapping[TopicPartition, int] | None = None
    running: tuple[Future[RebuiltTask], Mapping[TopicPartition, int]] | None = None
    fault: str = ""
    retry_at: float = 0.0


class Replica:
    """See the module.

    Args:
        tasks: All tasks of the application that have stores to keep.
        folder: Root of the copies, `replica_dir` of the settings.
        listener: Notified of the progress; called from several threads.
    """

    def __init__(
        self,
        source: StoreSource,
        tasks: Sequence[ReplicaTask],
        folder: Path,
        listener: RestoreListener | None = None,
        parallel: int = 2,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._tasks = {task.commits: task for task in tasks}
        self._folder = folder
        self._listener = listener
        self._clock_s = clock_s
        self._copies: dict[TopicPartition, _Copy] = {}
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="replica")

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self._tasks})

    def follow(self, assigned: Collection[TopicPartition]) -> list[ReplicaPosition]:
        """Begins to bring forward what has fallen behind, and returns how far each copy is. Does not wait.

        Raises:
            RestoreError: The application has more tasks than when this replica was made, so nothing would copy the new ones.
            KafkaClientError: The ends of the logs cannot be read.
        """
        self._check_known(assigned)
        mine = sorted(place for place in assigned if place in self._tasks)
        self._copies = {place: self._copies.get(place, _Copy()) for place in mine}
        wanted = {log for place in mine for log in self._logs(place)}
        ends = self._source.end_offsets(sorted(wanted)) if wanted else {}
        return [self._follow_one(place, {log: ends[log] for log in self._logs(place)}) for place in mine]

    def offsets(self) -> dict[TopicPartition, int]:
        """Where each commits partition ended when its copy was last brought forward: what the group shows as its progress."""
        return {place: copy.ends[place] for place, copy in self._copies.items() if copy.ends is not None}

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _check_known(self, assigned: Collection[TopicPartition]) -> None:
        topics = self.topics
        strange = sorted(place for place in assigned if place not in self._tasks and place[0] in topics)
        if strange:
            raise RestoreError(
                f"{strange[0][0]}: there is a task {strange[0][1]} that did not exist when this replica was started: the "
                f"application was rescaled. Start the replica again: it then keeps copies of all tasks"
            )

    def _logs(self, place: TopicPartition) -> list[TopicPartition]:
        return [place, *self._tasks[place].changelogs]

    def _follow_one(self, place: TopicPartition, ends: Mapping[TopicPartition, int]) -> ReplicaPosition:
        copy, task = self._copies[place], self._tasks[place]
        self._finish(copy)
        if copy.running is None and copy.ends != ends and self._clock_s() >= copy.retry_at:
            # The marker is read after these ends, so the copy is at least there.
            future = self._pool.submit(rebuild_task, self._source, task.place, task.specs, self._folder, self._listener)
            copy.running = (future, ends)
        if copy.ends is None:
            return ReplicaPosition(task, copy.version, None, copy.fault)
        behind = sum(max(0, ends[log] - copy.ends[log]) for log in task.changelogs)
        return ReplicaPosition(task, copy.version, behind, copy.fault)

    def _finish(self, copy: _Copy) -> None:
        """Takes the result of an attempt that has ended. A failure is shown, and tried again a little later."""
        if copy.running is None or not copy.running[0].done():
            return
        future, ends = copy.running
        copy.running = None
        try:
            copy.version = future.result().version
        except (StreamsError, OSError) as error:
            copy.fault, copy.retry_at = str(error), self._clock_s() + _RETRY_S
        else:
            copy.ends, copy.fault = ends, ""
