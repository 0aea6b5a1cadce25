"""The one follower of logs: threads of `Follower` bring the copies of a process to their tasks' last commits, and keep them there.

A copy is an ordinary local state in a separate folder. Each commit of its task brings it forward as a restore would
(`state.restore.restorer`), so it never holds anything that is not committed. Standbys and copies that are served have the rules of
this file in common: which commits are new, what is read for them, when a log was made again or an application was rescaled, and
when a failure is tried again. Kafka Streams: `StoreChangelogReader`.

Example: a copy has read its commits partition to offset 40, and the partition ends at 44: the markers in [40, 44) are read, say of
commits 7 and 8, and the changelogs up to the ends that the marker of commit 8 names. A partition that ends at 12 instead was made
again: the copy starts from its beginning, and is empty if it has no marker. A copy that gets marker 7 as soon as it is committed
(`hear`) does not ask Kafka, as long as it holds commit 6 of the same query.

Invariants: one thread at a time brings a copy forward; a copy that fails keeps its rows, reports the reason, and is tried again; a
commit that was heard of is only used if it continues the current one.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

from state.changelog import changelog_topic
from state.commit.marker import CommitMarker, end_behind, read_last_marker
from state.errors import KafkaClientError, RestoreError, StateCorruptedError
from state.kafka.topics import TopicPartition
from state.restore.place import CopiedTask
from state.restore.task_stores import StoreSource, TaskStateManager
from state.restore.verify import check_marker, check_not_closed, check_not_rescaled
from state.stores.task_store import TaskStore

Clock = Callable[[], float]
"""A monotonic clock, in seconds."""
MakeStores = Callable[[CopiedTask], TaskStateManager]
"""Makes the object that opens the stores of a task."""

LOOK_S = 0.2
"""The seconds between two requests for the ends of the logs, which is the largest age of answers about an idle application."""
KEPT_S = 10.0
"""How long a copy is kept without its task: after brokers were away, a group's members lose all tasks, and get them back on
joining."""
_RETRY_S = 2.0
_GLOBAL: TopicPartition = ("", 0)
"""Stands for the copy of the global tables, in the place of a task's partition."""
_VISIBLE_S = 10.0
"""How long the changes of a commit may stay invisible after its marker, until their control records are written."""
_LOOK_AGAIN_S = 0.005
_MOST_HEARD = 256
"""The most markers that wait to be followed. Beyond them the first are dropped, and the copy asks for all commits."""


