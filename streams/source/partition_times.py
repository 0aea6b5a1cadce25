"""The largest timestamp of each source partition so far, carried from one micro-batch to the next.

`UsePartitionTimeOnInvalidTimestamp` and extractors of the user's own are given it, so it must not depend on where a batch was
cut. A reader reports the time at the end of its range to the task that owns the partition, which keeps it in its commit
marker; the planner, who plans a batch only after the last one is committed, takes it from there for the next range.

A task may be one step ahead of Spark (a crash between the two commits), so the last two times are kept, each with the offset
at which it was true: a repeated range finds the time it began with the first time.
"""

# ruff: noqa: D102 - members of protocols are described where they are implemented
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from state.commit.marker import CommitMarker
from state.kafka.decided import wait_until_decided
from state.kafka.reader import shared_reader
from streams.source.offsets import OffsetRange
from streams.topology.graph import SourceNode
from streams.topology.timestamps import (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    WallclockTimestampExtractor,
)

NO_TIME = -1
TopicPartition = tuple[str, int]
_NAME = "partition_times"
_KEPT = 2
_DO_NOT_ASK = (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    WallclockTimestampExtractor,
)


class Admin(Protocol):
    """What is needed of `state.kafka.admin.KafkaAdmin`."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, Any]: ...
    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(
        self, partitions: Iterable[TopicPartition], committed: bool = True
    ) -> dict[TopicPartition, int]: ...


def asks_for_partition_time(source: SourceNode) -> bool:
    """Whether a source's extractor looks at the partition time."""
    return not isinstance(source.timestamp_extractor, _DO_NOT_ASK)


def remember(operator_state: dict[str, Any], times: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Writes what readers reported into the state that goes into a commit marker.

    Args:
        operator_state: the task's.
        times: partition -> (end of its range, partition time there).
    """
    for (topic, partition), (offset, time) in times.items():
        of_topic = operator_state.setdefault("task", {}).setdefault(_NAME, {}).setdefault(topic, {})
        of_topic[str(partition)] = [*of_topic.get(str(partition), []), [offset, time]][-_KEPT:]


class PartitionTimes:
    """Reads the partition times of a sub-topology from the markers of its tasks.

    Args:
        client: librdkafka client properties.
        admin: asks Kafka.
        topic: the commits topic.
        decide_s: how long the transaction of an attempt that was killed may stay open, seconds.
    """

    def __init__(self, client: Mapping[str, str], admin: Admin, topic: str, decide_s: float) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._decide_s = decide_s
        self._read_to: dict[TopicPartition, int] = {}
        self._known: dict[TopicPartition, list[tuple[int, int]]] = {}

    def before(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        """The partition time at the start of each range, ms; `NO_TIME` where nothing was read before."""
        self._refresh()
        if not all(self._is_known(one) for one in ranges):
            # The last micro-batch is committed, but its markers may not be readable yet.
            wait_until_decided(self._admin, self._commits(), self._decide_s)
            self._refresh()
        found = {}
        for one in ranges:
            place = (one.topic, one.partition)
            times = [time for offset, time in self._known.get(place, []) if offset <= one.start]
            found[place] = times[-1] if times else NO_TIME
        return found

    def _is_known(self, one: OffsetRange) -> bool:
        """Whether a micro-batch has told the time where this range starts; none has at the beginning, or behind lost offsets."""
        return any(offset == one.start for offset, _ in self._known.get((one.topic, one.partition), []))

    def _commits(self) -> list[TopicPartition]:
        tasks = range(self._admin.describe_topics([self._topic])[self._topic].partitions)
        return [(self._topic, task) for task in tasks]

    def _refresh(self) -> None:
        """Takes in the markers that are new."""
        commits = self._commits()
        begin, end = self._admin.begin_offsets(commits), self._admin.end_offsets(commits)
        for place in commits:
            start = self._read_to.get(place, begin[place])
            if start >= end[place]:
                continue
            last = None
            for columns in shared_reader(self._client, *place, start, bulk=False).read(end[place]):
                last = columns.values[len(columns) - 1].as_py()
            self._read_to[place] = end[place]
            if last is not None:
                self._take(CommitMarker.from_bytes(last).operator_state)

    def _take(self, operator_state: Mapping[str, Any]) -> None:
        for topic, of_topic in operator_state.get("task", {}).get(_NAME, {}).items():
            for partition, times in of_topic.items():
                self._known[topic, int(partition)] = [(offset, time) for offset, time in times]
