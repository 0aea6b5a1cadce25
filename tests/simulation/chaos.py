"""Who decides what goes wrong: nobody, a list of events at which something dies, or a seed."""

from __future__ import annotations

import random
from collections.abc import Collection

from state.errors import KafkaClientError, ProduceError
from streams.testing.simulation import Crash, Event, Fate
from tests.simulation.cluster import Cluster


class Quiet:
    """All goes well, in the usual order."""

    def before(self, cluster: Cluster, event: Event) -> Fate:
        """See `Chaos`."""
        return Fate.NOW

    def after(self, cluster: Cluster, event: Event) -> None:
        """See `Chaos`."""

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        return 0


class CrashAt(Quiet):
    """Whoever comes to one of these events (by number, from 1) dies just before it.

    A crash after an event is one before the next, so this is every crash that there is.
    """

    def __init__(self, events: Collection[int]) -> None:
        self._events = events

    def before(self, cluster: Cluster, event: Event) -> Fate:
        """See `Chaos`."""
        if cluster.events in self._events:
            cluster.say("CRASH")
            raise Crash(str(event))
        return Fate.NOW


_OF_READS = ("read", "ends", "begins", "delete")


class Seeded:
    """Draws everything from a seed.

    Args:
        seed: the same one gives the same history.
        faults: how many things may go wrong; then all goes well, so that what is mendable must mend.
    """

    def __init__(self, seed: int, faults: int) -> None:
        self.random = random.Random(seed)
        self.faults = faults

    def before(self, cluster: Cluster, event: Event) -> Fate:
        """See `Chaos`."""
        attempt = cluster.attempt
        if attempt is not None and attempt.may_pause and self.random.random() < 0.05:
            cluster.say(f"{attempt} stands still")
            attempt.pause()
        if not self._strikes():
            return Fate.NOW
        if event.kind == "control" or (event.kind == "commit" and self.random.random() < 0.3):
            cluster.say("delayed")
            return Fate.LATE
        if event.kind in (*_OF_READS, "init", "send", "offsets", "commit") and self.random.random() < 0.4:
            cluster.say("FAILED, nothing done")
            raise ProduceError("simulated") if event.kind == "commit" else KafkaClientError("simulated")
        cluster.say("CRASH before it")
        raise Crash(str(event))

    def after(self, cluster: Cluster, event: Event) -> None:
        """See `Chaos`."""
        if event.kind in ("commit", "flush", "init", "delete") and self._strikes():
            if event.kind == "flush" or self.random.random() < 0.5:
                cluster.say("CRASH after it")
                raise Crash(str(event))
            cluster.say("done, but the reply is LOST")
            raise ProduceError("simulated: no reply")

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        if count < 2:
            return 0
        if what.startswith("shuffle"):
            return int(self.random.random() < 0.2)
        if what.startswith("steady"):
            return int(self.random.random() < 0.3)
        return self.random.randrange(count)

    def _strikes(self) -> bool:
        if self.faults <= 0 or self.random.random() >= 0.03:
            return False
        self.faults -= 1
        return True
