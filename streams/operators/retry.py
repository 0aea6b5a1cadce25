"""Retries of failed records: their way to the retry topics, the lines in which records of a key wait, and the operator.

`attempts` describes their headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from streams.model.ownership import snapshot
from streams.model.record import Record
from streams.operators.attempts import DEAD, Attempts, at, level_of, placed, plain, ticket_of, walk_of
from streams.operators.operator import OperatorContext, RecordOperator
from streams.operators.process.user_processor import UserProcessor
from streams.operators.processor import OuterProcessor
from streams.operators.stores.key_value import TypedKeyValueStore

# --- Sends each record that an operator has failed on to its retry topic, or to the dead letters.


class RetryRoute(RecordOperator):
    """Forwards a record to the sink of its level.

    Args:
        sinks: The names of the dead letters' sink and of the retry topics' sinks, in order.
    """

    def __init__(self, sinks: Sequence[str]) -> None:
        self._sinks = tuple(sinks)

    def process(self, record: Record) -> None:
        self.ctx.forward(record, self._sinks[level_of(record)])


# --- A line before an operator that retries in order: the records of one key that wait for their turn.
#
# The first record of the line has failed, and is tried again each time it is due. Later records of its key take a ticket and follow
# it from retry topic to retry topic. In a topic, the records of a key are in one partition and so in order. Whatever the delays of
# the topics, a ticket is served only when all earlier ones are done, by success or as dead letters. For example, records A, B and C
# of a key have the tickets 0, 1 and 2: while A waits in the 10 s topic, B and C wait behind it, and B is tried after A.
#
# A record may vanish from a retry topic: the next program cannot read it and skips it, or its offsets are lost. Its ticket would
# never be served, and its key would wait forever. So each record that follows notes the topics that it has passed through while the
# line did not move (`Walk`). Once these are all topics, it has passed every place where the served record could be, and all other
# earlier records have been seen. A record that was not seen is gone, and the line continues with the first one that was seen.


@dataclass(frozen=True, slots=True)
class Line:
    """The line of one key.

    Attributes:
        serving: The ticket of its first record.
        end: The next free ticket.
        level: The retry topic in which its first record waits.
        moves: How often its first record has been written to a retry topic since it became the first.
        least: The lowest of the other tickets that were seen since the first record's last move; 0: none.
    """

    serving: int
    end: int
    level: int
    moves: int = 0
    least: int = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """The path of a record that waits behind a line that does not move.

    Attributes:
        serving: The ticket that was served during the walk.
        visited: The retry topics that the record has passed through, as bits.
    """

    serving: int
    moves: int
    visited: int = 0

    @classmethod
    def behind(cls, line: Line, noted: bytes | None, level: int) -> Walk:
        """The way so far. It begins again whenever the line has moved."""
        before = cls(*map(int, noted.split(b"."))) if noted else None
        if not level or before is None or (before.serving, before.moves) != (line.serving, line.moves):
            return cls(line.serving, line.moves)
        return replace(before, visited=before.visited | 1 << level)

    def next(self, line: Line, levels: int) -> int | None:
        """The next retry topic to visit, first the one in which the line's first record waits; None: all were visited."""
        left = (level for level in (min(line.level, levels), *range(1, levels + 1)) if not self.visited >> level & 1)
        return next(left, None)

    def to_header(self) -> bytes:
        """The path as the value of a header."""
        return b"%d.%d.%d" % (self.serving, self.moves, self.visited)


class WaitingLines:
    """The lines of all keys of a task.

    Args:
        store: Key -> the fields of its `Line`; keys without waiting records have no row.
    """

    def __init__(self, store: TypedKeyValueStore) -> None:
        self._store = store

    def of(self, key: Any) -> Line | None:
        """The line of a key; None if none of its records waits."""
        found = self._store.get(key)
        return None if found is None else Line(*found)

    def join(self, key: Any, line: Line, timestamp: int) -> int:
        """Take a ticket at the end of a line."""
        self._put(key, replace(line, end=line.end + 1), timestamp)
        return line.end

    def wait(self, key: Any, line: Line | None, level: int, timestamp: int) -> int:
        """Note where the first record of a line waits now; begins a line if there is none. Returns the record's ticket."""
        line = Line(0, 1, level, 1) if line is None else replace(line, level=level, moves=line.moves + 1, least=0)
        self._put(key, line, timestamp)
        return line.serving

    def leave(self, key: Any, line: Line, timestamp: int) -> None:
        """Note that the first record of a line is done."""
        line = replace(line, serving=line.serving + 1, moves=0, least=0)
        self._put(key, line if line.serving < line.end else None, timestamp)

    def saw(self, key: Any, line: Line, ticket: int, timestamp: int) -> Line:
        """Note that a record with a later ticket came back. Returns the changed line."""
        if line.least and line.least <= ticket:
            return line
        line = replace(line, least=ticket)
        self._put(key, line, timestamp)
        return line

    def skip(self, key: Any, line: Line, timestamp: int) -> Line:
        """Continue with the first record that was seen, because the earlier ones are gone. Returns the changed line."""
        line = replace(line, serving=line.least, moves=0, least=0)
        self._put(key, line, timestamp)
        return line

    def _put(self, key: Any, line: Line | None, timestamp: int) -> None:
        row = None if line is None else [line.serving, line.end, line.level, line.moves, line.least]
        self._store.put(key, row, max(0, timestamp))


