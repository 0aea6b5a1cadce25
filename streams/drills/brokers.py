"""A TCP proxy in front of a broker that knows the requests by their API keys, and can hold, drop or delay them.

The broker advertises the proxy's address (`advertised`), so all clients connect through the proxy. A rule decides what happens to
matching requests. Its `hit` is set once that has happened, so a drill can wait for its fault instead of guessing. Frames are as in
the Kafka protocol: a length of four bytes, then API key, version and correlation id of a request, or the correlation id of a reply.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import psutil

from streams.broker import EmbeddedBroker, fetch_jars
from streams.broker.processes import HOST, free_ports
from streams.drills.drill import DrillFailed, SpoiledByBroker

FETCH, LIST_OFFSETS = 1, 2
"""The API keys of requests that read records, and of requests for offsets."""
INIT_PRODUCER_ID = 22
"""The API key of a producer's first request, which fences older ones."""
END_TXN = 26
"""The API key of commits and aborts."""
INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 47, 90
"""The error codes with which a broker refuses a producer that was replaced."""
_POLL_S = 0.01


class ProxyAction(Enum):
    """What happens to a request."""

    HOLD = "hold"
    """It is kept until `Rule.release`; its connection waits. The broker gets it even if its sender is dead by then."""
    HANG_UP = "hang up"
    """Like HOLD, but the sender's connection is closed at once, so that it tries again on another."""
    DROP = "drop"
    """The broker never gets it, and its connection is closed."""
    WATCH = "watch"
    """It passes; the broker's answer is kept."""
    LOSE_REPLY = "lose reply"
    """The broker handles it, but the sender gets no answer; both wait until `Rule.release` closes the connection."""


@dataclass
class Rule:
    """What should happen to the next requests of a kind, and the requests to which it has happened.

    Attributes:
        api_key: the API key of the requests.
        action: what happens to them.
        contains: bytes that they must contain, such as a transactional id.
        but_not: bytes that they must not contain, such as the result of `producer`; empty: no such bytes.
        times: how many more times it should happen.
        hit: set once it has happened.
        taken: the requests that the rule applies to.
        senders: the ports of the clients that sent these requests.
        replies: the broker's answers to requests that were held.
    """

    api_key: int
    action: ProxyAction
    contains: bytes = b""
    but_not: bytes = b""
    times: int = 1
    hit: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)
    taken: list[bytes] = field(default_factory=list)
    senders: list[int] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)

    def takes(self, frame: bytes) -> bool:
        """Whether the rule applies to this request; if so, counts it."""
        (key,) = struct.unpack_from(">h", frame)
        if self.times == 0 or key != self.api_key or self.contains not in frame:
            return False
        if self.but_not and self.but_not in frame:
            return False
        self.times -= 1
        self.taken.append(frame)
        return True

    def struck(self, sender: int) -> None:
        self.senders.append(sender)
        self.hit.set()

    def release(self) -> None:
        """Lets held requests continue."""
        self.released.set()

    def producer(self) -> bytes:
        """The bytes of the producer's id and epoch in an EndTxn (versions below 3); a flag follows them."""
        return self.taken[0][-11:-1]

    def error_code(self, timeout_s: float = 30) -> int:
        """Waits for the answer to a held EndTxn (versions below 3), and returns Kafka's error code in it."""
        if not self.answered.wait(timeout_s):
            raise DrillFailed("the broker has not answered a request that was held")
        return int(struct.unpack_from(">h", self.replies[0], 8)[0])

    def sender(self) -> psutil.Process:
        """The process that sent the request."""
        for one in psutil.net_connections("tcp4"):
            if one.laddr and one.laddr.port == self.senders[0] and one.pid:
                return psutil.Process(one.pid)
        raise LookupError(f"no client has port {self.senders[0]} any more")


