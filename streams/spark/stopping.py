"""Stops a query between two micro-batches.

Spark's own `stop` interrupts the batch that runs: nothing is lost by that (its committed steps are skipped when it runs
again), but tasks are killed as they write, and log pages of it. So the next batch is held where the driver is asked
for its results, which is before any of its tasks have started; then Spark is told to stop, and the held batch ends with
the words by which Spark knows an interruption. It runs anew at the next start.
"""

from __future__ import annotations

import threading
import time

from pyspark.sql.streaming import StreamingQuery

DRAIN_S = 8.0
"""How long the running micro-batch may take to end before it is interrupted after all."""
_HOLD_S = 120.0
"""How long a held micro-batch waits for its query to be stopped: others may be stopped before it."""
_POLL_S = 0.05
# In py4j's own message these words stand so far apart that Spark's search for them ends in a StackOverflowError.
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"


class BatchInterruptedError(Exception):
    """A stop has interrupted a micro-batch, or kept it from starting. It runs again at the next start."""

    def __init__(self) -> None:
        super().__init__(_INTERRUPTED)


class StopGate:
    """Where the micro-batches of one query pass by, and are held once it is to be stopped."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._holds = threading.Event()
        self._stopped: StreamingQuery | None = None

    @property
    def closed(self) -> bool:
        """Whether the query is being stopped, so that a failing micro-batch is no error."""
        return self._closed.is_set()

    def close(self) -> None:
        """No further micro-batch starts from here on."""
        self._closed.set()

    def enter(self) -> None:
        """Called by Spark's thread at the beginning of each micro-batch.

        Raises:
            BatchInterruptedError: The gate is closed.
        """
        if self._closed.is_set():
            self._holds.set()
            # Only once Spark knows that it stops does it take an interruption for one.
            deadline = time.monotonic() + _HOLD_S
            while not self._spark_knows() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            raise BatchInterruptedError

    def _spark_knows(self) -> bool:
        """A query ceases to be active before its thread is interrupted and waited for."""
        return self._stopped is not None and not self._stopped.isActive

    def stop(self, query: StreamingQuery, drain_s: float = DRAIN_S) -> None:
        """Closes the gate, waits for the running micro-batch (`drain_s` at most), and stops the query."""
        self.close()
        deadline = time.monotonic() + drain_s
        while query.isActive and not self._holds.is_set() and time.monotonic() < deadline:
            if not query.status["isDataAvailable"]:
                break
            time.sleep(_POLL_S)
        self._stopped = query
        query.stop()
