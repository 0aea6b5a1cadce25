"""The function that Spark calls once for each task and micro-batch (`applyInPandasWithState`), as thin as can be."""

# ruff: noqa: D102 - members of protocols are described where they are implemented
from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import orjson
import pandas as pd
from pyspark import TaskContext

from state.commit.decide import TaskIdentity
from state.commit.live import LiveKafka
from state.commit.marker import CommitMarker, MarkerCopy
from state.commit.step import CommitStep, StepInput, StepResult
from state.restore.task_stores import TaskStores
from state.stores.task_store import TaskStore
from streams.runtime.counters import Counters
from streams.runtime.rows import RowBatch, decode
from streams.runtime.task import StepOutput, StreamTask
from streams.source.offsets import topics_from_json
from streams.source.partition_times import remember
from streams.spark.global_tables import global_stores
from streams.spark.job import QueryJob, load_job
from streams.spark.salts import task_salts

STATE_SCHEMA = "marker BINARY, offset BIGINT"
REPORT_SCHEMA = "report STRING"
BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""Spark puts all jobs of a query into a group that is called as the run of the query: each start is a run of its own."""


class GroupState(Protocol):
    """What is used of pyspark's GroupState."""

    @property
    def getOption(self) -> tuple[Any, ...] | None: ...
    def update(self, newValue: tuple[Any, ...]) -> None: ...
    def getCurrentProcessingTimeMs(self) -> int: ...


@dataclass
class TaskInput:
    """The rows of one task in one micro-batch, taken apart."""

    batch: str = ""
    ranges: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    partition_times: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    global_topics: dict[str, Any] = field(default_factory=dict)
    batches: list[RowBatch] = field(default_factory=list)
    backlog: bool = False

    @classmethod
    def of(cls, frames: Iterable[pd.DataFrame]) -> TaskInput:
        """Reads all rows; their order does not matter."""
        found = cls()
        for frame in frames:
            rows: Iterator[Any] = frame.itertuples(index=False)
            for row in rows:
                found.batch = row.batch
                found.backlog |= bool(row.backlog)
                if row.global_topics is not None and not found.global_topics:
                    found.global_topics = orjson.loads(row.global_topics)
                if not row.topic:
                    continue  # a tick, which brings nothing
                found.topic_ids[row.topic] = row.topic_id
                found.ranges.setdefault(row.topic, {})[str(row.partition)] = (int(row.first), int(row.last))
                if row.payload is not None:
                    found.batches.append(decode(row.payload))
                for name, count in orjson.loads(row.counters or "{}").items():
                    found.counters.add(name, count)
                if row.partition_time is not None:
                    found.partition_times[row.topic, int(row.partition)] = (int(row.last), int(row.partition_time))
        return found

    def owned_offsets(self, job: QueryJob, task: int) -> dict[tuple[str, int], int]:
        """New offsets of the source partitions whose progress this task reports."""
        return {
            (topic, int(partition)): last
            for topic, of in self.ranges.items()
            for partition, (_, last) in of.items()
            if job.owner(int(partition)) == task
        }


def task_function(payload: bytes) -> Any:
    """What `applyInPandasWithState` gets for a job (`QueryJob.dumps`)."""
    return partial(_run, payload)


def _run(
    payload: bytes, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    job = load_job(payload)
    task = task_salts(job.tasks).index(int(key[0]))
    started, cpu = time.perf_counter(), time.process_time()
    context = TaskContext.get()
    assert context is not None
    batch_id = int(context.getLocalProperty(BATCH_ID) or -1)
    identity = job.identity(task, str(context.getLocalProperty(QUERY_ID)))
    start = str(context.getLocalProperty(RUN_ID))
    result, given = run_step(job, identity, batch_id, frames, state, start)
    state.update((result.copy.data, result.copy.offset))
    marker = result.copy.marker
    job.crash.reach("before_report", task, marker.version)
    for name, count in result.counters.items():
        given.counters.add(name, count)
    report = {
        "task": task,
        "version": marker.version,
        "batch_id": batch_id,
        "decision": result.decision.value,
        "counts": dict(marker.counts),
        "counters": given.counters,
        "stream_time": marker.stream_time,
        "seconds": {name: round(s, 6) for name, s in result.seconds.items()},
        "total_s": round(time.perf_counter() - started, 6),
        "cpu_s": round(time.process_time() - cpu, 6),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    yield pd.DataFrame({"report": [orjson.dumps(report).decode()]})


def run_step(
    job: QueryJob,
    identity: TaskIdentity,
    batch_id: int,
    frames: Iterable[pd.DataFrame],
    state: GroupState,
    start: str,
) -> tuple[StepResult, TaskInput]:
    """One step: Spark's rows and copy in, the new copy out. `start` names the run of the query."""
    kafka = LiveKafka(job.client, job.transaction_timeout_ms, bulk=job.bulk_io)
    now_ms = state.getCurrentProcessingTimeMs()
    specs = [node.spec for node in job.sub.stores.values()]
    stores = TaskStores(kafka, identity, specs, job.state_dir, job.spill_bytes, now_ms=now_ms)
    step = CommitStep(identity, kafka, stores, job.crash)
    # Fencing waits for the broker, taking the rows apart needs the processor: both at once.
    step.start_fencing()
    given = TaskInput.of(frames)
    known = state.getOption

    def process(store: TaskStore, last: CommitMarker | None) -> StepOutput:
        operator_state = dict(last.operator_state) if last else {}
        ends = given.global_topics
        tables = global_stores(job, topics_from_json(ends), kafka.begin_offset, now_ms)
        task = StreamTask(job.sub, identity.task, store, operator_state, job.settings, tables)
        output = task.process(given.batches, now_ms, start, given.backlog)
        remember(output.operator_state, given.partition_times)
        return output

    result = step.run(
        StepInput(
            batch_id, given.batch, given.ranges, given.owned_offsets(job, identity.task), given.topic_ids, now_ms
        ),
        MarkerCopy(bytes(known[0]), int(known[1])) if known else None,
        process,
    )
    return result, given
