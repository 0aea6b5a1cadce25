"""Messages of workers to the driver while they work. All have one form and one kind of connection, and hold up nothing.

A message is a JSON object: `sub`, the sub-topology that it is about, and `report` (of a step, see `StepFigures`), `events`,
`positions`, `read`, `reached` or `restoring`; or a log `line` with its `host` (`streams.logs.recent`). A slot of live tasks has
a connection for as long as it runs (`streams.engine.live.link`). A task of a micro-batch has one only if it restores: its
report comes to the driver as the result of Spark's task.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import astuple, dataclass, field
from functools import partial
from itertools import chain
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from queue import SimpleQueue
from typing import Any, Final

import orjson

from state.secrets import mask_known
from streams.logs.json_lines import masked
from streams.metrics.application import StoreRestore

log = logging.getLogger(__name__)

RESTORING: Final = "restoring"
"""The progress of a store's restore: its name, and the fields of `StoreRestore`."""
MOST_BYTES: Final = 1024 * 1024
"""The largest size of a message, bytes. A usual message has a few KB."""
MOST_WAITING: Final = 1000
"""The most messages of a worker that wait to be sent."""
CONNECT_S = 30.0
"""How long the driver may take to accept a connection, s."""
INTERVAL_S = 1.0
"""The shortest time between two reports about a store, s; the beginning and the end are always reported."""
SILENT_S = 15
"""How long the other end's machine may be silent before the connection counts as lost, s. A machine that has lost its power or
network does not close its connections."""
_PROBES = 3

Tell = Callable[[Mapping[str, Any]], object]
"""Sends a message to the driver, without waiting."""


@dataclass(frozen=True)
class DriverAddress:
    """The address to which workers report.

    Attributes:
        host: The driver's host name, at which workers reach it.
        key: The secret by which each end proves that it belongs to the run.
    """

    host: str
    port: int
    key: bytes = field(repr=False)


def connect(driver: DriverAddress) -> Connection:
    """Connects to the driver, like `multiprocessing.connection.Client`, which does not support IPv6.

    Raises:
        OSError, EOFError: The driver cannot be reached, or is ending.
        AuthenticationError: The driver belongs to another run.
    """
    with socket.create_connection((driver.host, driver.port), timeout=CONNECT_S) as found:
        found.settimeout(None)
        connection = Connection(found.detach())
    notice_silence(connection)
    answer_challenge(connection, driver.key)
    deliver_challenge(connection, driver.key)
    return connection


def notice_silence(connection: Connection) -> None:
    """Makes the system check that the other end's machine is still there (TCP keep-alive, RFC 1122; time-out of RFC 5482)."""
    with _socket_of(connection) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", SILENT_S // _PROBES),
            ("TCP_KEEPALIVE", SILENT_S // _PROBES),  # macOS's name of it
            ("TCP_KEEPINTVL", SILENT_S // _PROBES),
            ("TCP_KEEPCNT", _PROBES - 1),
            # Data that was sent but not acknowledged keeps keep-alive from probing.
            ("TCP_USER_TIMEOUT", SILENT_S * 1000),
        ):
            if hasattr(socket, option):
                one.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def cut(connection: Connection) -> None:
    """Ends a connection that another thread is using.

    It is not closed, since another connection could then get its file descriptor.
    """
    with suppress(OSError), _socket_of(connection) as one:
        one.shutdown(socket.SHUT_RDWR)


def _socket_of(connection: Connection) -> socket.socket:
    """The connection's socket, through a separate file descriptor."""
    return socket.socket(fileno=os.dup(connection.fileno()))


def encoded(message: Mapping[str, Any]) -> bytes:
    """A message as JSON, without secrets."""
    data = orjson.dumps(message)
    text = data.decode()
    # Only texts are masked: a number stays, though it may look like a password.
    return data if mask_known(text) == text else orjson.dumps(masked(orjson.loads(data)))


class Reports:
    """Sends the messages of a worker in a separate thread, so that a slow or dead driver does not hold up tasks.

    Args:
        connected: Returns the connection to the driver; called in the thread, at the first message.
        lost: Called once the connection is lost, or could not be made.
    """

    def __init__(
        self, connected: Callable[[], AbstractContextManager[Connection]], lost: Callable[[], object] = lambda: None
    ) -> None:
        self._connected, self._lost = connected, lost
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="reports", daemon=True)
        self._thread.start()

    def tell(self, message: Mapping[str, Any]) -> bool:
        """Sends a message, unless too many are waiting. A message that is too large is dropped.

        Returns:
            False: it was not taken; send it again later if it is still of use.
        """
        if self._waiting.qsize() >= MOST_WAITING:
            return False
        data = encoded(message)
        if len(data) > MOST_BYTES:
            about = f"{message.get('sub')}: {', '.join(name for name in message if name != 'sub')}"
            log.warning("a message to the driver is left out: it has %d bytes (%s)", len(data), about)
        else:
            self._waiting.put(data)
        return True

    def close(self, wait_s: float | None = 0.0) -> None:
        """Ends the thread once it has sent the waiting messages, and waits for that at most `wait_s`; None: without a limit."""
        self._waiting.put(None)
        self._thread.join(wait_s)

    def _send(self) -> None:
        messages = iter(self._waiting.get, None)
        try:
            for first in messages:
                with self._connected() as connection:
                    for data in chain([first], messages):
                        connection.send_bytes(data)
        except (OSError, EOFError, AuthenticationError) as error:
            log.debug("nothing is reported to the driver any more: %s", error)
            self._lost()


@contextmanager
def reports_to(driver: DriverAddress | None) -> Iterator[Tell | None]:
    """A function that sends messages of a worker outside live execution, within the block; None if nothing listens."""
    if driver is None:
        yield None
        return
    reports = Reports(partial(connect, driver))
    try:
        yield reports.tell
    finally:
        reports.close()


class RestoreReporter:
    """Reports the restores of one task while they run, because the report of its step may only come after minutes.

    A `state.restore.restorer.RestoreListener`. Each message has the whole progress of one store, so a lost one matters only until
    the next.
    """

    def __init__(self, tell: Tell, sub: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._sub, self._clock = tell, sub, clock
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
        self._tell({"sub": self._sub, "task": task, RESTORING: [store, *astuple(self._known[store])]})
