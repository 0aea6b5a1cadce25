"""A model of Spark: a checkpoint, and a driver that runs micro-batches by task attempts with retries.

The order is that of `MicroBatchExecution`: offset log, source's commit of the batch before, tasks, state files, commit log.
A driver can die between any two of them. At its next start, a batch that is in the offset log but not in the commit log
runs again, from the state before it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from state.changelog.topics import commits_topic
from state.commit.last_marker import read_last_marker
from state.commit.marker import CommitMarker, MarkerCopy
from state.commit.step import CommitStep
from state.errors import CheckpointMismatchError, StreamsError
from streams.checkpoint import log
from streams.checkpoint.compare import SubIdentity, check_checkpoint, check_program, check_topic
from streams.microbatch.job import QueryJob
from streams.microbatch.partitions import BatchPartitioner, PlannedCall, PlannedPartition
from streams.microbatch.read import call_every_task, read_range
from streams.microbatch.rows import TaskRow
from streams.microbatch.step import BatchContext, run_step
from streams.source.offsets import FirstBatch, SourceOffsets
from streams.source.planner import BatchPlanner, SourceSpec
from streams.testing.simulation import SimulatedStores
from tests.simulation.attempt import Attempt
from tests.simulation.cluster import Cluster

MAX_FAILURES = 4
"""`local[N,4]`: the number of failures of a task that make the query fail."""


@dataclass(frozen=True)
class LoggedBatch:
    """An entry of the offset log."""

    end: dict[str, Any]
    now_ms: int


@dataclass
class Checkpoint:
    """Spark's checkpoint of a query.

    Attributes:
        query_id: The query id, created with the checkpoint; None: no checkpoint yet.
        first: Where the first batch begins, which the engine saves beside Spark's files.
        offsets: The offset log; batch n is entry n.
        committed: The commit log, as the number of finished batches.
        states: The state of all tasks before batch n.
    """

    query_id: str | None = None
    first: FirstBatch | None = None
    offsets: list[LoggedBatch] = field(default_factory=list)
    committed: int = 0
    states: list[dict[int, MarkerCopy]] = field(default_factory=lambda: [{}])

    def copy(self) -> Checkpoint:
        """A copy, to be restored later or used by a second driver."""
        return replace(self, offsets=list(self.offsets), states=list(self.states))

    @property
    def logged(self) -> log.Checkpoint:
        """The checkpoint as the engine reads it."""
        ends = {number: SourceOffsets.from_json(batch.end) for number, batch in enumerate(self.offsets)}
        return log.Checkpoint(self.query_id, len(self.offsets) - 1, self.committed - 1, ends, self.first)

    @property
    def state(self) -> dict[int, MarkerCopy]:
        """Spark's copies of the markers after the last finished batch."""
        return self.states[self.committed]


class QueryFailed(Exception):
    """The end of a driver after too many failures of a task, or of planning, with the reason in `__cause__`."""


