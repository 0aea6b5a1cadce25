"""The broker watch: checks whether the brokers answer while an application makes no progress, and reports when they do not.

An unreachable broker is invisible at first: planning and tasks retry for a while, inside Spark. So the driver checks
separately, in a thread of its own: a request to an unreachable broker takes a while, and a stop must not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from state.errors import KafkaClientError
from state.kafka.admin import LateAdmin
from state.kafka.config import QUIET, ClientConfig
from streams.logs.events import Events
from streams.logs.kinds import BROKER_AWAY, BROKER_BACK

QUIET_S = 15.0
"""An idle query reports Spark's "no data" every 10 s; a query that is silent for longer is busy or waiting."""
AGAIN_S = 60.0
"""How often the message that a broker is away is repeated."""
_LOOK_S = 0.5
_REQUEST_S = 5.0


class BrokerWatch:
    """A watch over the brokers of one application, until the end of the `with` block.

    Args:
        probe: Sends the brokers a request that needs the leaders of all source partitions.
        events: Gets what has changed.
        servers: The brokers' addresses, for messages.
        clock: A monotonic clock, in seconds.
        tell: Called with a sentence while the brokers do not answer, and with None once they do.
        close: Ends the probe: called by the thread that asks, when it has asked for the last time.

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
        self._close = close
        self._tell = tell
        self._probe = probe
        self._events = events
        self._servers = servers
        self._clock = clock
        self._closed = threading.Event()
        self._alive = clock()
        self._since: tuple[float, str] | None = None
        self._said = 0.0
        self.answers: bool | None = None

    @property
    def away(self) -> bool:
        """Whether the brokers are known to be away."""
        return self._since is not None

    def alive(self) -> None:
        """Notes that a query makes progress, so that the brokers need not be asked."""
        self._alive = self._clock()

    def doubt(self) -> None:
        """Notes that a query seems to have failed because of the brokers: the next check is due at once."""
        self.answers = None

    def due(self) -> bool:
        """Whether it is time to ask the brokers."""
        return self.answers is not True or self._clock() - self._alive > QUIET_S

    def look(self) -> None:
        """Asks the brokers, and reports what has changed."""
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
            said = f"the broker at {self._servers} answers again after {seconds:.0f} s"
            self._events.emit(BROKER_BACK, said, servers=self._servers, seconds=round(seconds, 1))
            self._since = None
            self._tell(None)

    def _report_away(self, error: KafkaClientError) -> None:
        now = self._clock()
        if self._since is None:
            self._since = now, time.strftime("%H:%M:%S")
            self._tell(f"the broker at {self._servers} does not answer")
        elif now - self._said < AGAIN_S:
            return
        self._said = now
        said = f"waiting for the broker at {self._servers} since {self._since[1]}: {error}"
        self._events.emit(BROKER_AWAY, said, servers=self._servers, reason=str(error))

    def __enter__(self) -> BrokerWatch:
        # A daemon thread that nothing joins: at the end it may be in the middle of a request.
        threading.Thread(target=self._run, name="broker-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _run(self) -> None:
        try:
            while not self._closed.wait(_LOOK_S):
                if self.due():
                    self.look()
        finally:
            self._close()


def probe_of(config: ClientConfig, topics: Sequence[str]) -> tuple[Callable[[], object], Callable[[], None]]:
    """A probe that asks for the end offsets of topics, with a short timeout and no log lines of the client; and what ends it."""
    admin = LateAdmin({**QUIET, **config}, _REQUEST_S)

    def probe() -> object:
        found = admin().describe_topics(topics)
        return admin().end_offsets([(name, p) for name, info in found.items() for p in range(info.partitions)])

    return probe, admin.close
