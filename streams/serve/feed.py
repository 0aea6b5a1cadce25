"""The changes of a store, commit by commit, from its changelogs: as events, and from several processes as one stream.

`ChangeFeed` reads the changes of tasks that are here; a reader continues from the position of an event. A position is the place in
the changelog of each task. Invariants: changes after a copy's commit are never shown; a reader that continues at the position of an
event gets everything after it and nothing before it, or an error. There is an error if the changelog was made again (`streams
reset`), or if deletions may be compacted away: they are kept for `delete.retention.ms` only.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import orjson
from starlette.concurrency import iterate_in_threadpool

from state.changelog import changelog_topic
from state.columns import RecordColumns
from state.errors import StreamsError
from state.restore.restorer import ChangelogSource
from state.secrets import mask
from state.stores.codec import split_session_key, split_window_key
from state.stores.dump import DumpRow
from state.stores.spec import StoreKind
from streams.errors import CursorExpiredError, QueryError, StoreNotReadyError
from streams.serve.copies import View
from streams.serve.reading import Point, ReadStore
from streams.serve.requests import point_json, rows_text
from streams.serve.scans import Asked, Scan

MOST_ROWS, MOST_BYTES = 1000, 4 * 1024 * 1024
"""The most rows of an event, and bytes of their keys and values: a larger commit is several events. One row may be larger."""
HOUR_MS = 3_600_000
_PLACE = re.compile(r"(?<!\d)(\d{1,9})=(\d{1,19})@([0-9a-f]*)\.(\d{1,19})(?!\d)", re.ASCII)


class ChangelogPlace(NamedTuple):
    """A place in the changelog of a task.

    Attributes:
        offset: All changes below this offset were given to the reader.
        log: Identifies the changelog; one that was made again has other records at the same offsets.
        known_ms: The latest time, in ms since the epoch, at which nothing after the offset was lost.
    """

    offset: int
    log: str
    known_ms: int


@dataclass(frozen=True, slots=True)
class StoreChange:
    """Rows that one commit of a task has changed, or a part of them.

    Attributes:
        rows: The rows; None as the value means that the row was deleted.
        point: The commit.
        id: The position from which to continue after these rows; empty while rows that existed before are still being given.
    """

    rows: tuple[bytes, ...]
    point: Point
    id: str = ""


class ChangeFeed:
    """The changes of a store for one reader; used by one thread at a time.

    Args:
        store: The store; not of a global table.
        application_id: Its application.
        source: Kafka.
        after: The id of the last event that was seen; None: only what is committed from now on.
        tasks: The tasks whose changes are wanted; default: all.
        wanted: Whether a key's bytes are wanted.
        clock_ms: The wall clock.

    Raises:
        QueryError: The id does not belong to this store, or the store has no changelog of its own.
        CursorExpiredError: Changes after the id may be lost.
        StoreNotReadyError: A copy is not here.
        KafkaClientError: Kafka does not answer how long deletions are kept.
    """

    def __init__(
        self,
        store: ReadStore,
        application_id: str,
        source: ChangelogSource,
        after: str | None = None,
        wanted: Callable[[bytes], bool] = lambda key: True,
        tasks: Collection[int] | None = None,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._clock_ms = clock_ms
        if not store.sub:
            raise QueryError(f"{store.name!r} is a global table: its changes are the records of its topic")
        self.store = store
        self._topic = changelog_topic(application_id, store.name)
        self._source = source
        self._wanted = wanted
        self._tasks = range(store.tasks) if tasks is None else tasks
        self._places = self._ends()
        if after is not None:
            self._continue(known_places(after, store, self._tasks))

    @property
    def id(self) -> str:
        """The position of this reader."""
        return places_text(self._places)

    def _continue(self, places: dict[int, ChangelogPlace]) -> None:
        """Continues from these places, if no change after them is lost."""
        for task, place in places.items():
            self._check(task, place, self._places[task])
        behind = [place.known_ms for task, place in places.items() if place.offset != self._places[task].offset]
        away_ms = self._clock_ms() - min(behind, default=self._clock_ms())
        if away_ms > 0 and away_ms > self._source.delete_retention_ms(self._topic):
            raise CursorExpiredError(
                f"{self._topic}: the last event was seen {away_ms / HOUR_MS:.1f} h ago, and deletions since then may be compacted "
                f"away (delete.retention.ms): begin again with initial=true"
            )
        self._places = places

    def _check(self, task: int, place: ChangelogPlace, end: ChangelogPlace) -> None:
        """Checks that the changelog of a task still has all records from a place on."""
        # If a task had no commit yet, everything is new.
        if place.log not in ("", end.log) or place.offset < self._source.begin_offset((self._topic, task)):
            raise CursorExpiredError(
                f"{self._topic}-{task}: the changes from offset {place.offset} on are deleted, or the topic was made again: begin "
                f"again with initial=true"
            )

    def initial(self, scan: Scan) -> Iterator[StoreChange]:
        """The current rows of a scan. `next` then returns the changes after them."""
        tasks = [task for task in self.store.tasks_of(scan) if task in self._tasks]
        with ExitStack() as reading:
            # The places belong to the commits that the rows are from, even if there are new commits by now.
            views = {task: reading.enter_context(self.store.copy(task).reading()) for task in tasks}
            self._places |= {task: self._end(task, view) for task, view in views.items()}
            versions = {task: view.version for task, view in views.items()}
            stored, of, answer = self.store.page(replace(self._first(scan, None), versions=versions), tasks)
        while True:
            texts = self.store.reader.texts(stored)
            for point in answer.points:
                rows = tuple(row for task, row in zip(of, texts, strict=True) if task == point.task)
                if rows:
                    yield StoreChange(rows, point)
            if answer.cursor is None:
                return
            stored, of, answer = self.store.page(self._first(scan, answer.cursor), tasks)

    def _first(self, scan: Scan, cursor: str | None) -> Asked:
        return replace(self.store.asked(scan, cursor), most_bytes=MOST_BYTES)

    def pending(self) -> bool:
        """Whether a commit has come since the last call of `next`."""
        ends = self._ends()
        for task, place in self._places.items():
            if _same(ends[task], place):
                self._places[task] = place._replace(known_ms=max(place.known_ms, ends[task].known_ms))
        return any(not _same(end, self._places[task]) for task, end in ends.items())

    def next(self) -> Iterator[StoreChange]:
        """The changes that were committed since the last call.

        Raises:
            CursorExpiredError: Some of them were deleted from the changelog.
            KafkaClientError: They cannot be read.
        """
        for task, end in self._ends().items():
            if not _same(end, self._places[task]):
                yield from self._of_task(task)

    def _of_task(self, task: int) -> Iterator[StoreChange]:
        copy, start = self.store.copy(task), self._places[task]
        with copy.reading() as view:
            end, point = self._end(task, view), self.store.point(task, copy, view)
        self._check(task, start, end)
        if end.offset < start.offset:
            # The last event came from another process, whose copy was ahead of this one.
            return
        rows: list[bytes] = []
        size = 0
        for columns in self._source.read(self._topic, task, start.offset, end.offset):
            for offset, row in self._rows(columns):
                wanted, more = self._wanted(row.key), len(row.key) + len(row.value or b"")
                if rows and (len(rows) == MOST_ROWS or (wanted and size + more > MOST_BYTES)):
                    self._places[task] = end._replace(offset=offset)
                    yield StoreChange(tuple(rows), point, self.id)
                    rows, size = [], 0
                if wanted:
                    size += more
                    rows.append(self.store.reader.text(row, task))
        self._places[task] = end
        if rows:
            yield StoreChange(tuple(rows), point, self.id)

    def _rows(self, columns: RecordColumns) -> Iterator[tuple[int, DumpRow]]:
        kind = self.store.kind
        cells = zip(columns.offsets.tolist(), columns.timestamps.tolist(), columns.keys, columns.values, strict=True)
        for offset, timestamp, key_cell, value_cell in cells:
            key, value = key_cell.as_py(), value_cell.as_py()
            time = timestamp if kind.timestamped or kind is StoreKind.VERSIONED else None
            start = end = None
            if kind is StoreKind.SESSION:
                key, end, start = split_session_key(key)
            elif kind.windowed:
                key, start, _ = split_window_key(key)
            yield offset, DumpRow(key, start, end, time, value)

    def _ends(self) -> dict[int, ChangelogPlace]:
        """Task -> where its changelog ends as of the copy's commit."""
        found = {}
        for task in self._tasks:
            with self.store.copy(task).reading() as view:
                found[task] = self._end(task, view)
        return found

    def _end(self, task: int, view: View) -> ChangelogPlace:
        name = self.store.name
        known_ms = self._clock_ms() - self.store.copy(task).age_ms_of(view)
        return ChangelogPlace(view.changelog_ends.get(name, 0), view.changelog_id(name), max(0, known_ms))


