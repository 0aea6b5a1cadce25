"""`Follower`: brings the copies of a process forward as soon as their tasks commit; and Kafka as one copy reads it.

A commit wakes the follower, which asks where the commits topics end; so does the passing of time, and each answer proves how old
the copies are. A copy that cannot follow keeps its last view, is tried again, and says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from state.columns import RecordColumns
from state.commit.live import LiveKafka
from state.errors import KafkaClientError, RestoreError
from state.kafka.reader import ReaderPool
from state.kafka.topics import TopicPartition
from streams.serve.copies import Copy, TaskCopy
from streams.serve.global_copy import GlobalCopy

_POLL_S = 0.2
"""How often the ends of the commits topics are asked for while nothing is committed: so old are answers of an idle application."""
_RETRY_S = 2.0
_GLOBAL: TopicPartition = ("", 0)
"""In the place of a task's partition: the copy of the global tables."""
_BEGINS_S = 60.0
_PREFETCH_BYTES = 8 * 1024 * 1024


class CopyKafka(LiveKafka):
    """Kafka for one copy: readers stay open between two commits, and where logs begin is asked for once in a while."""

    def __init__(self, client: Mapping[str, str], transaction_timeout_ms: int, bulk: bool, logs: int) -> None:
        super().__init__(client, transaction_timeout_ms, bulk)
        self._properties, self._native = dict(client), bulk
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


class Member(Protocol):
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
        parallel: How many copies are brought forward at a time.

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
        parallel: int = 2,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._kafka = kafka
        self._make = make
        self._known = frozenset(known)
        self.global_copy = global_copy
        self.copies: Mapping[TopicPartition, TaskCopy] = {}
        self.trouble = ""
        self._closing = False
        self._running: dict[TopicPartition, Future[None]] = {}
        self._retry_at: dict[TopicPartition, float] = {}
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="copies")

    def run(self, member: Member, ended: threading.Event) -> None:
        """Follows until the event is set.

        Raises:
            KafkaClientError: The brokers refuse this process for good.
        """
        while not ended.is_set():
            self.follow(member.poll(_POLL_S))
            member.commit({place: copy.read_to for place, copy in self.copies.items()})

    def follow(self, assigned: Collection[TopicPartition]) -> None:
        """Begins to bring forward what is behind. Does not wait.

        Raises:
            KafkaClientError: The brokers refuse this process for good.
        """
        asked_s = time.monotonic()
        try:
            ends = self._ends(assigned)
            idle = [copy for place, end in ends.items() if (copy := self._idle(place, end, asked_s)) is not None]
            if idle:
                # The log of a rescaled application may end at the same place, and say nothing of these rows.
                self._check()
            for copy in idle:
                copy.known_until(asked_s)
            self.trouble = ""
        except RestoreError as error:
            self.trouble = str(error)
        except KafkaClientError as error:
            if not error.transient:
                raise
            self.trouble = str(error)
            return
        if self.global_copy is not None and self._may_begin(_GLOBAL, asked_s):
            self._begin(_GLOBAL, self.global_copy, self.global_copy.bring_forward)

    def _ends(self, assigned: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the commits of the tasks of this process end.

        A rescale makes the topics again, and the group shares them out once more. The copies remain what they are meanwhile, and
        answer, until this process is started again: nobody else could have better ones before.

        Raises:
            RestoreError: The application is being rescaled, or was.
        """
        if set(assigned) != set(self.copies):
            self._check()
        self._take(assigned)
        places = sorted(self.copies)
        try:
            return self._kafka.end_offsets(places) if places else {}
        except KafkaClientError as error:
            if not error.transient:
                self._check()
            raise

    def _take(self, assigned: Collection[TopicPartition]) -> None:
        mine = {place for place in assigned if place in self._known}
        if mine != set(self.copies):
            gone = [copy for place, copy in self.copies.items() if place not in mine]
            self.copies = {place: self.copies.get(place) or self._make(place) for place in mine}
            for copy in gone:
                self._pool.submit(copy.close)

    def _idle(self, place: TopicPartition, end: int, asked_s: float) -> TaskCopy | None:
        """The copy, if there is nothing to follow; else that begins."""
        copy = self.copies[place]
        copy.log_end = end
        if not self._may_begin(place, asked_s):
            return None
        if copy.is_behind(end):
            self._begin(place, copy, partial(copy.bring_forward, end, asked_s))
            return None
        return copy

    def _may_begin(self, place: TopicPartition, now_s: float) -> bool:
        running = self._running.get(place)
        return (running is None or running.done()) and now_s >= self._retry_at.get(place, 0.0)

    def _begin(self, place: TopicPartition, copy: Copy, look: Callable[[], bool]) -> None:
        self._running[place] = self._pool.submit(self._catch_up, place, copy, look)

    def _catch_up(self, place: TopicPartition, copy: Copy, look: Callable[[], bool]) -> None:
        """Brings a copy to the last commit, and looks again if there was one.

        The other copies come first: a task that commits faster than its copy can follow would keep the thread for ever.
        """
        try:
            more = look()
            copy.fault = ""
            if more and not self._closing:
                self._begin(place, copy, copy.bring_forward)
        except Exception as error:
            # Whatever it is: the copy still answers, says why it cannot follow, and is tried again.
            copy.fault = str(error) or repr(error)
            self._retry_at[place] = time.monotonic() + _RETRY_S

    def close(self) -> None:
        """Ends what runs, and closes the copies, which stay on disk."""
        self._closing = True
        self._pool.shutdown(wait=True)
        for copy in self.copies.values():
            copy.close()
        if self.global_copy is not None:
            self.global_copy.close()