class FollowedCopy(ABC):
    """A copy that is brought forward.

    Args:
        what: A description of what is copied, for messages.
        clock_s: Measures ages.

    Attributes:
        fault: Why the last attempt to bring it forward failed; empty: it succeeded.
        read_to: Where the commits partition of a task ended when its copy was last brought forward.
        looked: Where the partition ended at the last look, and the time of that look.
    """

    def __init__(self, what: str, clock_s: Clock = time.monotonic) -> None:
        self.what = what
        self.clock_s = clock_s
        self.fault = ""
        self.read_to = 0
        self.looked = 0, 0.0

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether it holds a commit, or it is known that there is none."""

    @abstractmethod
    def bring_forward(self) -> bool:
        """Brings it to the last commit, and returns whether there was a new one; called by one thread at a time."""

    @abstractmethod
    def close(self) -> None:
        """Closes it; its files stay on disk."""

    def known_until(self, asked_s: float) -> None:  # noqa: B027
        """Notes that there was no further commit at this time."""


class FollowedTask(FollowedCopy):
    """The stores of one task. This class is a standby, whose database is open only while it is brought forward: others can copy it.

    Args:
        source: Kafka; used by one thread at a time.
        task: The task and its stores.
        make: Makes the object that opens the stores.
    """

    keeps_open = False
    """Whether the database stays open."""

    def __init__(
        self, source: StoreSource, task: CopiedTask, make: MakeStores, clock_s: Clock = time.monotonic
    ) -> None:
        super().__init__(str(task.place), clock_s)
        self.task = task
        self.marker: CommitMarker | None = None
        self._source = source
        self._make = make
        self._ready = False
        self._closed = False
        self._following = threading.Lock()
        self._heard: deque[tuple[int, bytes]] = deque(maxlen=_MOST_HEARD)
        self._open = ExitStack()
        self._stores: tuple[TaskStateManager, TaskStore] | None = None

    @property
    def ready(self) -> bool:
        """Whether it holds a commit, or it is known that there is none."""
        return self._ready

    def took(self, markers: Sequence[CommitMarker], stores: TaskStore, heard: bool) -> None:
        """Called with the stores at the last of these markers; no markers: the task has never committed."""

    def hide(self) -> None:
        """Marks the current rows as useless until the copy was brought forward."""
        self._ready = False

    def hear(self, offset: int, marker: bytes) -> None:
        """Notes a marker that is new on the commits partition, for `follow`; any thread may call it."""
        self._heard.append((offset, marker))

    @property
    def has_heard(self) -> bool:
        """Whether markers wait to be followed."""
        return bool(self._heard)

    def follow(self) -> None:
        """Brings the copy to the last marker that it has heard of. If the markers have no gap, Kafka is not asked for others.

        Raises:
            RestoreError, KafkaClientError: For the reasons of `bring_forward`.
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
                self._take_markers([marker for _, marker in new], heard=True)
                self.read_to = end_behind(new[-1][0])
                end, asked_s = self.looked
                self.known_until(asked_s if self.read_to >= end else 0.0)
        if not continues:
            self.bring_forward()

    def _continue(self, markers: Iterable[CommitMarker]) -> bool:
        """Whether markers are the commits after the current one, without a gap, of the same query."""
        before = self.marker if self.ready else None
        for marker in markers:
            if before is None or (marker.query_id, marker.version) != (before.query_id, before.version + 1):
                return False
            before = marker
        return True

    def bring_forward(self, end: int | None = None, asked_s: float = 0.0) -> bool:
        """Brings the copy to the last commit, and returns whether there was a new one.

        Args:
            end: Where the commits partition ends; None: Kafka is asked.
            asked_s: The time at which it ended there.

        Raises:
            RestoreError: The changelogs lack records that belong to the marker, or the application has changed.
            KafkaClientError: Reading failed; another call continues.
        """
        place = self.task.commits
        with self._following:
            if self._closed:
                return False
            if end is None or end < self.read_to:
                # This end may be older, and so lower, than the one that another look has led to in the meantime.
                asked_s = self.clock_s()
                end = self._source.end_offsets([place])[place]
            if end < self.read_to:
                self._begin_again()
            markers = self.markers(end)
            if markers or not self.ready:
                self._take_markers(markers, heard=False)
            self.read_to = end
            self.known_until(asked_s)
        return bool(markers)

    def misses(self, end: int, read_before: int) -> bool:
        """Whether the commits partition may have a commit, from before the last look, that the copy lacks and will not hear of.

        Args:
            end: Where the partition ends now.
            read_before: How far the copy had read the partition when its end was asked for.
        """
        return not self.ready or end < read_before or self.read_to < self.looked[0]

    def markers(self, end: int) -> list[CommitMarker]:
        """The markers since the last call, in order; the first call returns only the last one."""
        if not self.read_to:
            last = read_last_marker(self._source, self.task.commits, end=end)
            return [] if last is None else [last.marker]
        return self.markers_from(self.read_to, end)

    def markers_from(self, start: int, end: int) -> list[CommitMarker]:
        """The markers in a range of the commits partition."""
        columns = self._source.read(*self.task.commits, min(start, end), end)
        return [CommitMarker.from_bytes(value) for one in columns for value in one.values.to_pylist()]

    def _take_markers(self, markers: Sequence[CommitMarker], heard: bool) -> None:
        last = markers[-1] if markers else None
        if last is not None:
            check_not_closed(self.task.place, last)
            check_marker(self.task.place, last)
            if not heard:
                self._await_visible(last)
        manager, stores = self._opened()
        try:
            manager.restore_to(stores, last, fresh=heard)
            self.took(markers, stores, heard)
        except BaseException as error:
            self._failed(stores, error)
            raise
        self._ready, self.marker = True, last
        if not self.keeps_open:
            self._shut()

    def _opened(self) -> tuple[TaskStateManager, TaskStore]:
        if self._stores is None:
            manager = self._make(self.task)
            self._stores = manager, self._open.enter_context(manager.open())
        return self._stores

    def _failed(self, stores: TaskStore, error: BaseException) -> None:
        if isinstance(error, StateCorruptedError) or not self.keeps_open:
            self._shut(error)
        else:
            stores.discard()

    def _shut(self, error: BaseException | None = None) -> None:
        """Closes the database. If the error shows that it is damaged, its files are deleted."""
        self._stores = None
        opened, self._open = self._open, ExitStack()
        with suppress(BaseException) if error is not None else nullcontext(), opened:
            if error is not None:
                raise error

    def close(self) -> None:
        """Closes the copy, which stays on disk."""
        with self._following:
            self._closed = True
            self._shut()

    def _await_visible(self, marker: CommitMarker) -> None:
        """Waits for a commit's control records: the marker's partition may get its own before the changelogs get theirs."""
        names = {changelog_topic(self.task.place.application_id, name): name for name in marker.changelog_ends}
        ends = {log: marker.changelog_ends[names[log[0]]] for log in self.task.changelogs if log[0] in names}
        deadline = self.clock_s() + _VISIBLE_S
        while ends and self.clock_s() < deadline:
            found = self._source.end_offsets(list(ends))
            if all(found[place] >= end for place, end in ends.items()):
                return
            time.sleep(_LOOK_AGAIN_S)

    def _begin_again(self) -> None:
        """Begins again after the commits topic was created again: the rows belong to an application that was reset.

        After a rescale, it raises an error instead, and the rows stay: they are old but not wrong, and readers may have no other.
        """
        check_not_rescaled(self._source, self.task.place)
        self.hide()
        self.read_to, self.marker = 0, None


