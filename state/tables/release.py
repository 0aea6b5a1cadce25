"""The socket by which a process is asked to close a database that it keeps open (`state.tables.kept`).

Its name is in Linux's abstract namespace, so nothing lies in the folder, which can be copied at any time, and the name ends with
its process. It consists of the folder's device and inode: a process that knows the folder by another path finds it too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group of the other end (`SO_PEERCRED`)."""


def request_release(path: Path) -> None:
    """Asks the process that keeps a database open, if any, to close it. Returns at once."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.connect(_name(path))


def listening_socket(path: Path) -> socket.socket | None:
    """A socket for requests to close the database of a folder; None where that is not possible."""
    if sys.platform != "linux":
        return None
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_name(path))
        listener.listen(8)
        listener.setblocking(False)
    except OSError:
        listener.close()
        return None
    return listener


def accepted(listener: socket.socket) -> bool:
    """Takes a request, and says whether it counts: any user could connect, but only the own one and root may ask."""
    try:
        with listener.accept()[0] as asking:
            credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return False
    return _CREDENTIALS.unpack(credentials)[1] in (0, os.getuid())


def _name(path: Path) -> bytes:
    found = path.stat()
    return b"\0streams-on-spark/%x/%x" % (found.st_dev, found.st_ino)
