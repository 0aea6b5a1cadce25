"""A slot's connection to the driver. The slot sends reports, and receives the time, pauses and the request to stop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from math import inf
from multiprocessing.connection import Connection
from typing import Any, Final

import orjson

from streams.engine.live.alignment import UNSAID, Bound
from streams.metrics.reports import DriverAddress, Reports, connect, cut

STOP: Final = "stop"
PAUSED: Final = "paused"
LEASES: Final = "leases"
"""The oldest lease that is still valid: a slot with an earlier number ends."""
BOUNDS: Final = "bounds"
"""How far each sub-topology may go in a backlog (`streams.engine.live.alignment`)."""
REACHED: Final = "reached"
"""A slot's message about how far its tasks have come in a backlog. The driver answers only if a limit changes."""
BEGUN: Final = "begun"
"""A slot's first message: its number. The driver answers only slots."""
CLOCKS: Final = "clocks_ms"
"""The driver's wall clock and its monotonic clock, ms. All tasks use the driver's wall clock, as in micro-batches."""
_CLOSE_S = 2.0
"""How long the last reports may take to be sent, s."""


class Link:
    """A slot's connection to the driver. If it is lost, the slot stops, because without a driver there is nothing to run for.

    Args:
        lease: The number of the slot's lease.
    """

    def __init__(self, connection: Connection, lease: int = 0) -> None:
        self._connection = connection
        self._lease = lease
        self._reports = Reports(lambda: nullcontext(connection), self._lose)
        self.stopped = False
        self.lost = False
        self.paused: frozenset[str] = frozenset()
        self._bounds: Mapping[str, Bound] = {}
        self._wall_ahead_ms, self._driver_ahead_ms = 0.0, -inf

    @classmethod
    def to(cls, driver: DriverAddress, lease: int = 0, slot: int = 0) -> Link:
        """Connects a slot to the driver, which answers with its current messages.

        Raises:
            OSError: The driver cannot be reached.
            AuthenticationError: It is the driver of another run.
        """
        link = cls(connect(driver), lease)
        link.tell({BEGUN: slot})
        return link

    def listen(self, wait_s: float = 0.0) -> bool:
        """Reads the driver's messages, and waits for one if there are none. Returns whether any message has ever arrived."""
        try:
            while self._connection.poll(wait_s):
                wait_s = 0.0
                said = orjson.loads(self._connection.recv_bytes())
                self.stopped |= bool(said.get(STOP)) or int(said.get(LEASES, 0)) > self._lease
                self.paused = frozenset(said.get(PAUSED, ()))
                self._bounds = {sub: Bound.heard(bound) for sub, bound in said.get(BOUNDS, {}).items()}
                wall, monotonic = said[CLOCKS]
                self._wall_ahead_ms = wall - monotonic
                # A message can only be late, and monotonic clocks are never set, so the largest difference is the best estimate.
                self._driver_ahead_ms = max(self._driver_ahead_ms, monotonic - time.monotonic() * 1000)
        except (EOFError, OSError):
            self._lose()
        return self._driver_ahead_ms > -inf

    @property
    def file(self) -> int:
        """The open file that `listen` reads from."""
        return self._connection.fileno()

    def bound(self, sub: str) -> Bound:
        """How far the tasks of a sub-topology may go."""
        return self._bounds.get(sub, UNSAID)

    def now_ms(self) -> int:
        """The driver's wall clock, which it sends at the start and after each report."""
        return int(self._wall_ahead_ms + self._driver_ahead_ms + time.monotonic() * 1000)

    def tell(self, message: Mapping[str, Any]) -> bool:
        return self._reports.tell(message)

    def close(self) -> None:
        self._reports.close(_CLOSE_S)
        # If the driver reads nothing, sending to it would block.
        cut(self._connection)
        self._reports.close(None)
        self._connection.close()

    def _lose(self) -> None:
        self.stopped = self.lost = True
