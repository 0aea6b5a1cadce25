"""Lifecycle events: each is logged once, shown once, and handed to the listener.

`Events` is the one place that they pass, on the driver. What happens in a worker arrives with the report of its step, the only
channel from workers to the driver; an attempt that fails has no report, so its events are only logged by the worker.

Invariants: a listener gets the events in their order, and its exceptions change nothing; no event contains a secret.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from state.secrets import mask
from streams.logs.kinds import KINDS, EventKind
from streams.logs.notifier import Notifier

log = logging.getLogger("streams.events")
# An application without logging shows what its progress display shows: Python's last resort would print warnings a second time.
log.addHandler(logging.NullHandler())

_BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened in the life of an application.

    Attributes:
        kind: What has happened: one of `streams.logs.kinds`.
        time_ms: When, in milliseconds since 1970.
        application: The application id.
        message: The event in one sentence, for people.
        sub_topology: The sub-topology; None: the whole application.
        task: The number of the task; None: no single one.
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
        application: The application id.
        say: Shows the message of an event to the user; None: a log line is enough.
        listener: Called with each event.
        clock: Seconds since 1970.
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
        """Logs, shows and hands on an event; thread-safe."""
        shown = {name: mask(value) if isinstance(value, str) else value for name, value in fields.items()}
        now_ms = int(self._clock() * 1000)
        event = Event(kind, now_ms, self._application, mask(message), sub_topology, task, shown)
        log.log(kind.level, "%s", event.message, extra={"event": event})
        if kind.said and self._say is not None:
            self._say(event.message)
        self._notifier.notify(event)

    def reported(self, sub_topology: str, task: int, events: Iterable[Mapping[str, Any]]) -> None:
        """Takes in the events of a step from its report: see `streams.microbatch.step`."""
        for one in events:
            self.emit(_BY_NAME[one["event"]], one["message"], sub_topology, task, **one["fields"])


NO_EVENTS = Events("")
"""For parts that run without an application."""