class DriverRun:
    """One run of a driver, from start to end.

    Args:
        cluster: The cluster it runs in.
        job: The sub-topology's job.
        checkpoint: The checkpoint to continue from.
        name: The name of the run.
    """

    def __init__(self, cluster: Cluster, job: QueryJob, checkpoint: Checkpoint, name: str) -> None:
        self._cluster = cluster
        self._chaos = cluster.chaos
        self._job = job
        self._name = name
        self.checkpoint = checkpoint
        self._planner: BatchPlanner | None = None

    def start(self) -> None:
        """Does what `streams.application.preflight` and Spark do before the first micro-batch."""
        checkpoint = self.checkpoint
        self._compare()
        source = self._job.source
        checkpoint.first = checkpoint.first or FirstBatch(self._plan_with(source).initial())
        checkpoint.query_id = checkpoint.query_id or f"query of {self._name}"
        self._planner = self._plan_with(replace(source, first=checkpoint.first))
        self._partitioner = BatchPartitioner(self._planner)

    def _plan_with(self, source: SourceSpec) -> BatchPlanner:
        return BatchPlanner(self._cluster.kafka, source, self._cluster.kafka.sample, None, self._clock)

    def _compare(self) -> None:
        """Checks that checkpoint and markers belong together."""
        job, kafka = self._job, self._cluster.kafka
        sub = SubIdentity(job.settings.application_id, job.sub.name, job.tasks, job.sub.topology_hash)
        topic = commits_topic(sub.application_id, sub.name)

        def markers() -> dict[int, CommitMarker | None]:
            copies = {task: read_last_marker(kafka, (topic, task)) for task in range(job.tasks)}
            return {task: copy.marker if copy else None for task, copy in copies.items()}

        check_program(sub, markers())
        check_checkpoint(sub, self.checkpoint.logged, markers())
        try:
            check_topic(sub, self.checkpoint.logged, markers())
        except CheckpointMismatchError:
            # Waits, because the last commits may not be readable yet.
            kafka.deliver()
            check_topic(sub, self.checkpoint.logged, markers())

    def _clock(self) -> int:
        return self._cluster.now_ms

    def trigger(self) -> bool:
        """Plans and runs one micro-batch; False if there was nothing to do.

        Raises:
            Crash: The driver died.
            QueryFailed: The driver gave up.
        """
        try:
            return self._trigger()
        except StreamsError as error:
            raise QueryFailed(str(error)) from error

    def _trigger(self) -> bool:
        if self._planner is None:
            self.start()
        assert self._planner is not None
        checkpoint, number = self.checkpoint, self.checkpoint.committed
        start = SourceOffsets.from_json(checkpoint.offsets[number - 1].end) if number else self._planner.initial()
        if len(checkpoint.offsets) == number:
            end = self._planner.latest(start)
            if end == start:
                return False
            self._cluster.happen("offset log", f"batch {number}")
            checkpoint.offsets.append(LoggedBatch(end.to_json(), self._cluster.now_ms))
            if number:
                self._planner.confirmed(start)
        logged = checkpoint.offsets[number]
        partitions = self._partitioner.partitions(start, SourceOffsets.from_json(logged.end))
        context = BatchContext(number, logged.now_ms, self._name)
        done = MicroBatch(self._cluster, self._job, checkpoint, context, partitions).run()
        self._cluster.happen("commit log", f"batch {number}")
        checkpoint.states[number + 1 :] = [checkpoint.state | done]
        checkpoint.committed += 1
        return True


