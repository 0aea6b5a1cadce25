"""The figures of an application, as the driver has them at one moment: frozen plain data.

Totals count from the start of the process that runs the application (the driver) and never fall while it lives: a query that starts
again after a failure continues them. A new process begins at zero, like the counters of any program that Prometheus scrapes. A step
whose worker died after its commit, before its report, is counted with the attempt that finds the commit: its numbers of records
are those of the commit marker, while the counts of operators that run in tasks are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streams.metrics.figures import RestoreFigures, StateSize, StepFigures
from streams.metrics.histogram import Histogram
from streams.metrics.operators import NodeMetrics, by_stage, node_metrics

WHOLE_STEP = "total"
"""The name among the parts of a step for the step as a whole."""


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """The figures of one task.

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
        last: Its last step.
        state: The size of its state when it was last measured; None: not yet.
        restored: What it has restored.
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
        """Whether a step's numbers of records are new: a committed step that is found again may have been reported before."""
        return not step.skipped or (self.version is not None and step.version > self.version)

    def after(self, step: StepFigures) -> TaskMetrics:
        """The figures after one more step."""
        new = self.counts(step)
        durations = dict(self.durations)
        for part, seconds in (*step.seconds.items(), (WHOLE_STEP, step.total_s)):
            durations[part] = durations.get(part, Histogram()).with_one(seconds)
        return TaskMetrics(
            version=step.version,
            steps=self.steps + (not step.skipped),
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
    """The figures of a topic-partition that a sub-topology reads.

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

    def at(self, position: int, end: int) -> PartitionMetrics:
        """The figures with another position."""
        return replace(self, position=position, end=end)


@dataclass(frozen=True, slots=True)
class StoreRestore:
    """How far the last restore of a store is.

    Attributes:
        offsets: The changelog offsets that it reads from its beginning to its end; the number of records is at most that.
        remaining: Those that are left to read; 0: it has ended.
        records: The changelog records that it has read so far.
    """

    offsets: int
    remaining: int
    records: int = 0


@dataclass(frozen=True, slots=True)
class SubTopologyMetrics:
    """The figures of one sub-topology.

    Attributes:
        task_count: How many tasks it has.
        topics: The topics that it reads.
        batch_id: Its last finished micro-batch; -1: none since the start.
        micro_batches: Finished micro-batches.
        starts: Starts of its query.
        committed_ms: When its last micro-batch was finished, ms since 1970; None: none since the start.
        running_since_ms: When the micro-batch that runs now has begun, ms since 1970; None: none runs.
        counters: Counts by flat names (`streams.runtime.counters`).
        tasks: Its tasks that have had a step since the start.
        partitions: (topic, partition) -> position and lag.
        restores: (task, store) -> its last restore, also while it runs; known where the figures are served.
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
        """Records that reached its tasks."""
        return sum(task.records_in for task in self.tasks.values())

    @property
    def records_out(self) -> int:
        """Records written to output topics."""
        return sum(task.records_out for task in self.tasks.values())

    @property
    def changelog_records(self) -> int:
        return sum(task.changelog_records for task in self.tasks.values())

    @property
    def lag(self) -> int | None:
        """Offsets that are left to read; None: not known yet."""
        known = [lag for one in self.partitions.values() if (lag := one.lag) is not None]
        return sum(known) if known else None

    @property
    def running_restores(self) -> tuple[StoreRestore, ...]:
        """The restores that have not ended."""
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
    """

    alive: bool
    ready: bool
    why: str


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory of the processes with one role on a host.

    Attributes:
        host: The host.
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
    """The figures of an application at one moment.

    Attributes:
        application_id: The application.
        at_ms: The moment, ms since 1970.
        started_ms: When the figures began to count, ms since 1970.
        readiness: Whether it lives and works.
        sub_topologies: Name -> figures, in the order of their starts.
        processes: The memory of its processes.
    """

    application_id: str
    at_ms: int
    started_ms: int
    readiness: Readiness
    sub_topologies: Mapping[str, SubTopologyMetrics] = field(default_factory=dict)
    processes: tuple[ProcessMemory, ...] = ()
