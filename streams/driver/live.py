"""Live execution on Spark: the leases of its slots run one after the other, each as a Spark job with a task for each slot.

Spark gives the slots their processes, and starts them again elsewhere if a worker, an executor or a host is lost. It knows nothing
of records: a slot reads, processes and commits by itself (`streams.engine.live`).
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

import orjson
from pyspark.sql import SparkSession

from streams.driver.leases import LeaseWatch
from streams.driver.live_query import LiveQuery, run_lease
from streams.driver.stopping import Query, StopGate
from streams.engine.live.alignment import Alignment
from streams.engine.live.link import BEGUN, BOUNDS, CLOCKS, LEASES, PAUSED, REACHED, STOP
from streams.engine.live.slot import LiveJob
from streams.engine.source.log import now_ms
from streams.logs.recent import LINE, take_sent
from streams.metrics.memory import host_name
from streams.metrics.reports import MOST_BYTES, DriverAddress, cut, notice_silence

log = logging.getLogger(__name__)

NAME = "live"
LEASE_S = 600.0
"""How long a slot runs before Spark starts it again: between two leases nothing is committed for a few hundred ms."""


RENEW_AFTER_S = 30.0
"""How long a slot works after a restart before its lease ends, s."""
PROOF_S = 5.0
"""How long a new connection may take to prove that it is a worker, s: until then, it costs a thread and a file descriptor."""
MOST_PENDING = 64
"""How many connections may be waiting to prove that they are workers."""
_BACKLOG = 128
"""How many connections the system accepts in advance; a further one waits for a second and tries again."""


class LiveDriver:
    """The driver's end of the connections from its workers, within a `with` block: from slots, and from restoring micro-batches.

    The connections are closed when the block ends. A slot that ends slowly (it restores, or a function hangs) then finds its driver
    gone before it begins another step.

    Args:
        host: The driver's host name, at which workers reach it.
        bind: The address to listen at.
        take: Called in the connection's thread with each message of a worker that this object does not handle itself.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        host: str,
        bind: str,
        take: Callable[[Mapping[str, Any]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._connections: dict[Connection, int | None] = {}
        self._pending: dict[Connection, threading.Timer] = {}
        self._reports = 0
        self._says: dict[str, Any] = {STOP: False, PAUSED: [], LEASES: 0, BOUNDS: {}}
        self._alignment: Alignment | None = None
        self._aligning = threading.Lock()
        self._clock = clock
        self._renew_at: float | None = None
        key = secrets.token_bytes(32)
        family = socket.getaddrinfo(bind, 0, type=socket.SOCK_STREAM)[0][0].name
        self._listener = Listener((bind, 0), family, backlog=_BACKLOG)
        self._closed = False
        port = self._listener.address[1]  # type: ignore[index]
        self.address = DriverAddress(host, int(port), key)
        self._bound = bind

    def __enter__(self) -> LiveDriver:
        threading.Thread(target=self._accept, name="workers", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        # Wakes the thread that accepts connections, if it still waits for one.
        with suppress(OSError):
            socket.create_connection((self._bound, self.address.port), timeout=1).close()
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                cut(connection)

    def stop(self) -> None:
        """Asks the slots to end their leases, now and whenever one begins."""
        self._say(STOP, True)

    def pause(self, subs: Iterable[str]) -> None:
        """Sends the slots the names of paused sub-topologies."""
        self._say(PAUSED, sorted(subs))
        self._say_bounds()

    def align(self, alignment: Alignment) -> None:
        """Keeps the tasks together in event time from now on."""
        self._alignment = alignment

    def _say_bounds(self) -> None:
        """Sends the slots how far the sub-topologies may go, if that has changed."""
        # One after the other, so that the last message has the current bounds.
        with self._aligning:
            if self._alignment is not None:
                bounds = self._alignment.bounds(self._says[PAUSED])
                self._say(BOUNDS, {sub: bound.said() for sub, bound in bounds.items()})

    @property
    def lease(self) -> int:
        """The number of a lease that begins now."""
        number: int = self._says[LEASES]
        return number

    @property
    def begun(self) -> frozenset[int]:
        """The numbers of the slots that are connected."""
        with self._lock:
            return frozenset(slot for slot in self._connections.values() if slot is not None)

    @property
    def heard(self) -> int:
        """The number of step reports that have come."""
        return self._reports

    def end_leases(self) -> None:
        """Ends the running leases, so that Spark begins new ones."""
        self._say(LEASES, self.lease + 1)

    def failed(self) -> None:
        """Notes that an attempt of a slot has failed before: its lease ends early, once the current attempt has worked for a while.

        Spark gives up after four failed attempts of a task, and in a lease of many minutes these failures may have nothing in
        common.
        """
        self._renew_at = self._clock() + RENEW_AFTER_S

    def renew(self) -> None:
        """Ends all leases if that is due, so that Spark begins new ones."""
        if self._renew_at is not None and self._clock() >= self._renew_at:
            self._renew_at = None
            self.end_leases()

    def _say(self, name: str, value: Any) -> None:
        with self._lock:
            if self._says[name] == value:
                return
            self._says[name] = value
            for connection in self._connections:
                self._send(connection)

    def _send(self, connection: Connection) -> None:
        """Sends the driver's current instructions to a slot.

        A slot that hangs in a function reads nothing. It must not hold up the others. Once it has read the rest and sends a report,
        the answer has the newest instructions.
        """
        # A slot that is gone has ended its connection, which its thread sees.
        with suppress(OSError):
            if self._connections[connection] is not None and _has_room(connection):
                connection.send_bytes(orjson.dumps({**self._says, CLOCKS: [now_ms(), time.monotonic() * 1000]}))

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError as error:
                log.debug("a connection to the driver has failed: %s", error)
                continue
            self._expect(connection)
            # A client that connects and then stays silent must not keep the others waiting.
            threading.Thread(target=self._serve, args=(connection,), name="worker", daemon=True).start()

    def _expect(self, connection: Connection) -> None:
        """Gives a connection some seconds to prove that it is a worker's. If too many are unproven, the oldest one is cut."""
        timer = threading.Timer(PROOF_S, self._cut, [connection])
        timer.daemon = True
        with self._lock:
            oldest = next(iter(self._pending), None) if len(self._pending) >= MOST_PENDING else None
            self._pending[connection] = timer
        if oldest is not None:
            self._cut(oldest)
        timer.start()

    def _cut(self, connection: Connection) -> None:
        """Ends a connection that has proved nothing. Its thread notices that, and closes it."""
        with self._lock:
            timer = self._pending.pop(connection, None)
            if timer is None:
                return
            timer.cancel()
            # Within the lock: the connection's thread closes it only after it has left `pending`, and then another one may get its
            # number.
            cut(connection)

    def _is_worker(self, connection: Connection) -> bool:
        """Whether the other end of the connection is a worker of this run."""
        try:
            notice_silence(connection)
            deliver_challenge(connection, self.address.key)
            answer_challenge(connection, self.address.key)
        except Exception as error:
            # A port scanner, or a worker that died while it connected.
            log.debug("a connection to the driver was refused: %s", error)
            return False
        finally:
            with self._lock:
                timer = self._pending.pop(connection, None)
                if timer is not None:
                    timer.cancel()
        return timer is not None

    def _serve(self, connection: Connection) -> None:
        if not self._is_worker(connection):
            connection.close()
            return
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._connections[connection] = None
        try:
            while True:
                self._hear(connection, connection.recv_bytes(MOST_BYTES))
        except (EOFError, OSError):
            pass
        finally:
            with self._lock:
                del self._connections[connection]
            connection.close()

    def _align(self, message: Mapping[str, Any]) -> None:
        """Handles a message about how far tasks have come in a backlog, and moves the bounds. There are none at the live edge."""
        if self._alignment is not None:
            self._alignment.hear(message["sub"], message[REACHED])
            self._say_bounds()

    def _hear(self, connection: Connection, data: bytes) -> None:
        """Handles a message. An error here must not end the worker, which commits whether or not anything counts its records."""
        try:
            message = orjson.loads(data)
            if REACHED in message:
                self._align(message)
                return
            if BEGUN in message:
                with self._lock:
                    self._connections[connection] = message[BEGUN]
            elif LINE in message:
                take_sent(message, host_name())
            else:
                self._reports += "report" in message
                self._take(message)
        except Exception:
            log.exception("a message of a worker was not taken in")
        with self._lock:
            self._send(connection)


def _has_room(connection: Connection) -> bool:
    """Whether a message can be sent without waiting for the other end."""
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    return bool(poll.poll(0))


class LiveGate(StopGate):
    """A gate whose micro-batches are leases, which end on request."""

    def __init__(self, driver: LiveDriver) -> None:
        super().__init__()
        self._driver = driver

    def close(self) -> None:
        self._driver.stop()
        super().close()

    def progress(self, query: Query) -> Any:
        """A value that changes with the query's progress, as in `StopGate`, here by reports: Spark knows nothing of slots."""
        return self._driver.heard or None


def start_live(
    session: SparkSession,
    application_id: str,
    job: LiveJob,
    driver: LiveDriver,
    on_lease: Callable[[], object],
    watch: Callable[[LiveDriver], LeaseWatch] | None = None,
) -> tuple[LiveQuery, StopGate]:
    """Starts the query of all live sub-topologies.

    Args:
        session: The Spark session.
        application_id: A part of the query's name.
        job: The job of the slots.
        driver: The object that they report to.
        on_lease: Called when a lease begins.
        watch: Makes the watch of the leases; default: each lease has the largest possible number of slots.
    """
    from streams.engine.spark.worker import dump_live_job

    gate, payload, context = LiveGate(driver), dump_live_job(job), session.sparkContext

    def leases() -> None:
        with LeaseWatch(driver, lambda: job.slots) if watch is None else watch(driver) as watching:
            while not gate.closed:
                on_lease()
                slots = watching.begin()
                run_lease(context, job.slots, slots, slot_function(payload, driver.lease, slots))

    return LiveQuery(context, f"{application_id}/{NAME}", leases), gate


def slot_function(payload: bytes, lease: int, slots: int) -> Callable[[int], None]:
    """The function that runs a slot until its lease ends, in a worker.

    Args:
        payload: The job (`streams.engine.spark.worker.dump_live_job`).
        lease: The number of the lease.
        slots: How many slots it has.
    """

    def run(slot: int) -> None:
        from streams.engine.spark.worker import run_live

        run_live(payload, lease, slots, slot)

    return run
