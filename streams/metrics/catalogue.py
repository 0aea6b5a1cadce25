"""All metrics that an application serves: name, labels, meaning, and how to read the values.

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

from streams.metrics.application import ApplicationMetrics, Histogram, NodeMetrics, SubTopologyMetrics, TaskMetrics

Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[tuple[str, ...], "float | Histogram"]
"""Values of the labels, and the value."""
Values = Iterable[Sample]
Read = Callable[[ApplicationMetrics], Values]

MOST_SERIES = 500
OTHER = "other"
"""The labels of all series beyond the bound."""
SUB = ("sub_topology",)
TASK = (*SUB, "task")
PLACE = ("sub_topology", "topic", "partition")
OPERATOR = ("sub_topology", "operator")
STORE = (*TASK, "store")
PROCESS = ("host", "role")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: The name, without `_total`.
        labels: The labels besides `app`.
        read: The series in an application's metrics, in an order that stays the same.
        together: How the series beyond the bound are combined into one: by their sum, or by the largest.
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
        """The series, each with the application's id as the first label: at most `MOST_SERIES`, and one for all others together."""
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


_OWN_METRICS = ("dead_letters", "call_ms")
"""Further counts of operators that have separate metrics."""


def _by_sub(value_of: Callable[[SubTopologyMetrics], float | None]) -> Read:
    return lambda app: (
        ((name,), value) for name, sub in app.sub_topologies.items() if (value := value_of(sub)) is not None
    )


def _tasks(app: ApplicationMetrics) -> Iterator[tuple[str, str, TaskMetrics]]:
    for name, sub in app.sub_topologies.items():
        for number, one in sorted(sub.tasks.items()):
            yield name, str(number), one


def _operators(app: ApplicationMetrics) -> Iterator[tuple[str, str, NodeMetrics]]:
    for name, sub in app.sub_topologies.items():
        for node, one in sorted(sub.operators.items()):
            yield name, node, one


def _named(labels: tuple[str, ...], counts: Iterable[tuple[str, int]]) -> Values:
    return (((*labels, what), count) for what, count in sorted(counts))


def _running(app: ApplicationMetrics) -> Values:
    for name, sub in app.sub_topologies.items():
        yield (name,), 0 if sub.running_since_ms is None else (app.at_ms - sub.running_since_ms) / 1000


def _task(field: str) -> Read:
    return lambda app: (((sub, number), getattr(one, field)) for sub, number, one in _tasks(app))


def _durations(app: ApplicationMetrics) -> Values:
    for sub, number, one in _tasks(app):
        for part, found in one.durations.items():
            yield (sub, number, part), found


def _task_event_time_lags(app: ApplicationMetrics) -> Values:
    for sub, number, one in _tasks(app):
        if one.event_time_ms is not None:
            yield (sub, number), (app.at_ms - one.event_time_ms) / 1000


def _lags(app: ApplicationMetrics) -> Values:
    for name, sub in app.sub_topologies.items():
        for (topic, partition), one in sorted(sub.partitions.items()):
            if one.lag is not None:
                yield (name, topic, str(partition)), one.lag


def _event_time_lags(app: ApplicationMetrics) -> Values:
    for name, sub in app.sub_topologies.items():
        for (topic, partition), one in sorted(sub.partitions.items()):
            if one.event_time_ms is not None:
                yield (name, topic, str(partition)), (app.at_ms - one.event_time_ms) / 1000


def _operator(field: str) -> Read:
    return lambda app: (((sub, node), getattr(one, field)) for sub, node, one in _operators(app))


def _looked_up(app: ApplicationMetrics) -> Values:
    return (((sub, node), one.looked_up) for sub, node, one in _operators(app) if one.looked_up)


def _by_reason(field: str) -> Read:
    """Reads the counts of each operator by reason."""
    return lambda app: (
        sample for sub, node, one in _operators(app) for sample in _named((sub, node), getattr(one, field).items())
    )


def _operator_events(app: ApplicationMetrics) -> Values:
    for sub, node, one in _operators(app):
        yield from _named((sub, node), ((what, n) for what, n in one.other.items() if what not in _OWN_METRICS))


def _call_seconds(app: ApplicationMetrics) -> Values:
    for sub, node, one in _operators(app):
        if "call_ms" in one.other:
            yield (sub, node), one.other["call_ms"] / 1000


