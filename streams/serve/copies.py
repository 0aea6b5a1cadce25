"""`TaskCopy`: a copy of one task's stores that is brought forward commit by commit while it is being read. And `GlobalCopy`.

A copy is an ordinary local state in a folder of its own, which a restore brings to the last commit marker of its task; the
running application is never touched. Readers never see a restore: each commit is published as a `View`, the stores through a
snapshot of the database. `TaskCopy.follow` takes a commit that it has heard of, `bring_forward` asks Kafka for what there is.
Invariants: a view holds exactly one commit and never changes; a view is closed when it is neither the present one, nor in use, nor
held for the next page of somebody; a copy that cannot follow still answers with its last view; what a view says of its age is never
less than the truth; a commit that does not continue the present one is not taken from what was heard.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from hashlib import blake2b
from math import ceil
from typing import Protocol

from state.changelog import changelog_topic
from state.commit.marker import CommitMarker, end_behind
from state.commit.session import FLUSH_EVERY_S
from state.errors import StateCorruptedError
from state.kafka.topics import TopicInfo, TopicPartition, partitions_of
from state.restore.task_stores import StoreSource, TaskStateManager
from state.restore.verify import check_marker, check_not_rescaled
from state.stores.task_store import TaskStore
from streams.application.restore import ReplicaTask
from streams.errors import CursorExpiredError, StoreNotReadyError
from streams.runtime.global_tables import GlobalTables, TopicLogs
from streams.serve.position import Kept, Position, Step

MakeStores = Callable[[ReplicaTask], TaskStateManager]
"""Makes what opens the stores of a task."""

Clock = Callable[[], float]
"""Seconds, of a clock that nobody sets."""

_VISIBLE_S = 10.0
"""How long the changes of a commit may stay invisible after its marker: until the control records are written."""
_LOOK_AGAIN_S = 0.005
_RECENT = 4
"""The last commits before the present one that are kept to read all tasks as of one micro-batch."""
_MOST_HEARD = 256
"""The most markers that wait to be followed; without the first of more, the copy asks for all."""
_MOST_VIEWS = 2048
"""The most commits of a task that are kept for cursors: as many as live execution makes in a minute, and more."""


class View:
    """The stores of a task, or the global tables, as of one commit.

    Attributes:
        version: The number of the commit.
        position: The position of the sources.
        stores: The stores, for reading.
        changelog_ends: Store -> where its changelog ends as of the commit.
        life: Which application committed: another text after `streams reset`. Empty: nothing is committed, or a global table.
        step: The micro-batch that the commit comes from; None: it is of a live step, or of a global table.
        until: The micro-batch of the task's next commit; None: there is none yet.
        known_s: When this was known to be the last commit, by the copy's clock.
        held_until_s: Until when the view is kept for the next page of a cursor.
        readers: How many read it now.
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
        """What the changelog of a store is known by, which changes when it is made again."""
        found = self._changelog_ids.get(store)
        return self.life if found is None else life_of(found)


def life_of(name: str) -> str:
    """A short text for what an id names, in headers and in the ids of events."""
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


