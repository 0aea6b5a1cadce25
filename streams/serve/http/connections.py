"""`Connection`: a connection of uvicorn with limits on what a client can send, hold open or leave unread.

`Connections` looks regularly for connections that are overdue: their request does not come, or their answer is not read. The limits
are far beyond what a client needs, and far below what a server can afford.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import httptools
import orjson
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from streams.serve.http.security import CERTIFICATE, network_of

AtOnce = Callable[[Any], Response | None]
"""Returns the answer to a request, given its ASGI connection; None: the request needs an asyncio task."""
_PROGRESS_BYTES = 16 * 1024
"""A client has to read this many bytes of an answer within `unread_s`."""
_LATE_S = 1.0
"""A look that comes later than that is skipped."""
_BODY = frozenset({b"content-length", b"transfer-encoding"})
"""The headers that show that a request has a body."""
_JOINED_BYTES = 64 * 1024
"""Longer bodies are sent by themselves, since copying them costs more than a packet."""


def _most_connections() -> int:
    """A quarter of the file descriptors that this process may open, at most 1,000: stores and Kafka need the others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1000 if soft == resource.RLIM_INFINITY else min(1000, max(16, soft // 4))


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of connections.

    Attributes:
        head_bytes: The most bytes of a request's line and headers.
        head_s: How long these may take to arrive, from the first byte on.
        body_s: How long a whole request may take.
        idle_s: How long a connection may be silent before or between requests.
        unread_s: How long an answer may wait for a client that reads nothing.
        pipelined: How many requests may come before the first of them is answered.
        connections: The most connections. A further one replaces a connection without a request; if there is none, it is refused.
        of_an_address: The most connections from one address.
        look_s: The seconds between two looks for overdue connections.
    """

    head_bytes: int = 32 * 1024
    head_s: float = 10.0
    body_s: float = 30.0
    idle_s: float = 10.0
    unread_s: float = 30.0
    pipelined: int = 128
    connections: int = field(default_factory=_most_connections)
    of_an_address: int = field(default_factory=lambda: _most_connections() * 3 // 4)
    look_s: float = 1.0


class HeldConnection(Protocol):
    """The holder of a connection: first the TLS handshake, and then the protocol of its requests."""

    loop: asyncio.AbstractEventLoop
    network: str

    @property
    def waiting_since_s(self) -> float | None:
        """The time since which the client is waited for; None: its request is being answered."""

    def look(self, now_s: float) -> None:
        """Closes it if it is overdue."""

    def abort(self) -> None:
        """Closes it at once."""


class Connections:
    """The connections of one server.

    Args:
        limits: The limits of its connections.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._all: set[HeldConnection] = set()
        self._of: Counter[str] = Counter()
        self._looking = False

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, one: HeldConnection) -> bool:
        """Adds a new connection, if necessary in the place of one that has no request; False: there is no room."""
        if self._of[one.network] >= self.limits.of_an_address:
            fits = self._give_way({other for other in self._all if other.network == one.network})
        else:
            fits = len(self._all) < self.limits.connections or self._give_way(self._all)
        if fits:
            self._all.add(one)
            self._of[one.network] += 1
            if not self._looking:
                self._looking = True
                self._look_later(one.loop)
        return fits

    def leave(self, one: HeldConnection) -> None:
        """Forgets a connection."""
        if one in self._all:
            self._all.remove(one)
            self._of[one.network] -= 1
            if not self._of[one.network]:
                del self._of[one.network]

    def _give_way(self, some: set[HeldConnection]) -> bool:
        waiting = [(self._of[other.network], -since_s, other) for other in some if (since_s := other.waiting_since_s)]
        if not waiting:
            return False
        # The connection that has waited longest, from the address with the most connections.
        _, _, last = max(waiting, key=lambda one: one[:2])
        self.leave(last)
        last.abort()
        return True

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(self.limits.look_s, self._look, loop, loop.time() + self.limits.look_s)

    def _look(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        now_s = loop.time()
        # Otherwise this process was busy, and has not read what came in the meantime, so no client is overdue.
        if now_s - due_s < _LATE_S:
            for one in list(self._all):
                one.look(now_s)
        self._looking = bool(self._all)
        if self._looking:
            self._look_later(loop)


class JoinedWrites(asyncio.Transport):
    """A transport that sends the head of an answer together with its body, because a packet costs more than its content.

    Args:
        transport: The transport that sends the data.
        loop: Its loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._head: Any = b""
        self._later: asyncio.Handle | None = None
        # Bound directly, which saves a call for each answer.
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.resume_reading = transport.resume_reading  # type: ignore[method-assign]

    def write(self, data: Any) -> None:
        """Sends data. The first part waits for a second part that is written at once."""
        if self._later is None:
            self._head, self._later = data, self._loop.call_soon(self._flush)
        elif len(data) <= _JOINED_BYTES:
            data = b"%b%b" % (self._head, data)
            self._end_waiting()
            self._transport.write(data)
        else:
            self._flush()
            self._transport.write(data)

    def writelines(self, parts: Iterable[Any]) -> None:
        """Sends a whole answer at once, since no further part follows."""
        self._flush()
        self._transport.write(b"".join(parts))

    def _flush(self) -> None:
        if self._later is not None:
            head = self._head
            self._end_waiting()
            self._transport.write(head)

    def _end_waiting(self) -> None:
        assert self._later is not None
        self._later.cancel()
        self._head, self._later = b"", None

    def close(self) -> None:
        """Closes the connection, once everything is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._later is not None:
            self._end_waiting()
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        """The bytes that wait to be sent."""
        return len(self._head) + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Information about the connection, as asyncio names it."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Stops reading."""
        self._transport.pause_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Changes the protocol that receives the connection's events."""
        self._transport.set_protocol(protocol)


class TooMuchError(Exception):
    """A request is larger than allowed. Never leaves the parser."""


class Connection(HttpToolsProtocol):
    """A connection with the limits that the module describes. Each server has a subclass with its own `room` and `at_once`."""

    room: Connections
    at_once: AtOnce
    network = "?"
    _certificate: str | None = None
    _begun = _head_open = _begins_here = False
    """Whether a part of a request has come; whether its head is incomplete; whether it began in the bytes just read."""
    _head_bytes = _parsed_bytes = 0
    """Bytes of the head that came after the read in which it began; and bytes of it that the parser has seen."""
    _since_s = 0.0
    """The time since which the next request, or the rest of one, is waited for."""
    _unread = 0
    _unread_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(JoinedWrites(transport, self.loop))
        self.network = network_of(self.client[0]) if self.client else "?"
        self._certificate = certified_name(transport.get_extra_info("peercert"))
        self._since_s = self.loop.time()
        if not self.room.enter(self):
            self._refuse(503, "this server has too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """A client, or this server, has closed the connection."""
        self.room.leave(self)
        super().connection_lost(exc)

    @property
    def waiting_since_s(self) -> float | None:
        """The time since which a request, or the rest of one, is waited for; None: a request is being answered."""
        idle = self.cycle is None or self.cycle.response_complete
        return self._since_s if (idle or self._begun) and not self.pipeline else None

    def data_received(self, data: bytes) -> None:
        """Gives the received bytes to the parser."""
        self._begins_here = False
        # As uvicorn does, but without a log line for anything that strangers send.
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No other protocol is offered, so the request is answered as it is.
            return
        except httptools.HttpParserError:
            if self._parsed_bytes > self.room.limits.head_bytes:
                self._refuse_head()
            else:
                self._refuse(400, "this is not HTTP/1.1, or more of it at once than this server takes")
            return
        if self._head_open and not self._begins_here:
            self._head_bytes += len(data)
            if self._head_bytes > self.room.limits.head_bytes:
                self._refuse_head()

    def on_message_begin(self) -> None:
        """The parser sees the first byte of a request."""
        if len(self.pipeline) >= self.room.limits.pipelined:
            raise TooMuchError
        self._begun = self._head_open = self._begins_here = True
        self._head_bytes = self._parsed_bytes = 0
        self._since_s = self.loop.time()
        super().on_message_begin()
        if self._certificate is not None:
            scope: Any = self.scope
            scope[CERTIFICATE] = self._certificate

    def on_url(self, url: bytes) -> None:
        """The parser sees a part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has seen a header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The parser has seen the last byte of a head."""
        self._head_open = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The parser has seen the last byte of a request."""
        self._begun = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Ends an answer as uvicorn does, but without a timer for each request: `look` closes idle connections."""
        self.server_state.total_requests += 1
        self._since_s = self.loop.time()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            super()._start_asgi_task(*self.pipeline.pop())

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Answers a request whose head is complete, after all earlier requests: at once if possible, else in an asyncio task."""
        # The body after a head may still be wrong.
        whole = _BODY.isdisjoint([name for name, _ in self.headers])
        can_write = not (self.flow.write_paused or self.transport.is_closing())
        response = self.at_once(cycle.scope) if whole and can_write else None
        if response is None:
            super()._start_asgi_task(cycle, app)
            return
        head = _head(response, cycle.default_headers, cycle.keep_alive)
        if head is None:
            # Neither of the two waits, as there is room to write.
            with suppress(StopIteration):
                asgi: Any = cycle
                response(asgi.scope, asgi.receive, asgi.send).send(None)
            return
        # What uvicorn does with the two messages of such an answer, in one step: they would cost as much as the read.
        cycle.response_started = cycle.response_complete = True
        self.transport.writelines([head, response.body])
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def abort(self) -> None:
        """Closes the connection at once."""
        self.transport.abort()

    def look(self, now_s: float) -> None:
        """Closes the connection if it is overdue."""
        limits, waited_s = self.room.limits, now_s - self._since_s
        unread = self.transport.get_write_buffer_size()
        if unread:
            if not self._unread or unread <= self._unread - _PROGRESS_BYTES:
                self._unread, self._unread_since_s = unread, now_s
            elif now_s - self._unread_since_s > limits.unread_s:
                self.transport.abort()
            return
        self._unread = 0
        idle = self.cycle is None or self.cycle.response_complete
        if self._begun and (idle or not self._head_open) and not self.pipeline:
            if waited_s > (limits.head_s if self._head_open else limits.body_s):
                self._refuse(408, "the request did not come in time")
        elif idle and waited_s > limits.idle_s:
            self.transport.close()

    def _count(self, more: int) -> None:
        self._parsed_bytes += more
        if self._parsed_bytes > self.room.limits.head_bytes:
            raise TooMuchError

    def _refuse_head(self) -> None:
        most = self.room.limits.head_bytes
        self._refuse(431, f"the address and the headers of the request have more than {most} bytes")

    def _refuse(self, status: int, why: str) -> None:
        """Closes the connection. Sends the reason first, unless the client would take it for the answer to an earlier request."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        own = self._begun and not self._head_open and not self.pipeline
        if cycle is None or cycle.response_complete or (own and not cycle.response_started):
            body = orjson.dumps({"error": "Refused", "message": why}) + b"\n"
            front = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + front + body)
        if cycle is not None and not cycle.response_complete:
            # Ends the wait for the rest of the request.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def _head(response: Response, defaults: Sequence[tuple[bytes, bytes]], keep_alive: bool) -> bytes | None:
    """The status line and headers of an answer in HTTP/1.1; None: uvicorn has to write them."""
    headers = [*defaults, *response.raw_headers]
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    # A line break in a header would begin another header; uvicorn handles answers that close the connection.
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"connection" in lines:
        return None
    return b"%b%b%b" % (
        STATUS_LINE[response.status_code],
        lines,
        b"\r\n" if keep_alive else b"connection: close\r\n\r\n",
    )


def connection_class(limits: ConnectionLimits | None = None, at_once: AtOnce = lambda scope: None) -> type[Connection]:
    """The class of one server's connections.

    Args:
        limits: The limits of its connections.
        at_once: Returns the answers that need no asyncio task.
    """
    of_server = {"room": Connections(limits or ConnectionLimits()), "at_once": staticmethod(at_once)}
    return type(Connection.__name__, (Connection,), of_server)


def certified_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The name in a client's certificate, given as `ssl` returns it; None: the client has shown no certificate."""
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    names += [value for _, value in certificate.get("subjectAltName", ())]
    return str(names[0] if names else certificate.get("serialNumber", "a certificate"))
