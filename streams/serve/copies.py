"""`TaskCopy`: a copy of one task's stores that is brought forward commit by commit while it is being read. And `GlobalCopy`.

How a copy follows is in `state.restore.follower`; this file is about reading it. Readers never see a restore: each commit is
published as a `View`, the stores through a snapshot of the database. The running application is never touched. Invariants: a view
holds exactly one commit and never changes; a view is closed once it is not current, no reader has it, and no cursor holds it
for a next page; a copy that cannot follow still answers with its last view; a view is never older than it reports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from math import ceil
from typing import Protocol

from state.columns import RecordColumns
from state.commit.live import LiveKafka
from state.commit.marker import CommitMarker
from state.commit.session import FLUSH_EVERY_S
from state.errors import KafkaClientError
from state.kafka.reader import ReaderPool
from state.kafka.topics import TopicInfo, TopicPartition, partitions_of
from state.restore.follower import Clock, FollowedCopy, FollowedTask, MakeStores
from state.restore.place import CopiedTask
from state.restore.task_stores import StoreSource
from state.stores.task_store import TaskStore
from streams.engine.graph.global_tables import GlobalTables, TopicLogs
from streams.errors import CursorExpiredError, StoreNotReadyError
from streams.serve.position import Kept, Position, Step

_RECENT = 4
"""The number of commits before the current one that are kept, so that all tasks can be read as of one micro-batch."""
_MOST_VIEWS = 2048
"""The most commits of a task that are kept for cursors: more than live execution makes in a minute."""


class View:
    """The stores of a task, or the global tables, as of one commit.

    Attributes:
        version: The number of the commit.
        position: The position of the sources.
        stores: The stores, for reading.
        changelog_ends: Store -> where its changelog ends as of the commit.
        life: The application's life that made the commit: `streams reset` begins another one. Empty: nothing is committed, or a
            global table.
        step: The micro-batch that made the commit; None: a live step made it, or the view is of a global table.
        until: The micro-batch of the task's next commit; None: there is none yet.
        known_s: The latest time at which this was known to be the last commit, by the copy's clock.
        held_until_s: The view is kept until then for the next page of a cursor.
        readers: The number of reads that use it now.
    """

    def __init__(
        self,
        version: int,
        position: Position,
        stores: TaskStore,
        marker: CommitMarker | None = None,
        step: Step | None = None,
    ) -> None:
        self.changelog_ends: Mapping[str, int] = {} if marker is None else marker.changelog_ends
        self.life = "" if marker is None else life_of(marker.state_of)
        self._changelog_ids: Mapping[str, str] = {} if marker is None else marker.changelog_ids
        self.step = step
        self.until: Step | None = None
        self.version = version
        self.position = position
        self.stores = stores
        self.known_s = 0.0
        self.held_until_s = 0.0
        self.readers = 0

    def changelog_id(self, store: str) -> str:
        """Identifies a store's changelog; the text changes when the changelog is created again."""
        found = self._changelog_ids.get(store)
        return self.life if found is None else life_of(found)


def life_of(name: str) -> str:
    """A short hash of an id, for headers and for the ids of events."""
    return blake2b(name.encode(), digest_size=4).hexdigest()


class ViewReading:
    """Keeps a view open within a `with` block: a class, since a generator would cost as much as the read of a key."""

    __slots__ = ("_copy", "_version", "_view")

    def __init__(self, copy: Copy, version: int | None) -> None:
        self._copy, self._version = copy, version

    def __enter__(self) -> View:
        self._view = self._copy.begin_reading(self._version)
        return self._view

    def __exit__(self, *_: object) -> None:
        self._copy.end_reading(self._view)


