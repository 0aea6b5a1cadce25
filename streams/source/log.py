"""Committed records of internal topics, as the planner and the commands read them.

The process that plans a query imports no Arrow before it has something to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from state.kafka.topics import TopicPartition

if TYPE_CHECKING:
    from state.kafka.columns import RecordColumns
    from streams.source.admin import Admin


class Log(Protocol):
    """The requests to Kafka of those who read an internal topic from its beginning, or from an offset on."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, Any]: ...
    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]: ...


class LiveLog:
    """The real Kafka, with readers that are reused.

    Args:
        client: Client properties of librdkafka.
        admin: Asks Kafka.
    """

    def __init__(self, client: Mapping[str, str], admin: Admin) -> None:
        self._client = client
        self.describe_topics = admin.describe_topics
        self.begin_offsets = admin.begin_offsets
        self.end_offsets = admin.end_offsets

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        """Committed records [start, end)."""
        from state.kafka.reader import shared_reader

        return shared_reader(self._client, topic, partition, start, bulk=False).read(end)
