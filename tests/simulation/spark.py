"""A model of Spark: checkpoints in a folder, and a driver that runs the micro-batches of its queries by task attempts with retries.

The order is that of `MicroBatchExecution`: offset log, source's commit of the batch before, tasks, state files, commit log.
A driver can die between any two of them. At its next start, a batch that is in the offset log but not in the commit log
runs again, from the state before it. Everything before the first micro-batch is the engine's own code.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import orjson

from state.changelog import commits_topic
from state.columns import RecordColumns
from state.commit.marker import MarkerCopy
from state.commit.step import CommitStep
from state.errors import StreamsError
from state.stores.task_store import TaskStore
from streams.application import prepare
from streams.application.markers import MarkerAccess
from streams.application.prepare import ensure_internal_topics, plan_application, query_job
from streams.application.start import Preflight, check_start
from streams.checkpoint.files import CheckpointFiles, query_id_of, write_query_id
from streams.config import StreamsConfig
from streams.microbatch import global_tables as global_tables_module
from streams.microbatch.job import QueryJob
from streams.microbatch.read import (
    BatchPartitioner,
    PlannedCall,
    PlannedPartition,
    TaskRow,
    call_every_task,
    read_range,
)
from streams.microbatch.step import BatchContext, run_step
from streams.runtime.global_tables import global_store_specs
from streams.source.offsets import SourceOffsets, topics_from_json
from streams.source.pauses import PauseWatch
from streams.source.planner import BatchPlanner
from streams.testing.simulation import SimulatedKafka, SimulatedStores
from streams.topology.graph import Graph
from streams.topology.plan import Plan
from streams.topology.topology import Topology
from tests.simulation.attempt import Attempt
from tests.simulation.cluster import Cluster, Host

MAX_FAILURES = 4
"""`local[N,4]`: the number of failures of a task that make the query fail."""


def _one_after_the_other(self: MarkerAccess, ask: Callable[[int], Any]) -> dict[int, Any]:
    return {task: ask(task) for task in range(self._sub.tasks)}


# Threads would reach Kafka in another order each time that a history is played.
MarkerAccess._each = _one_after_the_other  # type: ignore[method-assign]


class Planned:
    """Plans each program once, as there are few programs and many starts."""

    def __init__(self) -> None:
        self._build = prepare.build_plan
        self._plans: dict[tuple[int, str, tuple[str, ...]], tuple[Graph, Plan]] = {}

    def __call__(self, topology: Graph, application_id: str, known: Sequence[str] = ()) -> Plan:
        """See `build_plan`."""
        key = id(topology), application_id, tuple(known)
        if key not in self._plans:
            self._plans[key] = topology, self._build(topology, application_id, known)
        return self._plans[key][1]


prepare.build_plan = Planned()


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


def start_queries(
    cluster: Cluster, topology: Topology, config: StreamsConfig, files: CheckpointFiles, name: str
) -> list[Query]:
    """Starts an application: what `prepare_start` and `KafkaStreams` do before the first micro-batch.

    Raises:
        StreamsError: The start is refused.
    """
    kafka: Any = cluster.kafka
    application = plan_application(topology, config, kafka)
    check_start(application, kafka, kafka)
    counts = ensure_internal_topics(application, kafka, cluster.say)
    firsts = preflight(cluster, application, files).run()
    job = partial(query_job, application, counts=counts, processes=1, readers=None, until={}, restore_reports=None)
    jobs = [job(prepared=one, first=firsts.get(one.sub.name)) for one in application.subs]
    queries = [(replace(one, client={"simulated": kafka}), Checkpoint(files, one.sub.name)) for one in jobs]
    return [Query(cluster, one, checkpoint, name) for one, checkpoint in queries]


def preflight(cluster: Cluster, application: prepare.Application, files: CheckpointFiles) -> Preflight:
    """The comparison of checkpoints and markers, on the simulated Kafka."""
    kafka: Any = cluster.kafka
    return Preflight(application, files, kafka, cluster.say, kafka, lambda *_: kafka.deliver(), kafka.sample)


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

    def __init__(self, cluster: Cluster, job: QueryJob, checkpoint: Checkpoint, run: str) -> None:
        self._cluster, self._run = cluster, run
        self.job, self.checkpoint = job, checkpoint
        self.repeats = job.source.first is not None and job.source.first.end is not None
        self.topic = commits_topic(job.settings.application_id, job.sub.name)
        clock = lambda: cluster.now_ms  # noqa: E731
        watch = PauseWatch(cluster.kafka, job.settings.application_id, job.sub.name, clock)
        self._planner = BatchPlanner(cluster.kafka, job.source, cluster.kafka.sample, None, clock, paused=watch)
        self._partitioner = BatchPartitioner(self._planner)
        if checkpoint.query_id is None:
            write_query_id(checkpoint.files, checkpoint.name, f"query of {run}")

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


class MicroBatch:
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
        self._cluster = cluster
        self._chaos = cluster.chaos
        self._job = job
        self._query_id, self._state = query_id, state
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
        copy = self._state.get(task)
        identity = job.identity(task, self._query_id)
        specs = [node.spec for node in job.sub.stores.values()]

        def work(attempt: Attempt) -> MarkerCopy:
            table = cluster.table(host, job.sub.name, task)
            given = cluster.kafka, identity, specs, table, host.memory, cluster.now_ms, job.spill_bytes
            if cluster.snapshots is None:
                stores = SimulatedStores(*given)
            else:
                stores = cluster.snapshots.stores(host, *given, snapshots=job.snapshots)
            attempt.stores = stores
            step = CommitStep(identity, cluster.kafka, stores, job.crash, host.memory.compared)
            result, _ = run_step(
                job, step, context, rows, copy, lambda ends: global_tables(cluster, host, job, stores, ends)
            )
            copied = stores.report.copy if stores.report else ""
            cluster.say(
                f"{attempt}: {result.decision.value}, version {result.copy.marker.version}, from {copied or '-'}"
            )
            return result.copy

        attempt = Attempt(name, task, work, may_pause=cluster.chaos.choose(2, "steady, or may stand still") == 1)
        self._running.append(attempt)
        return attempt
