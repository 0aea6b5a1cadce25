"""An object like a Spark query that runs the leases of live execution: a thread, with a Spark job for each lease.

A job without SQL begins seconds earlier than a streaming query: nothing is planned and no checkpoint is written, and a slot has no
Spark state that another host would need.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark import InheritableThread, SparkContext

_ENDS_WITHIN_S = 10.0
"""How long a cancelled job may take to end, s: Spark kills its Python processes after two."""
_NO_SCOPES = "spark.rdd.scope.noOverride"
"""The local property that makes `org.apache.spark.rdd.RDDOperationScope` name no operations. Spark would write each name as JSON,
for the graph on its page, but a lease is one operation. The first JSON loads hundreds of Java's classes at each start."""


class LiveQuery:
    """The part of `pyspark.sql.streaming.StreamingQuery` that the engine uses.

    Args:
        context: The Spark context, in which the leases run as jobs of one group.
        name: The name of the query, which Spark's page shows with each job.
        leases: Runs the leases; returns once they should stop, and raises the error if one fails.
    """

    lastProgress = None
    """Spark's own progress is about micro-batches, and there are none."""
    status: Mapping[str, Any] = {"isDataAvailable": True}
    """A lease is always busy: a caller that stops the query waits until the lease has ended."""

    def __init__(self, context: SparkContext, name: str, leases: Callable[[], None]) -> None:
        self._context = context
        self._leases = leases
        self._failure: Exception | None = None
        self._stopped = False
        self.name = name
        self.runId = str(uuid.uuid4())
        # With the properties of the thread that starts it, such as a pool of Spark's scheduler.
        self._thread = InheritableThread(target=self._run, name="live-query", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        """Whether leases run."""
        return bool(self._thread.is_alive())

    def exception(self) -> Exception | None:
        """The error that has ended the query; None: there is none, or it was stopped."""
        return self._failure

    def stop(self) -> None:
        """Cancels the lease that still runs, and waits for its end."""
        self._stopped = True
        if self.isActive:
            self._context.cancelJobGroup(self.runId)
            self._thread.join(_ENDS_WITHIN_S)

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self.runId, self.name, interruptOnCancel=True)
            self._context.setLocalProperty(_NO_SCOPES, "true")
            self._leases()
        except Exception as error:
            if not self._stopped:
                self._failure = error


def run_lease(context: SparkContext, most: int, slots: int, run: Callable[[int], None]) -> None:
    """Runs a lease until all of its slots have ended.

    Args:
        context: The Spark context.
        most: The largest number of slots that there may ever be. Each has a task, so that Spark's dynamic allocation sees how many
            could run. Tasks beyond the slots of this lease return at once, or wait for a core until the lease ends.
        slots: The number of slots in this lease.
        run: Runs a slot, given its number, in a worker.
    """

    def task(number: int, _: Iterator[int]) -> Iterator[None]:
        if number < slots:
            run(number)
        return iter(())

    # An empty partition for each task.
    context.parallelize([], most).mapPartitionsWithIndex(task).collect()
