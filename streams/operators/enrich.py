"""`enrich`: values from calls to other systems, many records at a time. Kafka Streams has no equivalent (KIP-311, KIP-408).

Records wait until there are enough for a round of calls, or until the current piece of records ends. Each result then takes
its record's place (`OperatorContext.hold`). So the order of records, and everything that depends on it, does not depend on the
number of records per round.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from streams.errors import CallFailedError
from streams.model.record import Record
from streams.operators.attempts import DEAD, Attempts, level_of, plain
from streams.operators.calls import NOT_CALLED, CallRules, Calls, CallTally, Failure, OnError, PendingCall, UserClient
from streams.operators.operator import OperatorContext, RecordOperator

CALLS_PER_ROUND = 8
"""Records per concurrent call in a round. A slow call then seldom makes all others wait for the end of the round."""


class Enrich(RecordOperator):
    """Replaces the value with the result of a function; key, timestamp and headers stay the same.

    Args:
        function: The user's function.
        on_error: What to do with a record whose calls all fail: `fail` applies the processing policy, `drop` drops the record as
            `call_failed` or `timeout`, a function `(key, value, error) -> value` provides another value, and `Attempts` send
            it to a retry topic.
    """

    def __init__(self, function: UserClient, rules: CallRules, on_error: OnError) -> None:
        self._function = function
        self._rules = rules
        self._on_error = on_error
        self._waiting: list[PendingCall] = []
        self._uncounted_ms = 0.0
        rounds = CALLS_PER_ROUND * rules.concurrency if rules.is_async else 1
        self._most_waiting = (rules.batch_size or 1) * rounds

    def init(self, ctx: OperatorContext) -> None:
        """Prepares the name for messages. The function is only opened once there are records."""
        super().init(ctx)
        self._who = f"'{self._function.name}' of enrich() in node '{ctx.node}'"

    def process(self, record: Record) -> None:
        self._waiting.append(PendingCall(record, self.ctx.record_metadata, self.ctx.hold(record)))
        if len(self._waiting) == self._most_waiting:
            self.flush()

    def flush(self) -> None:
        """Make the calls for the waiting records."""
        waiting, self._waiting = self._waiting, []
        while waiting:
            outcomes = self._outcomes(waiting)
            left = []
            for one, outcome in zip(waiting, outcomes, strict=True):
                if outcome is NOT_CALLED:
                    left.append(one)
                    continue
                with self.ctx.resume(one.held):
                    self.ctx.attempt(partial(self._go_on, one.record, outcome))
            waiting = left

    def close(self) -> None:
        """Close the function; records that still wait belong to a failed step."""
        self._waiting = []
        self._function.close()

    def _outcomes(self, waiting: list[PendingCall]) -> list[Any]:
        tally = CallTally()
        try:
            return self._function.run(lambda fn: Calls(fn, self._rules, tally, self._who).outcomes(waiting))
        finally:
            self._uncounted_ms += tally.seconds * 1000
            whole = int(self._uncounted_ms)
            self._uncounted_ms -= whole
            counts = {"calls": tally.calls, "retries": tally.retries, "failures": tally.failures, "call_ms": whole}
            for what, number in counts.items():
                self.ctx.count(what, number)

    def _go_on(self, record: Record, outcome: Any) -> None:
        """Forward the result, or apply `on_error`; the record is the current one again."""
        if isinstance(self._on_error, Attempts):
            self._retry(self._on_error, record, outcome)
        elif not isinstance(outcome, Failure):
            self.ctx.forward(record.with_value(outcome))
        elif callable(self._on_error):
            self.ctx.forward(record.with_value(self._on_error(record.key, record.value, outcome.error)))
        elif self._on_error == "drop":
            self.ctx.drop(record, "timeout" if isinstance(outcome.error, TimeoutError) else "call_failed")
        else:
            error = outcome.error
            raise CallFailedError(
                f"{self._who} failed in all its calls, the last time with {type(error).__name__}: "
                f"{str(error).removesuffix('.')}. on_error= decides what happens to such records; retries= and timeout= decide "
                f"how long to try"
            ) from error

    def _retry(self, attempts: Attempts, record: Record, outcome: Any) -> None:
        """Forward the result, or send the record to its next retry topic."""
        retried = self.ctx.topic in attempts.real_topics(self.ctx.application_id)
        if not isinstance(outcome, Failure):
            self.ctx.forward((plain(record) if retried else record).with_value(outcome))
            return
        error = self.ctx.fault(outcome.error)
        failed = attempts.failed(record, error, retried, self.ctx.application_id)
        self.ctx.count("dead_letters" if level_of(failed) == DEAD else "retried", 1)
        self.ctx.divert(failed)
