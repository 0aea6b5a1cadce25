"""A model of Spark: checkpoints in a folder, and a driver that runs the micro-batches of its queries by task attempts with retries.

The order is that of `MicroBatchExecution`: offset log, source's commit of the batch before, tasks, state files, commit log.
A driver can die between any two of them. At its next start, a batch that is in the offset log but not in the commit log
runs again, from the state before it. `tests.simulation.start` has what is before the first micro-batch.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import orjson

from state.changelog import commits_topic
from state.columns import RecordColumns
from state.commit.decide import TaskIdentity
from state.commit.marker import MarkerCopy
from state.commit.step import CommitStep
from state.errors import StreamsError
from state.kafka.topics import TopicPartition
from state.stores.task_store import TaskStore
from streams.application import prepare
from streams.application.markers import MarkerAccess
from streams.checkpoint.files import CheckpointFiles, query_id_of, write_query_id
from streams.engine.graph.global_tables import global_store_specs
from streams.engine.source.offsets import SourceOffsets, topics_from_json
from streams.engine.source.partition_times import PartitionTimes
from streams.engine.source.pauses import PauseWatch
from streams.engine.source.planner import BatchPlanner
from streams.engine.step import global_tables as global_tables_module
from streams.engine.step.job import QueryJob
from streams.engine.step.read import (
    BatchPartitioner,
    PlannedCall,
    PlannedPartition,
    TaskRow,
    call_every_task,
    read_range,
)
from streams.engine.step.step import BatchContext, run_step
from streams.testing.simulation import SimulatedKafka, SimulatedStores
from streams.topology.graph import Graph
from tests.simulation.attempt import Attempt
from tests.simulation.cluster import Cluster, Host

MAX_FAILURES = 4
"""`local[N,4]`: the number of failures of a task that make the query fail."""


def _one_after_the_other(self: MarkerAccess, ask: Callable[[int], Any]) -> dict[int, Any]:
    return {task: ask(task) for task in range(self._sub.tasks)}


# Threads would reach Kafka in another order each time that a history is played.
MarkerAccess._each = _one_after_the_other  # type: ignore[method-assign]


class Planned:
    """Plans each program once, or rewrites it once, as there are few programs and many starts."""

    def __init__(self, plan: Callable[..., Any]) -> None:
        self._plan = plan
        self._plans: dict[tuple[int, str], tuple[Graph, Any]] = {}

    def __call__(self, topology: Graph, *further: Any) -> Any:
        """See `build_plan`, `with_added_topics` and `with_needed_topics`."""
        key = id(topology), repr(further)
        if key not in self._plans:
            self._plans[key] = topology, self._plan(topology, *further)
        return self._plans[key][1]


for each in ("build_plan", "with_added_topics", "with_needed_topics"):
    setattr(prepare, each, Planned(getattr(prepare, each)))


class Files:
    """A folder in memory, on which every change is an event: without effect if the process dies before it, else complete.

    Args:
        cluster: Where the events happen.
        data: Path -> contents.
    """

    def __init__(self, cluster: Cluster, data: dict[str, bytes] | None = None) -> None:
        self._cluster = cluster
        self.data = data or {}

    def names(self, folder: str) -> list[str]:
        """See `CheckpointFiles`."""
        inside = f"{folder}/" if folder else ""
        return sorted({path[len(inside) :].split("/")[0] for path in self.data if path.startswith(inside)})

    def read(self, path: str) -> bytes | None:
        """See `CheckpointFiles`."""
        return self.data.get(path)

    def write(self, path: str, data: bytes) -> None:
        """See `CheckpointFiles`."""
        self._cluster.happen("file", path)
        self.data[path] = data

    def move(self, path: str, to: str) -> None:
        """See `CheckpointFiles`."""
        self._cluster.happen("move", f"{path} {to}")
        assert not self.names(to), f"{to} exists"
        for name in [name for name in self.data if name == path or name.startswith(f"{path}/")]:
            self.data[to + name[len(path) :]] = self.data.pop(name)

    def delete(self, folder: str) -> None:
        """See `CheckpointFiles`."""
        self._cluster.happen("delete folder", folder)
        for name in [name for name in self.data if name.startswith(f"{folder}/")]:
            del self.data[name]


class Checkpoint:
    """Spark's checkpoint of a query: `offsets/N`, `commits/N` and the state of all tasks after N, in `state/N`.

    Args:
        files: The application's checkpoint folder.
        name: The query's folder.
    """

    def __init__(self, files: CheckpointFiles, name: str) -> None:
        self.files, self.name = files, name

    @property
    def query_id(self) -> str | None:
        """The query's id; None: no checkpoint."""
        return query_id_of(self.files, self.name)

    def last(self, log: str) -> int:
        """The last micro-batch in a log (`offsets` or `commits`); -1: none."""
        return max(map(int, self.files.names(f"{self.name}/{log}")), default=-1)

    def end(self, number: int) -> tuple[SourceOffsets, int]:
        """Where a logged micro-batch ends, and its time."""
        _, metadata, offsets = (self.files.read(f"{self.name}/offsets/{number}") or b"").splitlines()
        return SourceOffsets.from_json(orjson.loads(offsets)), int(orjson.loads(metadata)["batchTimestampMs"])

    def log(self, number: int, end: SourceOffsets, now_ms: int) -> None:
        """Logs a micro-batch that is about to run."""
        metadata = orjson.dumps({"batchTimestampMs": now_ms, "conf": {}})
        self.files.write(f"{self.name}/offsets/{number}", b"v1\n%b\n%b" % (metadata, orjson.dumps(end.to_json())))

    @property
    def state(self) -> dict[int, MarkerCopy]:
        """Spark's copies of the markers after the last finished micro-batch."""
        number = self.last("commits")
        data = orjson.loads(self.files.read(f"{self.name}/state/{number}") or b"{}")
        return {int(task): MarkerCopy(b64decode(copy), offset) for task, (copy, offset) in data.items()}

    def confirm(self, number: int, state: dict[int, MarkerCopy]) -> None:
        """Confirms a micro-batch that all tasks have done."""
        data = {str(task): [b64encode(copy.data).decode(), copy.offset] for task, copy in state.items()}
        self.files.write(f"{self.name}/state/{number}", orjson.dumps(data))
        self.files.write(f"{self.name}/commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}')


class SimulatedReader:
    """Reads a topic of a global table; the arguments are those of `shared_reader`."""

    def __init__(self, client: Mapping[str, Any], topic: str, partition: int, start: int, bulk: bool) -> None:
        self._kafka: SimulatedKafka = client["simulated"]
        self._at = topic, partition, start

    def read(self, end: int) -> Iterator[RecordColumns]:
        """The records up to an offset."""
        return self._kafka.read(*self._at, end)


def global_tables(
    cluster: Cluster, host: Host, job: QueryJob, stores: SimulatedStores, ends: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The global tables of an attempt: the engine's own copy, in a slot of the host's disk that no other attempt has."""
    if not job.sub.global_tables:
        return {}
    slots = (cluster.table(host, f"{job.sub.name}/global", slot) for slot in count())
    table = next(one for one in slots if one.owner is None)
    table.lock(stores)
    try:
        store = TaskStore(table, global_store_specs(list(job.sub.global_tables.values())))
        copy = global_tables_module._Copy(job, store, None)
        copy.restore_to(topics_from_json(ends), cluster.kafka, cluster.now_ms)
        return copy.tables.stores
    finally:
        table.close()


class QueryFailed(Exception):
    """The end of a driver after too many failures of a task, or of planning, with the reason in `__cause__`."""


class Query:
    """The query of one sub-topology, in one run of a driver.

    Args:
        cluster: The cluster it runs in.
        job: The sub-topology's job.
        checkpoint: The checkpoint to continue from.
        run: The name of the run.

    Attributes:
        topic: The commits topic.
        repeats: Whether it begins with the last micro-batch of an adopted checkpoint.
    """

    live = False

    def __init__(self, cluster: Cluster, job: QueryJob, checkpoint: Checkpoint, run: str) -> None:
        self._cluster, self._run = cluster, run
        self.job, self.checkpoint = job, checkpoint
        self.repeats = job.source.first is not None and job.source.first.end is not None
        self.topic = commits_topic(job.settings.application_id, job.sub.name)
        clock = lambda: cluster.now_ms  # noqa: E731
        watch = PauseWatch(cluster.kafka, job.settings.application_id, job.sub.name, clock)
        times = None
        if job.source.times_topic is not None:
            times = PartitionTimes(cluster.kafka, job.source.times_topic, lambda _: cluster.kafka.deliver())
        self._planner = BatchPlanner(cluster.kafka, job.source, cluster.kafka.sample, times, clock, paused=watch)
        self._partitioner = BatchPartitioner(self._planner)
        if checkpoint.query_id is None:
            write_query_id(checkpoint.files, checkpoint.name, f"query of {run}")

    @property
    def begun(self) -> int:
        """What grows with each micro-batch that begins."""
        return self.checkpoint.last("offsets")

    @property
    def ends(self) -> Mapping[TopicPartition, int] | None:
        """How far the source topics are read; None: a micro-batch is not complete, or there was none."""
        number = self.checkpoint.last("commits")
        if number != self.checkpoint.last("offsets") or number < 0:
            return None
        topics = self.checkpoint.end(number)[0].topics
        return {(topic, partition): at for topic, of in topics.items() for partition, at in enumerate(of.offsets)}

    def freeze(self) -> None:
        """Reads no further than to the present ends, or those that the job names (Trigger.AvailableNow)."""
        self._planner.freeze()

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
        checkpoint, number = self.checkpoint, self.checkpoint.last("commits") + 1
        start = checkpoint.end(number - 1)[0] if number else self._planner.initial()
        if checkpoint.last("offsets") < number:
            end = self._planner.latest(start)
            if end == start:
                return False
            checkpoint.log(number, end, self._cluster.now_ms)
            if number:
                self._planner.confirmed(start)
        end, now_ms = checkpoint.end(number)
        partitions = self._partitioner.partitions(start, end)
        context, state = BatchContext(number, now_ms, self._run), checkpoint.state
        done = MicroBatch(self._cluster, self.job, str(checkpoint.query_id), state, context, partitions).run()
        checkpoint.confirm(number, state | done)
        return True


def stores_of(cluster: Cluster, host: Host, job: QueryJob, identity: TaskIdentity) -> SimulatedStores:
    """The stores of a task on a host, for the attempt that runs."""
    specs = [node.spec for node in job.sub.stores.values()]
    table = cluster.table(host, job.sub.name, identity.task)
    given = cluster.kafka, identity, specs, table, host.memory, cluster.now_ms, job.spill_bytes
    if cluster.snapshots is None:
        stores = SimulatedStores(*given)
    else:
        stores = cluster.snapshots.stores(host, *given, snapshots=job.snapshots)
    assert cluster.attempt is not None, "an attempt opens its stores"
    cluster.attempt.stores.append(stores)
    return stores


class Stage:
    """Spark tasks that run at the same time, with retries: those of a micro-batch, or the slots of a lease."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chaos = cluster.chaos
        self._failures: Counter[int] = Counter()
        self._running: list[Attempt] = []

    def _start(self, task: int) -> Attempt:
        """A new attempt of a task, on some host."""
        raise NotImplementedError

    def _succeeded(self, attempt: Attempt) -> None:
        """Takes in the result of an attempt."""

    def _run_all(self, waiting: list[int]) -> None:
        """Runs all tasks.

        Raises:
            Crash: The driver died.
            QueryFailed: A task failed too often.
        """
        try:
            while waiting or self._running:
                self._one_thing(waiting)
        finally:
            # Attempts that still run are zombies from now on; Spark asks them to stop, but they may not notice.
            self._cluster.zombies += self._running

    def _some_host(self, task: int) -> Host:
        hosts = self._cluster.hosts
        return hosts[(task + self._chaos.choose(len(hosts), "host")) % len(hosts)]

    def _may_pause(self) -> bool:
        return self._chaos.choose(2, "steady, or may stand still") == 1

    def _one_thing(self, waiting: list[int]) -> None:
        """Lets one of the possible next events happen."""
        chaos, cluster = self._chaos, self._cluster
        first_running, first_zombie = len(waiting), len(waiting) + len(self._running)
        which = chaos.choose(first_zombie + len(cluster.zombies), "who goes on")
        if which >= first_zombie:
            cluster.let_go_on(cluster.zombies[which - first_zombie])
            return
        if which >= first_running:
            attempt = self._running[which - first_running]
        else:
            attempt = self._start(waiting.pop(which))
            self._running.append(attempt)
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
            self._succeeded(attempt)
            return
        else:
            self._running.remove(attempt)
            cluster.say(f"{attempt} {'died' if attempt.dead else f'failed: {attempt.error!r}'}")
            self._fail(task, attempt.error)
        waiting.append(task)
        self._runs_again()

    def _runs_again(self) -> None:
        """Called before a failed task runs again."""

    def _fail(self, task: int, error: Exception | None) -> None:
        self._failures[task] += 1
        if self._failures[task] >= MAX_FAILURES:
            raise QueryFailed(f"task {task} failed {MAX_FAILURES} times: {error}") from error


class MicroBatch(Stage):
    """The tasks of one micro-batch."""

    def __init__(
        self,
        cluster: Cluster,
        job: QueryJob,
        query_id: str,
        state: dict[int, MarkerCopy],
        context: BatchContext,
        partitions: list[PlannedPartition],
    ) -> None:
        super().__init__(cluster)
        self._job = job
        self._query_id, self._state = query_id, state
        self._context = context
        self._partitions = partitions
        self._done: dict[int, MarkerCopy] = {}

    def run(self) -> dict[int, MarkerCopy]:
        """Runs all tasks that have rows, and returns their new copies of the markers.

        Raises:
            Crash: The driver died.
            QueryFailed: A task failed too often.
        """
        self._rows = self._read(again=False)
        self._run_all(sorted(self._rows))
        return self._done

    def _succeeded(self, attempt: Attempt) -> None:
        self._cluster.happen("state file", f"task {attempt.task}")
        self._done[attempt.task] = attempt.result

    def _runs_again(self) -> None:
        if self._chaos.choose(2, "shuffle files there, or lost") == 1:
            self._cluster.say("shuffle files are lost: the readers run again")
            self._rows = self._read(again=True)

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
        cluster, host = self._cluster, self._some_host(task)
        name = f"task {task} of batch {self._context.batch_id} on {host.name}, attempt {self._failures[task]}"
        job, context, rows = self._job, self._context, self._rows.get(task, [])
        copy = self._state.get(task)
        identity = job.identity(task, self._query_id)

        def work(attempt: Attempt) -> MarkerCopy:
            stores = stores_of(cluster, host, job, identity)
            step = CommitStep(identity, cluster.kafka, stores, job.crash, host.memory.compared)
            result, _ = run_step(
                job, step, context, rows, copy, lambda ends: global_tables(cluster, host, job, stores, ends)
            )
            copied = stores.report.copy if stores.report else ""
            cluster.say(
                f"{attempt}: {result.decision.value}, version {result.copy.marker.version}, from {copied or '-'}"
            )
            return result.copy

        return Attempt(name, task, work, self._may_pause())
