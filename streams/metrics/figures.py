"""The figures of a step: plain data that a worker measures and reports with the step's result row, and nothing else does.

A step is one task's part of a micro-batch. The worker's report is JSON (`streams.spark.task_function`); `StepFigures.of` reads it.
All classes here are frozen and hold plain values, so `orjson.dumps(figures)` writes them as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
        disk_bytes: The bytes of the files in the task's folder, those of RocksDB included.
        stores: Store -> its size.
    """

    disk_bytes: int
    stores: Mapping[str, StoreSize]


@dataclass(frozen=True, slots=True)
class RestoreFigures:
    """What a step has restored before it could begin.

    Attributes:
        records: Changelog records read.
        rows: Rows written.
        bytes: Bytes of the keys and values read.
        copies: 1 if the restore began with a snapshot or a replica's copy, else 0.
        seconds: How long it took.
    """

    records: int = 0
    rows: int = 0
    bytes: int = 0
    copies: int = 0
    seconds: float = 0.0

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
    """The figures of one step of one task.

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
        counters: Counts by flat names (`streams.runtime.counters`); those of readers are with the task that reports the partition.
        seconds: The duration of each of `PARTS` that the step had.
        total_s: The duration of the step as a whole, with decoding its rows.
        cpu_s: The CPU time of it.
        attempt: How many attempts of Spark's task had failed before this one: their worker died, another process fenced them, a
            commit failed.
        host: Where the step ran.
        pid: The worker process.
        rss_bytes: The resident memory of the worker now.
        peak_rss_bytes: The largest resident memory that the worker ever had.
        event_times: The event times of the topic-partitions that the task reports.
        state: The size of the task's state; None: not measured at this step.
        restore: What the step has restored; None: nothing.
    """

    task: int
    version: int
    batch_id: int
    decision: str
    records_in: int
    records_out: int
    changelog_records: int
    event_time_ms: int | None
    counters: Mapping[str, int]
    seconds: Mapping[str, float]
    total_s: float
    cpu_s: float
    attempt: int = 0
    host: str = ""
    pid: int = 0
    rss_bytes: int = 0
    peak_rss_bytes: int = 0
    event_times: tuple[PartitionTime, ...] = ()
    state: StateSize | None = None
    restore: RestoreFigures | None = None

    @property
    def skipped(self) -> bool:
        """Whether the step was committed already."""
        return self.decision == SKIPPED

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> StepFigures:
        """The figures in a worker's report."""
        counts, time = report["counts"], report["stream_time"]
        return cls(
            task=report["task"],
            version=report["version"],
            batch_id=report.get("batch_id", -1),
            decision=report["decision"],
            records_in=counts["in"],
            records_out=counts["out"],
            changelog_records=counts["changelog"],
            event_time_ms=time if time >= 0 else None,
            counters=report["counters"],
            seconds=report["seconds"],
            total_s=report["total_s"],
            cpu_s=report["cpu_s"],
            attempt=report.get("attempt", 0),
            host=report.get("host", ""),
            pid=report.get("pid", 0),
            rss_bytes=report.get("rss_bytes", 0),
            peak_rss_bytes=report.get("peak_rss_mb", 0) * 2**20,
            event_times=tuple(PartitionTime(*one) for one in report.get("event_times", ())),
            state=_state(report.get("state")),
            restore=RestoreFigures(**report["restore"]) if report.get("restore") else None,
        )


@dataclass(frozen=True, slots=True)
class MicroBatchFigures:
    """The figures of a micro-batch: what a metrics listener is called with.

    Attributes:
        application_id: The application.
        sub_topology: The sub-topology's name.
        batch_id: The micro-batch's number.
        at_ms: When the driver had the figures, ms since 1970.
        steps: The steps of its tasks. A task without rows has none.
    """

    application_id: str
    sub_topology: str
    batch_id: int
    at_ms: int
    steps: tuple[StepFigures, ...] = field(default=())

    @property
    def records_in(self) -> int:
        """Records that reached the tasks, without those of steps that were committed already."""
        return sum(step.records_in for step in self.steps if not step.skipped)

    @property
    def records_out(self) -> int:
        """Records written to output topics, without those of steps that were committed already."""
        return sum(step.records_out for step in self.steps if not step.skipped)


def _state(data: Mapping[str, Any] | None) -> StateSize | None:
    if data is None:
        return None
    return StateSize(data["disk_bytes"], {name: StoreSize(*of) for name, of in data["stores"].items()})
