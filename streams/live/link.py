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

from streams.live.alignment import UNSAID, Bound

STOP: Final = "stop"
PAUSED: Final = "paused"
LEASES: Final = "leases"
"""Counts the leases: a slot whose lease is not of the present number ends it."""
BOUNDS: Final = "bounds"
"""How far each sub-topology may go in a backlog (`streams.live.alignment`)."""
REACHED: Final = "reached"
"""What a slot says of how far tasks have come in a backlog. It is answered only where a bound moves."""
CLOCKS: Final = "clocks_ms"
"""The driver's wall clock and its monotonic one, ms. All tasks have the wall clock of the driver, as in micro-batches."""


SILENT_S = 15
"""How long the other end's machine may be silent before the connection counts as lost, s: it may have lost its power or network,
and then nobody closes the connection."""
_PROBES = 3


@dataclass(frozen=True)
class DriverAddress:
    """Where slots report, and hear that they are to stop."""

    host: str
    port: int
    key: bytes = field(repr=False)


def notice_silence(connection: Connection) -> None:
    """Has the system look whether the other end's machine is still there (TCP keep-alive, RFC 1122; time-out of RFC 5482)."""
    with socket.socket(fileno=os.dup(connection.fileno())) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", SILENT_S // _PROBES),
            ("TCP_KEEPALIVE", SILENT_S // _PROBES),  # macOS's name of it
            ("TCP_KEEPINTVL", SILENT_S // _PROBES),
            ("TCP_KEEPCNT", _PROBES - 1),
            # What was sent and not answered keeps keep-alive from looking.
            ("TCP_USER_TIMEOUT", SILENT_S * 1000),
        ):
            if hasattr(socket, option):
                one.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Link:
    """A slot's connection to the driver. Without a driver there is nothing to run for, so a lost one asks to stop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self.stopped = False
        self.lost = False
        self.paused: frozenset[str] = frozenset()
        self._bounds: Mapping[str, Bound] = {}
        self._lease: int | None = None
        self._wall_ahead_ms, self._driver_ahead_ms = 0.0, -inf

    @classmethod
    def to(cls, driver: DriverAddress) -> Link:
        connection = Client((driver.host, driver.port), authkey=driver.key)
        notice_silence(connection)
        return cls(connection)

    def listen(self, wait_s: float = 0.0) -> bool:
        """Takes in what the driver has said; if it has said nothing, waits for that. Returns whether it has ever said anything."""
        try:
            while self._connection.poll(wait_s):
                wait_s = 0.0
                said = orjson.loads(self._connection.recv_bytes())
                lease = int(said.get(LEASES, 0))
                self._lease = lease if self._lease is None else self._lease
                self.stopped |= bool(said.get(STOP)) or lease != self._lease
                self.paused = frozenset(said.get(PAUSED, ()))
                self._bounds = {sub: Bound.heard(bound) for sub, bound in said.get(BOUNDS, {}).items()}
                wall, monotonic = said[CLOCKS]
                self._wall_ahead_ms = wall - monotonic
                # A message can only be late, and monotonic clocks are never set, so the largest difference is the nearest.
                self._driver_ahead_ms = max(self._driver_ahead_ms, monotonic - time.monotonic() * 1000)
        except (EOFError, OSError):
            self.stopped = self.lost = True
        return self._lease is not None

    def bound(self, sub: str) -> Bound:
        """How far the tasks of a sub-topology may go."""
        return self._bounds.get(sub, UNSAID)

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
