"""The last log lines of an application, for the dashboard: records of this process, and the lines that live workers send.

With JSON, they include other programs' lines on standard error. Local workers write there, too, so a line may come twice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import orjson

from streams.logs.json_lines import LONGEST, line_of, record_fields
from streams.logs.output import foreign_lines

_MOST = 500
LINE: Final = "line"
"""A worker's log line, as JSON."""


class _Lines(logging.Handler):
    """A handler that keeps records as JSON lines of at most `LONGEST` bytes, and does not change the lines that people see."""

    def emit(self, record: logging.LogRecord) -> None:
        self.take(line_of(record_fields(record), LONGEST).rstrip())
        # Python's last resort prints warnings if there is no handler, but people do not see the output of this one.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._others(record.name):
            last.handle(record)

    def take(self, line: bytes) -> None:
        raise NotImplementedError

    def _others(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


class RecentLines(_Lines):
    """Keeps the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[bytes] = deque(maxlen=_MOST)

    def take(self, line: bytes) -> None:
        """Keeps a line, unless it is kept already."""
        line = line.rstrip()
        if line not in self._lines:
            self._lines.append(line)

    def newest(self) -> list[dict[str, Any]]:
        """The lines, newest first."""
        return [orjson.loads(line) for line in list(self._lines)[::-1]]


class SentLines(_Lines):
    """Sends the log lines of a worker to its driver.

    Args:
        tell: Sends a message to the driver, without waiting.
        host: The worker's host.
    """

    def __init__(self, tell: Callable[[Mapping[str, Any]], object], host: str) -> None:
        super().__init__()
        self._tell = tell
        self._host = host

    def take(self, line: bytes) -> None:
        """Sends a line."""
        self._tell({LINE: line.decode(), "host": self._host})


@contextmanager
def handling(handler: logging.Handler) -> Iterator[None]:
    """Passes all log records of this process to a handler within a `with` block."""
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def take_sent(message: Mapping[str, Any], own_host: str) -> None:
    """Receives a worker's line on the driver.

    Args:
        message: The message that `SentLines` sent.
        own_host: The driver's host; lines from other hosts name their host.
    """
    line, host = message[LINE].encode(), message["host"]
    for take in foreign_lines:
        take(line if host == own_host else orjson.dumps({**orjson.loads(line), "host": host}))


@contextmanager
def keeping_lines() -> Iterator[RecentLines]:
    """Keeps the last lines within a `with` block."""
    lines = RecentLines()
    foreign_lines.append(lines.take)
    try:
        with handling(lines):
            yield lines
    finally:
        foreign_lines.remove(lines.take)
