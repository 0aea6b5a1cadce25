"""The records of a key that wait for their turn: a line in front of an operator that retries in order.

The first record of the line is the one that has failed; it is tried again each time it is due. Later records of its key take a
ticket and follow it from retry topic to retry topic, whose records of one key are in one partition and so in order. Whatever the
topics' delays, a ticket is served only when all before it are done, by success or as dead letters.

A record may vanish from a retry topic: the next program cannot read it and skips it, or its offsets are lost. Its ticket would
never be served, and its key would wait for ever. So each record that follows notes the topics that it has come through while the
line stood still (`Walk`). Once these are all topics, it has passed every place at which the record that is served could be, and all
others before it have been seen on the way. What was not seen is gone, and the line goes on with the first that was.
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
        moves: How often the first record has been written to a retry topic as the first one.
        least: The lowest of the other tickets that were seen since its last move; 0: none.
    """

    serving: int
    end: int
    level: int
    moves: int = 0
    least: int = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """The way of a record behind a line that stands still.

    Attributes:
        serving: The ticket that was served on the way.
        moves: See `Line`.
        visited: The retry topics that the record has come through, as bits.
    """

    serving: int
    moves: int
    visited: int = 0

    @classmethod
    def behind(cls, line: Line, noted: bytes | None, level: int) -> Walk:
        """The way so far, which begins again whenever the line has moved."""
        before = cls(*map(int, noted.split(b"."))) if noted else None
        if not level or before is None or (before.serving, before.moves) != (line.serving, line.moves):
            return cls(line.serving, line.moves)
        return replace(before, visited=before.visited | 1 << level)

    def next(self, line: Line, levels: int) -> int | None:
        """The next retry topic: first the one in which the line's first record waits; None: it was in all of them."""
        left = (level for level in (min(line.level, levels), *range(1, levels + 1)) if not self.visited >> level & 1)
        return next(left, None)

    def to_header(self) -> bytes:
        """The way, as the record notes it."""
        return b"%d.%d.%d" % (self.serving, self.moves, self.visited)


class WaitingLines:
    """The lines of all keys of a task.

    Args:
        store: Key -> the numbers of its line; keys without waiting records have no row.
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
        line = Line(0, 1, level, 1) if line is None else replace(line, level=level, moves=line.moves + 1, least=0)
        self._put(key, line, timestamp)
        return line.serving

    def leave(self, key: Any, line: Line, timestamp: int) -> None:
        """Note that the first record of a line is done."""
        line = replace(line, serving=line.serving + 1, moves=0, least=0)
        self._put(key, line if line.serving < line.end else None, timestamp)

    def saw(self, key: Any, line: Line, ticket: int, timestamp: int) -> Line:
        """Note that a record with a later ticket came back; returns the line."""
        if line.least and line.least <= ticket:
            return line
        line = replace(line, least=ticket)
        self._put(key, line, timestamp)
        return line

    def skip(self, key: Any, line: Line, timestamp: int) -> Line:
        """Go on with the first record that was seen, since those before it are gone; returns the line."""
        line = replace(line, serving=line.least, moves=0, least=0)
        self._put(key, line, timestamp)
        return line

    def _put(self, key: Any, line: Line | None, timestamp: int) -> None:
        row = None if line is None else [line.serving, line.end, line.level, line.moves, line.least]
        self._store.put(key, row, max(0, timestamp))
