"""A user's function that calls other systems: its resources in a process, and its event loop.

A class in place of a function is instantiated once per process, at its first call, so that a client can be reused. All calls of
an async function run in one event loop, which lives as long, because clients belong to the loop that they were created in. There
are no threads, except where the calling thread already runs a loop of its own (a notebook).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from streams.errors import EnrichError

T = TypeVar("T")
Work = Callable[[Callable[..., Any]], Coroutine[Any, Any, T]]


class UserClient:
    """The function, or its factory. Picklable: open resources stay behind.

    Args:
        function: The function, or with `is_factory` its factory, called without arguments, in the event loop if there is one.
        is_factory: See `function`. The instance's `close()`, if any, is called at the end; it may be async.
        is_async: The function is `async def`.
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
                    f"{self.name}() cannot be made in this process: {type(error).__name__}: {error}. enrich() makes it before "
                    f"the first call, without arguments; what it needs must be there wherever records are read."
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
    """Run a coroutine that never waits, without an event loop: a plain function may start one of its own."""
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
    """Run the action in another thread if this one runs an event loop: a thread cannot run two."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return action()
    with ThreadPoolExecutor(1, thread_name_prefix="enrich") as pool:
        return pool.submit(action).result()
