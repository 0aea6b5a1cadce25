"""Reads a planned partition: records through the head of the sub-topology, as rows for the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from state.commit.marker import NO_KEYS
from state.kafka.columns import RecordColumns
from streams.microbatch.job import QueryJob
from streams.microbatch.partitions import PlannedCall, PlannedRange
from streams.microbatch.rows import TaskRow
from streams.runtime.reader.pipeline import ReaderPipeline
from streams.runtime.rows import encode


def read_range(job: QueryJob, planned: PlannedRange, pieces: Iterable[RecordColumns]) -> Iterator[TaskRow]:
    """Rows for one range.

    The last one has no payload: it carries the head's counters (and the partition time, where an extractor asks for it)
    to the task that reports this partition's progress, which so runs even if no record is for it. Nor have the rows for tasks
    that must be called because another attempt may have had rows for them: those that `ReaderPipeline.touched` names.

    Args:
        job: The query.
        planned: The range.
        pieces: Its records.
    """
    offsets = planned.offsets
    head = ReaderPipeline(job.sub, job.tasks, job.settings)
    if planned.now_ms is not None:
        head.now_ms = planned.now_ms
    place = (offsets.topic, offsets.partition)
    if planned.time is not None:
        head.partition_times[place] = planned.time

    def row(
        task: int,
        payload: bytes | None = None,
        counters: str | None = None,
        time: int | None = None,
        routing: str | None = None,
    ) -> TaskRow:
        return TaskRow(
            task,
            planned.batch,
            offsets.topic,
            offsets.partition,
            offsets.start,
            offsets.end,
            planned.topic_id,
            counters,
            None if time is None else str(time),
            planned.global_topics,
            payload,
            planned.backlog,
            routing,
        )

    records = 0
    for columns in pieces:
        records += len(columns)
        for task, rows in head.run(columns):
            yield row(task, encode(rows))
    for task in sorted(head.touched):
        yield row(task)
    routings = head.routings()
    for task in range(job.tasks) if planned.repeated and job.sub.keyed_by else routings:
        yield row(task, routing=f"{records} {routings.get(task, NO_KEYS)}")
    counters = orjson.dumps(head.counters).decode()
    time = None if planned.time is None else head.partition_times.get(place, planned.time)
    yield row(job.owner(offsets.partition), None, counters, time)


def call_every_task(job: QueryJob, call: PlannedCall) -> Iterator[TaskRow]:
    """Rows that have every task called; they are of no topic."""
    for task in range(job.tasks):
        yield TaskRow(task, call.batch, global_topics=call.global_topics, backlog=call.backlog)
