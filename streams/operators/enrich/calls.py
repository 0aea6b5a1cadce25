"""Calls of a function for records: one by one or in batches, concurrently, with timeout and retries.

Invariants: an outcome belongs to its record, whichever call ends first; no part of a call continues once `outcomes` has ended.
Clocks decide when a call has failed and how long to wait before the next, never what a result is.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from streams.errors import EnrichError, RecordError, StreamsError
from streams.model.record import Record, RecordMetadata
from streams.wording import a_kind_of

NOT_CALLED: Final = object()
"""Outcome of a record whose call was not started, because another one had failed."""

LONGEST_BACKOFF_MS = 60_000


class PendingCall(NamedTuple):
    """A record that waits for its result.

    Attributes:
        record: The record.
        source: The record's source.
        held: The result of `OperatorContext.hold`.
    """

    record: Record
    source: RecordMetadata | None
    held: Any


class Failure(NamedTuple):
    """The outcome of a failed call: the exception of the last attempt."""

    error: Exception


@dataclass(frozen=True, slots=True)
class CallRules:
    """How the function is called.

    Attributes:
        is_async: The function is `async def`.
        takes_key: The first argument is the key (or the list of keys).
        batch_size: The function gets lists of at most this size; None: one call per record.
        concurrency: Maximum number of concurrent calls; 1 for a plain function.
        timeout_ms: Timeout of each call; None for a plain function, which cannot be stopped.
        retries: How often a failed call is repeated.
        backoff_ms: The wait before the first retry, doubled for each further one, up to a minute.
        stop: Start no more calls once a record has failed.
    """

    is_async: bool
    takes_key: bool
    batch_size: int | None
    concurrency: int
    timeout_ms: int | None
    retries: int
    backoff_ms: int
    stop: bool


@dataclass(slots=True)
class Tally:
    """Counts of calls, and their total duration in seconds."""

    calls: int = 0
    retries: int = 0
    failures: int = 0
    seconds: float = 0.0


class Calls:
    """The calls for a number of records.

    Args:
        function: The user's function.
        rules: How to call it.
        tally: The counts.
        who: Names function and node, for messages.
    """

    def __init__(self, function: Callable[..., Any], rules: CallRules, tally: Tally, who: str) -> None:
        self._function = function
        self._rules = rules
        self._tally = tally
        self._who = who
        self._stopped = False

    async def outcomes(self, waiting: Sequence[PendingCall]) -> list[Any]:
        """The outcome for each record: its result, a `Failure`, or `NOT_CALLED`.

        Raises:
            EnrichError: The function did not return one result for each record.
            StreamsError: The function raised an error that no record causes.
        """
        found = [NOT_CALLED] * len(waiting)
        size = self._rules.batch_size or 1
        starts = iter(range(0, len(waiting), size))

        async def work() -> None:
            for start in starts:
                if self._stopped:
                    return
                found[start : start + size] = await self._together(waiting[start : start + size])

        workers = min(self._rules.concurrency, -(-len(waiting) // size))
        if workers == 1:
            await work()
        else:
            await _side_by_side([work() for _ in range(workers)])
        return found

    async def _together(self, batch: Sequence[PendingCall]) -> list[Any]:
        """Outcomes of a batch; if the call keeps failing, each record is tried alone, so that one does not fail the others."""
        found = await self._attempts(batch, self._rules.retries)
        if not isinstance(found, Failure):
            return found
        if len(batch) == 1:
            return [self._failed(found)]
        outcomes: list[Any] = [NOT_CALLED] * len(batch)
        for at, one in enumerate(batch):
            if self._stopped:
                break
            self._tally.retries += 1
            alone = await self._attempts([one], 0)
            outcomes[at] = self._failed(alone) if isinstance(alone, Failure) else alone[0]
        return outcomes

    def _failed(self, failure: Failure) -> Failure:
        self._stopped = self._rules.stop
        return failure

    async def _attempts(self, batch: Sequence[PendingCall], retries: int) -> list[Any] | Failure:
        wait_ms = self._rules.backoff_ms
        for attempt in range(retries + 1):
            if attempt:
                self._tally.retries += 1
                await self._pause(wait_ms / 1000)
                wait_ms = min(2 * wait_ms, LONGEST_BACKOFF_MS)
            try:
                return self._checked(batch, await self._call(batch))
            except asyncio.TimeoutError as error:
                # Python 3.10 has two errors of that name, and asyncio's has no text.
                failure = Failure(TimeoutError(str(error) or f"no answer within {self._rules.timeout_ms} ms"))
            except Exception as error:
                if isinstance(error, MemoryError) or (
                    isinstance(error, StreamsError) and not isinstance(error, RecordError)
                ):
                    raise
                failure = Failure(error)
            self._tally.failures += 1
        return failure

    async def _pause(self, seconds: float) -> None:
        if self._rules.is_async:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)

    async def _call(self, batch: Sequence[PendingCall]) -> Any:
        rules, records = self._rules, [one.record for one in batch]
        arguments: tuple[Any, ...]
        if rules.batch_size is None:
            arguments = (records[0].key, records[0].value)
        else:
            arguments = ([record.key for record in records], [record.value for record in records])
        self._tally.calls += 1
        started = time.perf_counter()
        try:
            result = self._function(*arguments[0 if rules.takes_key else 1 :])
            if rules.is_async:
                return await asyncio.wait_for(result, rules.timeout_ms and rules.timeout_ms / 1000)
            return result
        finally:
            self._tally.seconds += time.perf_counter() - started

    def _checked(self, batch: Sequence[PendingCall], result: Any) -> list[Any]:
        if self._rules.batch_size is None:
            return [result]
        if isinstance(result, list | tuple) and len(result) == len(batch):
            return list(result)
        if isinstance(result, list | tuple):
            gave = f"{len(result)} results"
        elif inspect.isawaitable(result):
            gave = "something to await: write it as `async def`"
            getattr(result, "close", lambda: None)()
        else:
            gave = a_kind_of(result)
        raise EnrichError(
            f"{self._who} got {len(batch)} values ({_range(batch)}) and gave {gave}. It must give a list with one result for "
            f"each value, in their order, None where there is none; correct the function."
        )


def _range(batch: Sequence[PendingCall]) -> str:
    first, last = batch[0].source, batch[-1].source
    if first is None or last is None:
        return "records of no single source"
    if first.offset == last.offset:
        return f"{first.topic}-{first.partition}, offset {first.offset}"
    return f"{first.topic}-{first.partition}, offsets {first.offset} to {last.offset}"


async def _side_by_side(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all to their ends; if one fails, or all are interrupted, the others are cancelled first."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
