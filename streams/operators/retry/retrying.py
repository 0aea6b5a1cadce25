"""A user's processor whose failures are retried: records that it fails on go through retry topics and come back.

Only this processor sees a record again. What is above it has had its effects once, and what is below has seen nothing of a
record that failed here. (Kafka Streams has no equivalent; the topics are those of Uber's and Confluent's pattern, and the order
of keys that of Confluent's "maintain order of redirected events".)
"""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.operator_context import OperatorContext
from streams.operators.process.user_processor import UserProcessor
from streams.operators.processor import OuterProcessor
from streams.operators.retry.attempts import DEAD, Attempts, at, level_of, placed, plain, ticket_of, walk_of
from streams.operators.retry.waiting_line import Line, WaitingLines, Walk


class Retrying(OuterProcessor[object, object, OperatorContext]):
    """Runs a user's processor and sets aside the records that it fails on.

    Args:
        inner: The processor.
        attempts: Its retry topics.
        waiting: The name of the store with the lines of waiting records; None: the order of keys is not kept.
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
        """Let a record wait behind its key's line; what is gone from the line is passed over."""
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
        """Process a record for which no other one of its key has to wait."""
        failed = self._try(record, retried)
        level = DEAD if failed is None else level_of(failed)
        if failed is not None and level != DEAD:
            failed = at(failed, level, lines.wait(record.key, line, level, record.timestamp))
        elif line is not None:
            lines.leave(record.key, line, record.timestamp)
        if failed is not None:
            self.ctx.divert(failed)

    def _try(self, record: Record, retried: bool) -> Record | None:
        """Process a record; if that fails, returns it with where it goes."""
        try:
            self.inner.process(plain(record) if retried else record)
        except Exception as error:
            failed = self._attempts.failed(record, self.ctx.fault(error), retried, self.ctx.application_id)
            self.ctx.count("dead_letters" if level_of(failed) == DEAD else "retried", 1)
            return failed
        return None
