"""Restores that are running: how far each store is, as the workers report it to the driver by datagrams.

The other metrics come with the report of a step, so after its restore, which may take minutes. A datagram (UDP) holds up nothing:
the worker waits neither for a connection nor for an answer, and without a driver that listens a restore continues. Each
datagram says all about one store, so a lost one matters only until the next. Whoever reaches the port can send one, so a report
has the token of the run, and what comes without it is ignored.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any

import orjson

from streams.metrics.application import StoreRestore
from streams.metrics.recorder import MetricsRecorder

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""How often a worker reports a store in between, at most; it always reports the beginning and the end."""
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """Where workers send their reports.

    Attributes:
        host: The driver's host, as workers reach it.
        token: Shows that a report belongs to the run.
    """

    host: str
    port: int
    token: str = field(repr=False)


class RestoreReporter:
    """Reports the restores of one task. A `state.restore.restorer.RestoreListener`."""

    def __init__(self, to: ReportAddress, sub: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._to, self._sub, self._clock = to, sub, clock
        self._known: dict[str, StoreRestore] = {}
        self._sent_at = 0.0

    def on_start(self, store: str, task: int, offsets: int) -> None:
        self._known[store] = StoreRestore(offsets, offsets)
        self._send(store, task)

    def on_batch(self, store: str, task: int, records: int, bytes_: int, remaining: int) -> None:
        known = self._known[store]
        self._known[store] = StoreRestore(known.offsets, remaining, known.records + records)
        if remaining == 0 or self._clock() - self._sent_at >= INTERVAL_S:
            self._send(store, task)

    def _send(self, store: str, task: int) -> None:
        self._sent_at = self._clock()
        if self._target is None:
            return
        family, address = self._target
        progress = self._known[store]
        said = (self._to.token, self._sub, task, store, progress.offsets, progress.remaining, progress.records)
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto(orjson.dumps(said), address)

    @cached_property
    def _target(self) -> tuple[socket.AddressFamily, Any] | None:
        """The driver's address, resolved once; None: it has none from here."""
        try:
            found = socket.getaddrinfo(self._to.host, self._to.port, type=socket.SOCK_DGRAM)[0]
        except OSError as error:
            log.info("restores are not reported to %s while they run: %s", self._to.host, error)
            return None
        return found[0], found[4]


class RestoreReports:
    """Takes in the reports of an application's workers within a `with` block.

    Args:
        host: The driver's host, as workers reach it.
        bind: The address to listen at; default: `host`.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, recorder: MetricsRecorder, host: str, bind: str | None = None) -> None:
        self._recorder = recorder
        family, *_, address = socket.getaddrinfo(bind or host, 0, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.bind(address)
        except OSError:
            self._socket.close()
            raise
        self._closed = threading.Event()
        self.address = ReportAddress(host, self._socket.getsockname()[1], secrets.token_hex(16))

    def __enter__(self) -> RestoreReports:
        # So that the thread sees the end of the block.
        self._socket.settimeout(INTERVAL_S)
        # A daemon thread that nothing joins: it holds nothing but the socket.
        threading.Thread(target=self._run, name="restore-reports", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()

    def take(self) -> None:
        """Waits for one report, and takes it in.

        Raises:
            TimeoutError: There was none.
        """
        data = self._socket.recv(_MOST_BYTES)
        # Whoever reaches the port can send anything.
        with suppress(ValueError, TypeError):
            token, sub, task, store, offsets, remaining, records = orjson.loads(data)
            if hmac.compare_digest(str(token).encode(), self.address.token.encode()):
                self._recorder.restoring(sub, int(task), store, StoreRestore(offsets, remaining, records))

    def _run(self) -> None:
        with self._socket:
            while not self._closed.is_set():
                with suppress(TimeoutError):
                    self.take()
