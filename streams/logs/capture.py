"""Standard error of this process, read line by line: whatever writes there, in whatever language, comes through here.

The file descriptor itself is replaced by a pipe, because librdkafka and Java know nothing of Python's `sys.stderr`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

_STDERR = 2
_BLOCK = 64 * 1024
_LAST_LINES_S = 2.0
"""How long the end of a capture waits for lines, seconds: another process may still have the pipe open."""


class Capture:
    """Captures standard error from `start` to `stop`.

    Args:
        take: Called with each line, without its line break, by a thread of its own.

    Attributes:
        real: The original standard error, as a file descriptor.
    """

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self._take = take
        self.real = os.dup(_STDERR)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        _flush()
        reading, writing = os.pipe()
        os.dup2(writing, _STDERR)
        os.close(writing)
        self._thread = threading.Thread(target=self._read, args=(reading,), name="stderr-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Restores standard error, once the lines written so far have been taken."""
        _flush()
        os.dup2(self.real, _STDERR)
        if self._thread is not None:
            self._thread.join(_LAST_LINES_S)
            self._thread = None

    def _read(self, reading: int) -> None:
        rest = b""
        with os.fdopen(reading, "rb", buffering=0) as written:
            while block := written.read(_BLOCK):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    self._take(line)
        if rest:
            self._take(rest)


def _flush() -> None:
    with suppress(Exception):
        sys.stderr.flush()
