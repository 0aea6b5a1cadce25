"""`ChangeFeed`: the changes of a store, commit by commit, from its changelogs; a reader continues from the position of an event.

A position is the place in the changelog of each task. Invariants: changes after a copy's commit are never shown; a reader that
continues at the position of an event gets everything after it and nothing before it, or an error. There is an error if the
changelog was made again (`streams reset`), or if deletions may be compacted away: they are kept for `delete.retention.ms` only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple

from state.changelog import changelog_topic
from state.columns import RecordColumns
from state.restore.restorer import ChangelogSource
from state.stores.codec import split_session_key, split_window_key
from state.stores.dump import DumpRow
from state.stores.spec import StoreKind
from streams.errors import CursorExpiredError, QueryError
from streams.serve.copies import View
from streams.serve.reading import Point, ReadStore
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
        """The present rows of a scan. `next` then returns the changes after them."""
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
