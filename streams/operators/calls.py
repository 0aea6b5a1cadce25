"""Calls of a user's function for records, as `enrich` makes them: one by one or in batches, concurrently, with timeout and retries.

Invariants: an outcome belongs to its record, whichever call ends first; no part of a call continues once `outcomes` has ended.
Clocks decide when a call has failed and how long to wait before the next one, but they never affect a result.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar

from streams.errors import EnrichError, RecordError, StreamsError
from streams.model.ownership import snapshot
from streams.model.record import Record, RecordMetadata
from streams.operators.attempts import Attempts
from streams.wording import a_kind_of

NOT_CALLED: Final = object()
"""The outcome of a record whose call was not started because another call had failed."""

LONGEST_BACKOFF_MS = 60_000

OnError = Literal["fail", "drop"] | Callable[[Any, Any, Exception], Any] | Attempts
"""What to do with a record whose calls have all failed (`Enrich`)."""


class PendingCall(NamedTuple):
    """A record that waits for its result.

    Attributes:
        source: Where the record was read.
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
        is_async: Whether the function is `async def`.
        takes_key: Whether the first argument is the key (or the list of keys).
        batch_size: The largest size of the lists that the function gets; None: one call per record.
        concurrency: Maximum number of concurrent calls; 1 for a plain function.
        timeout_ms: Timeout of each call; None for a plain function, which cannot be stopped.
        retries: How often a failed call is repeated.
        backoff_ms: The wait before the first retry, doubled for each further one, up to a minute.
        stop: Whether to start no more calls once a record has failed.
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
class CallTally:
    """Counts of calls, and their total duration in seconds."""

    calls: int = 0
    retries: int = 0
    failures: int = 0
    seconds: float = 0.0


class Calls:
    """The calls for a number of records.

    Args:
        function: The user's function.
        tally: The counts.
        who: The names of function and node, for messages.
    """

    def __init__(self, function: Callable[..., Any], rules: CallRules, tally: CallTally, who: str) -> None:
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
        """The outcomes of a batch. If its call keeps failing, each record is tried alone, so that one does not fail the others."""
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
        # Copies, because a call may be repeated, and a record whose calls all fail continues unchanged.
        if rules.batch_size is None:
            arguments = (snapshot(records[0].key), snapshot(records[0].value))
        else:
            arguments = ([snapshot(one.key) for one in records], [snapshot(one.value) for one in records])
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
    """Runs all to completion. If one fails, or all are interrupted, the others are cancelled first."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- A user's function that calls other systems: its resources in a process, and its event loop.
#
# A class instead of a function is instantiated once per process, at its first call, so that a client can be reused. All calls
# of an async function run in one event loop of the same lifetime, because clients belong to the loop in which they were created.
# There are no threads, except where the calling thread already runs a loop of its own (a notebook).

T = TypeVar("T")
Work = Callable[[Callable[..., Any]], Coroutine[Any, Any, T]]


class UserClient:
    """A user's function, or a class that makes it. Open resources are not pickled.

    Args:
        function: The function, or with `is_factory` a class, which is instantiated in the event loop if there is one.
        is_factory: Whether `function` is a class. The object's `close()`, if it exists, is called at the end; it may be async.
        is_async: Whether the function is `async def`.
    """

    def __init__(self, function: Callable[..., Any], is_factory: bool, is_async: bool) -> None:
        self._function = function
        self._is_factory = is_factory
        self._is_async = is_async
        self._made: Callable[..., Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __reduce__(self) -> tuple[type[UserClient], tuple[Callable[..., Any], bool, bool]]:
        return UserClient, (self._function, self._is_factory, self._is_async)

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        named = getattr(self._function, "func", self._function)
        return str(getattr(named, "__name__", type(named).__name__))

    def run(self, work: Work[T]) -> T:
        """Run `work(function)` to its end.

        Raises:
            EnrichError: The class cannot be instantiated.
        """
        return self._run(self._with_function(work))

    def close(self) -> None:
        """Close the instance and the event loop; `run` would open both again."""
        made, self._made = self._made, None
        closing = getattr(made, "close", None)
        if closing is not None:
            self._run(_closed(closing))
        loop, self._loop = self._loop, None
        if loop is not None:
            _outside_of_loops(lambda: _close(loop))

    async def _with_function(self, work: Work[T]) -> T:
        if not self._is_factory:
            return await work(self._function)
        if self._made is None:
            try:
                self._made = self._function()
            except Exception as error:
                raise EnrichError(
                    f"{self.name}() cannot be created in this process: {type(error).__name__}: {error}. enrich() creates it "
                    f"before the first call, without arguments. Everything it needs must be available wherever records are read."
                ) from error
        return await work(self._made)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._is_async:
            return _by_hand(work)
        loop = self._loop = self._loop or asyncio.new_event_loop()
        return _outside_of_loops(lambda: _complete(loop, work))


async def _closed(closing: Callable[[], Any]) -> None:
    done = closing()
    if inspect.isawaitable(done):
        await done


def _by_hand(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits, without an event loop, so that a plain function may start its own."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise EnrichError("close() of a class whose calls are not async must not be async either.")


def _complete(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    main = loop.create_task(work)
    try:
        return loop.run_until_complete(main)
    finally:
        if not main.done():  # interrupted from outside: no task may continue unnoticed
            main.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(main)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def _outside_of_loops(action: Callable[[], T]) -> T:
    """Runs the action in another thread if this one runs an event loop, because a thread cannot run two."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return action()
    with ThreadPoolExecutor(1, thread_name_prefix="enrich") as pool:
        return pool.submit(action).result()
