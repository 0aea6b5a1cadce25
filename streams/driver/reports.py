"""Reports that a running application makes by itself: dead letters, pauses, absent brokers, finished steps, running restores."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from pyspark.sql import SparkSession

from state.errors import KafkaClientError, StreamsError
from state.kafka.admin import LateAdmin
from state.kafka.config import ClientConfig
from streams.config import StreamsConfig
from streams.engine.graph.event_time import IN_MICROSECONDS, IN_SECONDS, unit_warning
from streams.engine.source.log import LiveLog
from streams.engine.source.pauses import WHOLE, Pauses, read_pauses
from streams.logs.events import (
    BROKER_AWAY,
    BROKER_BACK,
    DEAD_LETTERS,
    EXECUTION_CHANGED,
    OTHER_UNIT,
    PAUSED,
    RESUMED,
    Events,
)
from streams.metrics.application import MicroBatchFigures

log = logging.getLogger(__name__)
steps_log = logging.getLogger("streams.steps")

INTERVAL_S = 10.0
"""The shortest time between two dead letter events of a sub-topology and a stage: a bad source makes thousands in a second."""
LOOK_S = 5.0
"""How often pauses are looked up."""
QUIET_S = 15.0
"""An idle query reports Spark's "no data" every 10 s; a query that is silent for longer is busy or waiting."""
AGAIN_S = 60.0
"""How often the message that a broker is away is repeated."""
_WATCH_S = 0.5
_REQUEST_S = 5.0
_LOOPBACK = "127.0.0.1"


def log_steps(batch: MicroBatchFigures) -> None:
    """Logs a line for each step of a micro-batch, with all of its metrics; a listener of `MetricsRecorder`.

    A step with records is logged at INFO: most questions are about such steps. A step without records (a tick of the clock, a
    repeated step that was committed already) is logged at DEBUG, because there may be many in a second.
    """
    for step in batch.steps:
        level = logging.INFO if step.records_in and not step.skipped else logging.DEBUG
        if steps_log.isEnabledFor(level):
            about = {"application": batch.application_id, "sub_topology": batch.sub_topology}
            measured = {field.name: getattr(step, field.name) for field in fields(step)}
            message = (
                f"step {step.version}: {step.records_in:,} records in, {step.records_out:,} out, "
                f"{step.changelog_records:,} changelog records in {step.total_s:.3f} s"
            )
            steps_log.log(level, "%s", message, extra={"event": "step", "fields": {**about, **measured}})


@dataclass
class _Unreported:
    """Dead letters that are not reported yet, and the time of the last report."""

    count: int = 0
    reported: float | None = None


