"""The largest timestamp of each source partition so far, carried from one micro-batch to the next.

`UsePartitionTimeOnInvalidTimestamp` and the user's extractors receive this time, so it must not depend on where a batch was
cut. A reader reports the time at the end of its range to the task that owns the partition, which saves it in its commit
marker. The planner plans a batch only after the last one is committed, and reads the time of the next range from the marker.

A task may be one step ahead of Spark (a crash between the two commits), so the marker has the last two times, each with its
offset. Example: it has time 50 at offset 100 and time 80 at offset 200. A repeated range from 100 begins with 50, as it did
originally, and the next range from 200 begins with 80.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from state.commit.marker import CommitMarker
from state.kafka.topics import TopicPartition
from streams.engine.source.offsets import OffsetRange
from streams.model.record import NO_TIME
from streams.model.timestamps import (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    RetriedTimestampExtractor,
    WallclockTimestampExtractor,
)

if TYPE_CHECKING:
    from streams.engine.source.log import Log
    from streams.topology.graph import SourceNode


_NAME = "partition_times"
_KEPT = 2
_DO_NOT_ASK = (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    RetriedTimestampExtractor,
    WallclockTimestampExtractor,
)


def asks_for_partition_time(source: SourceNode) -> bool:
    """Whether a source's timestamp extractor uses the partition time."""
    return not isinstance(source.timestamp_extractor, _DO_NOT_ASK)


def with_partition_times(
    operator_state: Mapping[str, Any], times: Mapping[TopicPartition, tuple[int, int]]
) -> dict[str, Any]:
    """The operator state that a step begins with: the state of the last commit, with the times that readers report."""
    if not times:
        return dict(operator_state)
    of_task = dict(operator_state.get("task", {}))
    known = {topic: dict(of_topic) for topic, of_topic in of_task.get(_NAME, {}).items()}
    for (topic, partition), (offset, time) in times.items():
        of_topic = known.setdefault(topic, {})
        of_topic[str(partition)] = [*of_topic.get(str(partition), []), [offset, time]][-_KEPT:]
    return {**operator_state, "task": {**of_task, _NAME: known}}


def known_times(operator_state: Mapping[str, Any]) -> dict[TopicPartition, list[tuple[int, int]]]:
    """The times in a marker: pairs of offset and time, the latest last."""
    return {
        (topic, int(partition)): [(offset, time) for offset, time in times]
        for topic, of_topic in operator_state.get("task", {}).get(_NAME, {}).items()
        for partition, times in of_topic.items()
    }


def time_at(times: Sequence[tuple[int, int]], offset: int) -> int:
    """The partition time at an offset, ms; `NO_TIME` if nothing was read before it."""
    return next((time for known, time in reversed(times) if known <= offset), NO_TIME)


class PartitionTimes:
    """The partition times of a sub-topology, read from the markers of its tasks.

    Args:
        wait_until_decided: Waits until no transaction is open on the given partitions, up to a time limit.
    """

    def __init__(self, log: Log, topic: str, wait_until_decided: Callable[[Sequence[TopicPartition]], object]) -> None:
        self._log = log
        self._topic = topic
        self._wait_until_decided = wait_until_decided
        self._read_to: dict[TopicPartition, int] = {}
        self._known: dict[TopicPartition, list[tuple[int, int]]] = {}

    def before(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        """The partition time at the start of each range, ms; `NO_TIME` if nothing was read before it."""
        self._refresh()
        if not all(self._is_known(one) for one in ranges):
            # The last micro-batch is committed, but its markers may not be visible yet.
            self._wait_until_decided(self._commits())
            self._refresh()
        places = (((one.topic, one.partition), one.start) for one in ranges)
        return {place: time_at(self._known.get(place, []), start) for place, start in places}

    def _is_known(self, one: OffsetRange) -> bool:
        """Whether the time at the start of this range is known. It is not at the beginning, or after lost offsets."""
        return any(offset == one.start for offset, _ in self._known.get((one.topic, one.partition), []))

    def _commits(self) -> list[TopicPartition]:
        tasks = range(self._log.describe_topics([self._topic])[self._topic].partitions)
        return [(self._topic, task) for task in tasks]

    def _refresh(self) -> None:
        commits = self._commits()
        begin, end = self._log.begin_offsets(commits), self._log.end_offsets(commits)
        for place in commits:
            start = self._read_to.get(place, begin[place])
            if start >= end[place]:
                continue
            last = None
            for columns in self._log.read(*place, start, end[place]):
                last = columns.values[len(columns) - 1].as_py()
            self._read_to[place] = end[place]
            if last is not None:
                self._known.update(known_times(CommitMarker.from_bytes(last).operator_state))
