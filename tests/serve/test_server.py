"""Where the server listens, and what it needs for that."""

import socket

import pytest

from streams.config.settings import Address
from streams.errors import ConfigError
from streams.serve.http import listening
from streams.serve.security import Security
from streams.serve.server import tls_options


def test_connections_send_small_answers_at_once():
    """asyncio sets TCP_NODELAY for sockets that name their protocol only; otherwise an answer waits for 40 ms."""
    with listening(Address("127.0.0.1", 0), "stores", "--http") as listener:
        assert listener.proto == socket.IPPROTO_TCP
        with socket.create_connection(listener.getsockname()):
            pass


def test_an_address_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="--http HOST:PORT"):
            listening(Address("127.0.0.1", taken.getsockname()[1]), "stores", "--http")


def test_tls_needs_a_certificate(tmp_path):
    assert tls_options(None, None, Security()) == {}
    for key, security in ((tmp_path / "key", Security()), (None, Security(tls_ca=tmp_path / "ca"))):
        with pytest.raises(ConfigError, match="--tls-cert"):
            tls_options(None, key, security)
