"""The start of Spark's Python workers ahead of the first micro-batch.

The daemon that forks the workers imports what they need, which takes a second or two. Meanwhile Java plans the query and
starts the processes that inspect its source, so both are done at the same time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


def start_workers(session: SparkSession) -> threading.Thread:
    """Starts the daemon and a worker in the background, by a job without results. A failure has no consequences."""
    thread = threading.Thread(target=_run, args=(session,), name="start-workers", daemon=True)
    thread.start()
    return thread


def _run(session: SparkSession) -> None:
    try:
        session.range(1, numPartitions=1).mapInArrow(_nothing, "id BIGINT").collect()
    except Exception as error:
        log.debug("the workers start with the first micro-batch: %s", error)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes the rows and returns none."""
    for _ in batches:
        pass
    return iter(())
