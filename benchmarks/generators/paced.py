"""Readings that are sent when they are due: each has the wall time at which it was due as timestamp and as field `t`.

The load is open: a record is due whether or not the system has kept up, so a slow system cannot make its input wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.generators.records import Batch, Columns
from benchmarks.generators.text import padded, texts
from topologies.devices_data import VALUE_BYTES, device_names

TICK_S = 0.005
"""How often the generator looks for readings that are due."""
_FIRST = 1_000_000
_SAMPLE = padded('{"d":"dev-DDDDDD","s":SSSSSSS,"t":TTTTTTTTTTTTT,"v":[VV.WWW,50.000,50.000],"st":"ok"', VALUE_BYTES)


@dataclass(frozen=True)
class Paced:
    """A steady load of readings, each of which follows from its number.

    Attributes:
        start_ms: When the first reading is due.
        rate: Readings a second.
        keys: The number of devices.
    """

    start_ms: int
    rate: int
    keys: int = 1_000

    def columns(self, begin: int, end: int) -> Columns:
        """The readings with the numbers [begin, end): `key`, `n`, `milli`, `timestamp`."""
        number = np.arange(begin, end, dtype=np.int64)
        return Columns(
            {
                "key": number % self.keys * 617 % self.keys,
                "n": number // self.keys + _FIRST,
                "milli": number * 7_919 % 90_000 + 10_000,
                "timestamp": self.start_ms + number * 1_000 // self.rate,
            }
        )

    def batch(self, role: str, begin: int, end: int) -> Batch:
        """The same as bytes."""
        rows = self.columns(begin, end)
        fields = {
            "DDDDDD": rows["key"],
            "SSSSSSS": rows["n"],
            "TTTTTTTTTTTTT": rows["timestamp"],
            "VV": rows["milli"] // 1_000,
            "WWW": rows["milli"] % 1_000,
        }
        return Batch(role, device_names(rows["key"]), texts(_SAMPLE, fields, len(rows)), rows["timestamp"])


class Pacer:
    """Sends a paced load from a thread of its own until it is stopped.

    Args:
        load: The load.
        role: The role of the topic.
        send: Sends a batch.

    Attributes:
        sent: The number of readings that were handed over.
        latest_ms: How late a reading was handed over at worst: far more than some milliseconds means that the load was
            not as steady as it should have been.
    """

    def __init__(self, load: Paced, role: str, send: Callable[[Batch], None]) -> None:
        self._load = load
        self._role = role
        self._send = send
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)
        self.sent = 0
        self.latest_ms = 0.0

    def start(self) -> None:
        """Starts sending."""
        self._thread.start()

    def stop(self) -> int:
        """Stops sending: the number of readings that were sent."""
        self._stop.set()
        self._thread.join()
        return self.sent

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            now = time.time() * 1_000
            due = int((now - self._load.start_ms) * self._load.rate / 1_000)
            if due > self.sent:
                oldest = self._load.start_ms + self.sent * 1_000 / self._load.rate
                self.latest_ms = max(self.latest_ms, now - oldest)
                self._send(self._load.batch(self._role, self.sent, due))
                self.sent = due
