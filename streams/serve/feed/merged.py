"""`Merged`: the changes of tasks that several processes have, as one stream.

Each process gives the events of its tasks, whose ids are the places of these tasks; an event that is sent on has the places of all.
Invariants: nothing with an id is sent before the places of all tasks are known; when a process goes away, or gives up a task, the
stream continues behind what came from it, in the process that has the task then.
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
"""How long nobody may have a task before the stream ends: longer than the group needs to give it to another process."""
_AGAIN_S = 0.25
_QUEUED = 4
"""How many events wait for the client, each of at most `changes.MOST_BYTES`, unless one row has more."""

Group = tuple[Any, Sequence[int]]
"""A process, and the tasks that it is asked for."""
Source = Callable[[Any, Sequence[int], str | None], AsyncIterator[ServerSentEvent]]
"""Opens the events of some tasks in a process, behind an id of theirs; None: from the beginning, as the client wants it."""


class Merged:
    """The changes of tasks that several processes have, as one stream.

    Args:
        groups: Says which process has which of some tasks; raises `StoreNotReadyError` if nobody has one.
        source: Opens the events of a process; raises `StoreNotReadyError` if that goes away, or does not have the tasks.
        follow: Whether the stream continues after what is there.
        after: The places behind which it begins, of all tasks; None: it begins as the client wants.
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
        """Passes on the events of some tasks; where they break off, those of whoever has the tasks then.

        Since `lost_s`, nobody has given an event of them; None: this process is the first one that is asked.
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
                        # Until then it stays where it comes from, since a process may give its first rows for long.
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
            # Whatever it is ends the stream, which says so.
            await self._queue.put(ServerSentEvent.of_error(error))

    async def _others(self, tasks: Sequence[int], lost_s: float) -> Sequence[Group]:
        """Who has the tasks now.

        Raises:
            StoreNotReadyError: Nobody has given an event of them for a minute.
        """
        why = "nobody has given the changes of these tasks for a minute"
        while asyncio.get_running_loop().time() < lost_s + _PATIENCE_S:
            await asyncio.sleep(_AGAIN_S)
            try:
                return self._groups(tasks)
            except StoreNotReadyError as error:
                why = str(error)
        raise StoreNotReadyError(why)
