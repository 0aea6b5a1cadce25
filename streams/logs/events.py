"""Lifecycle events: each is logged once, shown once, and handed to the listener.

`docs/logging.md` has the same table of events, and a test compares. A new event is one more constant here, and one `Events.emit`
where it happens. All events pass `Events`, on the driver. A worker's events arrive with the report of its step, the only channel
from workers to the driver. A failed attempt has no report, so the worker only logs its events.

Invariants: a listener gets the events in their order, and its exceptions change nothing; no event contains a secret.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from state.secrets import mask

log = logging.getLogger("streams.events")
# An application without logging shows what its progress display shows: Python's last resort would print warnings a second time.
log.addHandler(logging.NullHandler())
listener_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event.

    Attributes:
        name: Its name in `event`, in JSON and in listeners.
        level: The level of its log line.
        means: When it happens, as in `docs/logging.md`.
        fields: Its own fields, in addition to time, application, sub-topology, task and message.
        said: Whether the progress display shows its message, so that a log line in text form would repeat it.
    """

    name: str
    level: int
    means: str
    fields: tuple[str, ...] = ()
    said: bool = False

    def __str__(self) -> str:
        return self.name


STARTING = EventKind("starting", logging.INFO, "A start has begun; nothing was checked yet.", ("version", "mode"))
TOPICS_CREATED = EventKind(
    "topics_created", logging.INFO, "The start has created an internal topic.", ("topic",), said=True
)
NOT_LIVE = EventKind(
    "not_live",
    logging.INFO,
    "The application may run live, and these sub-topologies run in micro-batches all the same.",
    ("sub_topologies", "reason"),
    said=True,
)
RUNNING = EventKind(
    "running",
    logging.INFO,
    "All queries that can run have been started; with `available_now`, the queries of one stage.",
    ("sub_topologies",),
)
RESTORED = EventKind(
    "restored",
    logging.INFO,
    "A task has brought its stores to its last commit, by reading a changelog or taking over a copy.",
    ("source", "stores", "reasons", "records", "rows", "bytes", "seconds"),
)
ATTEMPT_FAILED = EventKind(
    "attempt_failed",
    logging.WARNING,
    "An attempt of a task has failed; Spark runs another one, up to its limit. Logged by the worker only: such an attempt has no "
    "report.",
    ("attempt", "batch_id", "error"),
)
FENCED = EventKind(
    "fenced",
    logging.WARNING,
    "An attempt of a task was fenced: a newer attempt or another run of the application has taken over its transactional id, or "
    "its transaction has timed out; Kafka does not say which. From workers as `attempt_failed`.",
    ("transactional_id", "attempt", "batch_id", "error"),
)
RETRIED = EventKind(
    "retried",
    logging.WARNING,
    "A task has committed a step in a repeated attempt, after Spark has seen earlier ones fail.",
    ("attempt", "batch_id"),
)
SLOW_STEP = EventKind(
    "slow_step",
    logging.WARNING,
    "A live task has worked on one step for 10 s or more. The event shows the line of your program, and comes again each time the "
    "step has taken twice as long.",
    ("seconds", "line"),
)
PARTITIONS_UNREAD = EventKind(
    "partitions_unread",
    logging.WARNING,
    "No slot reads some partitions, because slots of live execution have not begun for 20 s. Reported again if the partitions "
    "change.",
    ("partitions",),
    said=True,
)
DEAD_LETTERS = EventKind(
    "dead_letters",
    logging.WARNING,
    "Records were sent to the dead letter topic; one event in 10 s for a sub-topology and a stage, with the number since the last.",
    ("topic", "stage", "count"),
)
OTHER_UNIT = EventKind(
    "other_unit",
    logging.WARNING,
    "The event times of a source look like seconds, or like micro- or nanoseconds; once for each source and unit.",
    ("source", "counter", "count"),
)
BROKER_AWAY = EventKind(
    "broker_away", logging.WARNING, "The brokers do not answer; repeated each minute.", ("servers", "reason"), said=True
)
BROKER_BACK = EventKind("broker_back", logging.INFO, "The brokers answer again.", ("servers", "seconds"), said=True)
QUERY_RESTARTED = EventKind(
    "query_restarted",
    logging.WARNING,
    "The supervisor has started a query again after a transient failure.",
    ("attempt", "reason"),
)
PAUSED = EventKind("paused", logging.INFO, "The application, or one sub-topology, is paused.", ("since_ms",), said=True)
RESUMED = EventKind(
    "resumed", logging.INFO, "The application, or one sub-topology, continues after a pause.", said=True
)
EXECUTION_CHANGED = EventKind(
    "execution_changed",
    logging.INFO,
    "The application runs in another execution, as `streams execution` says.",
    ("execution",),
    said=True,
)
LEFT_LIVE = EventKind(
    "left_live",
    logging.WARNING,
    "A sub-topology that ran live continues in micro-batches, because a record is not where its key belongs, or because a topic "
    "has new partitions. The event names the command that lets it run live again.",
    ("topic", "partition", "offset", "command"),
    said=True,
)
STOPPING = EventKind("stopping", logging.INFO, "A stop was requested; the steps that run are finished.")
STOPPED = EventKind(
    "stopped",
    logging.INFO,
    "The application has ended without an error, and all of its queries with it.",
    ("micro_batches",),
)
FAILED = EventKind("failed", logging.ERROR, "The application has ended with an error.", ("error",))

