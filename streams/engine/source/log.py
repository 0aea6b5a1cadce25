"""The surroundings of planning: the clock, requests to Kafka that are retried, and committed records."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from state.kafka.topics import TopicInfo, TopicPartition

if TYPE_CHECKING:
    from state.columns import RecordColumns
    from state.kafka.admin import KafkaAdmin, TransientRetry
    from state.kafka.message_reader import Messages
    from state.kafka.range_reader import Run

# --- The wall clock of all tasks. It is the driver's, and fault drills can step it.
#
# `STREAMS_CLOCK_STEP=FILE` names a file with a number of milliseconds, which is added to the system's clock; the file may change at
# any time. Without the variable, the clock is the system's. Like crash points, this is for drills, because real clocks do step.


STEP = "STREAMS_CLOCK_STEP"


def now_ms() -> int:
    return int(time.time() * 1000) + _step_ms()


def _step_ms() -> int:
    file = os.environ.get(STEP)
    if not file:
        return 0
    try:
        return int(Path(file).read_text())
    except (OSError, ValueError):
        # The file is not there yet, or is just being written.
        return 0


# --- The requests of planning to Kafka, and a `KafkaAdmin` that retries while brokers are away.


class SourceAdmin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that the planner uses."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]: ...
    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]: ...
    def delete_records(self, before: Mapping[TopicPartition, int]) -> object: ...


class PatientAdmin:
    """An admin client that retries while brokers are away, except deletions of records, which may fail."""

    def __init__(self, admin: KafkaAdmin, patience: TransientRetry) -> None:
        self._admin = admin
        self._patience = patience

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]:
        return self._patience(lambda: self._admin.describe_topics(names))

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._patience(lambda: self._admin.begin_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition], committed: bool = True) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        return self._patience(lambda: self._admin.end_offsets(wanted, committed))

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return self._patience(lambda: self._admin.offsets_for_times(times))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> object:
        return self._admin.delete_records(before)


# --- Committed records of internal topics, as the planner and the commands read them.
#
# The process that plans a query does not import Arrow before it has something to read.


class RunLog(Protocol):
    """Kafka, for reading the keys and values of a few records of an internal topic, from its beginning or from an offset."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, Any]: ...
    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Run]: ...


class Log(RunLog, Protocol):
    """Kafka, for reading whole records as columns."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]: ...


class _Requests:
    """The requests to the real Kafka, except reading."""

    def __init__(self, client: Mapping[str, str], admin: SourceAdmin) -> None:
        self._client = client
        self.describe_topics = admin.describe_topics
        self.begin_offsets = admin.begin_offsets
        self._end_offsets = admin.end_offsets

    def begin_offset(self, partition: TopicPartition) -> int:
        return self.begin_offsets([partition])[partition]

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict(self._end_offsets(partitions))


class LiveLog(_Requests):
    """The real Kafka, with readers that are reused."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        from state.kafka.reader import shared_reader

        return shared_reader(self._client, topic, partition, start, bulk=False).read(end)


class CommandLog(_Requests):
    """The real Kafka for a command. It reads only a few records, such as the last commits, in the form of the client."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Messages]:
        """Yields the committed records [start, end)."""
        from state.kafka.message_reader import read_messages

        return read_messages(self._client, topic, partition, start, end)
