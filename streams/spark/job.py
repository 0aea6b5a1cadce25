"""A query's job as bytes, for Spark's Python processes.

The bytes travel inside the data source and the task function, never as a data source option: options appear in plans and
in the Spark UI, and client properties may contain secrets.
"""

from __future__ import annotations

from functools import lru_cache

from streams.microbatch.job import QueryJob
from streams.runtime import values


def dump_job(job: QueryJob) -> bytes:
    """The job as bytes; users' functions and classes that cannot be imported, such as those of `__main__`, go by value."""
    return values.dump_job(job)


@lru_cache(maxsize=16)
def load_job(data: bytes) -> QueryJob:
    """The job that `dump_job` wrote, decoded once per process."""
    job: QueryJob = values.load_job(data)
    return job
