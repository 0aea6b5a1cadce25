"""`Follower`: brings the copies of a process forward as soon as their tasks commit; and Kafka as one copy reads it.

The follower stays on the commits topics: a copy hears of each marker as soon as it is committed, and reads its changelogs, on which
it stays, too. Nothing is asked for a commit. A look also asks several times a second where the commits topics end, which
proves how old the copies are, and finds what a copy has not heard of. A copy that cannot follow keeps its last view, is tried
again, and says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from state.columns import RecordColumns
from state.commit.live import LiveKafka
from state.errors import KafkaClientError, RestoreError, TopicNotFoundError
from state.kafka.reader import ReaderPool
from state.kafka.topics import TopicPartition
from streams.application.restore import SERVED_AT_A_TIME
from streams.errors import ConfigError
from streams.serve.copies import Copy, GlobalCopy, TaskCopy

_LOOK_S = 0.2
"""How often the ends of the commits topics are asked for: so old are answers of an idle application."""
_RETRY_S = 2.0
_GLOBAL: TopicPartition = ("", 0)
"""In the place of a task's partition: the copy of the global tables."""
_KEPT_S = 10.0
"""How long a copy stays at least that the group has given to nobody or to somebody else: after brokers were away, all of a group
lose their tasks, and get them back when they have joined again."""
_BEGINS_S = 60.0
_PREFETCH_BYTES = 8 * 1024 * 1024
_STAYS = {"queued.min.messages": "100000", "fetch.wait.max.ms": "500"}
"""A reader of micro-batches fetches nothing while some records wait; here that would be a delay. Brokers answer as soon as
something is committed, and need not be asked more often where nothing is."""


class CopyKafka(LiveKafka):
    """Kafka for one copy: readers stay open between two commits, and where logs begin is asked for once in a while."""

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
                # Perhaps the log begins later by now.
                self._begins.clear()
                raise

    def close(self) -> None:
        """Closes the readers."""
        self._readers.close()


class GroupMembership(Protocol):
    """Who shares the tasks with other processes: `state.kafka.consumers.GroupMember`."""

    def poll(self, timeout_s: float) -> Collection[TopicPartition]: ...
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...


class Ends(Protocol):
    """Where logs end."""

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...


