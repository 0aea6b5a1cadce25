"""`EmbeddedServer`: the stores of an application that this process runs, to be read here, and over HTTP if the settings say so.

The copies are made when they are first needed. The application does not depend on them: what fails here is logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from state.errors import StreamsError
from streams.config import StreamsConfig
from streams.config.settings import Address
from streams.errors import StoreNotReadyError
from streams.serve.http import HttpThread, check_installed, listening
from streams.serve.local import LocalStore
from streams.serve.security import Guard, Security, check_protected
from streams.serve.server import StoreServer, own_url
from streams.topology.topology import Topology

log = logging.getLogger(__name__)


def check_serve(config: StreamsConfig) -> None:
    """Checks early, before anything else is started, whether the stores can be served.

    Raises:
        ConfigError: The address is taken, the tokens cannot be read, or the HTTP stack is not installed.
    """
    if config.serve_address is not None:
        check_installed("serving stores (--serve)")
        security = Security(config.serve_callers)
        check_protected(config.serve_address.host, security)
        Guard(security)
        listening(config.serve_address, "stores", "--serve").close()


class EmbeddedServer:
    """See the module.

    Args:
        topology: The application.
        config: Its settings.
        say: Tells people where the stores are.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, say: Callable[[str], object]) -> None:
        self._topology, self._config, self._say = topology, config, say
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._server: StoreServer | None = None
        self._serving = self._closed = False

    def serve(self) -> None:
        """Begins to serve if the settings say so; does not wait. The application has to run: it makes the topics."""
        address = self._config.serve_address
        if address is not None and not self._serving:
            self._serving = True
            threading.Thread(target=self._serve, args=(address,), name="serve", daemon=True).start()

    def store(self, name: str, wait_s: float) -> LocalStore[Any, Any]:
        """A store.

        Raises:
            QueryError: There is none, or it has no changelog.
        """
        with self._lock:
            return LocalStore(self._started(None).served, name, wait_s)

    def close(self) -> None:
        """Ends what was begun; the copies stay on disk."""
        with self._lock:
            self._closed = True
            with suppress(StreamsError):
                self._open.close()

    def _serve(self, address: Address) -> None:
        from streams.serve.app import Api
        from streams.serve.routing import Router

        try:
            with self._lock:
                listener = self._open.enter_context(listening(address, "stores", "--serve"))
                url = own_url(Address(address.host, listener.getsockname()[1]), tls=False)
                server = self._started(url)
                guard, router = Guard(Security(self._config.serve_callers)), Router(server.nodes)
                trouble, reader, write = (lambda: server.trouble), server.reader, server.write
                api = Api(server.served, guard, alive=trouble, source=reader, write=write, router=router)
                self._open.enter_context(HttpThread(api.application(), listener, api.options))
            self._say(f"stores: {url}/v1/metadata")
        except StreamsError as error:
            log.error("the stores are not served: %s", error)

    def _started(self, url: str | None) -> StoreServer:
        """The copies. Called with the lock."""
        if self._closed:
            raise StoreNotReadyError("the application has ended, and with it the copies of its stores")
        if self._server is None:
            folder = self._config.base_dir / "embedded"
            self._server = self._open.enter_context(StoreServer(self._topology, self._config, folder, url, alone=True))
        return self._server
