"""The sources of faults: none, crashes at given events, or a seed."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Collection
from dataclasses import dataclass

from state.errors import ClientFailure, KafkaClientError, ProduceError
from streams.testing.simulation import Crash, Fate, RequestEvent
from tests.simulation.cluster import Cluster


class Quiet:
    """No faults, and the usual order of events."""

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        return Fate.NOW

    def after(self, cluster: Cluster, event: RequestEvent) -> None:
        """See `Chaos`."""

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        return 0


class CrashAt(Quiet):
    """A crash just before each of the given events (by number, from 1).

    A crash after an event is a crash before the next one, so this covers all possible crashes.

    Attributes:
        crashed: How many crashes there were.
    """

    def __init__(self, events: Collection[int]) -> None:
        self._events = events
        self.crashed = 0

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        if cluster.events in self._events:
            self.crashed += 1
            cluster.say("CRASH")
            raise Crash(str(event))
        return Fate.NOW


BEFORE = {
    "init": ("crash", "fail"),
    "send": ("crash", "fail"),
    "offsets": ("crash", "fail"),
    "commit": ("crash", "fail", "late"),
    "control": ("late",),
    "read": ("crash", "fail"),
    "begins": ("crash", "fail"),
    "ends": ("crash", "fail", "stale"),
    "delete": ("crash", "fail"),
    "spill": ("crash", "fail"),
    "store": ("crash", "fail"),
    "listen": ("crash",),
}
"""The faults that are possible just before an event; at all other events (disks, Spark's logs) only a crash."""
AFTER = {
    "init": ("crash", "lost"),
    "commit": ("crash", "lost"),
    "delete": ("crash", "lost"),
    "flush": ("crash",),
    "write": ("crash",),
}
"""The faults that are possible just after an event."""


STRAGGLES = 0.2
"""The probability that an attempt of the execution before goes on at an event of a switch."""
ARRIVES = 0.1
"""The probability that late commits arrive at an event of a live step."""


@dataclass(frozen=True)
class Odds:
    """The probabilities of faults.

    Attributes:
        strike: The probability of a fault at an event.
        pause: The probability that an attempt which may pause does so at an event.
        kinds: The possible faults: `crash`, `fail` (not done), `lost` (done, but the reply is lost), `late` (commits and
            control records), `stale` (ends of logs, from a former leader).
        twice: The probability that the commit of a live step is sent twice.
    """

    strike: float = 0.03
    pause: float = 0.05
    kinds: frozenset[str] = frozenset({"crash", "fail", "lost", "late", "stale"})
    twice: float = 0.1


class Seeded:
    """Faults drawn from a seed.

    Args:
        seed: The seed, which determines the history.
        faults: The number of faults, after which there are no more, so that the application must recover.
        odds: The probabilities.
    """

    def __init__(self, seed: int, faults: int = 0, odds: Odds | None = None) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.odds = odds or Odds()

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        attempt = cluster.attempt
        if attempt is None and cluster.switching and cluster.zombies and self.random.random() < STRAGGLES:
            cluster.let_go_on(self.random.choice(cluster.zombies))
        if attempt is not None and attempt.may_pause and self.random.random() < self.odds.pause:
            cluster.say(f"{attempt} stands still")
            attempt.pause()
        live = attempt is not None and attempt.live
        if live and cluster.kafka.late and self.random.random() < ARRIVES:
            cluster.say("what was late arrives")
            cluster.kafka.deliver_commits()
        if live and event.kind == "commit" and self.random.random() < self.odds.twice:
            cluster.say("SENT TWICE, and the second request is on its way")
            return Fate.TWICE
        match self._fault(BEFORE.get(event.kind, ("crash",)), in_task=attempt is not None):
            case "crash":
                cluster.say("CRASH before it")
                raise Crash(str(event))
            case "fail":
                cluster.say("FAILED, and nothing is done")
                raise _error(event)
            case "late" | "stale" as kind:
                cluster.say(kind.upper())
                return Fate.LATE
        return Fate.NOW

    def after(self, cluster: Cluster, event: RequestEvent) -> None:
        """See `Chaos`."""
        match self._fault(AFTER.get(event.kind, ()), in_task=cluster.attempt is not None):
            case "crash":
                cluster.say("CRASH after it")
                raise Crash(str(event))
            case "lost":
                cluster.say("done, but the reply is LOST")
                raise _error(event)

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        if count < 2:
            return 0
        if what.startswith("shuffle"):
            return int(self.random.random() < 0.2)
        if what.startswith(("lease", "switched")):
            return int(self.random.random() < 0.05)
        if what.startswith("steady"):
            return int(self.random.random() < 6 * self.odds.pause)
        return self.random.randrange(count)

    def _fault(self, kinds: Collection[str], in_task: bool) -> str | None:
        if self.faults <= 0 or not kinds or self.random.random() >= self.odds.strike:
            return None
        kind = self.random.choice(sorted(kinds))
        # A driver with stale ends plans less, or ends with an error that a restart resolves: not interesting.
        if kind not in self.odds.kinds or (kind == "stale" and not in_task):
            return None
        self.faults -= 1
        return kind


def _error(event: RequestEvent) -> Exception:
    if event.kind in ("spill", "store"):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    kind = ProduceError if event.kind in ("init", "send", "offsets", "commit") else KafkaClientError
    return kind("simulated", ClientFailure(7, "REQUEST_TIMED_OUT", "simulated", retriable=True))
