"""`Merged`: the changes of tasks that run in several processes, as one stream.

Each process gives the events of its tasks, with the places of these tasks as ids. The merged stream gives each event the places of
all tasks. Invariants: nothing with an id is sent before the places of all tasks are known; when a process goes away, or gives up a
task, the stream continues in the process that then has the task, after the last event that came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import orjson

from streams.errors import StoreNotReadyError
from streams.serve.feed.changes import ChangelogPlace, parse_places, places_text
from streams.serve.feed.events import ServerSentEvent

_PATIENCE_S = 60.0
"""How long a task may be in no process before the stream ends: longer than the group needs to move it to another one."""
_AGAIN_S = 0.25
_QUEUED = 4
"""The most events that wait for the client. Each has at most `changes.MOST_BYTES`, unless one row is larger."""

Group = tuple[Any, Sequence[int]]
"""A process, and the tasks that it is asked for."""
Source = Callable[[Any, Sequence[int], str | None], AsyncIterator[ServerSentEvent]]
"""Opens the events of some tasks in a process, after an id of that process; None: from the beginning that the client asked for."""


class Merged:
    """Merges the changes of tasks that run in several processes.

    Args:
        groups: Returns which process has which tasks; raises `StoreNotReadyError` if no process has one of them.
        source: Opens the events of a process; raises `StoreNotReadyError` if the process goes away, or does not have the tasks.
        follow: Whether the stream waits for further changes after the existing ones.
        after: The places of all tasks after which the stream begins; None: it begins as the client asked.
    """

    def __init__(
        self,
        groups: Callable[[Iterable[int]], Sequence[Group]],
        source: Source,
        follow: bool,
        after: dict[int, ChangelogPlace] | None = None,
    ) -> None:
        self._groups, self._source, self._follow = groups, source, follow
        self._after = after or {}
        self._queue: asyncio.Queue[ServerSentEvent | None] = asyncio.Queue(_QUEUED)
        self._known = asyncio.Event()
        """Set when the places of all tasks are known."""
        self._running: set[asyncio.Task[None]] = set()
        self._open = 0
        """How many of those who put events into the queue have not said yet that they end, by None."""

    async def events(self, tasks: Sequence[int]) -> AsyncIterator[ServerSentEvent]:
        """The events of these tasks, until the client goes away."""
        places: dict[int, ChangelogPlace] = {}
        self._begin(self._groups(tasks), self._after)
        try:
            while self._open:
                event = await self._queue.get()
                if event is None:
                    self._open -= 1
                    continue
                if event.kind in ("rows", "error"):
                    yield event
                    if event.kind == "error":
                        return
                    continue
                known = self._known.is_set()
                if event.kind == "position" and known:
                    continue
                places.update(parse_places(event.id))
                if len(places) < len(tasks):
                    continue
                self._known.set()
                yield event._replace(id=places_text(places))
        finally:
            for task in self._running:
                task.cancel()

    def _begin(self, groups: Sequence[Group], places: dict[int, ChangelogPlace], lost_s: float | None = None) -> None:
        for node, tasks in groups:
            task = asyncio.create_task(self._pump(node, list(tasks), dict(places), lost_s))
            self._open += 1
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _pump(self, node: Any, tasks: list[int], places: dict[int, ChangelogPlace], lost_s: float | None) -> None:
        """Passes on the events of some tasks. If the events break off, it continues in the process that has the tasks then.

        No process has given an event of these tasks since `lost_s`; None: no process has failed yet.
        """
        begun = all(task in places for task in tasks)
        after = places_text({task: places[task] for task in tasks}) if begun else None
        try:
            try:
                async for event in self._source(node, tasks, after):
                    if event.kind == "error" and orjson.loads(event.data)["error"] == StoreNotReadyError.__name__:
                        break
                    lost_s = None
                    if event.kind not in ("rows", "position", "error"):
                        # Until then the events wait in their process, since its first rows may take long.
                        await self._known.wait()
                    await self._queue.put(event)
                    begun = begun or event.kind == "rows"
                    if event.id:
                        places.update(parse_places(event.id))
                else:
                    if not self._follow:
                        await self._queue.put(None)
                        return
            except StoreNotReadyError:
                # As if it had said so in an event: the tasks are elsewhere, or the process is gone.
                pass
            if begun and not all(task in places for task in tasks):
                # Rows may have been given twice otherwise.
                raise StoreNotReadyError("a process has gone away while it gave its first rows: begin again")
            lost_s = asyncio.get_running_loop().time() if lost_s is None else lost_s
            self._begin(await self._others(tasks, lost_s), places, lost_s)
            await self._queue.put(None)
        except Exception as error:
            # Any other error ends the stream, and is its last event.
            await self._queue.put(ServerSentEvent.of_error(error))

    async def _others(self, tasks: Sequence[int], lost_s: float) -> Sequence[Group]:
        """Looks up which processes have the tasks now.

        Raises:
            StoreNotReadyError: No process has given an event of these tasks for a minute.
        """
        why = "nobody has given the changes of these tasks for a minute"
        while asyncio.get_running_loop().time() < lost_s + _PATIENCE_S:
            await asyncio.sleep(_AGAIN_S)
            try:
                return self._groups(tasks)
            except StoreNotReadyError as error:
                why = str(error)
        raise StoreNotReadyError(why)
