"""The metrics of a step, of a sub-topology and of an application, as frozen plain data: `orjson.dumps` writes them as JSON.

A worker measures a step, one task's part of a micro-batch, and reports it with the step's result row
(`streams.engine.spark.worker`); `StepFigures.of` reads the report. Totals count from the start of the process that runs the
application (the driver) and never fall while it lives: a query that starts again after a failure continues them. A new process
begins at zero, like the counters of any program that Prometheus scrapes. A step whose worker died after its commit, before its
report, is counted with the attempt that finds the commit: its numbers of records are those of the commit marker, while the counts
of operators in tasks are lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.engine.graph.following import FOLLOWED
from streams.engine.graph.settings import CPU_NS, LOOKED_UP, ONE_BY_ONE, UNMATCHED

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets in seconds: a part of a step takes about a millisecond, a large restore minutes."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations, counted by bucket as Prometheus does.

    Attributes:
        counts: The number of durations in each bucket: up to its bound in `BOUNDS` and above the previous bound; the last bucket
            has no bound.
        sum_s: The sum of all durations, seconds.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    sum_s: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def with_one(self, seconds: float) -> Histogram:
        at = bisect_left(BOUNDS, seconds)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Histogram(counts, self.sum_s + seconds)

    def plus(self, other: Histogram) -> Histogram:
        return Histogram(tuple(map(sum, zip(self.counts, other.counts, strict=True))), self.sum_s + other.sum_s)

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound with the number of durations up to it; the last bound is infinite."""
        found, total = [], 0
        for bound, count in zip((*BOUNDS, float("inf")), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


HISTORICAL_MS = 86_400_000
"""Event times that are more than a day behind the clock belong to old input, not to a slow application, ms."""

PARTS = ("fence", "decide", "restore", "process", "commit", "apply")
"""The parts of a step in their order; `state.commit.step` describes them."""
SKIPPED = "skip"
"""The decision about a step that was committed already."""


@dataclass(frozen=True, slots=True)
class StoreSize:
    """The size of a store.

    Attributes:
        rows: The number of rows, as estimated by RocksDB: a row that was overwritten or deleted counts until a compaction.
        bytes: The bytes of keys and values, estimated likewise.
    """

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StateSize:
    """The size of a task's state.

    Attributes:
        disk_bytes: The bytes of the files in the task's folder, including RocksDB's files.
        stores: Store -> its size.
    """

    disk_bytes: int
    stores: Mapping[str, StoreSize]


@dataclass(frozen=True, slots=True)
class RestoreFigures:
    """The restore that a step had to do before it could begin.

    Attributes:
        records: Changelog records read.
        rows: Rows written.
        bytes: Bytes of the keys and values read.
        copies: 1 if the restore began with a snapshot or a replica's copy, else 0.
        seconds: How long it took.
        how: A description of what was done; empty for the sum of several restores.
    """

    records: int = 0
    rows: int = 0
    bytes: int = 0
    copies: int = 0
    seconds: float = 0.0
    how: str = ""

    def plus(self, other: RestoreFigures) -> RestoreFigures:
        return RestoreFigures(
            self.records + other.records,
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.copies + other.copies,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """The largest event time among the records that a micro-batch has read from a topic-partition, ms since 1970."""

    topic: str
    partition: int
    event_time_ms: int


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The metrics of one step of a task, or of several live steps. As JSON, they are the worker's report to the driver.

    Attributes:
        task: The task's number.
        version: The number of the step that is now the task's last one.
        batch_id: The micro-batch.
        decision: `run`, or `skip` for a step that was committed already: its numbers of records are those of the commit, its
            `counters` only those of readers.
        records_in: Records that reached the task.
        records_out: Records written to output topics.
        changelog_records: Records written to changelogs.
        event_time_ms: The task's stream time, ms since 1970; None: no record yet.
        counters: Counts by flat names (`streams.engine.graph.settings`); those of readers are with the task that reports it.
        seconds: The duration of each of `PARTS` that the step had.
        total_s: The duration of the step as a whole, with decoding its rows.
        cpu_s: The CPU time of the step.
        attempt: How many attempts of Spark's task failed before this one: their worker died, another process fenced them, or a
            commit failed.
        host: The host on which the step ran.
        pid: The worker process.
        rss_bytes: The resident memory of the worker now.
        peak_rss_bytes: The largest resident memory that the worker ever had.
        event_times: The event times of the topic-partitions that the task reports.
        state: The size of the task's state; None: not measured at this step.
        restore: The restore of the step; None: it restored nothing.
        followed: Samples of the followed key's records, as JSON (`streams.engine.graph.following`).
        live: Whether it is a report of live execution, about several steps: durations are their means, other figures their sums.
        steps: The number of steps.
    """

    task: int
    version: int
    batch_id: int = -1
    decision: str = "run"
    records_in: int = 0
    records_out: int = 0
    changelog_records: int = 0
    event_time_ms: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    total_s: float = 0.0
    cpu_s: float = 0.0
    attempt: int = 0
    host: str = ""
    pid: int = 0
    rss_bytes: int = 0
    peak_rss_bytes: int = 0
    event_times: tuple[PartitionTime, ...] = ()
    state: StateSize | None = None
    restore: RestoreFigures | None = None
    followed: tuple[str, ...] = ()
    live: bool = False
    steps: int = 1

    @property
    def skipped(self) -> bool:
        return self.decision == SKIPPED

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> StepFigures:
        """The figures that a worker has reported: its own, as JSON."""
        counters, state, restore = report["counters"], report["state"], report["restore"]
        found = {
            "counters": {name: count for name, count in counters.items() if not name.startswith(FOLLOWED)},
            "followed": tuple(name.removeprefix(FOLLOWED) for name in counters if name.startswith(FOLLOWED)),
            "event_times": tuple(PartitionTime(**one) for one in report["event_times"]),
            "state": state
            and StateSize(state["disk_bytes"], {n: StoreSize(**of) for n, of in state["stores"].items()}),
            "restore": restore and RestoreFigures(**restore),
        }
        return cls(**{**report, **found})


@dataclass(frozen=True, slots=True)
class MicroBatchFigures:
    """The metrics of a micro-batch, which a metrics listener receives.

    Attributes:
        sub_topology: The sub-topology's name.
        batch_id: The micro-batch's number.
        at_ms: When the driver had the metrics, ms since 1970.
        steps: The steps of its tasks. A task without rows has none.
        began_ms: When it began, ms since 1970; None: unknown.
    """

    application_id: str
    sub_topology: str
    batch_id: int
    at_ms: int
    steps: tuple[StepFigures, ...] = field(default=())
    began_ms: int | None = None

    @property
    def records_in(self) -> int:
        """Records that reached the tasks. Steps that were committed already do not count."""
        return sum(step.records_in for step in self.steps if not step.skipped)

    @property
    def records_out(self) -> int:
        """Records written to output topics. Steps that were committed already do not count."""
        return sum(step.records_out for step in self.steps if not step.skipped)


STAGES = ("deserialization", "processing", "production", "future")
"""The stages that have an error policy."""


@dataclass(slots=True)
class NodeMetrics:
    """The counters of one node, over all its tasks and readers.

    Attributes:
        records_in: The number of records received.
        records_out: The number of records forwarded; 0 for a sink.
        dropped: The number of records dropped, by reason.
        one_by_one: The number of records processed one by one although the node can process them together, by reason.
        cpu_ns: The CPU time, where operators are timed (`streams.engine.graph.settings`).
        other: Further counters of the operator by name, such as the calls of an `enrich`.
        looked_up: The number of records that a join has looked up on its other side.
        unmatched: The number of these records that found no match, by reason.
    """

    records_in: int = 0
    records_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    one_by_one: dict[str, int] = field(default_factory=dict)
    cpu_ns: int = 0
    other: dict[str, int] = field(default_factory=dict)
    looked_up: int = 0
    unmatched: dict[str, int] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """The number of dropped records that an error policy skipped or sent to the dead-letter topic."""
        return sum(self.dropped.get(stage, 0) for stage in STAGES)


def node_metrics(counters: Mapping[str, int]) -> dict[str, NodeMetrics]:
    """The counters of nodes, by node. Counters of whole stages and of tasks are left out."""
    found: dict[str, NodeMetrics] = {}
    for name, count in counters.items():
        what, _, rest = name.partition(":")
        if not rest or what == "skipped" or (what == "dead_letters" and rest in STAGES):
            continue
        if what == "dropped":
            node, _, reason = rest.rpartition(":")
            found.setdefault(node, NodeMetrics()).dropped[reason] = count
        elif name.startswith(ONE_BY_ONE):
            node, _, reason = rest.partition(":")
            found.setdefault(node, NodeMetrics()).one_by_one[reason] = count
        elif name.startswith(UNMATCHED):
            node, _, reason = rest.rpartition(":")
            found.setdefault(node, NodeMetrics()).unmatched[reason] = count
        elif name.startswith(LOOKED_UP):
            found.setdefault(rest, NodeMetrics()).looked_up = count
        elif what == "in":
            found.setdefault(rest, NodeMetrics()).records_in = count
        elif what == "out":
            found.setdefault(rest, NodeMetrics()).records_out = count
        elif name.startswith(CPU_NS):
            found.setdefault(rest, NodeMetrics()).cpu_ns = count
        else:
            found.setdefault(rest, NodeMetrics()).other[what] = count
    return found


def by_stage(counters: Mapping[str, int], what: str) -> dict[str, int]:
    """The counts of `skipped` or `dead_letters` by the stage whose error policy applied."""
    return {stage: counters[name] for stage in STAGES if (name := f"{what}:{stage}") in counters}


WHOLE_STEP = "total"
"""The name for the whole step among the parts of a step."""


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """The metrics of one task.

    Attributes:
        version: The number of its last step; None: no step since the start.
        steps: Steps that were run.
        skipped_steps: Steps that were found committed.
        failed_attempts: Attempts at its steps that have failed before one succeeded.
        records_in: Records that reached the task.
        records_out: Records written to output topics.
        changelog_records: Records written to changelogs.
        cpu_s: CPU time of its steps.
        event_time_ms: Its stream time, ms since 1970; None: no record yet.
        durations: Each part of a step, and `total` -> its durations.
        state: The size of its state when it was last measured; None: not yet.
        restored: The sum of its restores.
    """

    version: int | None = None
    steps: int = 0
    skipped_steps: int = 0
    failed_attempts: int = 0
    records_in: int = 0
    records_out: int = 0
    changelog_records: int = 0
    cpu_s: float = 0.0
    event_time_ms: int | None = None
    durations: Mapping[str, Histogram] = field(default_factory=dict)
    last: StepFigures | None = None
    state: StateSize | None = None
    restored: RestoreFigures = field(default_factory=RestoreFigures)

    def counts(self, step: StepFigures) -> bool:
        """Whether a step's numbers of records are new. A committed step that is found again may have been reported before."""
        return not step.skipped or (self.version is not None and step.version > self.version)

    def after(self, step: StepFigures) -> TaskMetrics:
        new = self.counts(step)
        durations = dict(self.durations)
        for part, seconds in (*step.seconds.items(), (WHOLE_STEP, step.total_s)):
            durations[part] = durations.get(part, Histogram()).with_one(seconds)
        return TaskMetrics(
            version=step.version,
            steps=self.steps + (0 if step.skipped else step.steps),
            skipped_steps=self.skipped_steps + step.skipped,
            failed_attempts=self.failed_attempts + step.attempt,
            records_in=self.records_in + new * step.records_in,
            records_out=self.records_out + new * step.records_out,
            changelog_records=self.changelog_records + new * step.changelog_records,
            cpu_s=self.cpu_s + step.cpu_s,
            event_time_ms=step.event_time_ms,
            durations=durations,
            last=step,
            state=step.state or self.state,
            restored=self.restored if step.restore is None else self.restored.plus(step.restore),
        )


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """The metrics of a topic-partition that a sub-topology reads.

    Attributes:
        position: The next offset to read; None: unknown.
        end: The end offset when Spark last asked for it; None: unknown.
        event_time_ms: The largest event time of the records that the last micro-batch with records has read; None: unknown.
    """

    position: int | None = None
    end: int | None = None
    event_time_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets that are left to read; None: unknown."""
        return None if self.position is None or self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class StoreRestore:
    """The progress of the last restore of a store.

    Attributes:
        offsets: The changelog offsets between its beginning and its end; there are at most as many records.
        remaining: The offsets that are left to read; 0: it has ended.
        records: The changelog records that it has read so far.
    """

    offsets: int
    remaining: int
    records: int = 0


@dataclass(frozen=True, slots=True)
class SubTopologyMetrics:
    """The metrics of one sub-topology.

    Attributes:
        task_count: How many tasks it has.
        topics: The topics that it reads.
        batch_id: Its last finished micro-batch; -1: none since the start.
        micro_batches: Finished micro-batches.
        starts: Starts of its query.
        committed_ms: When its last micro-batch was finished, ms since 1970; None: none since the start.
        running_since_ms: When the micro-batch that runs now has begun, ms since 1970; None: none runs.
        counters: Counts by flat names (`streams.engine.graph.settings`).
        tasks: Its tasks that have had a step since the start.
        partitions: (topic, partition) -> position and lag.
        restores: (task, store) -> its last restore, also while it runs; in micro-batches only if metrics are served.
    """

    task_count: int
    topics: tuple[str, ...] = ()
    batch_id: int = -1
    micro_batches: int = 0
    starts: int = 0
    committed_ms: int | None = None
    running_since_ms: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[int, TaskMetrics] = field(default_factory=dict)
    partitions: Mapping[tuple[str, int], PartitionMetrics] = field(default_factory=dict)
    restores: Mapping[tuple[int, str], StoreRestore] = field(default_factory=dict)

    @property
    def records_in(self) -> int:
        return sum(task.records_in for task in self.tasks.values())

    @property
    def records_out(self) -> int:
        return sum(task.records_out for task in self.tasks.values())

    @property
    def changelog_records(self) -> int:
        return sum(task.changelog_records for task in self.tasks.values())

    @property
    def lag(self) -> int | None:
        """The number of offsets that are still to be read; None: it is not known yet."""
        known = [lag for one in self.partitions.values() if (lag := one.lag) is not None]
        return sum(known) if known else None

    @property
    def is_live(self) -> bool:
        """Whether its last steps were live ones."""
        return any(task.last is not None and task.last.live for task in self.tasks.values())

    @property
    def running_restores(self) -> tuple[StoreRestore, ...]:
        return tuple(one for one in self.restores.values() if one.remaining)

    @property
    def event_time_ms(self) -> int | None:
        """The largest event time of any task, ms since 1970; None: none yet."""
        return max((task.event_time_ms for task in self.tasks.values() if task.event_time_ms is not None), default=None)

    @property
    def operators(self) -> dict[str, NodeMetrics]:
        return node_metrics(self.counters)

    @property
    def skipped(self) -> dict[str, int]:
        """Bad records that a policy has skipped, by stage."""
        return by_stage(self.counters, "skipped")

    @property
    def dead_letters(self) -> dict[str, int]:
        """Bad records that a policy has sent to the dead letter topic, by stage."""
        return by_stage(self.counters, "dead_letters")


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answers to whether an application lives and works.

    Attributes:
        alive: Whether it runs, or is starting or stopping; False once it has failed.
        ready: Whether it processes records.
        why: The reason in a sentence.
        obstacles: The names of the obstacles that keep it from processing records (`MetricsRecorder.obstacle`).
    """

    alive: bool
    ready: bool
    why: str
    obstacles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleMemory:
    """The memory of the processes with one role on a host.

    Attributes:
        role: `driver`, `java`, `worker`, `planner` (plans micro-batches), `broker` (the embedded one) or `other`.
        processes: How many there are.
        rss_bytes: Their resident memory; pages that they share count in each.
        pss_bytes: Their proportional memory, in which shared pages count once; None: unknown.
    """

    host: str
    role: str
    processes: int
    rss_bytes: int
    pss_bytes: int | None


@dataclass(frozen=True, slots=True)
class ApplicationMetrics:
    """The metrics of an application at one moment.

    Attributes:
        at_ms: The moment, ms since 1970.
        started_ms: When the totals began to count, ms since 1970.
        readiness: Whether it lives and works.
        sub_topologies: Name -> metrics, in the order of their starts.
    """

    application_id: str
    at_ms: int
    started_ms: int
    readiness: Readiness
    sub_topologies: Mapping[str, SubTopologyMetrics] = field(default_factory=dict)
    processes: tuple[RoleMemory, ...] = ()