def _skipped(app: ApplicationMetrics) -> Values:
    for name, sub in app.sub_topologies.items():
        yield from _named((name,), sub.skipped.items())


def _dead_letters(app: ApplicationMetrics) -> Values:
    """Dead letters by operator. Those of the policies have no operator."""
    for name, sub in app.sub_topologies.items():
        yield from _named((name, ""), sub.dead_letters.items())
    for name, node, one in _operators(app):
        if "dead_letters" in one.other:
            yield (name, node, "retries"), one.other["dead_letters"]


def _state(field: str) -> Read:
    return lambda app: (
        ((sub, number, store), getattr(size, field))
        for sub, number, one in _tasks(app)
        if one.state is not None
        for store, size in sorted(one.state.stores.items())
    )


def _state_on_disk(app: ApplicationMetrics) -> Values:
    for sub, number, one in _tasks(app):
        if one.state is not None:
            yield (sub, number), one.state.disk_bytes


def _restored(field: str) -> Read:
    return lambda app: (((sub, number), getattr(one.restored, field)) for sub, number, one in _tasks(app))


def _restores(field: str) -> Read:
    """Reads a field of the last restore of each store, also while it runs."""
    return lambda app: (
        ((name, str(number), store), getattr(one, field))
        for name, sub in app.sub_topologies.items()
        for (number, store), one in sorted(sub.restores.items())
    )


