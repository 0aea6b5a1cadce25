"""One step of one task, its report, and the host on which it ran."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from state.changelog import note_needed
from state.commit.decide import TaskIdentity
from state.commit.live import LiveKafka
from state.commit.marker import CommitMarker, MarkerCopy
from state.commit.step import CommitStep, StepInput, StepResult
from state.errors import FencedError
from state.kafka.topics import TopicPartition
from state.restore.plan import Action
from state.restore.restorer import RestoreReport, StoreReport, UnlessOver
from state.restore.task_stores import TaskStateManager
from state.stores.task_store import TaskStore, open_task_store
from state.tables.open_tables import open_tables
from state.tables.rocks_common import rocks_settings
from streams.engine.graph.outputs import OutputTopics
from streams.engine.graph.settings import RESTORED_FROM_COPY, Counters
from streams.engine.source.partition_times import with_partition_times
from streams.engine.step.job import QueryJob
from streams.engine.step.read import Row, StepRows
from streams.engine.task.task import StepOutput, StreamTask
from streams.logs.events import ATTEMPT_FAILED, FENCED, RESTORED, RETRIED, EventKind, Events
from streams.logs.json_lines import error_fields
from streams.metrics.application import PartitionTime, RestoreFigures, StateSize, StepFigures, StoreSize
from streams.metrics.memory import about_this_process
from streams.metrics.reports import RestoreReporter, Tell

# --- The step: from rows and Spark's copy of the marker to the new copy

GlobalStores = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Logged ends of the topics of global tables, as JSON -> typed stores by name."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What Spark knows about the micro-batch."""

    batch_id: int
    now_ms: int
    start: str


class TaskAccess(NamedTuple):
    """A task's step, and the Kafka and stores that it uses."""

    step: CommitStep
    kafka: LiveKafka
    stores: TaskStateManager


def task_step(
    job: QueryJob,
    identity: TaskIdentity,
    compared: dict[tuple[str, TopicPartition], str] | None = None,
    is_over: Callable[[], bool] | None = None,
    tell: Tell | None = None,
) -> TaskAccess:
    """Makes a task's step for the real Kafka and this host's disk. A restore is reported to `tell`, and stops once `is_over`."""
    reporter = RestoreReporter(tell, job.sub.name) if tell is not None else None
    kafka = LiveKafka(
        job.client, job.transaction_timeout_ms, bulk=job.bulk_io, outputs=job.outputs, query_id=identity.query_id
    )
    stores = TaskStateManager(
        kafka,
        identity,
        [node.spec for node in job.sub.stores.values()],
        job.state_dir,
        job.spill_bytes,
        listener=reporter if is_over is None else UnlessOver(is_over, reporter),
        # An earlier attempt may hold the store until its transaction has timed out.
        lock_timeout_s=job.transaction_timeout_ms / 1000,
        open_store=partial(open_task_store, kept=open_tables()),
        trim_delay_ms=job.trim_delay_ms,
        settings=rocks_settings(job.memory.cache_bytes),
        snapshots=job.snapshots,
        replica_dir=job.replica_dir,
    )
    return TaskAccess(CommitStep(identity, kafka, stores, job.crash, compared), kafka, stores)


def step_process(
    job: QueryJob,
    task: int,
    batch: BatchContext,
    given: StepRows,
    global_stores: GlobalStores,
    topics: OutputTopics | None = None,
) -> Callable[[TaskStore, CommitMarker | None], StepOutput]:
    """Returns the function that processes a step's rows, given the stores and the marker of the step before."""

    def process(store: TaskStore, last: CommitMarker | None) -> StepOutput:
        state = with_partition_times(last.operator_state if last else {}, given.partition_times)
        tables = global_stores(given.global_topics)
        stream_task = StreamTask(job.sub, task, store, state, job.settings, tables, topics)
        halfway = partial(job.crash.reach, "process_halfway", task, (last.version if last else 0) + 1)
        output = stream_task.process(given.batches, batch.now_ms, batch.start, given.backlog, halfway)
        note_needed(output.operator_state, state, store.trim_offsets, batch.now_ms, job.trim_delay_ms)
        return output

    return process


def run_step(
    job: QueryJob,
    step: CommitStep,
    batch: BatchContext,
    rows: Iterable[Row],
    copy: MarkerCopy | None,
    global_stores: GlobalStores,
    topics: OutputTopics | None = None,
) -> tuple[StepResult, StepRows]:
    """Runs the step.

    Raises:
        StreamsError: The attempt is over.
    """
    given = StepRows.of(rows)
    task = step.identity.task
    step_input = StepInput(
        batch_id=batch.batch_id,
        batch=given.batch,
        ranges=given.ranges,
        offsets=job.owned_offsets(given.ranges, task),
        topic_ids=given.topic_ids,
        now_ms=batch.now_ms,
        routing=given.routing,
        keyed_by=job.sub.keyed_by,
    )
    return step.run(step_input, copy, step_process(job, task, batch, given, global_stores, topics)), given


# --- Events of a step, for the report that goes from the worker to the driver: plain data, since the report is JSON.


def step_events(attempt: int, batch_id: int, restored: RestoreReport | None) -> list[Mapping[str, Any]]:
    return [*_restored(restored), *_retried(attempt, batch_id)]


