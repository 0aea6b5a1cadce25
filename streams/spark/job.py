"""A query's job as bytes, for Spark's Python processes.

The bytes travel inside the data source and the task function, never as a data source option: options are shown in plans and
in the Spark UI, and client properties may hold secrets.
"""

from __future__ import annotations

from functools import lru_cache

from pyspark import cloudpickle

from streams.microbatch.job import QueryJob


def dump_job(job: QueryJob) -> bytes:
    """The job as bytes; user functions from `__main__` go by value."""
    data: bytes = cloudpickle.dumps(job)
    return data


@lru_cache(maxsize=16)
def load_job(data: bytes) -> QueryJob:
    """Reads `dump_job` back, once for each process."""
    job: QueryJob = cloudpickle.loads(data)
    return job