class Follower:
    """The copies of this process, and what brings them forward.

    Args:
        kafka: Asked for the ends of the commits topics.
        make: Makes the copy of a task, by its partition of a commits topic.
        known: All tasks.
        global_copy: The copy of the global tables, which every process has for itself; None: there are none.
        check: Raises a `RestoreError` if the application is being rescaled, or was.
        parallel: How many copies are brought forward at a time, and how many are restored.
        elsewhere: Says whether another process has a copy of a task that can be read. Before, none is given up.

    Attributes:
        copies: The copies, by their tasks' partitions of the commits topics; replaced when tasks move, never changed.
        trouble: Why commits could not be followed the last time; empty: they were.
    """

    def __init__(
        self,
        kafka: Ends,
        make: Callable[[TopicPartition], TaskCopy],
        known: Collection[TopicPartition],
        global_copy: GlobalCopy | None = None,
        parallel: int = SERVED_AT_A_TIME,
        check: Callable[[], None] = lambda: None,
        elsewhere: Callable[[TopicPartition], bool] = lambda place: True,
    ) -> None:
        self._check = check
        self._elsewhere = elsewhere
        self._kafka = kafka
        self._make = make
        self._known = frozenset(known)
        self.global_copy = global_copy
        self.copies: Mapping[TopicPartition, TaskCopy] = {}
        self.trouble = ""
        self._lock = threading.Lock()
        self._closing = False
        self._busy: set[TopicPartition] = set()
        self._missing: dict[TopicPartition, float] = {}
        """Tasks of copies that are not this process's any more, and since when."""
        self._retry_at: dict[TopicPartition, float] = {}
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="copies")
        # Restores take minutes. Copies that can be read are not to grow old meanwhile.
        self._restores = ThreadPoolExecutor(parallel, thread_name_prefix="restores")

    def run(self, member: GroupMembership, ended: threading.Event) -> None:
        """Follows until the event is set; the member calls `hear`.

        Raises:
            KafkaClientError: The brokers refuse this process for good.
            ConfigError: The application was reset.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="looks") as pool:
            look, due_s = pool.submit(self.look, ()), 0.0
            while not ended.is_set():
                assigned = member.poll(_LOOK_S)
                if look.done() and time.monotonic() >= due_s:
                    look.result()
                    member.commit({place: copy.read_to for place, copy in self.copies.items()})
                    look, due_s = pool.submit(self.look, assigned), time.monotonic() + _LOOK_S

    def hear(self, place: TopicPartition, offset: int, marker: bytes) -> None:
        """Lets a copy follow a marker that is new on its commits partition. Does not wait."""
        if (copy := self.copies.get(place)) is not None:
            copy.hear(offset, marker)
            self._begin(place, copy, copy.follow)

    def look(self, assigned: Collection[TopicPartition]) -> None:
        """Asks where the commits topics end, and begins to bring forward what has not heard of its commits. Does not wait for that.

        Raises:
            KafkaClientError: The brokers refuse this process for good.
            ConfigError: The application was reset.
        """
        try:
            self._take_checked(assigned)
            read_before = {place: copy.read_to for place, copy in self.copies.items()}
            asked_s = time.monotonic()
            idle = {}
            for place, end in self._ends().items():
                copy = self.copies[place]
                if copy.misses(end, read_before[place]):
                    copy.looked = end, asked_s
                    self._begin(place, copy, partial(copy.bring_forward, end, asked_s))
                else:
                    idle[copy] = end
            if idle:
                # The log of a rescaled application may end at the same place, and say nothing of these rows.
                self._check()
            for copy, end in idle.items():
                copy.looked = end, asked_s
                if copy.read_to >= end:
                    copy.known_until(asked_s)
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

    def _take_checked(self, assigned: Collection[TopicPartition]) -> None:
        """Takes the tasks of this process.

        A rescale makes the topics again, and the group shares them out once more. The copies remain what they are meanwhile, and
        answer, until this process is started again: nobody else could have better ones before.

        Raises:
            RestoreError: The application is being rescaled, or was.
        """
        if set(assigned) != set(self.copies):
            self._check()
        self._take(assigned)

    def _ends(self) -> Mapping[TopicPartition, int]:
        """Where the commits of the tasks of this process end.

        Raises:
            RestoreError: The application is being rescaled, or was.
            ConfigError: It was reset.
        """
        places = sorted(self.copies)
        try:
            return self._kafka.end_offsets(places) if places else {}
        except KafkaClientError as error:
            if not error.transient:
                self._check()
            if isinstance(error, TopicNotFoundError):
                raise ConfigError(
                    f"there is no topic {error.topic!r} any more: the application was reset, and has nothing that could be served. "
                    f"Start this command again once the application has run"
                ) from error
            raise

    def _take(self, assigned: Collection[TopicPartition]) -> None:
        mine = {place for place in assigned if place in self._known}
        now_s = time.monotonic()
        self._missing = {place: self._missing.get(place, now_s) for place in self.copies if place not in mine}
        mine |= {place for place, since_s in self._missing.items() if not self._may_go(place, now_s - since_s)}
        if mine != set(self.copies):
            gone = [copy for place, copy in self.copies.items() if place not in mine]
            self.copies = {place: self.copies.get(place) or self._make(place) for place in mine}
            for copy in gone:
                # Which waits for its restore.
                self._restores.submit(copy.close)

    def _may_go(self, place: TopicPartition, missing_s: float) -> bool:
        """Whether a copy can be given up. One that cannot be read is of use to nobody."""
        return not self.copies[place].ready or (missing_s >= _KEPT_S and self._elsewhere(place))

    def _begin(self, place: TopicPartition, copy: Copy, forward: Callable[[], object]) -> None:
        """Lets a thread bring a copy forward, unless one does that, or it has just failed."""
        with self._lock:
            if place not in self._busy and time.monotonic() >= self._retry_at.get(place, 0.0):
                self._submit(place, copy, forward)

    def _submit(self, place: TopicPartition, copy: Copy, forward: Callable[[], object]) -> None:
        """Called with the lock."""
        if not self._closing:
            self._busy.add(place)
            pool = self._pool if copy.ready else self._restores
            pool.submit(self._catch_up, place, copy, forward)

    def _catch_up(self, place: TopicPartition, copy: Copy, forward: Callable[[], object]) -> None:
        """Brings a copy forward, and again if it has heard of further commits meanwhile.

        The other copies come first: a task that commits faster than its copy can follow would keep the thread for ever.
        """
        failed = False
        try:
            forward()
            copy.fault = ""
        except Exception as error:
            # Whatever it is: the copy still answers, says why it cannot follow, and is tried again.
            failed, copy.fault = True, str(error) or repr(error)
            self._retry_at[place] = time.monotonic() + _RETRY_S
        with self._lock:
            self._busy.discard(place)
            if not failed and isinstance(copy, TaskCopy) and copy.has_heard:
                self._submit(place, copy, copy.follow)

    def close(self) -> None:
        """Ends what runs, and closes the copies, which stay on disk."""
        with self._lock:
            self._closing = True
        self._pool.shutdown(wait=True)
        self._restores.shutdown(wait=True)
        for copy in self.copies.values():
            copy.close()
        if self.global_copy is not None:
            self.global_copy.close()
