"""A slot's connection to the driver, by which it reports, and hears the time, pauses, and that it is to stop."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from multiprocessing.connection import Client, Connection
from typing import Any, Final

import orjson

STOP: Final = "stop"
PAUSED: Final = "paused"
LEASES: Final = "leases"
"""The number of the lease that slots may have: one that has an earlier number ends."""
BEGUN: Final = "begun"
"""The first thing that a slot says: its number."""
CLOCKS: Final = "clocks_ms"
"""The driver's wall clock and its monotonic one, ms. All tasks have the wall clock of the driver, as in micro-batches."""


_KEEP_ALIVE: Final = {
    socket.TCP_KEEPIDLE: 10,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 25_000,
}
"""A connection ends 25 s after the last sign of life: the system asks after 10 s without a word, then each 5 s (Linux: tcp(7))."""


@dataclass(frozen=True)
class DriverAddress:
    """Where slots report, and hear that they are to stop."""

    host: str
    port: int
    key: bytes = field(repr=False)


def notice_loss(connection: Connection) -> None:
    """Makes the system end a connection to a host that has lost its power or its network, which says nothing about that."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE.items():
            end.setsockopt(socket.IPPROTO_TCP, option, value)


class Link:
    """A slot's connection to the driver. Without a driver there is nothing to run for, so a lost one asks to stop.

    Args:
        lease: The number of the slot's lease.
    """

    def __init__(self, connection: Connection, lease: int = 0) -> None:
        self._connection = connection
        self._lease = lease
        self._sending = threading.Lock()
        self.stopped = False
        self.lost = False
        self.paused: frozenset[str] = frozenset()
        self._wall_ahead_ms, self._driver_ahead_ms = 0.0, -inf

    @classmethod
    def to(cls, driver: DriverAddress, lease: int = 0) -> Link:
        connection = Client((driver.host, driver.port), authkey=driver.key)
        notice_loss(connection)
        return cls(connection, lease)

    def listen(self, wait_s: float = 0.0) -> bool:
        """Takes in what the driver has said; if it has said nothing, waits for that. Returns whether it has ever said anything."""
        try:
            while self._connection.poll(wait_s):
                wait_s = 0.0
                said = orjson.loads(self._connection.recv_bytes())
                self.stopped |= bool(said.get(STOP)) or int(said.get(LEASES, 0)) > self._lease
                self.paused = frozenset(said.get(PAUSED, ()))
                wall, monotonic = said[CLOCKS]
                self._wall_ahead_ms = wall - monotonic
                # A message can only be late, and monotonic clocks are never set, so the largest difference is the nearest.
                self._driver_ahead_ms = max(self._driver_ahead_ms, monotonic - time.monotonic() * 1000)
        except (EOFError, OSError):
            self.stopped = self.lost = True
        return self._driver_ahead_ms > -inf

    def now_ms(self) -> int:
        """The driver's wall clock; it is sent at the beginning, and after each report."""
        return int(self._wall_ahead_ms + self._driver_ahead_ms + time.monotonic() * 1000)

    def tell(self, message: Mapping[str, Any]) -> None:
        try:
            with self._sending:
                self._connection.send_bytes(orjson.dumps(message))
        except OSError:
            self.stopped = self.lost = True

    def close(self) -> None:
        self._connection.close()
