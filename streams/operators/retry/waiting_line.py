"""The records of a key that wait for their turn: a line in front of an operator that retries in order.

The first record of the line is the one that has failed; it is tried again each time it is due. Later records of its key take a
ticket and follow it from retry topic to retry topic, whose records of one key are in one partition and so in order. Whatever the
topics' delays, a ticket is served only when all before it are done, by success or as dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from streams.operators.stores.key_value import TypedKeyValueStore


@dataclass(frozen=True, slots=True)
class Line:
    """The line of one key.

    Attributes:
        serving: The ticket of its first record.
        end: The next free ticket.
        level: The retry topic in which its first record waits.
    """

    serving: int
    end: int
    level: int


class WaitingLines:
    """The lines of all keys of a task.

    Args:
        store: Key -> the three numbers of its line; keys without waiting records have no row.
    """

    def __init__(self, store: TypedKeyValueStore) -> None:
        self._store = store

    def of(self, key: Any) -> Line | None:
        """The line of a key; None: no record of it waits."""
        found = self._store.get(key)
        return None if found is None else Line(*found)

    def join(self, key: Any, line: Line, timestamp: int) -> int:
        """Take a ticket at the end of a line."""
        self._put(key, replace(line, end=line.end + 1), timestamp)
        return line.end

    def wait(self, key: Any, line: Line | None, level: int, timestamp: int) -> int:
        """Note where the first record of a line waits now, with or without a line so far; returns its ticket."""
        line = Line(0, 1, level) if line is None else replace(line, level=level)
        self._put(key, line, timestamp)
        return line.serving

    def leave(self, key: Any, line: Line, timestamp: int) -> None:
        """Note that the first record of a line is done."""
        line = replace(line, serving=line.serving + 1)
        self._put(key, line if line.serving < line.end else None, timestamp)

    def _put(self, key: Any, line: Line | None, timestamp: int) -> None:
        row = None if line is None else [line.serving, line.end, line.level]
        self._store.put(key, row, max(0, timestamp))
