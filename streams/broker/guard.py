"""The starter's end of the watchdog: see `watchdog.py` for what happens when the starter dies."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

_WATCHDOG = Path(__file__).with_name("watchdog.py")
_END_TIMEOUT_S = 10.0


class Guard:
    """A small process that outlives this one just long enough to end the watched brokers."""

    def __init__(self) -> None:
        # Not the starter's session: Ctrl-C in a terminal must not end the guard before its brokers.
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(_WATCHDOG), str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )

    def __enter__(self) -> "Guard":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
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
