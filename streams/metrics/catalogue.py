"""All metrics that an application serves: name, labels, meaning, and where the values are in its figures.

Prometheus, OpenTelemetry and docs/metrics.md take their metrics from here. Names follow Prometheus: base units, and a counter ends
in `_total` where it is served. Each metric also has the label `app`, the application's id.

The number of series is bounded: a metric with more than `MOST_SERIES` (a topology with hundreds of tasks or partitions) has the
first ones, and all others together as one series with the labels `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from streams.metrics import samples
from streams.metrics.application import ApplicationMetrics
from streams.metrics.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[tuple[str, ...], "float | Histogram"]
"""Values of the labels, and the value."""

MOST_SERIES = 500
OTHER = "other"
"""The labels of all series beyond the bound."""
TASK = ("sub_topology", "task")
PLACE = ("sub_topology", "topic", "partition")
OPERATOR = ("sub_topology", "operator")
STORE = (*TASK, "store")
PROCESS = ("host", "role")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: The name, without `_total`.
        kind: Whether it only grows, is a value of the moment, or counts durations by buckets.
        labels: The labels besides `app`.
        help: The meaning, in a sentence.
        read: The series in an application's figures, in an order that stays the same.
        together: What the series beyond the bound are as one: their sum, or the largest.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    read: Callable[[ApplicationMetrics], Iterable[Sample]]
    together: Literal["sum", "max"] = "sum"

    @property
    def served_name(self) -> str:
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def series(self, app: ApplicationMetrics) -> Iterator[Sample]:
        """The series with `app` in front of their labels, at most `MOST_SERIES` and one."""
        found = list(self.read(app))
        for labels, value in found[:MOST_SERIES]:
            yield (app.application_id, *labels), value
        if rest := [value for _, value in found[MOST_SERIES:]]:
            yield (app.application_id, *[OTHER] * len(self.labels)), _merged(rest, self.together)


def _merged(values: list[float | Histogram], how: str) -> float | Histogram:
    histograms = [value for value in values if isinstance(value, Histogram)]
    if histograms:
        return reduce(Histogram.plus, histograms)
    numbers = [value for value in values if not isinstance(value, Histogram)]
    return max(numbers) if how == "max" else sum(numbers)


METRICS: tuple[Metric, ...] = (
    Metric("streams_ready", "gauge", (), "1 if the application processes records, else 0.", samples.ready),
    Metric(
        "streams_start_time_seconds", "gauge", (), "When its counters began at zero, since 1970.", samples.start_time
    ),
    Metric("streams_tasks", "gauge", ("sub_topology",), "Number of tasks.", samples.task_counts),
    Metric(
        "streams_query_starts",
        "counter",
        ("sub_topology",),
        "Starts of the streaming query: it starts again after a failure, or, with `available_now`, for further input.",
        samples.query_starts,
    ),
    Metric("streams_micro_batches", "counter", ("sub_topology",), "Finished micro-batches.", samples.micro_batches),
    Metric(
        "streams_last_commit_timestamp_seconds",
        "gauge",
        ("sub_topology",),
        "When the last micro-batch was finished, since 1970.",
        samples.last_commits,
        "max",
    ),
    Metric(
        "streams_micro_batch_running_seconds",
        "gauge",
        ("sub_topology",),
        "How long the present micro-batch has been running, with its restores; 0: none runs.",
        samples.running,
        "max",
    ),
    Metric("streams_records_in", "counter", TASK, "Records that reached the task.", samples.task("records_in")),
    Metric("streams_records_out", "counter", TASK, "Records written to output topics.", samples.task("records_out")),
    Metric(
        "streams_changelog_records",
        "counter",
        TASK,
        "Records written to changelogs.",
        samples.task("changelog_records"),
    ),
    Metric("streams_steps", "counter", TASK, "Committed steps.", samples.task("steps")),
    Metric(
        "streams_skipped_steps",
        "counter",
        TASK,
        "Steps that were found committed, after a failed attempt or a restart.",
        samples.task("skipped_steps"),
    ),
    Metric(
        "streams_failed_attempts",
        "counter",
        TASK,
        "Attempts at steps that have failed before one succeeded: a worker died, a commit failed, another process fenced it.",
        samples.task("failed_attempts"),
    ),
    Metric("streams_step_cpu_seconds", "counter", TASK, "CPU time of the steps.", samples.task("cpu_s")),
    Metric(
        "streams_step_duration_seconds",
        "histogram",
        (*TASK, "part"),
        "Duration of steps by part: fence, decide, restore, process, commit, apply, and total.",
        samples.durations,
    ),
    Metric(
        "streams_task_event_time_lag_seconds",
        "gauge",
        TASK,
        "How far the task's stream time is behind the wall clock.",
        samples.task_event_time_lags,
        "max",
    ),
    Metric("streams_lag_records", "gauge", PLACE, "Offsets that are left to read.", samples.lags),
    Metric(
        "streams_event_time_lag_seconds",
        "gauge",
        PLACE,
        "How far the event time of what was read last is behind the wall clock.",
        samples.event_time_lags,
        "max",
    ),
    Metric("streams_operator_records_in", "counter", OPERATOR, "Records received.", samples.operator("records_in")),
    Metric(
        "streams_operator_records_out",
        "counter",
        OPERATOR,
        "Records forwarded; 0 for a sink.",
        samples.operator("records_out"),
    ),
    Metric(
        "streams_dropped_records",
        "counter",
        (*OPERATOR, "reason"),
        "Records dropped by an operator: late, null_key, …, or the stage whose error policy applied.",
        samples.dropped,
    ),
    Metric(
        "streams_skipped_records",
        "counter",
        ("sub_topology", "reason"),
        "Bad records that the error policy `skip` has left out; the reason is the stage.",
        samples.skipped,
    ),
    Metric(
        "streams_dead_letters",
        "counter",
        (*OPERATOR, "reason"),
        "Records sent to a dead letter topic: by the error policy of a stage, or by an operator after its retries.",
        samples.dead_letters,
    ),
    Metric(
        "streams_one_by_one_records",
        "counter",
        (*OPERATOR, "reason"),
        "Records processed one by one by an operator that can process them together.",
        samples.one_by_one,
    ),
    Metric(
        "streams_operator_events",
        "counter",
        (*OPERATOR, "event"),
        "Further counts of an operator: calls, retries and failures of an `enrich`.",
        samples.operator_events,
    ),
    Metric(
        "streams_operator_call_seconds",
        "counter",
        OPERATOR,
        "Total duration of the calls of an `enrich`.",
        samples.call_seconds,
    ),
    Metric("streams_state_rows", "gauge", STORE, "Rows of a store, estimated.", samples.state("rows")),
    Metric(
        "streams_state_bytes", "gauge", STORE, "Bytes of a store's keys and values, estimated.", samples.state("bytes")
    ),
    Metric(
        "streams_state_disk_bytes", "gauge", TASK, "Bytes of the files of the task's stores.", samples.state_on_disk
    ),
    Metric(
        "streams_restore_offsets",
        "gauge",
        STORE,
        "Changelog offsets that the store's last restore reads from its beginning to its end, also while it runs.",
        samples.restores("offsets"),
    ),
    Metric(
        "streams_restore_remaining_offsets",
        "gauge",
        STORE,
        "Those of them that are left to read; 0: the restore has ended.",
        samples.restores("remaining"),
    ),
    Metric(
        "streams_restore_read_records",
        "gauge",
        STORE,
        "Changelog records that the store's last restore has read so far.",
        samples.restores("records"),
    ),
    Metric(
        "streams_restored_records", "counter", TASK, "Changelog records read to restore.", samples.restored("records")
    ),
    Metric("streams_restored_rows", "counter", TASK, "Rows written by restores.", samples.restored("rows")),
    Metric("streams_restored_bytes", "counter", TASK, "Bytes read to restore.", samples.restored("bytes")),
    Metric(
        "streams_restored_copies",
        "counter",
        TASK,
        "Restores that began with a snapshot or a replica's copy.",
        samples.restored("copies"),
    ),
    Metric("streams_restore_seconds", "counter", TASK, "Time spent to restore.", samples.restored("seconds")),
    Metric("streams_processes", "gauge", PROCESS, "Processes.", samples.memory("processes")),
    Metric(
        "streams_memory_rss_bytes",
        "gauge",
        PROCESS,
        "Resident memory of the processes; shared pages count in each.",
        samples.memory("rss_bytes"),
    ),
    Metric(
        "streams_memory_pss_bytes",
        "gauge",
        PROCESS,
        "Proportional memory of the processes on the driver's host; shared pages count once.",
        samples.memory("pss_bytes"),
    ),
)
"""All metrics, in the order in which they are served."""