class Copy(ABC):
    """What can be read while it is brought forward; any thread may read.

    Args:
        what: What is copied, for people.
        clock_s: Measures ages.

    Attributes:
        fault: Why the copy could not be brought forward the last time; empty: it could.
        listeners: Called after each look for commits, by the thread that has looked.
        read_to: Where the commits partition of a task ended when its copy was last brought forward.
        looked: Where it ended at the last look, and when that was asked for.
    """

    def __init__(self, what: str, clock_s: Clock = time.monotonic) -> None:
        self.what = what
        self.fault = ""
        self.listeners: list[Callable[[], None]] = []
        self.clock_s = clock_s
        self.read_to = 0
        self.looked = 0, 0.0
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._views: list[View] = []
        self._current: View | None = None

    @abstractmethod
    def bring_forward(self) -> bool:
        """Brings the copy to the last commit, and says whether there was a new one; called by one thread at a time."""

    @abstractmethod
    def close(self) -> None:
        """Closes the copy."""

    @property
    def version(self) -> int:
        """The number of the present commit; 0: none yet."""
        current = self._current
        return 0 if current is None else current.version

    @property
    def ready(self) -> bool:
        """Whether the copy can be read."""
        return self._current is not None

    @property
    def lag(self) -> int:
        """Records of the commits partition that the copy has not followed yet."""
        return max(0, self.looked[0] - self.read_to)

    def reading(self, version: int | None = None) -> ViewReading:
        """The present view, or the kept one of an earlier commit, which stays open within the context.

        Raises:
            StoreNotReadyError: There is no commit yet, or the copy is still being restored.
            CursorExpiredError: The view of that commit is not kept any more.
        """
        return ViewReading(self, version)

    def begin_reading(self, version: int | None) -> View:
        """What `reading` begins with."""
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
        """What `reading` ends with."""
        with self._lock:
            view.readers -= 1
            if view is not self._current:
                self._close_unused()
                self._changed.notify_all()

    def age_ms_of(self, view: View) -> int:
        """How old a view may be: since when a later commit may exist."""
        return max(0, ceil((self.clock_s() - view.known_s) * 1000))

    @property
    def age_ms(self) -> int:
        """How old the present view may be; 0: there is none."""
        current = self._current
        return 0 if current is None else self.age_ms_of(current)

    def hold(self, view: View, seconds: float) -> None:
        """Keeps a view that is being read for the next page of a cursor, whatever is committed meanwhile.

        Raises:
            StoreNotReadyError: So many are kept that there is no room for another one.
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
        """Waits for a commit that fits; False: none came in time."""
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
        """Closes the views that nobody needs. Called with the lock."""
        if len(self._views) == 1 and self._views[0] is self._current:
            return
        now_s = self.clock_s()
        recent = self._recent()
        for view in list(self._views):
            if view is not self._current and not view.readers and view.held_until_s <= now_s and view not in recent:
                self._views.remove(view)
                view.stores.close()

    def _recent(self) -> list[View]:
        """The last commits of micro-batches before the present one. Called with the lock."""
        if self._current is None or self._current.step is None:
            return []
        return [view for view in self._views if view is not self._current and view.step is not None][-_RECENT:]

    def kept(self) -> list[Kept]:
        """The commits that can be read as of a micro-batch, the present one last; none: the task does not run in micro-batches."""
        with self._changed:
            views = [*self._recent(), *([self._current] if self._current is not None else [])]
            return [Kept(view.version, view.step, view.until) for view in views if view.step is not None]

    def known_until(self, asked_s: float) -> None:
        """Notes that at this time no further commit existed, and wakes those who wait."""
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
        """Makes this the present view."""
        with self._changed:
            if self._current is not None:
                # When that was the last commit, this one was still to come.
                view.known_s = self._current.known_s
            self._views.append(view)
            self._current = view
            self._close_unused()

    def _hide(self) -> None:
        """From now on nothing can be read until there is another view."""
        with self._changed:
            self._current = None
            self._close_unused()

    def _end_reading(self) -> None:
        """Hides the present view, and closes all views after everybody has read what they were reading."""
        with self._changed:
            self._current = None
            self._changed.wait_for(lambda: all(view.readers == 0 for view in self._views))
            for view in self._views:
                view.stores.close()
            self._views = []


class TaskCopy(Copy):
    """The copy of one task's stores.

    Args:
        source: Kafka; used by one thread at a time.
        task: The task and its stores.
        make: Makes what opens the stores.
        clock_s: Measures ages.
        on_close: Called when the copy is closed.
    """

    def __init__(
        self,
        source: StoreSource,
        task: ReplicaTask,
        make: MakeStores,
        clock_s: Clock = time.monotonic,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(str(task.place), clock_s)
        self.task = task
        self._source = source
        self._make = make
        self._on_close = on_close
        self._following = threading.Lock()
        self._closed = False
        self._flushed_s = clock_s()
        self._heard: deque[tuple[int, bytes]] = deque(maxlen=_MOST_HEARD)
        self._marker: CommitMarker | None = None
        self._position = Position()
        self._open = ExitStack()
        self._stores: tuple[TaskStateManager, TaskStore] | None = None

    def hear(self, offset: int, marker: bytes) -> None:
        """Notes a marker that is new on the commits partition, for `follow`; any thread may call it."""
        self._heard.append((offset, marker))

    @property
    def has_heard(self) -> bool:
        """Whether markers wait to be followed."""
        return bool(self._heard)

    def follow(self) -> None:
        """Brings the copy to the last marker that it has heard of. If all of them follow by one, nothing is asked for.

        Raises:
            RestoreError, KafkaClientError: As `bring_forward`.
        """
        with self._following:
            if self._closed:
                return
            heard = [self._heard.popleft() for _ in range(len(self._heard))]
            new = [(offset, CommitMarker.from_bytes(value)) for offset, value in heard if offset >= self.read_to]
            if not new:
                return
            continues = self._continue(marker for _, marker in new)
            if continues:
                self._publish([marker for _, marker in new], fresh=True)
                with self._changed:
                    self.read_to = end_behind(new[-1][0])
                end, asked_s = self.looked
                self.known_until(asked_s if self.read_to >= end else 0.0)
        if not continues:
            self.bring_forward()

    def _continue(self, markers: Iterable[CommitMarker]) -> bool:
        """Whether markers are the commits after the present one, without a gap, of the same query."""
        before = self._marker if self.ready else None
        for marker in markers:
            if before is None or (marker.query_id, marker.version) != (before.query_id, before.version + 1):
                return False
            before = marker
        return True

    def bring_forward(self, end: int | None = None, asked_s: float = 0.0) -> bool:
        """Brings the copy to the last commit, and says whether there was a new one.

        Args:
            end: Where the commits partition ends; None: that is asked for.
            asked_s: When that was so.

        Raises:
            RestoreError: The changelogs do not give what the marker promises, or the application has changed.
            KafkaClientError: Reading failed; another call continues.
        """
        place = self.task.commits
        with self._following:
            if self._closed:
                return False
            if end is None or end < self.read_to:
                # An end from before may be lower than what another look has led to meanwhile.
                asked_s = self.clock_s()
                end = self._source.end_offsets([place])[place]
            if end < self.read_to:
                check_not_rescaled(self._source, self.task.place)
                self._forget()
            markers = list(self._markers(end))
            if markers:
                self._publish(markers, fresh=False)
            elif not self.ready:
                self._show_nothing()
            with self._changed:
                self.read_to = end
            self.known_until(asked_s)
        return bool(markers)

    def misses(self, end: int, read_before: int) -> bool:
        """Whether the commits partition may have a commit that the copy has not, and will not hear of: since before the last look.

        Args:
            end: Where the partition ends now.
            read_before: How far the copy had read it when that was asked for.
        """
        return not self.ready or end < read_before or self.read_to < self.looked[0]

    def _markers(self, end: int) -> Iterator[CommitMarker]:
        """The markers since the last call, in order; at first all that the topic still has, for the position of the sources."""
        topic, partition = self.task.commits
        start = self.read_to or self._source.begin_offset((topic, partition))
        for columns in self._source.read(topic, partition, min(start, end), end):
            yield from map(CommitMarker.from_bytes, columns.values.to_pylist())

    def _publish(self, markers: list[CommitMarker], fresh: bool) -> None:
        last = markers[-1]
        check_marker(self.task.place, last)
        if not fresh:
            self._await_visible(last)
        manager, stores = self._opened()
        try:
            manager.restore_to(stores, last, fresh=fresh)
            if fresh and self.clock_s() - self._flushed_s >= FLUSH_EVERY_S:
                self._flush(stores)
        except StateCorruptedError as error:
            self._shut(error)
            raise
        except BaseException:
            stores.discard()
            raise
        position, before = self._position, self._marker
        for marker in markers:
            position, before = position.after(marker, before), marker
        self._position, self._marker = position, last
        if self._current is not None:
            self._current.until = _step_of(markers[0]) or _LIVE
        self._show(View(last.version, position, stores.snapshot(), last, _step_of(last)))

    def _flush(self, stores: TaskStore) -> None:
        """Makes durable what was written; what a kill takes away is read from the changelogs again."""
        self._flushed_s = self.clock_s()
        stores.flush()

    def _await_visible(self, marker: CommitMarker) -> None:
        """Waits for the control records of a commit: the marker's may be written before those of the changelogs."""
        topics = {spec.name: changelog_topic(self.task.place.application_id, spec.name) for spec in self.task.specs}
        ends = {
            (topics[name], self.task.place.task): end for name, end in marker.changelog_ends.items() if name in topics
        }
        deadline = self.clock_s() + _VISIBLE_S
        while ends and self.clock_s() < deadline:
            found = self._source.end_offsets(list(ends))
            if all(found[place] >= end for place, end in ends.items()):
                return
            time.sleep(_LOOK_AGAIN_S)

    def _show_nothing(self) -> None:
        """The stores of a task that has never committed are empty."""
        manager, stores = self._opened()
        manager.restore_to(stores, None)
        self._show(View(0, Position(), stores.snapshot(), step=Step()))

    def _opened(self) -> tuple[TaskStateManager, TaskStore]:
        if self._stores is None:
            manager = self._make(self.task)
            self._stores = manager, self._open.enter_context(manager.open())
        return self._stores

    def _forget(self) -> None:
        """Begins again, because the commits topic was made again: the rows so far are those of an application that was reset.

        After a rescale they are not wrong, but old, and are shown on: whoever reads them may have no other copy.
        """
        self._hide()
        self.read_to, self._position, self._marker = 0, Position(), None

    def _shut(self, error: StateCorruptedError | None) -> None:
        """Closes the database, after everybody has read what they were reading; with an error, its files are deleted."""
        self._end_reading()
        self._stores = None
        opened, self._open = self._open, ExitStack()
        with suppress(StateCorruptedError), opened:
            if error is not None:
                raise error

    def close(self) -> None:
        """Closes the copy, which stays on disk."""
        with self._following, ExitStack() as leave:
            self._closed = True
            # In any case, or the next copy of the task would find the database open.
            leave.callback(self._on_close)
            leave.callback(self._shut, None)
            if self._stores is not None:
                self._flush(self._stores[1])
        # Whoever follows its changes continues in another process.
        self._woken()


_LIVE = Step("live")
"""A live step, which belongs to no micro-batch of any query."""


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
        clock_s: Measures ages.
        on_close: Called when the copy is closed.
    """

    def __init__(
        self,
        source: TopicSource,
        tables: GlobalTables,
        store: TaskStore,
        now_ms: Callable[[], int],
        clock_s: Clock = time.monotonic,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("the copy of the global tables", clock_s)
        self._source = source
        self._tables = tables
        self._store = store
        self._now_ms = now_ms
        self._on_close = on_close
        self._following = threading.Lock()
        self._version = 0
        self._ids: Mapping[str, str] = {}

    def bring_forward(self) -> bool:
        """Reads what the topics have got since the last call, and says whether that was anything.

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
