"""Reads a planned partition in a Spark worker: from Kafka, through the head, into rows for Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streams.logs.json_lines import set_context
from streams.microbatch.read import PlannedCall, PlannedPartition, TaskRow, call_every_task, read_range
from streams.source.range_records import range_records
from streams.spark.job import job_of_worker
from streams.spark.row_schema import COLUMNS
from streams.spark.shuffle_keys import shuffle_keys

_ARROW_TYPES = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
}
ROW_SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in COLUMNS])

CHUNK_RECORDS = 25_000
"""Records read at once: large enough for vectorised work, small enough for a few MB of memory in each process and in Java."""


def read_partition(payload: bytes, planned: PlannedPartition) -> Iterator[pa.RecordBatch]:
    """Rows of `ROW_SCHEMA` for one partition of a micro-batch."""
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
    arrays = [pa.array([value], type=field.type) for value, field in zip(values, ROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)