class Copy(FollowedCopy):
    """A copy that can be read while it is brought forward. Any thread may read it.

    Args:
        what: A description of what is copied, for messages.
        clock_s: Measures ages.

    Attributes:
        listeners: Functions that are called after each look for commits, by the thread that looked.
    """

    def __init__(self, what: str, clock_s: Clock = time.monotonic) -> None:
        super().__init__(what, clock_s)
        self.listeners: list[Callable[[], object]] = []
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._views: list[View] = []
        self._current: View | None = None

    @property
    def version(self) -> int:
        """The number of the current commit; 0: none yet."""
        current = self._current
        return 0 if current is None else current.version

    @property
    def ready(self) -> bool:
        """Whether the copy can be read."""
        return self._current is not None

    @property
    def lag(self) -> int:
        """The number of records of the commits partition that the copy has not followed yet."""
        return max(0, self.looked[0] - self.read_to)

    def reading(self, version: int | None = None) -> ViewReading:
        """The current view, or the view of an earlier commit that is kept; it stays open within the context.

        Raises:
            StoreNotReadyError: There is no commit yet, or the copy is still being restored.
            CursorExpiredError: The view of that commit is not kept any more.
        """
        return ViewReading(self, version)

    def begin_reading(self, version: int | None) -> View:
        """Takes a view for reading: the first half of `reading`."""
        with self._lock:
            view = self._current if version is None else self._kept(version)
            if view is None:
                why = f": {self.fault}" if self.fault else ""
                raise StoreNotReadyError(
                    f"{self.what} cannot be read yet: its copy is still being restored{why}. Wait, or ask "
                    f"another replica"
                )
            view.readers += 1
        return view

    def end_reading(self, view: View) -> None:
        """Gives a view back: the second half of `reading`."""
        with self._lock:
            view.readers -= 1
            if view is not self._current:
                self._close_unused()
                self._changed.notify_all()

    def age_ms_of(self, view: View) -> int:
        """How old a view may be, in ms: the time since it was last known to be the newest commit."""
        return max(0, ceil((self.clock_s() - view.known_s) * 1000))

    @property
    def age_ms(self) -> int:
        """The largest possible age of the current view, ms; 0 without a view."""
        current = self._current
        return 0 if current is None else self.age_ms_of(current)

    def hold(self, view: View, seconds: float) -> None:
        """Keeps a view that is being read for the next page of a cursor, even if there are further commits.

        Raises:
            StoreNotReadyError: The most views that can be kept are kept already.
        """
        with self._lock:
            now_s = self.clock_s()
            if view.held_until_s <= now_s and sum(one.held_until_s > now_s for one in self._views) >= _MOST_VIEWS:
                raise StoreNotReadyError(
                    f"{self.what} keeps {_MOST_VIEWS} commits for cursors, so there can be no other cursor now: ask again in a "
                    f"minute, or for all rows at once (limit=)"
                )
            view.held_until_s = max(view.held_until_s, now_s + seconds)

    def wait(self, fits: Callable[[View], bool], timeout_s: float) -> bool:
        """Waits until the current view fits; False: that did not happen in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._current is not None and fits(self._current), timeout_s)

    def _kept(self, version: int) -> View:
        for view in reversed(self._views):
            if view.version == version:
                return view
        raise CursorExpiredError(
            f"{self.what} does not have the rows of commit {version} any more, which the cursor continues: begin again "
            f"without a cursor"
        )

    def _close_unused(self) -> None:
        """Closes the views that nothing needs any more. The caller holds the lock."""
        if len(self._views) == 1 and self._views[0] is self._current:
            return
        now_s = self.clock_s()
        recent = self._recent()
        for view in list(self._views):
            if view is not self._current and not view.readers and view.held_until_s <= now_s and view not in recent:
                self._views.remove(view)
                view.stores.close()

    def _recent(self) -> list[View]:
        """The commits of micro-batches before the current commit, as far as they are kept. The caller holds the lock."""
        if self._current is None or self._current.step is None:
            return []
        return [view for view in self._views if view is not self._current and view.step is not None][-_RECENT:]

    def kept(self) -> list[Kept]:
        """The commits of micro-batches that can be read, the current one last; empty if the task does not run in micro-batches."""
        with self._changed:
            views = [*self._recent(), *([self._current] if self._current is not None else [])]
            return [Kept(view.version, view.step, view.until) for view in views if view.step is not None]

    def known_until(self, asked_s: float) -> None:
        """Notes that there was no further commit at this time, and wakes the waiting readers."""
        with self._changed:
            if self._current is not None:
                self._current.known_s = max(asked_s, self._current.known_s)
            self._close_unused()
            self._changed.notify_all()
        self._woken()

    def _woken(self) -> None:
        for listener in list(self.listeners):
            listener()

    def _show(self, view: View) -> None:
        """Makes this the current view."""
        with self._changed:
            if self._current is not None:
                # While that was the last commit, this one did not exist yet.
                view.known_s = self._current.known_s
            self._views.append(view)
            self._current = view
            self._close_unused()

    def _end_reading(self) -> None:
        """Hides the current view, waits until all reads have ended, and closes all views."""
        with self._changed:
            self._current = None
            self._changed.wait_for(lambda: all(view.readers == 0 for view in self._views))
            for view in self._views:
                view.stores.close()
            self._views = []


class TaskCopy(FollowedTask, Copy):
    """The copy of one task's stores, whose database stays open.

    Args:
        source: Kafka; used by one thread at a time.
        task: The task and its stores.
        make: Makes the object that opens the stores.
        on_close: Called when the copy is closed.
    """

    keeps_open = True

    def __init__(
        self,
        source: StoreSource,
        task: CopiedTask,
        make: MakeStores,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(source, task, make)
        self._on_close = on_close
        self._flushed_s = self.clock_s()
        self._position = Position()

    def markers(self, end: int) -> list[CommitMarker]:
        """The commit markers that were not read yet: at first, all that the topic still has, which have the sources' position."""
        start = self.read_to or self._source.begin_offset(self.task.commits)
        return self.markers_from(start, end)

    def took(self, markers: Sequence[CommitMarker], stores: TaskStore, heard: bool) -> None:
        """Publishes a view of the last commit; the stores of a task that has never committed are empty."""
        if not markers:
            self._show(View(0, Position(), stores.snapshot(), step=Step()))
            return
        if heard and self.clock_s() - self._flushed_s >= FLUSH_EVERY_S:
            self._flush(stores)
        position, before = self._position, self.marker
        for marker in markers:
            position, before = position.after(marker, before), marker
        view = View(markers[-1].version, position, stores.snapshot(), markers[-1], _step_of(markers[-1]))
        self._position = position
        if self._current is not None:
            self._current.until = _step_of(markers[0]) or _LIVE
        self._show(view)

    def hide(self) -> None:
        super().hide()
        with self._changed:
            self._current, self._position = None, Position()
            self._close_unused()

    def _flush(self, stores: TaskStore) -> None:
        """Makes the written rows durable. After a kill, the missing ones are read from the changelogs again."""
        self._flushed_s = self.clock_s()
        stores.flush()

    def _shut(self, error: BaseException | None = None) -> None:
        """Closes the database once all reads have ended."""
        self._ready = False
        self._end_reading()
        super()._shut(error)

    def close(self) -> None:
        """Closes the copy, which stays on disk."""
        # Always close the database; otherwise the next copy of the task would find it open.
        with ExitStack() as leave:
            leave.callback(self._on_close)
            leave.callback(super().close)
            with self._following:
                self._closed = True
                if self._stores is not None:
                    self._flush(self._stores[1])
        # Clients that follow its changes continue in another process.
        self._woken()


