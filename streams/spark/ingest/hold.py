"""Holds the batches of a source outside Kafka while it is paused.

Such a source is planned by Spark, not by our planner, which would plan nothing while paused. So the hold is at the beginning of a
batch: Spark has chosen its rows, and nothing of it is read or written until the resume.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from streams.source.pauses import LOOK_MS, Pauses
from streams.spark.stopping import StopGate


@dataclass(frozen=True)
class PauseHold:
    """The pauses of an application's sources outside Kafka.

    Attributes:
        read: Reads what is paused now; called by the threads of several queries.
        sleep: Waits for some seconds.
    """

    read: Callable[[], Pauses]
    sleep: Callable[[float], object] = time.sleep

    def holds(self, source: str) -> bool:
        """Whether a source is paused now, by itself or with the whole application."""
        return self.read().of(source) is not None

    def pass_when_resumed(self, source: str, gate: StopGate) -> None:
        """Returns once a source is not paused.

        Raises:
            BatchInterruptedError: The query is to stop.
        """
        while self.holds(source):
            gate.enter()
            self.sleep(LOOK_MS / 1000)
        gate.enter()
