"""Processes on this machine, their ports and locks, and the guard that ends them when their starter dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The unique identity of a process: its id and its start time, so that a reused id is never mistaken for the original.

    Attributes:
        started: The start time in the system's format; only for comparisons.
    """

    pid: int
    started: str

    def is_alive(self) -> bool:
        """Whether this very process is still running; a zombie is not."""
        return started_at(self.pid) == self.started

    def send(self, signal_number: signal.Signals) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    def wait(self, timeout_s: float) -> bool:
        """Waits for the process to end, even if it is not a child of this one."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def started_at(pid: int) -> str | None:
    """When the process started, in the system's own terms; None if there is no such live process."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The command, second in the line, is in brackets and may itself contain spaces and brackets.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        state, start_ticks = fields[0], fields[19]
        return None if state in "ZX" else start_ticks
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state_text, _, start = answer.stdout.strip().partition(" ")
    return start.strip() if start and not state_text.startswith("Z") else None


HOST = "127.0.0.1"
"""The only address that an embedded broker listens on: it has no authentication, so other hosts must not reach it."""

# Systems give outgoing connections higher ports than these (from 32768 on Linux). So while a broker is down, as in drills that kill
# and restart it, no connection can take its port.
_FIRST_PORT = 20000
_LAST_PORT = 32000
_ATTEMPTS = 1000


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=0.5):
            return True
    except OSError:
        return False


def free_ports(count: int, taken: frozenset[int] = frozenset(), preferred: int | None = None) -> list[int]:
    """Distinct ports that are free right now, the preferred one first; another process may still take them first."""
    found = [preferred] if preferred is not None and preferred not in taken and _is_free(preferred) else []
    for _ in range(_ATTEMPTS):
        if len(found) == count:
            return found
        port = random.randint(_FIRST_PORT, _LAST_PORT)
        if port not in taken and port not in found and _is_free(port):
            found.append(port)
    raise OSError(f"found only {len(found)} of {count} free ports between {_FIRST_PORT} and {_LAST_PORT}")


@contextmanager
def file_lock(path: Path, timeout_s: float) -> Iterator[None]:
    """An exclusive lock on a file, for the `with` block; the operating system releases it if the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"another process has held {path} for {timeout_s:.0f} s") from None
                time.sleep(_POLL_S)
        yield


_WATCHDOG = Path(__file__).with_name("watchdog.py")
_END_TIMEOUT_S = 10.0


class Watchdog:
    """A small process (`watchdog.py`) that outlives this one just long enough to end the watched brokers."""

    def __init__(self) -> None:
        # Not the starter's session: Ctrl-C in a terminal must not end the guard before its brokers.
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(_WATCHDOG), str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def watch(self, pid: int) -> None:
        """Makes a process end when this one does."""
        self._send(f"watch {pid}")

    def forget(self, pid: int) -> None:
        """Stops watching a process that has ended, because its id may be reused."""
        self._send(f"forget {pid}")

    def release(self) -> None:
        """Ends the guard, and leaves the watched processes alone. May be called repeatedly."""
        if self._process.poll() is None:
            self._send("release")
            self._process.wait(_END_TIMEOUT_S)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        # If the guard was ended by somebody else, the brokers continue, only without this protection.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
