"""Live execution on Spark: one query, whose only micro-batches are the leases of its slots.

Spark gives the slots their processes, and starts them again elsewhere if a worker, an executor or a host is lost. It knows nothing
of records: a slot reads, processes and commits by itself (`streams.live`), so this query's checkpoint is a temporary folder.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from streams.live.alignment import Alignment
from streams.live.link import BOUNDS, CLOCKS, LEASES, PAUSED, REACHED, STOP, DriverAddress, notice_silence
from streams.live.slot import LiveJob
from streams.source.log import now_ms
from streams.spark.shuffle import shuffle_keys
from streams.spark.stopping import StopGate, gated

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

log = logging.getLogger(__name__)

NAME = "live"
LEASE_S = 600.0
"""How long a slot runs before Spark starts it again: between two leases nothing is committed for a few hundred ms."""


RENEW_AFTER_S = 30.0
"""How long a slot that has been started again works before its lease ends, s."""


class LiveDriver:
    """The driver's end of the slots' connections, within a `with` block.

    At its end they are closed, so that a slot which is slow to end (it restores, or a function hangs) finds its driver gone before
    it begins another step.

    Args:
        host: The driver's host, as workers reach it.
        bind: The address to listen at.
        take: Called with each message of a slot that the driver does not answer by itself, by the thread of its connection.
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
        self._connections: set[Connection] = set()
        self._says: dict[str, Any] = {STOP: False, PAUSED: [], LEASES: 0, BOUNDS: {}}
        self._alignment: Alignment | None = None
        self._aligning = threading.Lock()
        self._clock = clock
        self._renew_at: float | None = None
        key = secrets.token_bytes(32)
        self._listener = Listener((bind, 0))
        self._closed = False
        port = self._listener.address[1]  # type: ignore[index]
        self.address = DriverAddress(host, int(port), key)
        self._bound = bind

    def __enter__(self) -> LiveDriver:
        threading.Thread(target=self._accept, name="live-slots", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        # What wakes the thread that accepts connections, if it still waits for one.
        with suppress(OSError):
            socket.create_connection((self._bound, self.address.port), timeout=1).close()
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                # Its thread waits for a message. Closing the file under it would let another connection have the number.
                with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as one:
                    one.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Asks the slots to end their leases, now and whenever one begins."""
        self._say(STOP, True)

    def pause(self, subs: Iterable[str]) -> None:
        """Says which sub-topologies are paused."""
        self._say(PAUSED, sorted(subs))
        self._say_bounds()

    def align(self, alignment: Alignment) -> None:
        """Keeps the tasks together in event time from now on."""
        self._alignment = alignment

    def _say_bounds(self) -> None:
        """Says how far the sub-topologies may go, if that has changed."""
        # One after the other, so that what is said last is what is so.
        with self._aligning:
            if self._alignment is not None:
                bounds = self._alignment.bounds(self._says[PAUSED])
                self._say(BOUNDS, {sub: bound.said() for sub, bound in bounds.items()})

    def failed(self) -> None:
        """Notes that an attempt of a slot has failed before: its lease ends early, once the present attempt has worked for a while.

        Spark gives up after four failed attempts of a task, and in a lease of many minutes these may have nothing in common.
        """
        self._renew_at = self._clock() + RENEW_AFTER_S

    def renew(self) -> None:
        """Ends all leases if that is due, for Spark to begin new ones."""
        if self._renew_at is not None and self._clock() >= self._renew_at:
            self._renew_at = None
            self._say(LEASES, self._says[LEASES] + 1)

    def _say(self, name: str, value: Any) -> None:
        with self._lock:
            if self._says[name] == value:
                return
            self._says[name] = value
            for connection in self._connections:
                self._send(connection)

    def _send(self, connection: Connection) -> None:
        # A slot that is gone has ended its connection, which its thread sees.
        with suppress(OSError):
            connection.send_bytes(orjson.dumps({**self._says, CLOCKS: [now_ms(), time.monotonic() * 1000]}))

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError as error:
                log.debug("a connection to the driver has failed: %s", error)
                continue
            # Whoever connects and then says nothing must not keep the slots waiting.
            threading.Thread(target=self._serve, args=(connection,), name="live-slot", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        try:
            notice_silence(connection)
            deliver_challenge(connection, self.address.key)
            answer_challenge(connection, self.address.key)
        except Exception as error:
            # A port scanner, or a slot that died while it connected.
            log.debug("a connection to the driver was refused: %s", error)
            connection.close()
            return
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._connections.add(connection)
            self._send(connection)
        try:
            while True:
                message = orjson.loads(connection.recv_bytes())
                if REACHED in message:
                    self._align(message)
                    continue
                self._taken(message)
                with self._lock:
                    self._send(connection)
        except (EOFError, OSError):
            pass
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _align(self, message: Mapping[str, Any]) -> None:
        """Takes in how far tasks have come in a backlog, and moves the bounds. At the live edge no such messages come."""
        if self._alignment is not None:
            self._alignment.hear(message["sub"], message[REACHED])
            self._say_bounds()

    def _taken(self, message: Mapping[str, Any]) -> None:
        """Takes in a message. An error there must not end the slot, which commits whether or not anybody counts."""
        try:
            self._take(message)
        except Exception:
            log.exception("a report of live execution was not taken in")


class LiveGate(StopGate):
    """A gate whose micro-batches are leases, which end when they are asked to."""

    def __init__(self, driver: LiveDriver) -> None:
        super().__init__()
        self._driver = driver

    def close(self) -> None:
        self._driver.stop()
        super().close()


def start_live(
    session: SparkSession, application_id: str, job: LiveJob, driver: LiveDriver, on_lease: Callable[[], object]
) -> tuple[StreamingQuery, StopGate]:
    """Starts the query of all live sub-topologies."""
    from streams.spark.worker import dump_live_job

    session.conf.set("spark.sql.shuffle.partitions", str(job.slots))
    leases = (
        lease_rows(session, job.slots)
        .groupBy("slot")
        .applyInPandasWithState(slot_function(dump_live_job(job)), "slot INT", "leases INT", "append", "NoTimeout")
    )
    gate = LiveGate(driver)

    def collect(frame: DataFrame, _: int) -> None:
        on_lease()
        frame.collect()

    # Spark's checkpoint goes with the query.
    folder = Path(tempfile.mkdtemp(prefix="streams-live-"))
    weakref.finalize(gate, shutil.rmtree, folder, ignore_errors=True)
    query = (
        leases.writeStream.queryName(f"{application_id}/{NAME}")
        .outputMode("append")
        .option("checkpointLocation", f"file://{folder}")
        .trigger(processingTime="0 seconds")
        .foreachBatch(gated(gate, collect))
        .start()
    )
    return query, gate


def lease_rows(session: SparkSession, slots: int) -> DataFrame:
    """A row for each slot, and so a call, in each micro-batch: `slot` is its group key, as of the tasks of micro-batches.

    The numbers come from a source of Spark's own: a data source in Python would cost three processes more.
    """
    numbers = (
        session.readStream.format("rate-micro-batch").option("rowsPerBatch", slots).option("numPartitions", 1).load()
    )
    keys = functions.array(*map(functions.lit, shuffle_keys(slots)))
    return numbers.select(functions.element_at(keys, (numbers.value % slots + 1).cast("int")).alias("slot"))


def slot_function(payload: bytes) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for `applyInPandasWithState` that runs a slot until its lease ends."""

    def run(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        from streams.spark.worker import run_live

        return run_live(payload, int(key[0]), frames, state)

    return run
