"""`Handshake`: a connection until both sides have agreed on TLS. It counts as any other, and gives way to others.

uvicorn's own hears of a connection only after the handshake, so that somebody who begins many could take all descriptors.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from streams.serve.http.connections import Connections
from streams.serve.http.security import network_of

HANDSHAKE_S = 10.0
"""How long a handshake may take."""
Listen = Callable[..., Awaitable[asyncio.Server]]
"""`create_server` of an asyncio loop."""


class Handshake(asyncio.Protocol):
    """See the module.

    Args:
        made: Makes what gets the connection.
        tls: How to agree.
        room: The connections of the server.
        loop: Its loop.
        timeout_s: How long the handshake may take.
    """

    transport: asyncio.Transport
    network = "?"
    waiting_since_s: float | None = None

    def __init__(
        self,
        made: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext,
        room: Connections,
        loop: asyncio.AbstractEventLoop,
        timeout_s: float = HANDSHAKE_S,
    ) -> None:
        self._made, self._tls, self._room, self.loop, self._timeout_s = made, tls, room, loop, timeout_s
        self._early = b""

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        transport.pause_reading()
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.network = network_of(peer[0]) if isinstance(peer, tuple) else "?"
        self.waiting_since_s = self.loop.time()
        if self._room.enter(self):
            self._task = self.loop.create_task(self._agree())
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """The client has sent the first bytes of its request with the last ones of the handshake."""
        self._early += data

    def look(self, now_s: float) -> None:
        """The loop closes what takes too long by itself."""

    async def _agree(self) -> None:
        try:
            agreed = await self.loop.start_tls(
                self.transport, self, self._tls, server_side=True, ssl_handshake_timeout=self._timeout_s
            )
        except (OSError, asyncio.TimeoutError):
            # Whatever strangers send: also errors of TLS, and a connection that is gone, are of this kind.
            self.transport.abort()
            return
        finally:
            self._room.leave(self)
        if agreed is None or agreed.is_closing():
            return
        found = self._made()
        agreed.set_protocol(found)
        found.connection_made(agreed)
        if self._early:
            found.data_received(self._early)


def counted(listen: Listen, room: Connections, loop: asyncio.AbstractEventLoop) -> Listen:
    """`create_server` of a loop, for a server whose handshakes count."""

    def create_server(made: Callable[[], asyncio.Protocol], *, ssl: ssl.SSLContext, **more: Any) -> Any:
        return listen(lambda: Handshake(made, ssl, room, loop), **more)

    return create_server
