"""Starts the process that Spark's Python workers are forked from before Spark asks for it, because its imports take seconds.

Spark starts its daemon with the first task in Python, and waits for it. So the driver starts one at once (`daemon_ahead`), which
imports while Java starts. The process that Spark then starts (`hand_over`) gives that daemon its pipes and variables. From then on
it only passes on signals, so Spark takes the two for one process. If anything does not fit, Spark's process is an ordinary daemon.

This module imports nothing heavy, because the process that Spark starts pays for it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from select import POLLIN, poll

PLACE = "_STREAMS_DAEMON_AHEAD"
"""The variable with the path of the socket."""
ARGUMENT = "--ahead"
MODULE = "streams.engine.spark.daemon"
_NUMBER = struct.Struct("!i")
_OWN_VARIABLES = (
    "SPARK_",
    "PYSPARK_",
    "_PYSPARK_",
    "PYTHON_",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
)
"""Prefixes of variables that Spark and its shell scripts set, and that no module reads while it is imported."""


def _fits(settings: Mapping[str, str]) -> bool:
    """Whether Spark will start its daemon on this host, with this Python."""
    return (
        os.name == "posix"
        and settings["spark.master"].startswith("local[")
        and settings["spark.python.daemon.module"] == MODULE
        and os.environ.get("PYSPARK_PYTHON") == sys.executable
        and "spark.pyspark.python" not in settings
    )


@contextmanager
def daemon_ahead(settings: Mapping[str, str]) -> Iterator[None]:
    """Starts a daemon for the Spark that is started within the context with these settings, if Spark can use one."""
    if not _fits(settings):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="streams-daemon-"))
    place = str(folder / "socket")
    try:
        process = _start(place, settings)
    except OSError:
        # For example a temporary folder whose path is too long for a socket.
        process = None
    else:
        os.environ[PLACE] = place
    try:
        yield
    finally:
        os.environ.pop(PLACE, None)
        if process is not None and process.stdin is not None:
            # If Spark has not taken the daemon, it ends when this pipe is closed.
            process.stdin.close()
        shutil.rmtree(folder, ignore_errors=True)


def _start(place: str, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(1)
        # The variables as Spark sets them for its workers. Both have an effect only when a process starts.
        threads = settings.get("spark.executorEnv.OMP_NUM_THREADS", settings.get("spark.task.cpus", "1"))
        environment = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": threads, **os.environ}
        return subprocess.Popen(
            [sys.executable, "-m", MODULE, ARGUMENT, str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=environment,
        )


def hand_over() -> bool:
    """Hands the work over to the daemon that was started ahead, and waits for its end. False if there is none that fits."""
    place = os.environ.pop(PLACE, None)
    if place is None:
        return False
    # A signal that arrives now is held until the process that it is for is known.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with socket.socket(socket.AF_UNIX) as connection:
        process = _taken_over(connection, place)
        if process is not None:
            signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if process is None:
            return False
        # Nothing is ever sent, so this waits until the daemon ends.
        connection.recv(1)
    return True


def _taken_over(connection: socket.socket, place: str) -> int | None:
    """Asks the daemon that was started ahead to take over, and returns its process id; None if it does not."""
    told = {"variables": dict(os.environ), "arguments": sys.argv, "path": sys.path, "folder": os.getcwd()}
    data = json.dumps(told).encode()
    try:
        connection.connect(place)
        socket.send_fds(connection, [_NUMBER.pack(len(data))], [0, 1, 2])
        connection.sendall(data)
        answer = connection.recv(_NUMBER.size, socket.MSG_WAITALL)
    except OSError:
        # The daemon is gone, or has been taken.
        return None
    return _NUMBER.unpack(answer)[0] if len(answer) == _NUMBER.size else None


def become_daemon(listening: int, preload: Callable[[], None]) -> bool:
    """Imports, then takes the place of the process that Spark starts. False if none calls, or it has other variables.

    Args:
        listening: The file descriptor of the socket.
        preload: Does the imports.
    """
    # Ctrl-C is meant for the driver, until this process has a process group of its own.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preload()
    with socket.socket(fileno=listening) as listener:
        if not _is_called(listener):
            return False
        connection, _ = listener.accept()
    size, files, *_ = socket.recv_fds(connection, _NUMBER.size, 3)
    told = json.loads(connection.recv(_NUMBER.unpack(size)[0], socket.MSG_WAITALL))
    if not _same(told["variables"], os.environ):
        return False
    for own, given in enumerate(files):
        os.dup2(given, own)
        os.close(given)
    os.environ.clear()
    os.environ.update(told["variables"])
    sys.argv[:], sys.path[:] = told["arguments"], told["path"]
    os.chdir(told["folder"])
    connection.sendall(_NUMBER.pack(os.getpid()))
    # It stays open until this process ends, whatever its workers do.
    os.register_at_fork(after_in_child=connection.close)
    return True


def _is_called(listener: socket.socket) -> bool:
    """Waits for a connection. False if the driver, and with it the standard input, ends first."""
    waiting = poll()
    waiting.register(listener, POLLIN)
    waiting.register(0, POLLIN)
    return listener.fileno() in {file for file, _ in waiting.poll()}


def _same(given: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether this process was started with the variables that Spark gives its daemon."""
    return all(given.get(name) == own.get(name) for name in {*given, *own} if not name.startswith(_OWN_VARIABLES))
