"""Reads planned ranges of a sink's internal topic in a Spark worker, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
from pyspark import cloudpickle

from state.secrets import remember
from streams.lake.writer import arrow_schema, row_batch
from streams.logs.output import set_up_worker
from streams.microbatch.read import PlannedPartition, PlannedRange
from streams.source.range_records import range_records
from streams.spark.lake.rows_job import RowsJob

CHUNK_RECORDS = 10_000
"""Rows decoded at once: some MB of Python objects."""


def read_rows(payload: bytes, planned: Sequence[PlannedPartition]) -> Iterator[pa.RecordBatch]:
    """The rows of the planned ranges; a sink has no tasks, so calls of tasks have none."""
    job = _load(payload)
    schema = arrow_schema(job.layout)
    for one in planned:
        if not isinstance(one, PlannedRange):
            continue
        pieces = range_records(
            job.client,
            one.offsets,
            CHUNK_RECORDS,
            max_bytes=None,  # Spark writes rows while it gets them
            bulk=job.bulk_io,
            prefetch_bytes=job.prefetch_bytes,
        )
        for records in pieces:
            yield row_batch(records, job.layout, schema)


@lru_cache(maxsize=16)
def _load(payload: bytes) -> RowsJob:
    job: RowsJob = cloudpickle.loads(payload)
    remember(job.client)
    set_up_worker(job.logs, job.application_id, job.sink)
    return job
