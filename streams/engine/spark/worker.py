"""The code that Spark's Python workers run: readers of planned ranges, and the function for each task and micro-batch.

A query's job reaches them as bytes inside the data source and the task function, never as a data source option: options appear
in plans and in the Spark UI, and client properties may contain secrets.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

from state.commit.decide import Decision
from state.commit.marker import MarkerCopy
from state.commit.step import StepResult
from state.restore.task_stores import TaskStateManager, worker_memory
from state.secrets import remember
from streams.engine.graph import values
from streams.engine.live.slot import LiveJob, LiveSub, run_slot
from streams.engine.source.offsets import topics_from_json
from streams.engine.spark.shuffle import COLUMNS, shuffle_keys
from streams.engine.step.global_tables import count_global_tables, global_stores
from streams.engine.step.job import QueryJob
from streams.engine.step.read import (
    PlannedCall,
    PlannedPartition,
    PlannedRange,
    StepRows,
    TaskRow,
    call_every_task,
    range_records,
    read_range,
)
from streams.engine.step.step import (
    BatchContext,
    count_copy,
    figures_of,
    log_failed_attempt,
    restored,
    run_step,
    step_events,
    task_step,
)
from streams.lake.writer import arrow_schema, row_batch
from streams.logs.json_lines import set_context
from streams.logs.output import LogSettings, set_up_worker
from streams.metrics.application import StepFigures
from streams.metrics.reports import Tell, encoded, reports_to
from streams.model.table_columns import RowLayout

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

log = logging.getLogger(__name__)


def start_workers(session: SparkSession, sql: bool) -> None:
    """Starts the daemon and a worker in the background, by a job without results, while the queries are prepared.

    A failure has no consequences.

    Args:
        session: The session.
        sql: Whether the queries will be SQL. Spark starts SQL workers with other variables, and so from another daemon.
    """

    def start() -> None:
        try:
            if sql:
                session.range(1, numPartitions=1).mapInArrow(_nothing, "id BIGINT").collect()
            else:
                session.sparkContext.parallelize([], 1).mapPartitions(_nothing).collect()
        except Exception as error:
            log.debug("the workers start with the first tasks: %s", error)

    threading.Thread(target=start, name="start-workers", daemon=True).start()


def _nothing(rows: Iterator[Any]) -> Iterator[Any]:
    for _ in rows:
        pass
    return iter(())


def dump_job(job: QueryJob) -> bytes:
    """The job as bytes. Functions and classes of the user that cannot be imported, such as those of `__main__`, go by value."""
    return values.dump_job(job)


def job_of_worker(data: bytes) -> QueryJob:
    """Returns the job of one of Spark's Python tasks, and freezes the heap at the task's start.

    Spark runs `gc.collect()` after every task. Objects that have survived the last collection (modules that steps import, kernels,
    jobs, clients) live as long as the worker, so they are frozen: walking them took a twelfth of a worker's CPU under load.
    """
    gc.freeze()
    return load_job(data)


@lru_cache(maxsize=16)
def load_job(data: bytes) -> QueryJob:
    """Restores the job that `dump_job` wrote, once for each process."""
    job: QueryJob = values.load_job(data)
    remember(job.client)
    set_up_worker(job.logs, job.settings.application_id, job.sub.name)
    return job


_ARROW_TYPES = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
}
ROW_SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in COLUMNS])

CHUNK_RECORDS = 25_000
"""Records read at once: enough for vectorised work, and no more than a few MB of memory in each process and in Java."""


def read_partition(payload: bytes, planned: PlannedPartition) -> Iterator[pa.RecordBatch]:
    """Yields rows of `ROW_SCHEMA` for one partition of a micro-batch."""
    job = job_of_worker(payload)
    set_context(sub_topology=job.sub.name, task=None)
    keys_of_tasks = shuffle_keys(job.tasks)
    if isinstance(planned, PlannedCall):
        rows = call_every_task(job, planned)
    else:
        pieces = range_records(
            job.client,
            planned.offsets,
            CHUNK_RECORDS,
            max_bytes=job.source.max_bytes,
            bulk=job.bulk_io,
            prefetch_bytes=job.memory.prefetch_bytes,
        )
        rows = read_range(job, planned, pieces)
    for row in rows:
        yield _batch(keys_of_tasks[row.task], row)


def _batch(task_key: int, row: TaskRow) -> pa.RecordBatch:
    values = [task_key, *(getattr(row, name) for name in ROW_SCHEMA.names[1:])]
    arrays = [pa.array([value], type=column.type) for value, column in zip(values, ROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)


@dataclass(frozen=True)
class RowsJob:
    """How the rows of a lake sink are read. The fields are as in `QueryJob`."""

    layout: RowLayout
    client: Mapping[str, str] = field(repr=False)
    bulk_io: bool
    prefetch_bytes: int
    logs: LogSettings
    application_id: str
    sink: str


ROWS_AT_ONCE = 10_000
"""Rows decoded at once: a few MB of Python objects."""


def read_rows(payload: bytes, planned: Sequence[PlannedPartition]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the planned ranges. A sink has no tasks, so a call of every task adds no rows."""
    job = rows_job(payload)
    schema = arrow_schema(job.layout)
    for one in planned:
        if not isinstance(one, PlannedRange):
            continue
        pieces = range_records(
            job.client,
            one.offsets,
            ROWS_AT_ONCE,
            max_bytes=None,  # Spark writes rows as they come
            bulk=job.bulk_io,
            prefetch_bytes=job.prefetch_bytes,
        )
        for records in pieces:
            yield row_batch(records, job.layout, schema)