def _same(one: ChangelogPlace, other: ChangelogPlace) -> bool:
    return (one.offset, one.log) == (other.offset, other.log)


def places_text(places: Mapping[int, ChangelogPlace]) -> str:
    """Writes places in changelogs as the id of an event."""
    return ",".join(f"{task}={at.offset}@{at.log}.{at.known_ms}" for task, at in sorted(places.items()))


def parse_places(text: str) -> dict[int, ChangelogPlace]:
    """Reads the places from an id that `places_text` has written."""
    return {int(task): ChangelogPlace(int(at), log, int(ms)) for task, at, log, ms in _PLACE.findall(text)}


def known_places(text: str, store: ReadStore, tasks: Collection[int]) -> dict[int, ChangelogPlace]:
    """The places of these tasks in an id.

    Raises:
        QueryError: The text is not an id.
        CursorExpiredError: The id is of other tasks, because the application has been rescaled.
    """
    found = parse_places(text)
    if not found:
        raise QueryError(f"{text!r} is not the id of an event of {store.name!r}: begin again with initial=true")
    if set(found) != set(tasks):
        raise CursorExpiredError(
            f"{text!r} is the id of an event of {len(found)} tasks, and {store.name!r} has {len(tasks)}: begin again with "
            f"initial=true"
        )
    return found