class MicroBatch:
    """The tasks of one micro-batch."""

    def __init__(
        self,
        cluster: Cluster,
        job: QueryJob,
        checkpoint: Checkpoint,
        context: BatchContext,
        partitions: list[PlannedPartition],
    ) -> None:
        self._cluster = cluster
        self._chaos = cluster.chaos
        self._job = job
        self._checkpoint = checkpoint
        self._context = context
        self._partitions = partitions
        self._failures: Counter[int] = Counter()
        self._running: list[Attempt] = []
        self._done: dict[int, MarkerCopy] = {}

    def run(self) -> dict[int, MarkerCopy]:
        """Runs all tasks that have rows, and returns their new copies of the markers.

        Raises:
            Crash: The driver died.
            QueryFailed: A task failed too often.
        """
        try:
            self._rows = self._read(again=False)
            waiting = sorted(self._rows)
            while waiting or self._running:
                self._one_thing(waiting)
        finally:
            # Attempts that still run are zombies from now on; Spark asks them to stop, but they may not notice.
            self._cluster.zombies += self._running
        return self._done

    def _one_thing(self, waiting: list[int]) -> None:
        """Lets one of the possible next events happen."""
        chaos, cluster = self._chaos, self._cluster
        first_running, first_zombie = len(waiting), len(waiting) + len(self._running)
        which = chaos.choose(first_zombie + len(cluster.zombies), "who goes on")
        if which >= first_zombie:
            zombie = cluster.zombies[which - first_zombie]
            cluster.run(zombie)
            if zombie.ended:
                cluster.zombies.remove(zombie)
            return
        attempt = self._running[which - first_running] if which >= first_running else self._start(waiting.pop(which))
        cluster.run(attempt)
        self._judge(attempt, waiting)

    def _judge(self, attempt: Attempt, waiting: list[int]) -> None:
        """Handles the outcome of an attempt."""
        cluster, task = self._cluster, attempt.task
        if not attempt.ended:
            if self._chaos.choose(2, "wait for it, or give it up") == 0:
                return
            self._running.remove(attempt)
            cluster.zombies.append(attempt)
            self._fail(task, None)
        elif attempt.result is not None:
            self._running.remove(attempt)
            cluster.happen("state file", f"task {task}")
            self._done[task] = attempt.result
            return
        else:
            self._running.remove(attempt)
            cluster.say(f"{attempt} {'died' if attempt.dead else f'failed: {attempt.error!r}'}")
            self._fail(task, attempt.error)
        waiting.append(task)
        if self._chaos.choose(2, "shuffle files there, or lost") == 1:
            cluster.say("shuffle files are lost: the readers run again")
            self._rows = self._read(again=True)

    def _fail(self, task: int, error: Exception | None) -> None:
        self._failures[task] += 1
        if self._failures[task] >= MAX_FAILURES:
            raise QueryFailed(f"task {task} failed {MAX_FAILURES} times: {error}") from error

    def _read(self, again: bool) -> dict[int, list[TaskRow]]:
        """The rows of all readers, by task."""
        rows: dict[int, list[TaskRow]] = {}
        for number, planned in enumerate(self._partitions):
            for failures in range(MAX_FAILURES):
                reader = Attempt(f"reader {number}", -1, lambda _, one=planned: self._read_one(one, again), False)
                self._cluster.run(reader)
                if reader.result is not None:
                    break
                if failures == MAX_FAILURES - 1:
                    raise QueryFailed(f"reader {number}: {reader.error}") from reader.error
            for row in reader.result:
                rows.setdefault(row.task, []).append(row)
        return rows

    def _read_one(self, planned: PlannedPartition, again: bool) -> list[TaskRow]:
        if isinstance(planned, PlannedCall):
            return list(call_every_task(self._job, planned))
        offsets = planned.offsets
        pieces = self._cluster.kafka.read(offsets.topic, offsets.partition, offsets.start, offsets.end)
        rows = list(read_range(self._job, planned, pieces))
        return rows + list(call_every_task(self._job, PlannedCall(planned.batch))) if again else rows

    def _start(self, task: int) -> Attempt:
        """A new attempt of a task, on some host."""
        cluster = self._cluster
        host = cluster.hosts[(task + cluster.chaos.choose(len(cluster.hosts), "host")) % len(cluster.hosts)]
        name = f"task {task} of batch {self._context.batch_id} on {host.name}, attempt {self._failures[task]}"
        job, context, rows = self._job, self._context, self._rows.get(task, [])
        copy = self._checkpoint.state.get(task)
        identity = job.identity(task, str(self._checkpoint.query_id))
        specs = [node.spec for node in job.sub.stores.values()]

        def work(attempt: Attempt) -> MarkerCopy:
            table = cluster.table(host, job.sub.name, task)
            stores = SimulatedStores(cluster.kafka, identity, specs, table, host.memory, cluster.now_ms)
            attempt.stores = stores
            step = CommitStep(identity, cluster.kafka, stores, job.crash, host.memory.compared)
            result, _ = run_step(job, step, context, rows, copy, lambda ends: {})
            cluster.say(f"{attempt}: {result.decision.value}, version {result.copy.marker.version}")
            return result.copy

        attempt = Attempt(name, task, work, may_pause=cluster.chaos.choose(2, "steady, or may stand still") == 1)
        self._running.append(attempt)
        return attempt
