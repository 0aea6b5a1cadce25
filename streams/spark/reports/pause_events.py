"""Events of pauses and resumes, whoever has asked for them: they are records in Kafka (`streams.source.pauses`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from state.errors import StreamsError
from state.kafka.admin import LateAdmin
from state.kafka.config import QUIET
from streams.config import StreamsConfig
from streams.logs.events import Events
from streams.logs.kinds import PAUSED, RESUMED
from streams.source.log import LiveLog
from streams.source.pauses import WHOLE, Pauses, read_pauses

log = logging.getLogger(__name__)

LOOK_S = 5.0
_REQUEST_S = 5.0


class PauseEvents:
    """Looks for pauses now and then until the end of the `with` block, and reports changes.

    Args:
        application_id: The application.
        events: Its events.
        read: Reads the pauses.
        close: Ends `read`: called by the thread that looks, when it has looked for the last time.
    """

    def __init__(
        self,
        application_id: str,
        events: Events,
        read: Callable[[], Pauses],
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self._close = close
        self._application_id = application_id
        self._events = events
        self._read = read
        self._known: Mapping[str, int] = {}
        self._closed = threading.Event()

    def take(self, pauses: Pauses) -> None:
        """Reports what has changed since the last call."""
        found = pauses.since_ms
        for name, since_ms in found.items():
            if name not in self._known:
                what, sub = self._named(name)
                said = f"{what} is paused, until: streams resume {self._application_id}"
                self._events.emit(PAUSED, said, sub, since_ms=since_ms)
        for name in self._known:
            if name not in found:
                what, sub = self._named(name)
                self._events.emit(RESUMED, f"{what} goes on after a pause", sub)
        self._known = found

    def __enter__(self) -> PauseEvents:
        # A daemon thread that nothing joins: at the end it may be in the middle of a request.
        threading.Thread(target=self._run, name="pause-events", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            try:
                self.take(self._read())
            except StreamsError as error:
                log.debug("pauses could not be looked up: %s", error)
        self._close()

    @staticmethod
    def _named(name: str) -> tuple[str, str | None]:
        return ("the application", None) if name == WHOLE else (f"the sub-topology {name}", name)


def pauses_reader(config: StreamsConfig) -> tuple[Callable[[], Pauses], Callable[[], None]]:
    """Reads an application's pauses, with one connection for all calls, whichever thread they come from; and what closes it."""
    admin = LateAdmin({**QUIET, **config.client}, _REQUEST_S)
    lock = threading.Lock()

    def read() -> Pauses:
        # Readers of a topic are shared within the process, and each serves one thread at a time.
        with lock:
            return read_pauses(LiveLog(config.client, admin()), config.application_id)

    def close() -> None:
        with lock:
            admin.close()

    return read, close
