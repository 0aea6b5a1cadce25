"""The leases of live execution. Each is a Spark job with as many slots as Spark can run at once at that time.

A lease ends early if that number has changed. Otherwise slots without a core would wait, and their partitions would be left unread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from state.kafka.admin import LateAdmin
from state.kafka.config import ClientConfig
from state.kafka.topics import TopicPartition
from streams.driver.reports import Background
from streams.engine.live.slot import LiveJob, LiveSub
from streams.logs.events import PARTITIONS_UNREAD, Events
from streams.metrics.recorder import MetricsRecorder

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
STEADY_S = 5.0
"""A lease ends early after the number of possible slots has differed for this long, s: a lost or replaced executor causes more
changes."""
ASK_EVERY_S = 5.0
"""The seconds between two requests to the brokers for how far behind unread partitions are."""
UNREAD_AFTER_S = 20.0
"""How long a slot may take to begin before it is reported, s: its executor has to start a Python process."""
OBSTACLE = "live slots"
_SHOWN = 20
"""How many partitions a message names."""
_REQUEST_S = 10.0


class Slots(Protocol):
    """The part of `streams.driver.live.LiveDriver` that leases need."""

    @property
    def lease(self) -> int: ...
    @property
    def begun(self) -> frozenset[int]: ...
    def end_leases(self) -> None: ...


_held: list[LeaseWatch] = []
"""The watches of this process, since a notebook may have several applications in one session. Their slots keep their cores."""


def held_slots(besides: Slots | None = None) -> int:
    """The number of tasks that the live applications of this process run all the time, except those of `besides`."""
    return sum(watch.slots for watch in tuple(_held) if watch.driver is not besides)


class LeaseWatch(Background):
    """Watches the current lease in a separate thread, within a `with` block.

    Args:
        driver: The driver, which gets the messages of the slots.
        possible: Returns how many slots Spark can run at once now.
        missing: Called every few seconds while slots have not begun, and once when all have: with the number of slots, the numbers
            of the missing ones, and whether they have been missing for long.
        close: Called by the thread after its last look.
        clock: A monotonic clock, in seconds.

    Attributes:
        driver: The driver, which gets the messages of the slots.
        slots: The number of slots of the current lease.
    """

    def __init__(
        self,
        driver: Slots,
        possible: Callable[[], int],
        missing: Callable[[int, Sequence[int], bool], object] = lambda slots, numbers, long: None,
        close: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("live-leases", LOOK_EVERY_S, close)
        self.driver = driver
        self._possible = possible
        self._missing = missing
        self._clock = clock
        self.slots = 0
        self._other: tuple[int, float] | None = None
        self._missing_since: float | None = None
        self._asked = 0.0

    def __enter__(self) -> LeaseWatch:
        _held.append(self)
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        _held.remove(self)

    def begin(self) -> int:
        """Begins a lease; returns its number of slots."""
        self.slots = self._possible()
        return self.slots

    def look(self) -> None:
        """Ends the lease if another number of slots is possible now, and reports the slots that have not begun."""
        now, slots = self._clock(), self.slots
        self._compare(self._possible(), slots, now)
        missing = sorted(set(range(slots)) - self.driver.begun)
        if not missing:
            if self._missing_since is not None:
                self._missing_since = None
                self._missing(slots, [], False)
            return
        if self._missing_since is None:
            self._missing_since, self._asked = now, now - ASK_EVERY_S
        if now - self._asked >= ASK_EVERY_S:
            self._asked = now
            self._missing(slots, missing, now - self._missing_since >= UNREAD_AFTER_S)

    def _compare(self, possible: int, slots: int, now: float) -> None:
        if possible == slots:
            self._other = None
        elif self._other is None or self._other[0] != possible:
            self._other = possible, now
        elif now - self._other[1] >= STEADY_S:
            log.info("live execution continues with %d slots instead of %d", possible, slots)
            self._other = None
            self.driver.end_leases()

    def _turn(self) -> None:
        if not self.slots:
            return
        try:
            self.look()
        except Exception as error:
            # The brokers are away, which is reported elsewhere, or Java is just ending.
            log.debug("the slots of live execution cannot be watched: %s", error)


class UnreadPartitions:
    """Reports the partitions that no slot reads, and how far behind they are, because no slot can report them. Its owner closes it.

    Args:
        job: The job of the live tasks.
        client: The settings of Kafka's clients.
    """

    def __init__(self, job: LiveJob, client: ClientConfig, events: Events, metrics: MetricsRecorder) -> None:
        self._job = job
        self._group = job.subs[0].job.settings.application_id
        self._admin = LateAdmin(client, _REQUEST_S)
        self._events = events
        self._metrics = metrics
        self._told: list[TopicPartition] = []

    def close(self) -> None:
        self._admin.close()

    def missing(self, slots: int, numbers: Sequence[int], long: bool) -> None:
        """Reports the partitions of the slots that have not begun; arguments as for `missing` of `LeaseWatch`."""
        tasks = [one for number in numbers for one in replace(self._job, slots=slots).tasks_of(number)]
        unread = sorted({(topic, task) for sub, task in tasks for topic in sub.job.sub.topics})
        self._tell(unread if long else [], f"{len(numbers)} of {slots}")
        if unread:
            self._report_lag(tasks, unread)

    def _report_lag(self, tasks: Sequence[tuple[LiveSub, int]], unread: Sequence[TopicPartition]) -> None:
        admin = self._admin()
        ends, read = admin.end_offsets(unread), admin.group_offsets(self._group, unread)
        for sub, task in tasks:
            at = {
                (topic, task): max(sub.start.of(topic, task), read.get((topic, task), 0))
                for topic in sub.job.sub.topics
            }
            self._metrics.positions(sub.job.sub.name, {place: (start, ends[place]) for place, start in at.items()})

    def _tell(self, unread: list[TopicPartition], slots: str) -> None:
        if unread == self._told:
            return
        self._told = unread
        if not unread:
            self._metrics.obstacle(OBSTACLE, None)
            return
        names = [f"{topic}-{number}" for topic, number in unread]
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        message = (
            f"no slot reads {shown}: {slots} slots of live execution have not begun in {UNREAD_AFTER_S:.0f} s. Spark has no core "
            f"for them, or their processes are still starting (the first ones on a machine compile kernels for a minute or more), "
            f"or cannot start: look at its executors"
        )
        self._metrics.obstacle(OBSTACLE, message)
        self._events.emit(PARTITIONS_UNREAD, message, partitions=names)