def _memory(field: str) -> Read:
    return lambda app: (
        ((one.host, one.role), value) for one in app.processes if (value := getattr(one, field)) is not None
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        "streams_ready",
        "gauge",
        (),
        "1 if the application processes records, else 0.",
        lambda app: [((), float(app.readiness.ready))],
    ),
    Metric(
        "streams_start_time_seconds",
        "gauge",
        (),
        "When its counters began at zero, since 1970.",
        lambda app: [((), app.started_ms / 1000)],
    ),
    Metric("streams_tasks", "gauge", SUB, "Number of tasks.", _by_sub(lambda sub: sub.task_count)),
    Metric(
        "streams_query_starts",
        "counter",
        SUB,
        "Starts of the streaming query: it starts again after a failure, or, with `available_now`, for further input.",
        _by_sub(lambda sub: sub.starts),
    ),
    Metric(
        "streams_micro_batches",
        "counter",
        SUB,
        "Finished micro-batches; live, reports of tasks, which make one a second.",
        _by_sub(lambda sub: sub.micro_batches),
    ),
    Metric(
        "streams_last_commit_timestamp_seconds",
        "gauge",
        SUB,
        "Unix time at which the last micro-batch was finished, or a live task last reported its steps.",
        _by_sub(lambda sub: None if sub.committed_ms is None else sub.committed_ms / 1000),
        "max",
    ),
    Metric(
        "streams_micro_batch_running_seconds",
        "gauge",
        SUB,
        "How long the present micro-batch has been running, with its restores, or live tasks have been opening; "
        "0: none.",
        _running,
        "max",
    ),
    Metric("streams_records_in", "counter", TASK, "Records that reached the task.", _task("records_in")),
    Metric("streams_records_out", "counter", TASK, "Records written to output topics.", _task("records_out")),
    Metric("streams_changelog_records", "counter", TASK, "Records written to changelogs.", _task("changelog_records")),
    Metric("streams_steps", "counter", TASK, "Committed steps.", _task("steps")),
    Metric(
        "streams_skipped_steps",
        "counter",
        TASK,
        "Steps that were found committed, after a failed attempt or a restart.",
        _task("skipped_steps"),
    ),
    Metric(
        "streams_failed_attempts",
        "counter",
        TASK,
        "Failed attempts at steps that succeeded later: a worker died, a commit failed, or another process fenced the task.",
        _task("failed_attempts"),
    ),
    Metric("streams_step_cpu_seconds", "counter", TASK, "CPU time of the steps.", _task("cpu_s")),
    Metric(
        "streams_step_duration_seconds",
        "histogram",
        (*TASK, "part"),
        "Duration of steps by part: fence, decide, restore, process, commit, apply, and total.",
        _durations,
    ),
    Metric(
        "streams_task_event_time_lag_seconds",
        "gauge",
        TASK,
        "How far the task's stream time is behind the wall clock.",
        _task_event_time_lags,
        "max",
    ),
    Metric("streams_lag_records", "gauge", PLACE, "Offsets that are left to read.", _lags),
    Metric(
        "streams_event_time_lag_seconds",
        "gauge",
        PLACE,
        "How far the event time of the last record is behind the wall clock.",
        _event_time_lags,
        "max",
    ),
    Metric("streams_operator_records_in", "counter", OPERATOR, "Records received.", _operator("records_in")),
    Metric(
        "streams_operator_records_out",
        "counter",
        OPERATOR,
        "Records forwarded; 0 for a sink.",
        _operator("records_out"),
    ),
    Metric(
        "streams_dropped_records",
        "counter",
        (*OPERATOR, "reason"),
        "Records dropped by an operator: late, null_key, …, or the stage whose error policy applied.",
        _by_reason("dropped"),
    ),
    Metric(
        "streams_join_lookups",
        "counter",
        OPERATOR,
        "Records that a join has looked up on its other side.",
        _looked_up,
    ),
    Metric(
        "streams_join_unmatched",
        "counter",
        (*OPERATOR, "reason"),
        "The lookups that found no match: no_row, no_right_record, null_key, …",
        _by_reason("unmatched"),
    ),
    Metric(
        "streams_skipped_records",
        "counter",
        ("sub_topology", "reason"),
        "Bad records that the error policy `skip` has left out; the reason is the stage.",
        _skipped,
    ),
    Metric(
        "streams_dead_letters",
        "counter",
        (*OPERATOR, "reason"),
        "Records sent to a dead letter topic: by the error policy of a stage, or by an operator after its retries.",
        _dead_letters,
    ),
    Metric(
        "streams_one_by_one_records",
        "counter",
        (*OPERATOR, "reason"),
        "Records processed one by one by an operator that can process them together.",
        _by_reason("one_by_one"),
    ),
    Metric(
        "streams_operator_events",
        "counter",
        (*OPERATOR, "event"),
        "Other counts of an operator: calls, retries and failures of an `enrich`; of a source, records whose times look like "
        "seconds (`in_seconds`) or like micro- or nanoseconds (`in_microseconds`).",
        _operator_events,
    ),
    Metric(
        "streams_operator_call_seconds",
        "counter",
        OPERATOR,
        "Total duration of the calls of an `enrich`.",
        _call_seconds,
    ),
    Metric("streams_state_rows", "gauge", STORE, "Rows of a store, estimated.", _state("rows")),
    Metric("streams_state_bytes", "gauge", STORE, "Bytes of a store's keys and values, estimated.", _state("bytes")),
    Metric("streams_state_disk_bytes", "gauge", TASK, "Bytes of the files of the task's stores.", _state_on_disk),
    Metric(
        "streams_restore_offsets",
        "gauge",
        STORE,
        "Total number of changelog offsets in the store's last restore, or in the current one.",
        _restores("offsets"),
    ),
    Metric(
        "streams_restore_remaining_offsets",
        "gauge",
        STORE,
        "The offsets of this restore that are left to read; 0: the restore has ended.",
        _restores("remaining"),
    ),
    Metric(
        "streams_restore_read_records",
        "gauge",
        STORE,
        "Changelog records that the store's last restore has read so far.",
        _restores("records"),
    ),
    Metric("streams_restored_records", "counter", TASK, "Changelog records read to restore.", _restored("records")),
    Metric("streams_restored_rows", "counter", TASK, "Rows written by restores.", _restored("rows")),
    Metric("streams_restored_bytes", "counter", TASK, "Bytes read to restore.", _restored("bytes")),
    Metric(
        "streams_restored_copies",
        "counter",
        TASK,
        "Restores that began with a snapshot or a replica's copy.",
        _restored("copies"),
    ),
    Metric("streams_restore_seconds", "counter", TASK, "Time spent to restore.", _restored("seconds")),
    Metric("streams_processes", "gauge", PROCESS, "Processes.", _memory("processes")),
    Metric(
        "streams_memory_rss_bytes",
        "gauge",
        PROCESS,
        "Resident memory of the processes; shared pages count in each.",
        _memory("rss_bytes"),
    ),
    Metric(
        "streams_memory_pss_bytes",
        "gauge",
        PROCESS,
        "Proportional memory of the processes on the driver's host; shared pages count once.",
        _memory("pss_bytes"),
    ),
)
"""All metrics, in the order in which they are served."""
