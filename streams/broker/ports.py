"""Chooses free TCP ports for a broker, on this machine only."""

import random
import socket

HOST = "127.0.0.1"
"""The only address that an embedded broker listens on: it has no authentication, so other hosts must not reach it."""

# Below the ports that systems give to outgoing connections (from 32768 on Linux): while a broker is down, as in
# drills that kill and restart it, none of those can take its port.
_FIRST_PORT = 20000
_LAST_PORT = 32000
_ATTEMPTS = 1000


def _is_free(port: int) -> bool:
    """Whether the port is free right now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    """Whether a process accepts connections on the port."""
    try:
        with socket.create_connection((HOST, port), timeout=0.5):
            return True
    except OSError:
        return False


def free_ports(count: int, taken: frozenset[int] = frozenset()) -> list[int]:
    """Returns distinct ports that are free right now; another process may still take them first.

    Raises:
        OSError: Too few free ports were found.
    """
    found: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(found) == count:
            return found
        port = random.randint(_FIRST_PORT, _LAST_PORT)
        if port not in taken and port not in found and _is_free(port):
            found.append(port)
    raise OSError(f"found only {len(found)} of {count} free ports between {_FIRST_PORT} and {_LAST_PORT}")