_LIVE = Step("live")
"""The step of a live commit, which belongs to no micro-batch of a query."""


def _step_of(marker: CommitMarker) -> Step | None:
    return None if marker.live else Step(marker.query_id, marker.batch_id, marker.now_ms)


# --- `GlobalCopy`: the global tables of an application, read from their topics by this process.


class TopicSource(TopicLogs, Protocol):
    """Kafka, for reading whole topics."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...


class GlobalCopy(Copy):
    """The global tables of an application.

    Args:
        source: Kafka; used by one thread at a time.
        tables: The tables, over a store that is empty.
        store: The store, which is closed with the copy.
        now_ms: The wall clock, for timestamp extractors.
        on_close: Called when the copy is closed.
    """

    def __init__(
        self,
        source: TopicSource,
        tables: GlobalTables,
        store: TaskStore,
        now_ms: Callable[[], int],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("the copy of the global tables")
        self._source = source
        self._tables = tables
        self._store = store
        self._now_ms = now_ms
        self._on_close = on_close
        self._following = threading.Lock()
        self._version = 0
        self._ids: Mapping[str, str] = {}

    def bring_forward(self) -> bool:
        """Reads the records that were added to the topics since the last call, and returns whether there were any.

        Raises:
            RecordFailedError: A record cannot be read, and the policy is `fail`.
            KafkaClientError: Reading failed; another call continues.
        """
        with self._following:
            asked_s = self.clock_s()
            topics = self._source.describe_topics(self._tables.topics)
            ends, ids = (
                self._source.end_offsets(partitions_of(topics)),
                {name: of.topic_id for name, of in topics.items()},
            )
            if any(self._ids.get(name, found) != found for name, found in ids.items()):
                # A topic was made again, and its offsets mean other records.
                self._tables.reset()
            self._ids = {**self._ids, **ids}
            changed = self._tables.bring_to(ends, self._source, self._now_ms()) or not self.ready
            if changed:
                self._version += 1
                self._show(View(self._version, Position(ends), self._store.snapshot()))
            self.known_until(asked_s)
        return changed

    def close(self) -> None:
        """Closes the copy."""
        with self._following:
            self._end_reading()
            self._store.close()
            self._on_close()


# --- Kafka for a copy, which `state.restore.follower` brings forward with it.

_BEGINS_S = 60.0
_PREFETCH_BYTES = 8 * 1024 * 1024
_STAYS = {"queued.min.messages": "100000", "fetch.wait.max.ms": "500"}
"""The reader of a micro-batch fetches nothing while records wait, which would delay a copy. And since brokers answer as soon as
something is committed, there is no need to ask them more often about partitions without commits."""


class CopyKafka(LiveKafka):
    """Kafka for one copy. Readers stay open between commits, and the beginnings of logs are looked up only now and then."""

    def __init__(self, client: Mapping[str, str], transaction_timeout_ms: int, bulk: bool, logs: int) -> None:
        super().__init__(client, transaction_timeout_ms, bulk)
        self._properties, self._native = {**_STAYS, **client}, bulk
        self._readers = ReaderPool(logs, _PREFETCH_BYTES)
        self._begins: dict[TopicPartition, tuple[int, float]] = {}

    def begin_offset(self, partition: TopicPartition) -> int:
        begin, until_s = self._begins.get(partition, (0, 0.0))
        if time.monotonic() >= until_s:
            begin = super().begin_offset(partition)
            self._begins[partition] = begin, time.monotonic() + _BEGINS_S
        return begin

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        """Committed records [start, end)."""
        if start < end:
            try:
                yield from self._readers.reader(self._properties, topic, partition, start, self._native).read(end)
            except KafkaClientError:
                # The log may begin later by now.
                self._begins.clear()
                raise

    def close(self) -> None:
        """Closes the readers."""
        self._readers.close()
