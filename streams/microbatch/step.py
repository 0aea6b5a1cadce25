"""One step of one task: from rows and Spark's copy of the marker to the new copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from state.changelog.trim import note_needed
from state.commit.marker import CommitMarker, MarkerCopy
from state.commit.step import CommitStep, StepInput, StepResult
from state.stores.task_store import TaskStore
from streams.microbatch.job import QueryJob
from streams.microbatch.rows import Row, TaskInput
from streams.runtime.outputs import OutputTopics
from streams.runtime.task.task import StepOutput, StreamTask
from streams.source.partition_times import with_partition_times

GlobalStores = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Logged ends of the topics of global tables, as JSON -> typed stores by name."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """Spark's facts about the micro-batch.

    Attributes:
        batch_id: Its number.
        now_ms: Its logged time.
        start: Identifies the run of the query.
    """

    batch_id: int
    now_ms: int
    start: str


def run_step(
    job: QueryJob,
    step: CommitStep,
    batch: BatchContext,
    rows: Iterable[Row],
    copy: MarkerCopy | None,
    global_stores: GlobalStores,
    topics: OutputTopics | None = None,
) -> tuple[StepResult, TaskInput]:
    """Runs the step.

    Raises:
        StreamsError: The attempt is over.
    """
    given = TaskInput.of(rows)
    task = step.identity.task

    def process(store: TaskStore, last: CommitMarker | None) -> StepOutput:
        state = with_partition_times(last.operator_state if last else {}, given.partition_times)
        tables = global_stores(given.global_topics)
        stream_task = StreamTask(job.sub, task, store, state, job.settings, tables, topics)
        halfway = partial(job.crash.reach, "process_halfway", task, (last.version if last else 0) + 1)
        output = stream_task.process(given.batches, batch.now_ms, batch.start, given.backlog, halfway)
        note_needed(output.operator_state, state, store.trim_offsets, batch.now_ms, job.trim_delay_ms)
        return output

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
    return step.run(step_input, copy, process), given
