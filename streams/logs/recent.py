"""The last log lines of this process, for the dashboard: records, and with JSON also what others write to standard error."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from streams.logs.json_lines import LONGEST, line_of, record_fields
from streams.logs.output import foreign_lines

_MOST = 500


class RecentLines(logging.Handler):
    """Keeps the last lines as JSON, each of at most `LONGEST` bytes."""

    def __init__(self, most: int = _MOST) -> None:
        super().__init__()
        self._lines: deque[bytes] = deque(maxlen=most)

    def emit(self, record: logging.LogRecord) -> None:
        self.take(line_of(record_fields(record), LONGEST))
        # Python's last resort writes warnings where there is no handler, and this one is none for people.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._others(record.name):
            last.handle(record)

    def take(self, line: bytes) -> None:
        self._lines.append(line)

    def newest(self) -> list[dict[str, Any]]:
        """The lines, newest first."""
        return [orjson.loads(line) for line in list(self._lines)[::-1]]

    def _others(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


@contextmanager
def keeping_lines() -> Iterator[RecentLines]:
    """Keeps the last lines within a `with` block."""
    lines, root = RecentLines(), logging.getLogger()
    root.addHandler(lines)
    foreign_lines.append(lines.take)
    try:
        yield lines
    finally:
        foreign_lines.remove(lines.take)
        root.removeHandler(lines)
