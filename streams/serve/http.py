"""uvicorn and Starlette for this project's servers: sockets that they listen at, paths, and a server in a thread of its own.

Starlette, uvicorn and the client are the extra `serve`: `check_installed` says so before anything else is started.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

from streams.config.settings import Address
from streams.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn import Server

_DRAIN_S = 5
"""How long a server that ends waits for requests that are being answered."""
_MARGIN_S = 5.0
_HANDSHAKE_S = 10.0


def check_installed(what: str, *modules: str) -> None:
    """Checks early whether the HTTP stack is installed.

    Args:
        what: What needs it, for people.
        modules: The modules; default: those of a server.

    Raises:
        ConfigError: It is not.
    """
    missing = [name for name in modules or ("starlette", "uvicorn", "httptools") if not find_spec(name)]
    if missing:
        raise ConfigError(
            f"{what} needs {' and '.join(missing)}, which is not installed: pip install 'streams-on-spark[serve]'"
        )


def register_any_text() -> None:
    """Lets routes of Starlette have `{name:any_text}`: the rest of a path, also with slashes and newlines, which keys may have."""
    from starlette.convertors import PathConvertor, register_url_convertor

    class AnyText(PathConvertor):
        regex = "(?s:.*)"

    register_url_convertor("any_text", AnyText())


def listening(address: Address, what: str, option: str) -> socket.socket:
    """A socket that listens there.

    Args:
        address: Where; port 0 takes a free one.
        what: What is served, for people.
        option: The option with the address, for people.

    Raises:
        ConfigError: It cannot.
    """
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol, since asyncio sets TCP_NODELAY only then: without it, each answer waited for 40 ms.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address.host, address.port))
        found.listen()
    except OSError as error:
        raise ConfigError(
            f"{what} cannot be served at {address}: {error.strerror or error}. Choose another address ({option} HOST:PORT); port 0 "
            f"takes a free one"
        ) from error
    return found


def http_server(application: ASGIApp, options: Mapping[str, Any] | None = None) -> Server:
    """Uvicorn with this project's settings.

    Args:
        application: What answers.
        options: Further settings of uvicorn, such as those of TLS.
    """
    from uvicorn import Config, Server

    from streams.serve.connections import connection_class

    config = Config(
        application,  # type: ignore[arg-type]  # Starlette has other names for the same types
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        # A header must not say where a request comes from: callers on this host need no token.
        proxy_headers=False,
        timeout_graceful_shutdown=_DRAIN_S,
        **{"http": connection_class(), **(options or {})},
    )

    class HandshakesInTime(Server):
        """Clients who connect and then say nothing would have a descriptor for a minute."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            loop: Any = asyncio.get_running_loop()
            if config.ssl is not None:
                loop.create_server = partial(loop.create_server, ssl_handshake_timeout=_HANDSHAKE_S)
            await super().startup(sockets)

    return HandshakesInTime(config)


class HttpThread:
    """Answers in a thread of its own within a `with` block.

    Args:
        application: What answers.
        listener: Where; closed at the end.
        options: As `http_server`.
    """

    def __init__(self, application: ASGIApp, listener: socket.socket, options: Mapping[str, Any] | None = None) -> None:
        self._listener = listener
        self._server = http_server(application, options)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="http", daemon=True)

    def __enter__(self) -> HttpThread:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(_DRAIN_S + _MARGIN_S)
        self._listener.close()