class DeadLetterEvents:
    """Counts dead letters by sub-topology and stage, and reports their number since the last event at intervals.

    Args:
        topic: The dead letter topic of the policies; None: there is none. Operators that retry have separate topics.
    """

    def __init__(self, events: Events, topic: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._topic = topic
        self._clock = clock
        self._lock = threading.Lock()
        self._unreported: dict[tuple[str, str], _Unreported] = {}

    def step(self, sub_topology: str, counters: Mapping[str, int]) -> None:
        with self._lock:
            for name, count in counters.items():
                kind, _, stage = name.partition(":")
                if kind == "dead_letters":
                    self._unreported.setdefault((sub_topology, stage), _Unreported()).count += count
        if self._unreported:
            self.report()

    def report(self, *, all_of_them: bool = False) -> None:
        now, due = self._clock(), []
        with self._lock:
            for (sub, stage), one in self._unreported.items():
                if one.count and (all_of_them or one.reported is None or now - one.reported >= INTERVAL_S):
                    due.append((sub, stage, one.count))
                    one.count, one.reported = 0, now
        for sub, stage, count in due:
            where = "" if self._topic is None else f" to {self._topic}"
            records = "1 record was" if count == 1 else f"{count:,} records were"
            message = f"{records} sent{where} as dead letters ({stage}) by {sub}"
            self._events.emit(DEAD_LETTERS, message, sub, topic=self._topic, stage=stage, count=count)


class OtherUnitEvents:
    """Reports, once for each source, that its event times seem to be in another unit than milliseconds."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._reported: set[str] = set()

    def step(self, sub_topology: str, counters: Mapping[str, int]) -> None:
        for name in counters.keys() - self._reported:
            counter, _, source = name.partition(":")
            if counter in (IN_SECONDS, IN_MICROSECONDS):
                self._reported.add(name)
                message = unit_warning(counter, source)
                self._events.emit(
                    OTHER_UNIT, message, sub_topology, source=source, counter=counter, count=counters[name]
                )


_Own = TypeVar("_Own", bound="Background")


class Background:
    """Calls `_turn` regularly within a `with` block. The thread is not joined, because it may be in the middle of a request."""

    def __init__(self, name: str, every_s: float, close: Callable[[], object]) -> None:
        self._name, self._every_s, self._close = name, every_s, close
        self._closed = threading.Event()

    def _turn(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Own) -> _Own:
        threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _run(self) -> None:
        try:
            while not self._closed.wait(self._every_s):
                self._turn()
        finally:
            self._close()


class PauseEvents(Background):
    """Looks for pauses and resumes, from any program (they are records in Kafka: `streams.engine.source.pauses`).

    Args:
        close: Closes the connection of `read`; called by the looking thread after its last look.
        changed: Called after pauses have changed.
    """

    def __init__(
        self,
        application_id: str,
        events: Events,
        read: Callable[[], Pauses],
        close: Callable[[], object] = lambda: None,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__("pause-events", LOOK_S, close)
        self._changed = changed
        self._application_id = application_id
        self._events = events
        self._read = read
        self._known: Mapping[str, int] = {}
        self.execution: str | None = None
        """What `streams execution` asks for, as of the last look; None: nothing."""

    def take(self, pauses: Pauses) -> None:
        """Reports the pauses that have changed since the last call."""
        found = pauses.since_ms
        for name, since_ms in found.items():
            if name not in self._known:
                what, sub = self._named(name)
                message = f"{what} is paused, until: streams resume {self._application_id}"
                self._events.emit(PAUSED, message, sub, since_ms=since_ms)
        for name in self._known:
            if name not in found:
                what, sub = self._named(name)
                self._events.emit(RESUMED, f"{what} continues after a pause", sub)
        if pauses.execution != self.execution:
            said = "as its settings say" if pauses.execution is None else f"with execution={pauses.execution}"
            message = f"the application runs {said} from now on, by: streams execution {self._application_id}"
            self._events.emit(EXECUTION_CHANGED, message, execution=pauses.execution)
        self.execution = pauses.execution
        before, self._known = self._known, found
        if found != before:
            self._changed()

    def paused(self, subs: Iterable[str]) -> list[str]:
        """Which of these sub-topologies were paused at the last look."""
        pauses = Pauses(self._known)
        return [sub for sub in subs if pauses.of(sub) is not None]

    def _turn(self) -> None:
        try:
            self.take(self._read())
        except StreamsError as error:
            log.debug("pauses could not be looked up: %s", error)

    @staticmethod
    def _named(name: str) -> tuple[str, str | None]:
        return ("the application", None) if name == WHOLE else (f"the sub-topology {name}", name)


def pauses_reader(config: StreamsConfig) -> tuple[Callable[[], Pauses], Callable[[], None]]:
    """Two functions: one reads an application's pauses, from any thread, with one connection for all calls; the other closes it."""
    admin = LateAdmin(config.client, _REQUEST_S)
    lock = threading.Lock()

    def read() -> Pauses:
        # Readers of a topic are shared within the process, and each serves one thread at a time.
        with lock:
            return read_pauses(LiveLog(config.client, admin()), config.application_id)

    def close() -> None:
        with lock:
            admin.close()

    return read, close


class BrokerWatch(Background):
    """Checks whether the brokers answer while an application makes no progress, and reports when they do not.

    An unreachable broker is invisible at first: planning and tasks retry for a while, inside Spark. So the driver checks in a
    separate thread: a request to an unreachable broker takes a while, and a stop must not wait for it.

    Args:
        probe: Sends the brokers a request that needs the leaders of all source partitions.
        tell: Called with a sentence while the brokers do not answer, and with None once they do.
        close: Ends the probe; called by the asking thread after its last request.

    Attributes:
        answers: Whether the brokers answered the last request; None: none was sent since the last `doubt`.
    """

    def __init__(
        self,
        probe: Callable[[], object],
        events: Events,
        servers: str,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str | None], object] = lambda why: None,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__("broker-watch", _WATCH_S, close)
        self._tell = tell
        self._probe = probe
        self._events = events
        self._servers = servers
        self._clock = clock
        self._alive = clock()
        self._since: tuple[float, str] | None = None
        self._reported = 0.0
        self.answers: bool | None = None

    @property
    def away(self) -> bool:
        return self._since is not None

    def alive(self) -> None:
        """Notes that a query has made progress, so that the brokers need not be asked."""
        self._alive = self._clock()

    def doubt(self) -> None:
        """Notes that a query seems to have failed because of the brokers: the next check is due at once."""
        self.answers = None

    def due(self) -> bool:
        return self.answers is not True or self._clock() - self._alive > QUIET_S

    def look(self) -> None:
        """Asks the brokers, and reports changes."""
        try:
            self._probe()
        except KafkaClientError as error:
            # A permanent error is reported by the query that runs into it.
            self.answers = not error.transient
            if error.transient:
                self._report_away(error)
                return
        self.answers = True
        self.alive()
        if self._since is not None:
            seconds = self._clock() - self._since[0]
            message = f"the broker at {self._servers} answers again after {seconds:.0f} s"
            self._events.emit(BROKER_BACK, message, servers=self._servers, seconds=round(seconds, 1))
            self._since = None
            self._tell(None)

    def _turn(self) -> None:
        if self.due():
            self.look()

    def _report_away(self, error: KafkaClientError) -> None:
        now = self._clock()
        if self._since is None:
            self._since = now, time.strftime("%H:%M:%S")
            self._tell(f"the broker at {self._servers} does not answer")
        elif now - self._reported < AGAIN_S:
            return
        self._reported = now
        message = f"waiting for the broker at {self._servers} since {self._since[1]}: {error}"
        self._events.emit(BROKER_AWAY, message, servers=self._servers, reason=str(error))


def probe_of(config: ClientConfig, topics: Sequence[str]) -> tuple[Callable[[], object], Callable[[], None]]:
    """Two functions: a probe that asks for topics' end offsets with a short timeout and without log lines, and one to close it."""
    admin = LateAdmin(config, _REQUEST_S)

    def probe() -> object:
        found = admin().describe_topics(topics)
        return admin().end_offsets([(name, p) for name, info in found.items() for p in range(info.partitions)])

    return probe, admin.close


def driver_address(session: SparkSession) -> tuple[str, str]:
    """The host name at which Spark's executors reach the driver, and the address that the driver listens at."""
    if session.sparkContext.master.startswith("local"):
        return _LOOPBACK, _LOOPBACK
    conf = session.sparkContext.getConf()
    host = (conf.get("spark.driver.host") or _LOOPBACK).strip("[]")
    return host, (conf.get("spark.driver.bindAddress") or host).strip("[]")
