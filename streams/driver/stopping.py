"""Stops an application at Ctrl-C and SIGTERM, and its queries between two micro-batches.

Spark's own `stop` interrupts the running batch. Nothing is lost (committed steps are skipped when the batch runs again),
but tasks are killed while they write, and log pages about it. So the next batch is blocked where Spark asks the driver
for its results, before any of its tasks have started. Then Spark is asked to stop, and the blocked batch fails with the
message by which Spark recognises an interruption. The batch runs at the next start.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from streams.driver.live_query import LiveQuery

Query: TypeAlias = "StreamingQuery | LiveQuery"
"""A Spark query, or the query of live execution."""
DRAIN_S = 8.0
"""How long the running micro-batch may take to finish before it is interrupted after all, seconds."""
_HOLD_S = 120.0
"""How long a blocked micro-batch waits for its query to be stopped, seconds: other queries may be stopped before."""
_POLL_S = 0.05
# In py4j's own message these words are so far apart that Spark's search for them ends in a StackOverflowError.
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"


class BatchInterruptedError(Exception):
    """Raised when a stop interrupts a micro-batch or prevents its start. The micro-batch runs again at the next start."""

    def __init__(self) -> None:
        super().__init__(_INTERRUPTED)


class StopGate:
    """A gate that every micro-batch of a query passes. It blocks them once the query should stop."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._holds = threading.Event()
        self._stopped: Query | None = None

    @property
    def closed(self) -> bool:
        """Whether the query is being stopped, so that the failure of a micro-batch is not an error."""
        return self._closed.is_set()

    def close(self) -> None:
        self._closed.set()

    def enter(self) -> None:
        """Lets a micro-batch pass, or blocks it; called by Spark's thread at the beginning of each micro-batch."""
        if self._closed.is_set():
            self._holds.set()
            # Spark accepts an interruption as such only once the query is no longer active.
            deadline = time.monotonic() + _HOLD_S
            while not self._spark_knows() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            raise BatchInterruptedError

    def _spark_knows(self) -> bool:
        """Whether Spark has begun to stop the query: it is inactive before its thread is interrupted and joined."""
        return self._stopped is not None and not self._stopped.isActive

    def progress(self, query: Query) -> Any:
        """A value that changes whenever the query has made progress; None: it has made none yet."""
        return query.lastProgress

    def stop(self, query: Query, drain_s: float = DRAIN_S) -> None:
        """Closes the gate, waits for the running micro-batch (`drain_s` at most), and stops the query."""
        self.close()
        deadline = time.monotonic() + drain_s
        while query.isActive and not self._holds.is_set() and time.monotonic() < deadline:
            if not query.status["isDataAvailable"]:
                break
            time.sleep(_POLL_S)
        self._stopped = query
        query.stop()


def gated(gate: StopGate, write: Callable[[DataFrame, int], object]) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` whose batches stop at a closed gate."""

    def through(frame: DataFrame, batch_id: int) -> None:
        gate.enter()
        try:
            write(frame, batch_id)
        except Exception:
            if gate.closed:
                raise BatchInterruptedError from None
            raise

    return through


Handler: TypeAlias = "Callable[[int, FrameType | None], Any] | signal.Handlers"

LOOK_FOR_SIGNALS_S = 0.2


@contextmanager
def stopped_by_signals(stop: Callable[[], object], again: Handler = signal.SIG_DFL) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM call `stop` within the block.

    Python handles signals in the main thread only: in other threads the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        stop()
        signal.signal(number, again)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def wait_for(event: threading.Event, timeout: float | None = None) -> bool:
    """Waits for `event`, and runs the handlers of signals while it waits.

    `Event.wait` alone can lose a signal: one that arrives after Python last looked for signals and before the thread
    sleeps interrupts nothing, and its handler would run only after the wait.
    """
    until = None if timeout is None else time.monotonic() + timeout
    while until is None or time.monotonic() < until:
        left_s = LOOK_FOR_SIGNALS_S if until is None else min(LOOK_FOR_SIGNALS_S, until - time.monotonic())
        if event.wait(max(left_s, 0)):
            return True
    return event.is_set()