KINDS: tuple[EventKind, ...] = (
    STARTING,
    TOPICS_CREATED,
    NOT_LIVE,
    RUNNING,
    RESTORED,
    ATTEMPT_FAILED,
    FENCED,
    RETRIED,
    SLOW_STEP,
    PARTITIONS_UNREAD,
    DEAD_LETTERS,
    OTHER_UNIT,
    BROKER_AWAY,
    BROKER_BACK,
    QUERY_RESTARTED,
    PAUSED,
    RESUMED,
    EXECUTION_CHANGED,
    LEFT_LIVE,
    STOPPING,
    STOPPED,
    FAILED,
)
"""In the order of an application's life."""


class Notifier:
    """Calls one listener with all notifications, in their order.

    While a thread delivers notifications, it also delivers the ones that other threads add. So the order is preserved, and a
    listener that waits for another change, or causes one, cannot deadlock with it. The same holds for a signal handler that
    notifies.

    Args:
        whose: The name of the listener in messages. An exception in it is logged and has no other effect.
    """

    def __init__(self, whose: str, listener: Callable[..., object] | None = None) -> None:
        self.listener = listener
        self._whose = whose
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._telling = False

    def add(self, *what: Any) -> None:
        """Notes a call for the next `deliver`; the caller may hold a lock."""
        self._waiting.append(what)

    def deliver(self) -> None:
        """Delivers all pending notifications, unless another thread, or a caller of this method, is already doing so."""
        while self._waiting:
            with self._lock:
                if self._telling:
                    return
                self._telling = True
            try:
                while self._waiting:
                    self._call(self._waiting.popleft())
            finally:
                self._telling = False

    def notify(self, *what: Any) -> None:
        """Delivers a notification, after all that were noted before it."""
        self.add(*what)
        self.deliver()

    def _call(self, what: tuple[Any, ...]) -> None:
        try:
            if self.listener is not None:
                self.listener(*what)
        except Exception:
            listener_log.exception("%s has failed", self._whose)


_BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened in the life of an application.

    Attributes:
        kind: What has happened: one of `streams.logs.events`.
        time_ms: When, in milliseconds since 1970.
        application: The application id.
        message: The event in one sentence, for people.
        sub_topology: The sub-topology; None: the whole application.
        task: The number of the task; None: the event is not about a single task.
        fields: The event's own fields (`EventKind.fields`), as JSON has them.
    """

    kind: EventKind
    time_ms: int
    application: str
    message: str
    sub_topology: str | None = None
    task: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.kind.name


EventListener = Callable[[Event], object]
"""`listener(event)`."""


class Events:
    """The events of one application.

    Args:
        say: Shows the message of an event to the user; None: a log line is enough.
    """

    def __init__(
        self,
        application: str,
        say: Callable[[str], object] | None = None,
        listener: EventListener | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._application = application
        self._say = say
        self._clock = clock
        self._notifier = Notifier(f"the event listener of {application}", listener)

    def emit(
        self, kind: EventKind, message: str, sub_topology: str | None = None, task: int | None = None, **fields: Any
    ) -> None:
        """Logs and shows an event, and passes it to the listener; thread-safe."""
        shown = {name: mask(value) if isinstance(value, str) else value for name, value in fields.items()}
        now_ms = int(self._clock() * 1000)
        event = Event(kind, now_ms, self._application, mask(message), sub_topology, task, shown)
        log.log(kind.level, "%s", event.message, extra={"event": event})
        if kind.said and self._say is not None:
            self._say(event.message)
        self._notifier.notify(event)

    def reported(self, sub_topology: str, task: int, events: Iterable[Mapping[str, Any]]) -> None:
        """Emits the events in the report of a step (`streams.engine.step.step`)."""
        for one in events:
            self.emit(_BY_NAME[one["event"]], one["message"], sub_topology, task, **one["fields"])


NO_EVENTS = Events("")
"""For parts that run without an application."""