@lru_cache(maxsize=16)
def rows_job(payload: bytes) -> RowsJob:
    job: RowsJob = cloudpickle.loads(payload)
    remember(job.client)
    set_up_worker(job.logs, job.application_id, job.sink)
    return job


STATE_SCHEMA = "marker BINARY, offset BIGINT"
REPORT_SCHEMA = "report STRING"
BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""Spark puts all jobs of a query into a job group named by the query's run id. Each start is a run of its own."""


def task_function(payload: bytes) -> Any:
    """Returns the function for `applyInPandasWithState` that runs a job (`dump_job`)."""
    return partial(_run, payload)


def _run(
    payload: bytes, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    job = job_of_worker(payload)
    task = shuffle_keys(job.tasks).index(int(key[0]))
    set_context(sub_topology=job.sub.name, task=task)
    started, cpu = time.perf_counter(), time.process_time()
    with reports_to(job.restore_reports) as tell:
        result, figures, events = _step(job, task, frames, state, tell)
    marker = result.copy.marker
    state.update((result.copy.data, result.copy.offset))
    job.crash.reach("before_report", task, marker.version)
    spent, cpu_s = round(time.perf_counter() - started, 6), round(time.process_time() - cpu, 6)
    message = {"report": replace(figures, total_s=spent, cpu_s=cpu_s), "events": events}
    # The driver imports this module and never needs pandas.
    import pandas as pd

    yield pd.DataFrame({"report": [encoded(message).decode()]})
    job.crash.reach("report_given", task, marker.version)


def _step(
    job: QueryJob, task: int, frames: Iterable[pd.DataFrame], state: GroupState, tell: Tell | None
) -> tuple[StepResult, StepFigures, list[Mapping[str, Any]]]:
    """Runs one step with the real Kafka and the worker's disk. Returns its result, its report, and its events."""
    context = TaskContext.get()
    assert context is not None
    identity = job.identity(task, str(context.getLocalProperty(QUERY_ID)))
    batch = BatchContext(
        int(context.getLocalProperty(BATCH_ID) or -1),
        state.getCurrentProcessingTimeMs(),
        str(context.getLocalProperty(RUN_ID)),
    )
    step, kafka, stores = task_step(job, identity, worker_memory().compared, tell=tell)

    def tables(ends: Mapping[str, Any]) -> Mapping[str, Any]:
        return global_stores(job, topics_from_json(ends), kafka, batch.now_ms)

    known = state.getOption
    copy = MarkerCopy(bytes(known[0]), int(known[1])) if known else None
    rows: Iterator[Any] = chain.from_iterable(frame.itertuples(index=False) for frame in frames)
    # Fencing waits for the broker while decoding the rows uses the processor, so both run at once.
    step.start_fencing(copy)
    try:
        result, given = run_step(job, step, batch, rows, copy, tables, kafka.topics)
    except Exception as error:
        log_failed_attempt(identity, context.attemptNumber(), batch.batch_id, error)
        raise
    finally:
        step.close()
    count_copy(stores.report, given.counters)
    if result.decision is not Decision.SKIP:
        count_global_tables(job, topics_from_json(given.global_topics), given.counters)
    given.counters.add_all(result.counters)
    figures = _figures(task, result, given, stores, context.attemptNumber())
    return result, figures, step_events(context.attemptNumber(), batch.batch_id, stores.report)


def _figures(task: int, result: StepResult, given: StepRows, stores: TaskStateManager, attempt: int) -> StepFigures:
    marker = result.copy.marker
    return figures_of(
        marker,
        stores,
        marker.counts,
        given.counters,
        result.seconds,
        given.event_times,
        task=task,
        batch_id=marker.batch_id,
        decision=result.decision.value,
        attempt=attempt,
        restore=restored(stores.report),
    )


def dump_live_job(job: LiveJob) -> bytes:
    subs = [(dump_job(sub.job), sub.query_id, sub.start) for sub in job.subs]
    dumped: bytes = cloudpickle.dumps((replace(job, subs=()), subs))
    return dumped


@lru_cache(maxsize=4)
def _live_job(payload: bytes) -> LiveJob:
    job: LiveJob
    job, subs = cloudpickle.loads(payload)
    return replace(job, subs=tuple(LiveSub(load_job(data), query_id, start) for data, query_id, start in subs))


def run_live(payload: bytes, lease: int, slots: int, slot: int) -> None:
    """Runs a slot of live tasks until its lease ends.

    Args:
        payload: The bytes of `dump_live_job`.
        lease: The number of the lease.
        slots: How many slots the lease has.
        slot: The number of the slot.
    """
    gc.freeze()
    context = TaskContext.get()
    assert context is not None
    run_slot(replace(_live_job(payload), slots=slots), slot, context.attemptNumber(), lease)
