"""Reads one offset range in a Spark worker: Kafka, the head, rows for the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from state.kafka.reader import shared_reader
from streams.runtime.head import Head
from streams.runtime.rows import encode
from streams.spark.job import load_job
from streams.spark.salts import task_salts
from streams.spark.source import RangePartition, TickPartition

ROW_SCHEMA = pa.schema(
    [
        ("task_key", pa.int32()),
        ("batch", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("topic_id", pa.string()),
        ("counters", pa.string()),
        ("partition_time", pa.string()),
        ("global_topics", pa.string()),
        ("payload", pa.binary()),
        ("backlog", pa.bool_()),
    ]
)
"""`streams.spark.source.SPARK_SCHEMA` in Arrow's words; the order and the types must be the same."""

CHUNK_RECORDS = 100_000
"""Records read at once: large enough for vectorised work, small enough for a few tens of MB of memory."""


def read_range(payload: bytes, partition: RangePartition) -> Iterator[pa.RecordBatch]:
    """Rows of `ROW_SCHEMA` for one range.

    The last one has no payload: it carries the head's counters (and the partition time, where an extractor asks for it)
    to the task that reports this partition's progress, which so runs even if no record is for it. Nor have the rows for tasks
    that must be called because another attempt may have had rows for them: those that `Head.touched` names, and all tasks where
    an earlier run has logged the batch, since another program or other settings may have stood behind its attempts. A task
    that has committed and is not called again would not know in its next step what it finds in the commits topic.
    """
    job = load_job(payload)
    offsets = partition.offsets
    salts = task_salts(job.tasks)
    head = Head(job.sub, job.tasks, job.settings)
    place = (offsets.topic, offsets.partition)
    if partition.time is not None:
        head.partition_times[place] = partition.time
    reader = shared_reader(job.client, offsets.topic, offsets.partition, offsets.start, bulk=job.bulk_io)
    for columns in reader.read(offsets.end, CHUNK_RECORDS):
        for task, rows in head.run(columns):
            yield _row(salts[task], partition, encode(rows))
    for task in sorted(head.touched):
        yield _row(salts[task], partition, None)
    counters = orjson.dumps(head.counters).decode()
    time = None if partition.time is None else head.partition_times.get(place, partition.time)
    yield _row(salts[job.owner(offsets.partition)], partition, None, counters, time)
    if partition.repeated:
        for salt in salts:
            yield _row(salt, partition, None)


def read_tick(payload: bytes, tick: TickPartition) -> Iterator[pa.RecordBatch]:
    """Rows of `ROW_SCHEMA` that have every task called; they are of no topic."""
    for salt in task_salts(load_job(payload).tasks):
        yield _batch(
            task_key=salt,
            batch=tick.batch,
            topic="",
            # A null among them would make floats of all the offsets that pandas shows to the task.
            partition=0,
            first=0,
            last=0,
            global_topics=tick.global_topics,
            backlog=tick.backlog,
        )


def _row(
    key: int, partition: RangePartition, payload: bytes | None, counters: str | None = None, time: int | None = None
) -> pa.RecordBatch:
    offsets = partition.offsets
    return _batch(
        task_key=key,
        batch=partition.batch,
        topic=offsets.topic,
        partition=offsets.partition,
        first=offsets.start,
        last=offsets.end,
        topic_id=partition.topic_id,
        counters=counters,
        partition_time=None if time is None else str(time),
        global_topics=partition.global_topics,
        payload=payload,
        backlog=partition.backlog,
    )


def _batch(**values: Any) -> pa.RecordBatch:
    """One row, as a batch; what is not given is null."""
    arrays = [pa.array([values.get(field.name)], type=field.type) for field in ROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)
