"""The supervisor: waits for an application's queries to end, and restarts those with a transient failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from streams.errors import ApplicationFailedError
from streams.logs.events import NO_EVENTS, Events
from streams.logs.kinds import QUERY_RESTARTED
from streams.source.offsets import SourceOffsets
from streams.spark.broker_watch import BrokerWatch
from streams.spark.failure import did_not_start, passes, readable
from streams.spark.progress import Progress, position_of, sub_of
from streams.spark.stopping import DRAIN_S, StopGate

POLL_S = 0.25
START_TRIES = 4
"""Starts of a query, at most: Spark gives a new Python process 10 s to connect, which a busy machine may miss. No work has
been done by then."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


@dataclass
class Retry:
    """The schedule of restarts after transient failures of a query.

    Attributes:
        wait_s: How long the query may fail without any progress in between.
        failed: When the first of these failures occurred; None: none.
        due: When the query is restarted; None: it is running.
        pause_s: The length of the next pause.
        attempts: The starts of the query since it last made progress, the first one included.
    """

    wait_s: float
    failed: float | None = None
    due: float | None = None
    pause_s: float = FIRST_PAUSE_S
    attempts: int = 1

    def fail(self, now: float) -> None:
        """Notes a failure: a pause begins, longer than the last one."""
        if self.due is None:
            self.failed = now if self.failed is None else self.failed
            self.due = now + self.pause_s
            self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
            self.attempts += 1

    def progressed(self) -> None:
        """Notes progress, which ends the series of failures."""
        self.failed, self.pause_s, self.attempts = None, FIRST_PAUSE_S, 1

    def given_up(self, now: float) -> bool:
        """Whether the query has failed for too long."""
        return self.failed is not None and now - self.failed >= self.wait_s


@dataclass
class _Supervised:
    """One query: how to start it, its present run, and its outcome."""

    start: Callable[[], StreamingQuery]
    query: StreamingQuery
    retry: Retry
    seen: Any = None
    ended: bool = False
    failure: BaseException | None = None


@dataclass
class Supervisor:
    """Runs queries until all have ended, one has failed for good, or they are to stop.

    Attributes:
        stop: Set when the queries are to stop.
        gates: The gates that stop the queries, by `runId`.
        progress: The progress display.
        watch: Knows whether the brokers answer.
        wait_s: How long queries may fail because brokers are away.
        clock: A monotonic clock, in seconds.
        on_started: Called once all queries have been started.
        events: Gets restarts.
    """

    stop: threading.Event
    gates: MutableMapping[Any, StopGate]
    progress: Progress
    watch: BrokerWatch
    wait_s: float
    clock: Callable[[], float] = time.monotonic
    on_started: Callable[[], object] = lambda: None
    events: Events = NO_EVENTS
    _start_tries: int = field(default=START_TRIES, init=False)

    def run(self, starts: Sequence[Callable[[], StreamingQuery]]) -> dict[str, SourceOffsets]:
        """Starts queries and waits for them to end; the first permanent failure stops the others.

        Raises:
            ApplicationFailedError: A query has failed.
        """
        queries = [_Supervised(start, start(), Retry(self.wait_s)) for start in starts]
        self.on_started()
        try:
            while not self.stop.is_set():
                for one in queries:
                    self._look(one)
                if any(one.failure for one in queries) or all(one.ended for one in queries):
                    break
                self.stop.wait(POLL_S)
        finally:
            self._end([one.query for one in queries])
        if not self.stop.is_set():
            for one in queries:
                if one.failure is not None:
                    raise self._error(one, one.failure) from one.failure
        last = [one.query.lastProgress for one in queries]
        return {sub_of(progress): position for progress in last if (position := position_of(progress)) is not None}

    def _look(self, one: _Supervised) -> None:
        """Takes in a query's progress and outcome since the last call."""
        last = one.query.lastProgress
        if last is not None and last != one.seen:
            one.seen = last
            one.retry.progressed()
            self.progress.metrics.obstacle(f"query {one.query.name}", None)
            self.watch.alive()
            self.progress.query(last)
        if one.query.isActive:
            return
        failure = one.query.exception()
        if failure is None:
            one.ended = True
            return
        now = self.clock()
        if did_not_start(failure) and self._start_tries > 1:
            self._start_tries -= 1
            one.query = one.start()
        elif not passes(failure) or self.wait_s <= 0:
            one.failure = failure
        elif one.retry.due is None:
            if one.retry.failed is None:
                self.progress.say(f"{one.query.name} starts again by itself after: {readable(failure)}")
            self.progress.metrics.obstacle(f"query {one.query.name}", f"{one.query.name} has failed and starts again")
            one.retry.fail(now)
            self.watch.doubt()
        elif one.retry.given_up(now):
            one.failure = failure
        elif now >= one.retry.due and self.watch.answers:
            one.retry.due = None
            one.query = one.start()
            self._tell_restart(one, failure)

    def _tell_restart(self, one: _Supervised, failure: BaseException) -> None:
        name, reason = str(one.query.name), readable(failure)
        said = f"{name} was started again (attempt {one.retry.attempts}) after: {reason}"
        self.events.emit(QUERY_RESTARTED, said, name.partition("/")[2], attempt=one.retry.attempts, reason=str(reason))

    def _error(self, one: _Supervised, failure: BaseException) -> ApplicationFailedError:
        error = readable(failure)
        if one.retry.failed is None:
            return error
        return ApplicationFailedError(
            f"{error}. It has failed like this for {self.wait_s:g} s (setting broker_wait_ms). Nothing is lost: start the "
            f"application again once the brokers are back"
        )

    def _end(self, queries: Sequence[StreamingQuery]) -> None:
        for query in queries:
            self.gates[query.runId].close()
        for query in queries:
            if query.isActive:
                # No micro-batch can finish while its brokers are away.
                self.gates[query.runId].stop(query, 0.0 if self.watch.away else DRAIN_S)
            self.progress.query(query.lastProgress)