# --- Server-sent events: one for each commit, whose id is a position.

HEARTBEAT_S = 15.0
"""After this long without a commit, an event shows that the connection is alive."""
_WITHOUT_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class ServerSentEvent(NamedTuple):
    """A server-sent event.

    Attributes:
        kind: Its name.
        data: Its data, JSON.
        id: Its id; empty: it has none.
    """

    kind: str
    data: bytes = b"{}"
    id: str = ""

    def to_bytes(self) -> bytes:
        """The event as it is sent."""
        identified = f"id: {self.id}\n" if self.id else ""
        return f"event: {self.kind}\n{identified}data: ".encode() + self.data + b"\n\n"

    @classmethod
    def of_bytes(cls, block: bytes) -> ServerSentEvent:
        """Parses an event from the bytes that `to_bytes` has made."""
        fields = dict(line.split(b": ", 1) for line in block.strip().split(b"\n"))
        return cls(fields[b"event"].decode(), fields[b"data"], fields.get(b"id", b"").decode())

    @classmethod
    def of_error(cls, error: Exception) -> ServerSentEvent:
        """The last event of a stream that cannot continue."""
        return cls("error", orjson.dumps({"error": type(error).__name__, "message": mask(str(error))}))


async def events(
    changes: ChangeFeed, initial: Scan | None, follow: bool, leave: ExitStack
) -> AsyncIterator[ServerSentEvent]:
    """The events, until the client goes away.

    Args:
        changes: The changes.
        initial: The rows to begin with; None: none.
        follow: Whether to wait for further commits.
        leave: Is closed when the events end.
    """
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    wake = partial(loop.call_soon_threadsafe, woken.set)
    copies = changes.store.here()
    for copy in copies:
        copy.listeners.append(wake)
    try:
        if initial is not None:
            async for change in iterate_in_threadpool(changes.initial(initial)):
                yield ServerSentEvent("rows", _as_json(change))
        yield ServerSentEvent("position", id=changes.id)
        said_s = loop.time()
        while True:
            woken.clear()
            if changes.pending():
                async for change in iterate_in_threadpool(changes.next()):
                    yield ServerSentEvent("commit", _as_json(change), change.id)
                    said_s = loop.time()
            if not follow:
                return
            if loop.time() - said_s >= HEARTBEAT_S:
                yield ServerSentEvent("heartbeat", id=changes.id)
                said_s = loop.time()
            try:
                await asyncio.wait_for(woken.wait(), HEARTBEAT_S)
            except asyncio.TimeoutError:
                continue
    except StreamsError as error:
        yield ServerSentEvent.of_error(error)
    finally:
        for copy in copies:
            copy.listeners.remove(wake)
        leave.close()


async def encoded(found: AsyncIterator[ServerSentEvent]) -> AsyncIterator[bytes]:
    """The bytes of events."""
    async for event in found:
        yield event.to_bytes()


def _as_json(change: StoreChange) -> bytes:
    # Stored JSON may have line breaks between its parts, which mean nothing in JSON, but would end the event.
    return rows_text(change.rows, point_json(change.point)).translate(_WITHOUT_BREAKS)


# --- The changes of tasks that run in several processes, as one stream.
#
# Each process gives the events of its tasks, with the places of these tasks as ids. The merged stream gives each event the places
# of all tasks. Invariants: nothing with an id is sent before the places of all tasks are known; when a process goes away, or gives
# up a task, the stream continues in the process that then has the task, after the last event that came.

_PATIENCE_S = 60.0
"""How long a task may be in no process before the stream ends: longer than the group needs to move it to another one."""
_AGAIN_S = 0.25
_QUEUED = 4
"""The most events that wait for the client. Each has at most `MOST_BYTES`, unless one row is larger."""

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
        why = "no process has given the changes of these tasks for a minute"
        while asyncio.get_running_loop().time() < lost_s + _PATIENCE_S:
            await asyncio.sleep(_AGAIN_S)
            try:
                return self._groups(tasks)
            except StoreNotReadyError as error:
                why = str(error)
        raise StoreNotReadyError(why)
