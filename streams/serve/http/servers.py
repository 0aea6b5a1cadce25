"""uvicorn and Starlette for this project's servers: listening sockets, paths, a server in a thread, and servers in processes.

Starlette, uvicorn and the client are the extra `serve`: `check_installed` looks for them before anything else is started.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams.config.settings import Address
from streams.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn import Server

_DRAIN_S = 5
"""How long a server that ends waits for requests that are being answered."""
_MARGIN_S = 5.0


def check_installed(what: str, *modules: str) -> None:
    """Checks early whether the HTTP stack is installed.

    Args:
        what: What needs it, for messages.
        modules: The modules that have to be installed; default: those of a server.

    Raises:
        ConfigError: A module is not installed.
    """
    missing = [name for name in modules or ("starlette", "uvicorn", "httptools") if not find_spec(name)]
    if missing:
        raise ConfigError(
            f"{what} needs {' and '.join(missing)}, which is not installed: pip install 'streams-on-spark[serve]'"
        )


def register_any_text() -> None:
    """Adds `{name:any_text}` to Starlette's routes: the rest of a path, also with slashes and newlines, which keys may have."""
    from starlette.convertors import PathConvertor, register_url_convertor

    class AnyText(PathConvertor):
        regex = "(?s:.*)"

    register_url_convertor("any_text", AnyText())


def listening(address: Address, what: str, option: str, shared: bool = False) -> socket.socket:
    """A socket that listens at an address.

    Args:
        address: The address; port 0 chooses a free port.
        what: What is served, for messages.
        option: The option with the address, for messages.
        shared: Whether other processes of this user may listen there, too: each connection goes to one of them.

    Raises:
        ConfigError: The address cannot be used.
    """
    found = bound(address, what, option, shared)
    found.listen()
    return found


def bound(address: Address, what: str, option: str, shared: bool = False) -> socket.socket:
    """Takes the port as `listening` does, but without listening: no client can connect yet."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol, since asyncio sets TCP_NODELAY only then: without it, each answer waited for 40 ms.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((address.host, address.port))
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

    from streams.serve.http.connections import connection_class
    from streams.serve.http.handshakes import TlsServer

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

    class HandshakesCount(Server):
        """Counts TLS handshakes as connections: a client that connects and stays silent would keep a descriptor for a minute."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            loop: Any = asyncio.get_running_loop()
            if config.ssl is not None:
                kind: Any = config.http_protocol_class

                async def create_server(made: Any, *, sock: Any, ssl: Any, backlog: int) -> TlsServer:
                    sock.listen(backlog)
                    return TlsServer(made, sock, ssl, kind.room)

                loop.create_server = create_server
            await super().startup(sockets)

    return HandshakesCount(config)


class HttpThread:
    """A server that answers in its own thread within a `with` block.

    Args:
        application: What answers.
        listener: The listening socket, which is closed at the end.
        options: Further settings of uvicorn, as for `http_server`.
    """

    def __init__(self, application: ASGIApp, listener: socket.socket, options: Mapping[str, Any] | None = None) -> None:
        self._listener = listener
        self._server = http_server(application, options)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="http", daemon=True)

    def __enter__(self) -> HttpThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(_DRAIN_S + _MARGIN_S)
        self._listener.close()


# --- The same command in several processes that listen at one address, since Python uses one core in each.
#
# Each process follows all tasks in a folder of its own, so that it answers whatever comes to it; and it listens at a port of its
# own, too, where the others reach it.

_NAME = "STREAMS_SERVE_PROCESS"
_LOOK_S = 0.2
_END_S = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """One of several processes that serve.

    Attributes:
        number: Its number, from 0 on.
        port: The port that they share.
    """

    number: int
    port: int

    def folder(self, folder: Path) -> Path:
        """The folder of its copies: each process needs its own."""
        return folder if self.number == 0 else folder.with_name(f"{folder.name}-{self.number}")

    def group(self, group: str) -> str:
        """Its consumer group. Each process has all tasks; it shares them with the process of the same number on other hosts."""
        return group if self.number == 0 else f"{group}-{self.number}"


def this_process() -> Process | None:
    """Which of several processes this is; None: it is the only one."""
    text = os.environ.get(_NAME)
    return None if text is None else Process(*map(int, text.split(":")))


def run_processes(number: int, address: Address, asked: threading.Event, command: Sequence[str] | None = None) -> int:
    """Runs several processes of this command. All are ended once one of them ends, or when this process is asked to end.

    Args:
        number: The number of processes.
        address: Where they listen.
        asked: Set when they should end.
        command: What to run; default: this command.

    Returns:
        The exit code: that of the first process that has ended by itself.

    Raises:
        ConfigError: The address is taken.
    """
    with closing(bound(address, "stores", "--http", shared=True)) as taken:
        port = taken.getsockname()[1]
        line = command or [sys.executable, "-m", "streams", *sys.argv[1:]]
        running = [
            subprocess.Popen(line, env={**os.environ, _NAME: f"{one}:{port}"}, stdin=subprocess.DEVNULL)
            for one in range(number)
        ]
        try:
            while not asked.wait(_LOOK_S):
                if ended := [code for one in running if (code := one.poll()) is not None]:
                    return ended[0]
        finally:
            _end(running)
        return 0


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in running:
        one.terminate()
    deadline = time.monotonic() + _END_S
    for one in running:
        try:
            one.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


def watch_parent(end: Callable[[], object]) -> None:
    """Calls `end` once the parent process is gone, for whatever reason."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        end()

    threading.Thread(target=watch, name="parent", daemon=True).start()
