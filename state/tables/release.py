"""The socket by which a process is asked to close a database that it keeps open (`state.tables.kept`)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_SOCKET = "owner"


def request_release(path: Path) -> None:
    """Asks the process that keeps a database open, if any, to close it. Returns at once."""
    if not (path.parent / _SOCKET).exists():
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking, _short_name(path) as name:
        asking.connect(name)


def listening_socket(path: Path) -> socket.socket | None:
    """A socket that listens in a folder whose database this process has open; None where that is not possible."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _short_name(path) as name:
            # Of a process that was killed: only the owner of the database's lock comes here.
            (path.parent / _SOCKET).unlink(missing_ok=True)
            listener.bind(name)
        listener.listen(8)
        listener.setblocking(False)
    except OSError:
        listener.close()
        return None
    return listener


@contextlib.contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """The socket's name by way of an open folder, because names of sockets have at most 108 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{_SOCKET}"
    finally:
        os.close(folder)


def forget_socket(path: Path) -> None:
    """Removes the socket of a database; to be called before the database is closed, as its next owner has a socket there."""
    with contextlib.suppress(OSError):
        (path.parent / _SOCKET).unlink()
