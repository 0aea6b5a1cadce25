"""The streaming queries of sub-topologies: their start, their supervision with restarts, and readable errors when they fail."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming import StreamingQuery

from state.errors import ClientFailure
from state.secrets import mask
from streams.driver.checkpoint_files import checkpoint_of_query
from streams.driver.progress import Progress, position_of, sub_of
from streams.driver.reports import BrokerWatch
from streams.driver.source import source_class
from streams.driver.stopping import DRAIN_S, Query, StopGate, gated
from streams.engine.source.offsets import SourceOffsets
from streams.engine.spark.worker import REPORT_SCHEMA, STATE_SCHEMA, dump_job, task_function
from streams.engine.step.job import QueryJob
from streams.errors import ApplicationFailedError, SinkUnavailableError
from streams.logs.events import NO_EVENTS, QUERY_RESTARTED, Events

Report = Mapping[str, Any]
"""The message of a task about its step (`streams.metrics.reports`): its `report`, and the `events` in it."""


def start_query(
    session: SparkSession,
    job: QueryJob,
    checkpoint_dir: str,
    trigger: Mapping[str, Any],
    on_begin: Callable[[], object],
    on_reports: Callable[[int, list[Report]], None],
    gate: StopGate,
    source_class: Callable[[QueryJob], type[DataSource]] = source_class,
) -> StreamingQuery:
    """Starts the query of a sub-topology: source, shuffle by task, the task function, and reports back to the driver."""
    source = source_class(job)
    session.dataSource.register(source)
    # Spark captures this setting when the query starts and fixes it in the checkpoint: one shuffle partition for each task.
    session.conf.set("spark.sql.shuffle.partitions", str(job.tasks))
    steps = (
        session.readStream.format(source.name())
        .load()
        .groupBy("task_key")
        .applyInPandasWithState(task_function(dump_job(job)), REPORT_SCHEMA, STATE_SCHEMA, "append", "NoTimeout")
    )

    def collect(frame: DataFrame, batch_id: int) -> None:
        on_begin()
        on_reports(batch_id, [orjson.loads(row.report) for row in frame.collect()])

    return (
        steps.writeStream.queryName(f"{job.settings.application_id}/{job.sub.name}")
        .outputMode("append")
        .option("checkpointLocation", checkpoint_of_query(checkpoint_dir, job.sub.name))
        .trigger(**trigger)
        .foreachBatch(gated(gate, collect))
        .start()
    )


_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Exit|Interrupt)): (.+)$")
_OF_SPARK = ("Py4J", "PySpark", "Python", "StreamingQuery", "Spark")
_WORKER_DID_NOT_START = "Python worker failed to connect back"
_WORKER_DIED = "Python worker exited unexpectedly"
# An executor was lost, and with it the readers' output for tasks. Some of these tasks were done. The micro-batch is repeated.
_LOST_HALFWAY = "A shuffle map stage with indeterminate output was failed and retried"
# Py4J's form of the first exception, after the line of its own that ends with "calling o123.collectToPython."
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[a-z]\w*\.)*([A-Z]\w+: .+)$")
_PLACE = "=== Streaming Query ==="
# As `streams.engine.graph.handlers.description` writes them.
_RECORD = re.compile(r"record at (?P<topic>[\w.-]+)-(?P<partition>\d+) offset (?P<offset>\d+)(?:, key (?P<key>.+?),)? ")
_NODE = re.compile(r" in node '(?P<node>[^']+)' of task (?P<task>\S+):")


def readable(failure: BaseException) -> ApplicationFailedError:
    """The innermost Python error that Spark reports, as one sentence without secrets; without one, Spark's own message."""
    if did_not_start(failure):
        return ApplicationFailedError(
            f"a Python process of Spark did not start within the 10 seconds that Spark gives it, {START_TRIES} times: the machine "
            "is too busy. Nothing was read or written; start again"
        )
    text = mask(str(failure))
    found = [match for line in text.splitlines() if (match := _PYTHON_ERROR.match(line.strip()))]
    # Java's class names match the same pattern, but their packages begin like a domain.
    ours = [
        m for m in found if not m.group(1).startswith(_OF_SPARK) and not m.group(0).startswith(("java", "org.", "com."))
    ]
    if ours:
        name, message = ours[-1].groups()
        return ApplicationFailedError(f"{name}: {message}", cause=name, **_record_in(message))
    if _WORKER_DIED in text:
        fatal = next((line.strip() for line in text.splitlines() if "Fatal Python error" in line), "no trace was left")
        return ApplicationFailedError(
            f"a Python worker process died in every attempt of a task ({_WORKER_DIED}; {fatal}): killed for lack of memory, "
            "ended by a function of the topology, or crashed in native code. Nothing half-done is visible"
        )
    return ApplicationFailedError(_innermost(text))


def _record_in(message: str) -> dict[str, Any]:
    """The place of the record that a worker's error is about. Spark passes on only text, and log lines have the place as fields."""
    found: dict[str, Any] = {}
    if record := _RECORD.search(message):
        found |= {name: value for name, value in record.groupdict().items() if value is not None}
        found |= {"partition": int(record["partition"]), "offset": int(record["offset"])}
    if node := _NODE.search(message):
        found |= node.groupdict()
    return found


