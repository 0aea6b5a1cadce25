"""Looks whether the brokers answer while an application makes no progress, and says so.

A broker that is away shows nowhere at first: planning and tasks ask again for a while, inside of Spark. So the driver looks
for itself, in a thread of its own, since a request to a broker that is away takes its time, and a stop must not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from state.errors import KafkaClientError
from state.kafka.admin import KafkaAdmin
from state.kafka.config import QUIET, ClientConfig

QUIET_S = 15.0
"""An idle query tells Spark's "no data" every 10 s; who is silent for longer is busy, or waits."""
AGAIN_S = 60.0
"""How often it is said again that a broker is away."""
_LOOK_S = 0.5
_REQUEST_S = 5.0


class BrokerWatch:
    """Looks after the brokers of one application until the end of the block.

    Args:
        probe: Asks the brokers for something that needs the leaders of all sources.
        say: Tells people.
        servers: What to call the brokers.
        clock: Seconds that only go forward.

    Attributes:
        answers: Whether the brokers answered the last time; None: it was not tried since there was a doubt.
    """

    def __init__(
        self,
        probe: Callable[[], object],
        say: Callable[[str], None],
        servers: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = probe
        self._say = say
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
        """A query makes progress: the brokers need not be asked."""
        self._alive = self._clock()

    def doubt(self) -> None:
        """A query has failed by the brokers' fault, it seems: they are asked at once."""
        self.answers = None

    def due(self) -> bool:
        """Whether it is time to ask."""
        return self.answers is not True or self._clock() - self._alive > QUIET_S

    def look(self) -> None:
        """Asks the brokers, and tells what is new."""
        try:
            self._probe()
        except KafkaClientError as error:
            # What does not pass is named by the query that meets it.
            self.answers = not error.transient
            if error.transient:
                self._tell_away(error)
                return
        self.answers = True
        self.alive()
        if self._since is not None:
            self._say(f"the broker at {self._servers} answers again after {self._clock() - self._since[0]:.0f} s")
            self._since = None

    def _tell_away(self, error: KafkaClientError) -> None:
        now = self._clock()
        if self._since is None:
            self._since = now, time.strftime("%H:%M:%S")
        elif now - self._said < AGAIN_S:
            return
        self._said = now
        self._say(f"waiting for the broker at {self._servers} since {self._since[1]}: {error}")

    def __enter__(self) -> BrokerWatch:
        # Not waited for at the end: it may be in the middle of a request.
        threading.Thread(target=self._run, name="broker-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_S):
            if self.due():
                self.look()


def probe_of(config: ClientConfig, topics: Sequence[str]) -> Callable[[], object]:
    """Asks for the ends of topics, quietly and not for long."""
    admin: list[KafkaAdmin] = []

    def probe() -> object:
        if not admin:
            admin.append(KafkaAdmin({**QUIET, **config}, timeout_s=_REQUEST_S))
        found = admin[0].describe_topics(topics)
        return admin[0].end_offsets([(name, p) for name, info in found.items() for p in range(info.partitions)])

    return probe
