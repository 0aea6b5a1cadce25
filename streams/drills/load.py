"""The base of what writes a drill's input: a thread, its producer, and how both end."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from confluent_kafka import Producer

_FLUSH_S = 120


class LoadThread(threading.Thread):
    """A thread that writes records until `finish` or `abandon`; the `streams.drills.subject.Flow` of most subjects.

    Args:
        client: Properties of the producer.

    Attributes:
        sent, failures, paused: As in `Flow`.
    """

    def __init__(self, client: Mapping[str, str | int | bool]) -> None:
        super().__init__(name="load", daemon=True)
        self.sent = 0
        self.failures: list[str] = []
        self.paused = False
        self._finish = threading.Event()
        self._producer = Producer({**client, "log_level": "0"})

    def abandon(self) -> None:
        """Ends the flow without further records."""
        self._end()
        self._producer.purge()

    def _end(self) -> None:
        """Ends the thread; does nothing the second time."""
        self._finish.set()
        if self.is_alive():
            self.join()

    def _flush(self) -> None:
        if self._producer.flush(_FLUSH_S):
            self.failures.append(f"records could not be written within {_FLUSH_S} s")

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(str(error))
