"""A query's job as bytes, for Spark's Python processes.

The bytes travel inside the data source and the task function, never as a data source option: options appear in plans and
in the Spark UI, and client properties may contain secrets.
"""

from __future__ import annotations

import gc
from functools import lru_cache

from state.secrets import remember
from streams.logs.output import set_up_worker
from streams.microbatch.job import QueryJob
from streams.runtime import values


def dump_job(job: QueryJob) -> bytes:
    """The job as bytes; users' functions and classes that cannot be imported, such as those of `__main__`, go by value."""
    return values.dump_job(job)


def job_of_worker(data: bytes) -> QueryJob:
    """The job of a Python task of Spark, at its beginning.

    Spark runs `gc.collect()` after every task. What has survived the last one (modules that steps import, kernels, jobs, clients)
    lives as long as the worker, so it is frozen: walking it took a twelfth of a worker's CPU under load.
    """
    gc.freeze()
    return load_job(data)


@lru_cache(maxsize=16)
def load_job(data: bytes) -> QueryJob:
    """The job that `dump_job` wrote, decoded once per process."""
    job: QueryJob = values.load_job(data)
    remember(job.client)
    set_up_worker(job.logs, job.settings.application_id, job.sub.name)
    return job