class Ends(Protocol):
    """Returns where logs end."""

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...


class GroupMembership(Protocol):
    """A membership by which processes share the tasks: `state.kafka.consumers.GroupMember`."""

    def poll(self, timeout_s: float) -> Collection[TopicPartition]: ...
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...


_Copy = TypeVar("_Copy", bound=FollowedTask)


class Follower(Generic[_Copy]):
    """The copies of this process, and the threads that bring them forward.

    Args:
        kafka: Returns the ends of the logs.
        make: Makes the copy of a task, by its partition of a commits topic.
        known: All tasks.
        global_copy: The copy of the global tables, which every process has; None: there are no global tables.
        parallel: How many copies are brought forward at a time; the same number may be restored.
        check: Raises a `RestoreError` if the application is being rescaled, or was.
        elsewhere: Returns whether another process has a readable copy of a task. Until then, a copy is not given up.
        kept_s: The shortest time that a copy stays after the group has taken its task away.
        clock_s: Measures the time since a failure.

    Attributes:
        copies: The copies, by their tasks' partitions of the commits topics; replaced when tasks move, never changed.
        ends: Where the logs ended at the last look.
        trouble: Why the last look failed to follow commits; empty: it did not fail.
    """

    def __init__(
        self,
        kafka: Ends,
        make: Callable[[TopicPartition], _Copy],
        known: Collection[TopicPartition],
        global_copy: FollowedCopy | None = None,
        parallel: int = 4,
        check: Callable[[], None] = lambda: None,
        elsewhere: Callable[[TopicPartition], bool] = lambda place: True,
        kept_s: float = KEPT_S,
        clock_s: Clock = time.monotonic,
    ) -> None:
        self._kafka = kafka
        self._make = make
        self._known = frozenset(known)
        self._check = check
        self._elsewhere = elsewhere
        self._kept_s = kept_s
        self._clock_s = clock_s
        self.global_copy = global_copy
        self.copies: Mapping[TopicPartition, _Copy] = {}
        self.ends: Mapping[TopicPartition, int] = {}
        self.trouble = ""
        self._lock = threading.Lock()
        self._closing = False
        self._busy: set[TopicPartition] = set()
        self._missing: dict[TopicPartition, float] = {}
        """Tasks of copies that are not this process's any more, and since when."""
        self._retry_at: dict[TopicPartition, float] = {}
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="copies")
        # Restores take minutes, during which readable copies must not grow old.
        self._restores = ThreadPoolExecutor(parallel, thread_name_prefix="restores")

    def run(self, member: GroupMembership, ended: threading.Event) -> None:
        """Follows commits until the event is set; the member calls `hear`.

        Raises:
            KafkaClientError: The brokers refuse this process for good.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="looks") as pool:
            look, due_s = pool.submit(self.look, ()), 0.0
            while not ended.is_set():
                assigned = member.poll(LOOK_S)
                if look.done() and time.monotonic() >= due_s:
                    look.result()
                    member.commit(self.offsets())
                    look, due_s = pool.submit(self.look, assigned), time.monotonic() + LOOK_S

    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets that the group commits to show its progress: how far each copy has followed its commits partition."""
        return {place: copy.read_to for place, copy in self.copies.items()}

    def hear(self, place: TopicPartition, offset: int, marker: bytes) -> None:
        """Makes a copy follow a marker that is new on its commits partition. Does not wait."""
        if (copy := self.copies.get(place)) is not None:
            copy.hear(offset, marker)
            self._begin(place, copy, copy.follow)

    def look(self, assigned: Collection[TopicPartition]) -> None:
        """Asks where the logs end, and begins to bring forward copies that have not heard of their commits. Does not wait for them.

        A rescale makes the topics again, and the group assigns them again. The copies stay as they are, and answer, until this
        process is started again: no other process could have better ones before.

        Raises:
            TopicNotFoundError: A topic of the application is missing.
            KafkaClientError: The brokers refuse this process for good.
        """
        try:
            if set(assigned) != set(self.copies):
                self._check()
            self._take_tasks(assigned)
            self._forward()
            self.trouble = ""
        except RestoreError as error:
            self.trouble = str(error)
        except KafkaClientError as error:
            if not error.transient:
                raise
            self.trouble = str(error)
            return
        if self.global_copy is not None:
            self._begin(_GLOBAL, self.global_copy, self.global_copy.bring_forward)

    def _forward(self) -> None:
        read_before, asked_s = self.offsets(), self._clock_s()
        self.ends = self._asked_ends()
        idle = []
        for place, copy in self.copies.items():
            if copy.misses(self.ends[place], read_before[place]):
                copy.looked = self.ends[place], asked_s
                self._begin(place, copy, partial(copy.bring_forward, *copy.looked))
            else:
                idle.append(place)
        if idle:
            # The log of a rescaled application may end at the same place, and say nothing of these rows.
            self._check()
        for place in idle:
            copy = self.copies[place]
            copy.looked = self.ends[place], asked_s
            if copy.read_to >= self.ends[place]:
                copy.known_until(asked_s)

    def _asked_ends(self) -> Mapping[TopicPartition, int]:
        logs = sorted({log for place in self.copies for log in self.logs_of(place)})
        try:
            return self._kafka.end_offsets(logs) if logs else {}
        except KafkaClientError as error:
            if not error.transient:
                self._check()
            raise

    def logs_of(self, place: TopicPartition) -> Sequence[TopicPartition]:
        """The logs of a task whose ends are needed."""
        return [place]

    def _take_tasks(self, assigned: Collection[TopicPartition]) -> None:
        """Updates the copies to the tasks that are assigned to this process."""
        mine = {place for place in assigned if place in self._known}
        now_s = self._clock_s()
        self._missing = {place: self._missing.get(place, now_s) for place in self.copies if place not in mine}
        mine |= {place for place, since_s in self._missing.items() if not self._may_go(place, now_s - since_s)}
        if mine != set(self.copies):
            gone = [copy for place, copy in self.copies.items() if place not in mine]
            self.copies = {place: self.copies.get(place) or self._make(place) for place in mine}
            for copy in gone:
                # Which waits for its restore.
                self._restores.submit(copy.close)

    def _may_go(self, place: TopicPartition, missing_s: float) -> bool:
        """Whether a copy can be given up. A copy that cannot be read can always be given up."""
        return not self.copies[place].ready or (missing_s >= self._kept_s and self._elsewhere(place))

    def _begin(self, place: TopicPartition, copy: FollowedCopy, forward: Callable[[], object]) -> None:
        """Makes a thread bring a copy forward, unless one is doing so, or it has just failed."""
        with self._lock:
            if place not in self._busy and self._clock_s() >= self._retry_at.get(place, 0.0):
                self._submit(place, copy, forward)

    def _submit(self, place: TopicPartition, copy: FollowedCopy, forward: Callable[[], object]) -> None:
        """Gives a thread the work. The caller holds the lock."""
        if not self._closing:
            self._busy.add(place)
            pool = self._pool if copy.ready else self._restores
            pool.submit(self._catch_up, place, copy, forward)

    def _catch_up(self, place: TopicPartition, copy: FollowedCopy, forward: Callable[[], object]) -> None:
        """Brings a copy forward, and again if it has heard of further commits in the meantime.

        Other copies come before the repetition, because a task that commits faster than its copy can follow would keep the thread
        forever.
        """
        failed = False
        try:
            forward()
            copy.fault = ""
        except Exception as error:
            # After any error, the copy keeps its rows, reports why it cannot follow, and is tried again.
            failed, copy.fault = True, str(error) or repr(error)
            self._retry_at[place] = self._clock_s() + _RETRY_S
        with self._lock:
            self._busy.discard(place)
            if not failed and isinstance(copy, FollowedTask) and copy.has_heard:
                self._submit(place, copy, copy.follow)

    def close(self) -> None:
        """Ends the running threads, and closes the copies, which stay on disk."""
        with self._lock:
            self._closing = True
        self._pool.shutdown(wait=True)
        self._restores.shutdown(wait=True)
        for copy in self.copies.values():
            copy.close()
        if self.global_copy is not None:
            self.global_copy.close()
