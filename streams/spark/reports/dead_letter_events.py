"""Events of dead letters, of which a bad source makes thousands in a second: one now and then, with the number since the last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streams.logs.events import Events
from streams.logs.kinds import DEAD_LETTERS

INTERVAL_S = 10.0
"""The shortest time between two events of a sub-topology and a stage."""
_COUNTERS = "dead_letters:"


@dataclass
class _Waiting:
    """Dead letters of a sub-topology and a stage, not reported yet, and when the last were reported."""

    count: int = 0
    reported: float | None = None


class DeadLetterEvents:
    """Counts dead letters by sub-topology and stage, and reports them.

    Args:
        events: The application's events.
        topic: The dead letter topic of the policies; None: there is none, and operators that retry have topics of their own.
        clock: A monotonic clock, seconds.
    """

    def __init__(self, events: Events, topic: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._topic = topic
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], _Waiting] = {}

    def step(self, sub_topology: str, counters: Mapping[str, int]) -> None:
        """Takes in the counters of a step."""
        found = {name.removeprefix(_COUNTERS): n for name, n in counters.items() if name.startswith(_COUNTERS)}
        with self._lock:
            for stage, count in found.items():
                self._waiting.setdefault((sub_topology, stage), _Waiting()).count += count
        if self._waiting:
            self.report()

    def report(self, *, all_of_them: bool = False) -> None:
        """Reports what is due."""
        now, due = self._clock(), []
        with self._lock:
            for (sub, stage), one in self._waiting.items():
                if one.count and (all_of_them or one.reported is None or now - one.reported >= INTERVAL_S):
                    due.append((sub, stage, one.count))
                    one.count, one.reported = 0, now
        for sub, stage, count in due:
            where = "" if self._topic is None else f" to {self._topic}"
            records = "1 record was" if count == 1 else f"{count:,} records were"
            message = f"{records} sent{where} as dead letters ({stage}) by {sub}"
            self._events.emit(DEAD_LETTERS, message, sub, topic=self._topic, stage=stage, count=count)