class Proxy:
    """The proxy, which runs in its own thread.

    Args:
        host: The address that it listens on.

    Attributes:
        seen: how many requests of each API key came.
        delay_s: how long each request is kept before it is forwarded.
        refusing: whether connections are closed as soon as they are made, as if the network were away.
    """

    def __init__(self, host: str = HOST) -> None:
        self._host = host
        (self.port,) = free_ports(1)
        self.seen: Counter[int] = Counter()
        self.delay_s = 0.0
        self.refusing = False
        self._target = 0
        self._rules: list[Rule] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._connections: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def advertised(self) -> Mapping[str, str]:
        """The broker's setting that makes clients connect to the proxy."""
        return {"advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}"}

    def start(self, bootstrap_servers: str) -> None:
        """Starts to forward to a broker, which may come and go."""
        self._target = int(bootstrap_servers.rpartition(":")[2])
        self._thread.start()
        self._server = self._call(lambda: asyncio.start_server(self._accept, self._host, self.port))

    def stop(self) -> None:
        async def close() -> None:
            assert self._server is not None
            self._server.close()
            # Connections that were just accepted should begin, so that they can be ended.
            await asyncio.sleep(_POLL_S)
            pumps = list(self._pumps)
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

        if self._server is not None:
            self.refusing = True
            self._call(close)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def on(
        self, api_key: int, action: ProxyAction, contains: bytes = b"", times: int = 1, but_not: bytes = b""
    ) -> Rule:
        """Adds a rule. If several rules match a request, the first one applies."""
        rule = Rule(api_key, action, contains, but_not, times)
        self._rules.append(rule)
        return rule

    def cut(self) -> int:
        """Closes all connections, and returns their number."""

        async def close() -> int:
            open_ones = list(self._connections)
            for writer in open_ones:
                writer.close()
            return len(open_ones)

        return int(self._call(close))

    def _call(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(30)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            # It is normal here that a client or a broker goes away.
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                if not self.refusing:
                    await self._connect(reader, writer)
        finally:
            self._pumps.discard(task)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(HOST, self._target)
        watched: dict[bytes, Rule] = {}
        replies = asyncio.ensure_future(self._replies(from_broker, writer, watched))
        self._connections.add(writer)
        try:
            await self._requests(reader, writer, to_broker, watched)
        finally:
            self._connections.discard(writer)
            # Requests released for a dead client should still be answered, so that a drill sees the answer.
            if any(not rule.answered.is_set() for rule in watched.values()):
                await asyncio.wait([replies], timeout=5)
            replies.cancel()
            to_broker.close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_broker: asyncio.StreamWriter,
        watched: dict[bytes, Rule],
    ) -> None:
        while True:
            frame = await _frame(reader)
            (key,) = struct.unpack_from(">h", frame)
            self.seen[key] += 1
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            rule = next((rule for rule in self._rules if rule.takes(frame)), None)
            if rule is not None:
                watched[frame[4:8]] = rule
                sender = writer.get_extra_info("peername")[1]
                if rule.action is ProxyAction.DROP:
                    watched.clear()
                    rule.struck(sender)
                    return
                if rule.action in (ProxyAction.HOLD, ProxyAction.HANG_UP):
                    rule.struck(sender)
                    if rule.action is ProxyAction.HANG_UP:
                        writer.close()
                    await self._released(rule)
            to_broker.write(struct.pack(">i", len(frame)) + frame)
            await to_broker.drain()

    async def _replies(
        self, from_broker: asyncio.StreamReader, writer: asyncio.StreamWriter, watched: dict[bytes, Rule]
    ) -> None:
        sender = writer.get_extra_info("peername")[1]
        try:
            while True:
                frame = await _frame(from_broker)
                rule = watched.get(frame[:4])
                if rule is not None:
                    rule.replies.append(frame)
                    rule.answered.set()
                    if rule.action not in (ProxyAction.HOLD, ProxyAction.HANG_UP):
                        rule.struck(sender)
                    if rule.action is ProxyAction.LOSE_REPLY:
                        await self._released(rule)
                        return
                writer.write(struct.pack(">i", len(frame)) + frame)
                await writer.drain()
        finally:
            writer.close()

    @staticmethod
    async def _released(rule: Rule) -> None:
        while not rule.released.is_set():
            await asyncio.sleep(_POLL_S)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


# Scratch brokers: one behind a proxy that knows requests, or a cluster of three; and a known bug of these brokers.

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
        # The proxy starts first: the broker sends all clients to it, also the ones that wait until the broker is ready.
        proxy.start(f"{HOST}:{ports[0]}")
        broker.start()
        yield broker, proxy
    finally:
        proxy.stop()
        _end(broker)


def _end(broker: EmbeddedBroker) -> None:
    # Killed, because nodes that stop in an orderly way would wait for each other, and the data is not needed.
    if broker.status().nodes:
        broker.kill()
    broker.stop()


class BrokerLogs:
    """Searches the logs of brokers for a transaction that one has left hanging (KAFKA-20734), which no client can end.

    A coordinator that restarts with a committed transaction looks for the leaders of its partitions. Partitions without a
    leader, as right after a restart, are treated as deleted by Kafka 4.3, which never writes their control records.

    Args:
        folder: The data folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def check(self) -> None:
        """Reads the new log lines.

        Raises:
            SpoiledByBroker: A transaction hangs. The drill must know that at once, because it would wait for results in vain.
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