def _innermost(text: str) -> str:
    """The last cause in a Java stack trace, or else the first paragraph, as one line, because Delta breaks its sentences."""
    causes = [match.group(1) for line in text.splitlines() if (match := _JAVA_CAUSE.match(line.strip()))]
    lines = text.partition(_PLACE)[0].strip().splitlines()
    paragraph = takewhile(lambda line: line.strip() and not line.strip().startswith(("at ", "Traceback")), lines)
    return causes[-1] if causes else " ".join(line.strip() for line in paragraph) or text


def passes(failure: BaseException) -> bool:
    """Whether the last error of a query is a transient failure, such as an unreachable broker or database."""
    if _LOST_HALFWAY in str(failure) or isinstance(failure, SinkUnavailableError):
        return True
    said = readable(failure)
    if vars(said).get("cause") == SinkUnavailableError.__name__:
        return True
    found = ClientFailure.in_text(str(said))
    return found is not None and found.transient


def did_not_start(failure: BaseException | None) -> bool:
    """Whether a query ended because Spark could not start a Python process in time, before any work was done."""
    return failure is not None and _WORKER_DID_NOT_START in str(failure)


POLL_S = 0.25
START_TRIES = 18
"""The most starts of a query. Spark gives a new Python process 10 s to connect, which is fixed in its code, and a busy machine may
miss that. No work has been done by then. The process needs half a second of CPU, so this is about three minutes."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


@dataclass
class RestartSchedule:
    """The schedule of restarts after transient failures of a query.

    Attributes:
        wait_s: How long the query may fail without any progress in between.
        failed: When the first of these failures occurred; None: there was none.
        due: When the query is restarted; None: it is running.
        pause_s: The length of the next pause.
        attempts: The number of starts of the query since it last made progress, including the first one.
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
        self.failed, self.pause_s, self.attempts = None, FIRST_PAUSE_S, 1

    def given_up(self, now: float) -> bool:
        return self.failed is not None and now - self.failed >= self.wait_s


@dataclass
class _Supervised:
    """One query: how to start it, its current run, and its outcome."""

    start: Callable[[], Query]
    query: Query
    schedule: RestartSchedule
    seen: Any = None
    ended: bool = False
    failure: BaseException | None = None


@dataclass
class Supervisor:
    """Runs queries until all have ended, one has failed for good, or they should stop.

    Attributes:
        gates: The gates that stop the queries, by `runId`.
        wait_s: How long queries may fail because brokers or the store of a sink are away.
        clock: A monotonic clock, in seconds.
        on_started: Called once all queries have been started.
        is_over: Returns whether the queries should end although nothing has failed, because others will replace them.
    """

    stop: threading.Event
    gates: MutableMapping[Any, StopGate]
    progress: Progress
    watch: BrokerWatch
    wait_s: float
    clock: Callable[[], float] = time.monotonic
    on_started: Callable[[], object] = lambda: None
    events: Events = NO_EVENTS
    is_over: Callable[[], bool] = lambda: False
    _start_tries: int = field(default=START_TRIES, init=False)

    def run(self, starts: Sequence[Callable[[], Query]]) -> dict[str, SourceOffsets]:
        """Starts queries and waits for them to end; the first permanent failure stops the others.

        Raises:
            ApplicationFailedError: A query has failed.
        """
        queries = [_Supervised(start, start(), RestartSchedule(self.wait_s)) for start in starts]
        self.on_started()
        try:
            while not self.stop.is_set():
                for one in queries:
                    self._look(one)
                if any(one.failure for one in queries) or all(one.ended for one in queries) or self.is_over():
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
        """Updates a query's progress and outcome."""
        last = self.gates[one.query.runId].progress(one.query)
        if last is not None and last != one.seen:
            one.seen = last
            one.schedule.progressed()
            self.progress.metrics.obstacle(f"query {one.query.name}", None)
            self.watch.alive()
            self.progress.query(one.query.lastProgress)
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
        elif one.schedule.due is None:
            if one.schedule.failed is None:
                self.progress.say(f"{one.query.name} starts again by itself after: {readable(failure)}")
            self.progress.metrics.obstacle(f"query {one.query.name}", f"{one.query.name} has failed and starts again")
            one.schedule.fail(now)
            self.watch.doubt()
        elif one.schedule.given_up(now):
            one.failure = failure
        elif now >= one.schedule.due and self.watch.answers:
            one.schedule.due = None
            try:
                one.query = one.start()
            except SinkUnavailableError:  # it could not even be opened
                one.schedule.fail(now)
            else:
                self._tell_restart(one, failure)

    def _tell_restart(self, one: _Supervised, failure: BaseException) -> None:
        name, reason = str(one.query.name), readable(failure)
        message = f"{name} was started again (attempt {one.schedule.attempts}) after: {reason}"
        self.events.emit(
            QUERY_RESTARTED, message, name.partition("/")[2], attempt=one.schedule.attempts, reason=str(reason)
        )

    def _error(self, one: _Supervised, failure: BaseException) -> ApplicationFailedError:
        error = readable(failure)
        if one.schedule.failed is None:
            return error
        return ApplicationFailedError(
            f"{error}. It has failed like this for {self.wait_s:g} s (setting broker_wait_ms). Nothing is lost: start the "
            f"application again once the brokers or the store are back",
            **vars(error),
        )

    def _end(self, queries: Sequence[Query]) -> None:
        for query in queries:
            self.gates[query.runId].close()
        for query in queries:
            if query.isActive:
                # No micro-batch can finish while its brokers are away.
                self.gates[query.runId].stop(query, 0.0 if self.watch.away else DRAIN_S)
            self.progress.query(query.lastProgress)
