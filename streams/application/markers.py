"""The last commit markers of all tasks of a sub-topology, and the fence before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from state.changelog import commits_topic
from state.commit.decide import slot_transactional_id
from state.commit.guards import fenced_producer
from state.commit.marker import MARKER_KEY, UNPLACED, CommitMarker, MarkerLog, read_last_marker
from state.commit.protocols import KafkaAccess, Producer
from state.errors import CheckpointMismatchError
from state.kafka.topics import TopicPartition
from streams.checkpoint.compare import SubIdentity

_PARALLEL = 8
_FIRST_LOOK = 16
_FURTHER = 32
"""The search for the newest marker starts at the end of the log, because a day of commits may come before the marker."""
_Result = TypeVar("_Result")


class MarkerAccess:
    """Reads and writes the markers of one sub-topology."""

    def __init__(self, kafka: KafkaAccess, sub: SubIdentity) -> None:
        self._kafka = kafka
        self._sub = sub
        self.topic = commits_topic(sub.application_id, sub.name)

    def places(self) -> list[tuple[str, int]]:
        return [(self.topic, task) for task in range(self._sub.tasks)]

    def read(self) -> dict[int, CommitMarker | None]:
        """The last visible marker of each task; None for a task without one."""
        return self._each(self._last)

    def fenced(self) -> dict[int, CommitMarker | None]:
        """Fences all older attempts, waits until all their commits are visible, and then returns what `read` does.

        Live attempts write under the ids of slots, whose numbers are not larger than those of tasks.
        """

        def fence_slot(number: int) -> None:
            fenced_producer(self._kafka, slot_transactional_id(self._sub.application_id, number)).close()

        def fence(task: int) -> CommitMarker | None:
            with closing(self._fenced(task)):
                return self._last(task)

        self._each(fence_slot)
        return self._each(fence)

    def replace(
        self,
        task: int,
        expected: CommitMarker | None,
        marker: CommitMarker,
        offsets: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> bool:
        """Writes a task's new marker in a transaction, if the last marker is the expected one. Returns False if a task is running.

        A slot that begins after `fenced` is called does not fence this producer. Then both write to the partition, and at least one
        of them notices: its record has another offset than it expects.

        Raises:
            FencedError: A task of the application has fenced this producer.
        """
        place = (self.topic, task)
        with closing(self._fenced(task)) as producer:
            end = self._kafka.end_offsets([place])[place]
            if self._last(task, end) != expected:
                return False
            producer.begin()
            producer.send(*place, MARKER_KEY, replace(marker, transactional_id="").to_bytes(), marker.now_ms)
            if offsets:
                producer.send_offsets(offsets, self._sub.application_id)
            producer.flush()
            if producer.delivered(*place) != end:
                return False
            producer.commit()
        return True

    def _fenced(self, task: int) -> Producer:
        return fenced_producer(self._kafka, self._sub.task(task, "").transactional_id)

    def _last(self, task: int, end: int | None = None) -> CommitMarker | None:
        found = read_last_marker(self._kafka, (self.topic, task), end=end)
        return found.marker if found else None

    def _each(self, ask: Callable[[int], _Result]) -> dict[int, _Result]:
        tasks: Iterable[int] = range(self._sub.tasks)
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="markers") as pool:
            return dict(zip(tasks, pool.map(ask, tasks), strict=True))


def still_running(sub: SubIdentity, task: int, command: str) -> CheckpointMismatchError:
    """The error for an application that commits while a command changes its state."""
    return CheckpointMismatchError(
        f"{sub}: task {task} is running. Stop the application on all hosts, then run `streams {command}` again: it "
        f"resumes where it stopped"
    )


def newest_marker(log: MarkerLog, commits: TopicPartition) -> CommitMarker | None:
    """The newest marker in a partition of a commits topic; None if the partition has none.

    Raises:
        MarkerFormatError: The newest record is not a marker.
    """
    begin, end = log.begin_offset(commits), log.end_offsets([commits])[commits]
    back = _FIRST_LOOK
    while begin < end:
        start = max(begin, end - back)
        found = read_last_marker(log, commits, start)
        if found is not None:
            return found.marker
        if start == begin:
            return None
        # This part of the log has only control records of transactions.
        back *= _FURTHER
    return None


def placed_marker(log: MarkerLog, topic: str, tasks: Iterable[int]) -> CommitMarker | None:
    """A marker of a commits topic that contains the placement of keys; None: no task has had a key yet."""
    return next((marker for marker in newest_markers(log, topic, tasks) if marker.placement != UNPLACED), None)


def newest_markers(log: MarkerLog, topic: str, partitions: Iterable[int]) -> Iterator[CommitMarker]:
    """The newest markers of the tasks that have committed anything."""
    for partition in partitions:
        found = newest_marker(log, (topic, partition))
        if found is not None and found.version:
            yield found


def last_rows(log: KafkaAccess, place: TopicPartition) -> dict[bytes, bytes | None]:
    """Key -> last value of each committed record of a partition that has a key."""
    end = log.end_offsets([place])[place]
    cells = (cell for records in log.read(*place, log.begin_offset(place), end) for cell in records.cells())
    return {key: value for key, value in cells if key is not None}