# --- A user's processor whose failures are retried: records that it fails on go through retry topics and come back.
#
# Only this processor sees a record again. Nodes above have processed it once, and nodes below have not seen a record that failed
# here. (Kafka Streams has no equivalent. The topics follow Uber's and Confluent's pattern, and the order of keys follows
# Confluent's "maintain order of redirected events".)


class Retrying(OuterProcessor[object, object, OperatorContext]):
    """Runs a user's processor and sets aside the records that it fails on.

    Args:
        attempts: The retry topics of the processor.
        waiting: The name of the store with the lines of waiting records; None: records of a key may overtake waiting ones.
    """

    def __init__(self, inner: UserProcessor, attempts: Attempts, waiting: str | None) -> None:
        super().__init__(inner)
        self._attempts = attempts
        self._waiting = waiting
        self._lines: WaitingLines | None = None

    def init(self, ctx: OperatorContext) -> None:
        """Pass the processor its context."""
        self._levels = {topic: level for level, topic in enumerate(self._attempts.real_topics(ctx.application_id), 1)}
        if self._waiting is not None:
            self._lines = WaitingLines(ctx.store(self._waiting))
        super().init(ctx)

    def process(self, record: Record) -> None:
        """Process a record, unless earlier ones of its key are still waiting."""
        level = self._levels.get(self.ctx.topic or "", 0)
        if self._lines is None or record.key is None:
            if (failed := self._try(record, bool(level))) is not None:
                self.ctx.divert(failed)
            return
        line = self._lines.of(record.key)
        ticket = ticket_of(record) if level else None
        if line is None or (ticket is not None and ticket <= line.serving):
            self._first(self._lines, line, record, bool(level))
        else:
            self._follow(self._lines, line, record, ticket, level)

    def _follow(self, lines: WaitingLines, line: Line, record: Record, ticket: int | None, level: int) -> None:
        """Let a record wait behind the line of its key; records that are gone from the line are skipped."""
        if not level:
            record = placed(record, self.ctx.record_metadata)
        walk = Walk.behind(line, walk_of(record), level if ticket is not None else 0)
        if ticket is None:
            ticket = lines.join(record.key, line, record.timestamp)
        else:
            line = lines.saw(record.key, line, ticket, record.timestamp)
            if walk.next(line, len(self._levels)) is None:
                self.ctx.count("vanished", line.least - line.serving)
                line = lines.skip(record.key, line, record.timestamp)
                if line.serving == ticket:
                    self._first(lines, line, record, True)
                    return
                walk = Walk.behind(line, None, level)
        to = walk.next(line, len(self._levels))
        assert to is not None, "a walk that has just begun has topics left"
        self.ctx.count("followed", 1)
        self.ctx.divert(at(record, to, ticket, walk.to_header()))

    def _first(self, lines: WaitingLines, line: Line | None, record: Record, retried: bool) -> None:
        """Process a record that need not wait for another record of its key."""
        failed = self._try(record, retried)
        level = DEAD if failed is None else level_of(failed)
        if failed is not None and level != DEAD:
            failed = at(failed, level, lines.wait(record.key, line, level, record.timestamp))
        elif line is not None:
            lines.leave(record.key, line, record.timestamp)
        if failed is not None:
            self.ctx.divert(failed)

    def _try(self, record: Record, retried: bool) -> Record | None:
        """Process a record. If that fails, return the record with headers for its next topic."""
        try:
            # A copy, because the record must be unchanged when it is tried again.
            given = Record(snapshot(record.key), snapshot(record.value), record.timestamp, record.headers)
            self.inner.process(plain(given) if retried else given)
        except Exception as error:
            failed = self._attempts.failed(record, self.ctx.fault(error), retried, self.ctx.application_id)
            self.ctx.count("dead_letters" if level_of(failed) == DEAD else "retried", 1)
            return failed
        return None
