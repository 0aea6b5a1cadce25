"""Connections that are reset as soon as they are made, by a process that is killed."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import closing

import httpx2
import pytest
import uvloop

from streams.serve.http.asking import ResetTransport

_REQUESTS = 400
_AT_A_TIME = 8


def reset_all(listener: socket.socket) -> None:
    """Resets each connection, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


async def ask(url: str) -> list[Exception]:
    async with httpx2.AsyncClient(transport=ResetTransport()) as client:

        async def several() -> list[Exception]:
            return [await failure(client, url) for _ in range(_REQUESTS)]

        found = await asyncio.gather(*(several() for _ in range(_AT_A_TIME)))
    return [one for some in found for one in some]


async def failure(client: httpx2.AsyncClient, url: str) -> Exception:
    try:
        await client.get(url)
    except Exception as error:
        return error
    raise AssertionError("a connection that is reset has no answer")


@pytest.mark.slow
def test_a_connection_that_is_reset_at_once_is_an_error_of_the_connection() -> None:
    # Of some thousands, a few are reset before anyio has asked for the peer's address, which is how uvloop loses it.
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=reset_all, args=(listener,), daemon=True)
        thread.start()
        found = uvloop.run(ask(f"http://127.0.0.1:{listener.getsockname()[1]}/"))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert {type(error) for error in found} <= {httpx2.ConnectError, httpx2.ReadError, httpx2.WriteError}


class _Pool:
    """A pool whose connection is reset: asks for the address of a socket that is not there, as anyio does."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def handle_async_request(self, request: object) -> None:
        getattr(None, self.name)


@pytest.mark.parametrize(("name", "expected"), [("getpeername", httpx2.ConnectError), ("other", AttributeError)])
def test_only_the_missing_address_of_a_peer_is_taken_for_a_reset(name: str, expected: type[Exception]) -> None:
    transport = ResetTransport()
    transport._pool = _Pool(name)  # type: ignore[assignment]
    with pytest.raises(expected):
        asyncio.run(transport.handle_async_request(httpx2.Request("GET", "http://127.0.0.1:1/")))
