"""Scratch brokers: one behind a proxy that knows requests, or a cluster of three; and a known defect of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streams.broker import EmbeddedBroker, fetch_jars
from streams.broker.processes import HOST, free_ports
from streams.drills.failure import SpoiledByBroker
from streams.drills.proxy import Proxy

START_S = 240.0
_HEAP_OF_THREE = "256m"
_SKIPPED_MARKERS = "while trying to send transaction markers"
"""The log line of a broker that does not write the control records of a decided transaction."""


@contextmanager
def scratch_broker(
    folder: Path, nodes: int, properties: Mapping[str, str], host: str = HOST
) -> Iterator[tuple[EmbeddedBroker, Proxy | None]]:
    """A broker behind a proxy, or a cluster of three without one; it ends with the block."""
    if nodes == 1:
        with proxied_broker(folder, properties, host) as one:
            yield one
        return
    fetch_jars()
    cluster = EmbeddedBroker(
        folder, nodes=nodes, properties=properties, heap=_HEAP_OF_THREE, die_with_parent=True, start_timeout_s=START_S
    )
    try:
        cluster.start()
        yield cluster, None
    finally:
        _end(cluster)


@contextmanager
def proxied_broker(
    folder: Path, properties: Mapping[str, str] | None = None, host: str = HOST
) -> Iterator[tuple[EmbeddedBroker, Proxy]]:
    """A scratch broker behind a proxy; both end with the block."""
    fetch_jars()
    proxy = Proxy(host)
    ports = free_ports(1, taken=frozenset([proxy.port]))
    given = {**proxy.advertised, **(properties or {})}
    broker = EmbeddedBroker(folder, ports=ports, properties=given, die_with_parent=True, start_timeout_s=START_S)
    try:
        # First, because the broker tells every client to come to the proxy, also those that wait until it is ready.
        proxy.start(f"{HOST}:{ports[0]}")
        broker.start()
        yield broker, proxy
    finally:
        proxy.stop()
        _end(broker)


def _end(broker: EmbeddedBroker) -> None:
    # Killed: nodes that stop in an orderly way would wait for each other, and nobody needs the data.
    if broker.status().nodes:
        broker.kill()
    broker.stop()


class BrokerLogs:
    """Looks in the logs of brokers whether one has left a transaction hanging (KAFKA-20734), which no client can end.

    A coordinator that restarts with a committed transaction looks for the leaders of its partitions. Partitions without a
    leader, as right after a restart, are treated as deleted by Kafka 4.3, which never writes their control records.

    Args:
        folder: The data folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def check(self) -> None:
        """Reads what is new.

        Raises:
            SpoiledByBroker: A transaction hangs. It is worth knowing at once: whoever waits for results would wait in vain.
        """
        for log in sorted(self._folder.glob("node-*/server.log")):
            size, begin = log.stat().st_size, self._read.get(log, 0)
            with log.open("rb") as file:
                # A shorter log is a new one.
                file.seek(begin if begin <= size else 0)
                new = file.read()
                whole = new[: new.rfind(b"\n") + 1]
                self._read[log] = file.tell() - len(new) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                if _SKIPPED_MARKERS in line:
                    raise SpoiledByBroker(line)
