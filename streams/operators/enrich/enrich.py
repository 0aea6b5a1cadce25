"""`enrich`: values from calls to other systems, many records at a time. Kafka Streams has nothing like it (KIP-311, KIP-408).

Records wait until there are enough for a round of calls, or the piece of records that is being read ends. Each result
then goes on in its record's place (`OperatorContext.hold`), so that the order of records, and with it all that follows, does
not depend on how many were called for at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from streams.errors import CallFailedError
from streams.model.record import Record
from streams.operators.enrich.calls import NOT_CALLED, CallRules, Calls, Failure, PendingCall, Tally
from streams.operators.enrich.user_client import UserClient
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext

CALLS_PER_ROUND = 8
"""For each one that may be under way: so that one slow call seldom lets all others wait for the end of the round."""

OnError = Literal["fail", "drop"] | Callable[[Any, Any, Exception], Any]


class Enrich(Operator):
    """Replaces the value by what a function gives for it; key, timestamp and headers stay.

    Args:
        function: The user's.
        rules: How it is called.
        on_error: What becomes of a record for which it fails for good: `fail` lets the processing policy decide, `drop` drops
            it as `call_failed` or `timeout`, a function `(key, value, error) -> value` gives another value.
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
        """Nothing is opened yet: there may be no records."""
        super().init(ctx)
        self._who = f"'{self._function.name}' of enrich() in node '{ctx.node}'"

    def process(self, record: Record) -> None:
        """Wait for enough others."""
        self._waiting.append(PendingCall(record, self.ctx.record_metadata, self.ctx.hold(record)))
        if len(self._waiting) == self._most_waiting:
            self.flush()

    def flush(self) -> None:
        """Call for those that wait."""
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
        """Close the function; what still waits is of a step that has failed."""
        self._waiting = []
        self._function.close()

    def _outcomes(self, waiting: list[PendingCall]) -> list[Any]:
        tally = Tally()
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
        """Forward, with the record in process again."""
        if not isinstance(outcome, Failure):
            self.ctx.forward(record.with_value(outcome))
        elif callable(self._on_error):
            self.ctx.forward(record.with_value(self._on_error(record.key, record.value, outcome.error)))
        elif self._on_error == "drop":
            self.ctx.drop(record, "timeout" if isinstance(outcome.error, TimeoutError) else "call_failed")
        else:
            error = outcome.error
            raise CallFailedError(
                f"{self._who} failed in every one of its calls, in the last with {type(error).__name__}: "
                f"{str(error).removesuffix('.')}. on_error= says what becomes of such records, retries= and timeout= how long to "
                f"try"
            ) from error
