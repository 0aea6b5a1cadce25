"""Reads a planned partition: records through the head of the sub-topology, as rows for the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

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

    The last row has no payload: it carries the head's counters and event time (and the partition time, where an extractor needs
    it) to the task that reports this partition's progress, which therefore runs even without records. Rows without payload also
    go to the tasks that must be called because another attempt may have had rows for them (`ReaderPipeline.touched`).
    """
    offsets = planned.offsets
    head = ReaderPipeline(job.sub, job.tasks, job.settings)
    if planned.now_ms is not None:
        head.now_ms = planned.now_ms
    place = (offsets.topic, offsets.partition)
    if planned.time is not None:
        head.partition_times[place] = planned.time

    row = partial(
        TaskRow,
        batch=planned.batch,
        topic=offsets.topic,
        partition=offsets.partition,
        first=offsets.start,
        last=offsets.end,
        topic_id=planned.topic_id,
        global_topics=planned.global_topics,
        backlog=planned.backlog,
    )
    records = 0
    for columns in pieces:
        records += len(columns)
        for task, rows in head.run(columns):
            yield row(task, payload=encode(rows))
    for task in sorted(head.touched):
        yield row(task)
    routings = head.routings()
    for task in range(job.tasks) if planned.repeated and job.sub.keyed_by else routings:
        yield row(task, routing=f"{records} {routings.get(task, NO_KEYS)}")
    counters = orjson.dumps(head.counters).decode()
    time = None if planned.time is None else str(head.partition_times.get(place, planned.time))
    newest = head.event_time(*place)
    event_time = None if newest is None else str(newest)
    yield row(job.owner(offsets.partition), counters=counters, partition_time=time, event_time=event_time)


def call_every_task(job: QueryJob, call: PlannedCall) -> Iterator[TaskRow]:
    """Rows that cause every task to be called; they have no topic."""
    for task in range(job.tasks):
        yield TaskRow(task, call.batch, global_topics=call.global_topics, backlog=call.backlog)