def log_failed_attempt(
    identity: TaskIdentity, attempt: int, batch_id: int, error: Exception, transactional_id: str | None = None
) -> None:
    """Logs that an attempt has failed: it has no report, and Spark shows its reason only if the last attempt fails, too.

    The transactional id of its producer is the task's own, unless one is given.
    """
    fenced = isinstance(error, FencedError)
    ids = {"transactional_id": transactional_id or identity.transactional_id} if fenced else {}
    Events(identity.application_id).emit(
        FENCED if fenced else ATTEMPT_FAILED,
        f"attempt {attempt + 1} of {identity} {'was fenced' if fenced else 'has failed'}: {error}",
        identity.sub_topology,
        identity.task,
        **ids,
        attempt=attempt + 1,
        batch_id=batch_id,
        error=error_fields(error),
    )


def _restored(report: RestoreReport | None) -> Iterator[Mapping[str, Any]]:
    if report is None:
        return
    restored = [store for store in report.stores if store.action is not Action.NOTHING]
    if not restored and not report.copy:
        return
    rows, source = sum(store.rows for store in report.stores), report.copy or "changelog"
    yield event_of(
        RESTORED,
        f"task {report.task} has restored {rows:,} rows from {source} ({report.records:,} changelog records) in "
        f"{report.seconds:.1f} s{_why(restored)}",
        source=source,
        stores={store.store: store.action.value for store in restored},
        reasons={store.store: store.reason for store in restored},
        records=report.records,
        rows=rows,
        bytes=report.bytes,
        seconds=round(report.seconds, 3),
    )


def _why(restored: Sequence[StoreReport]) -> str:
    """Explains why stores were read from the start; empty if none was."""
    reasons = dict.fromkeys(store.reason for store in restored if store.action is Action.FROM_START)
    return f" from the start: {'; '.join(reasons)}" if reasons else ""


def _retried(attempt: int, batch_id: int) -> Iterator[Mapping[str, Any]]:
    if attempt > 0:
        what = "live execution" if batch_id < 0 else f"micro-batch {batch_id}"
        yield event_of(
            RETRIED,
            f"{what} needed attempt {attempt + 1} of this task: see the workers' log lines before",
            attempt=attempt + 1,
            batch_id=batch_id,
        )


def figures_of(
    marker: CommitMarker,
    stores: TaskStateManager,
    counts: Mapping[str, int],
    counters: Mapping[str, int],
    seconds: Mapping[str, float],
    event_times: Mapping[TopicPartition, int],
    **own: Any,
) -> StepFigures:
    """Makes the report of a step with this marker, or of several live steps that end with it. `own` are further fields."""
    size = stores.size
    sizes = {} if size is None else {name: StoreSize(*of) for name, of in size.stores.items()}
    return StepFigures(
        version=marker.version,
        records_in=counts["in"],
        records_out=counts["out"],
        changelog_records=counts["changelog"],
        event_time_ms=marker.stream_time if marker.stream_time >= 0 else None,
        counters=dict(counters),
        seconds={name: round(spent, 6) for name, spent in seconds.items()},
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        event_times=tuple(PartitionTime(*place, time_ms) for place, time_ms in event_times.items()),
        state=None if size is None else StateSize(size.disk_bytes, sizes),
        **{**about_this_process(), **own},
    )


def event_of(kind: EventKind, message: str, **fields: Any) -> Mapping[str, Any]:
    return {"event": kind.name, "message": message, "fields": fields}


def restored(done: RestoreReport | None) -> RestoreFigures | None:
    """What a step had to read to bring its local stores to the marker; None if nothing."""
    if done is None or not (done.records or done.copy):
        return None
    how, records = "rolled forward by", f"{done.records:,} changelog records"
    if done.copy:
        how = f"taken over from {done.copy}, then"
    elif any(store.action is Action.FROM_START for store in done.stores):
        how = "restored from"
    rows = sum(store.rows for store in done.stores)
    return RestoreFigures(done.records, rows, done.bytes, int(bool(done.copy)), done.seconds, f"{how} {records}")


def count_copy(done: RestoreReport | None, counters: Counters) -> None:
    """Counts a restore that used a copy."""
    if done is not None and done.copy:
        counters.add(RESTORED_FROM_COPY, 1)


# --- Which host runs each task: reported with every step and when a live task is opened, so that the driver sees a task move.
#
# Local state makes a host the right place for a task. Spark prefers the executor that has loaded its own copy of the
# task's state (`StateStoreCoordinator`), and takes another one if that executor has no free core within
# `spark.locality.wait`, or has ended. A task that has moved first brings the local stores there to its marker: that is the cost of
# a move.

SAY_EVERY_S = 10.0
"""The least time between two lines about moves of the same task, s. The counter has all of them."""


class TaskHosts:
    """The host where each task ran last.

    Args:
        clock: A monotonic clock, in seconds.

    Attributes:
        lines: Messages about moves, for the caller to take.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.lines: list[str] = []
        self._clock = clock
        self._hosts: dict[tuple[str, int], str] = {}
        self._said: dict[tuple[str, int], float] = {}

    def moved(self, sub: str, task: int, host: str, restore: RestoreFigures | None) -> bool:
        """Notes where a task runs and what it has restored there, and returns whether it has moved."""
        if not host:
            return False
        key, now = (sub, task), self._clock()
        before = self._hosts.setdefault(key, host)
        self._hosts[key] = host
        if before != host and now - self._said.get(key, -SAY_EVERY_S) >= SAY_EVERY_S:
            self._said[key] = now
            how = restore.how if restore else "its state was there"
            self.lines.append(f"task {task} moved from {before} to {host}: {how}")
        return before != host
