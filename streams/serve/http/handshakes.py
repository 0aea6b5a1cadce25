"""`TlsServer`: accepts connections and does their TLS handshakes. A handshake counts as a connection, and gives way to others.

uvicorn knows of a connection only after its handshake. So a client that begins many handshakes could take all file descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from streams.serve.http.connections import Connections
from streams.serve.http.security import network_of

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
"""How long a handshake may take."""
_AGAIN_S = 1.0
"""If there are no file descriptors left, the server tries to accept connections again after this long."""
Made = Callable[[], asyncio.Protocol]
"""Makes the protocol that gets a connection."""


class Handshake:
    """A client whose TLS handshake is not complete.

    Args:
        connection: The connection.
        loop: The loop of the server.

    Attributes:
        network: The network that the client's address belongs to.
        waiting_since_s: The time since which the client is waited for.
    """

    def __init__(self, connection: socket.socket, address: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.network = network_of(address[0]) if isinstance(address, tuple) else "?"
        self.waiting_since_s = loop.time()
        self._connection = connection
        self._task: asyncio.Task[None] | None = None
        self._is_loops = False

    def begin(self, made: Made, tls: ssl.SSLContext, room: Connections) -> None:
        """Does the handshake, and hands the connection on."""
        self._task = self.loop.create_task(self._agree(made, tls, room))

    async def _agree(self, made: Made, tls: ssl.SSLContext, room: Connections) -> None:
        def agreed() -> asyncio.Protocol:
            found = made()

            def connection_made(transport: asyncio.BaseTransport) -> None:
                # From now on it counts as a connection of uvicorn.
                room.leave(self)
                del found.connection_made
                found.connection_made(transport)

            found.connection_made = connection_made  # type: ignore[method-assign]
            return found

        # From now on the loop closes the connection: its descriptor may later belong to another connection.
        self._is_loops = True
        try:
            await self.loop.connect_accepted_socket(
                agreed, self._connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except (OSError, asyncio.TimeoutError):
            # Errors in anything that strangers send, including TLS errors.
            log.debug("no TLS with %s", self.network, exc_info=True)
        finally:
            room.leave(self)

    def look(self, now_s: float) -> None:
        """Does nothing: the event loop itself ends a handshake that takes too long."""

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._task is not None:
            self._task.cancel()
        if not self._is_loops:
            self._connection.close()


class TlsServer:
    """Accepts connections at a socket until it is closed, like the server of an asyncio loop.

    Args:
        made: Makes the protocol that gets a connection.
        sock: The socket.
        tls: The settings of TLS.
        room: The connections of the server.
    """

    def __init__(self, made: Made, sock: socket.socket, tls: ssl.SSLContext, room: Connections) -> None:
        self._made, self._tls, self._room = made, tls, room
        self.sockets = [sock]
        sock.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._accepting = self._loop.create_task(self._accept(sock))

    async def _accept(self, sock: socket.socket) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(sock)
            except OSError:
                await asyncio.sleep(_AGAIN_S)
                continue
            one = Handshake(connection, address, self._loop)
            if self._room.enter(one):
                one.begin(self._made, self._tls, self._room)
            else:
                one.abort()

    def close(self) -> None:
        """Accepts no further connections."""
        self._accepting.cancel()

    async def wait_closed(self) -> None:
        """Does nothing, since the connections belong to uvicorn."""
