"""The topics of the simulated Kafka: names, ids, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from state.errors import TopicNotFoundError
from state.kafka.topics import TopicInfo
from streams.testing.simulation.log import PartitionLog


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic.

    Attributes:
        topic_id: The topic's id, new each time that a topic of this name is created.
        logs: The topic's partitions.
        cleanup_policy: `delete`, `compact` or `compact,delete`.
    """

    topic_id: str
    logs: list[PartitionLog]
    cleanup_policy: str = "delete"


class Topics:
    """All topics of a broker.

    Args:
        partitions: The initial number of partitions by topic.
        auto_create: Whether a missing topic is created on first use, with one partition.
    """

    def __init__(self, partitions: Mapping[str, int], auto_create: bool) -> None:
        self._auto_create = auto_create
        self._topics: dict[str, Topic] = {}
        self._created = 0
        for name, count in partitions.items():
            self.create_topic(name, count)

    @property
    def topics(self) -> set[str]:
        """Names of the topics that exist."""
        return set(self._topics)

    def create_topic(self, name: str, partitions: int = 1, cleanup_policy: str = "delete") -> None:
        """Creates a topic, or adds partitions to an existing one that has fewer."""
        if name in self._topics:
            logs = self._topics[name].logs
            logs += [PartitionLog(name, number) for number in range(len(logs), partitions)]
            return
        self._created += 1
        logs = [PartitionLog(name, number) for number in range(partitions)]
        self._topics[name] = Topic(f"{name}#{self._created}", logs, cleanup_policy)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records."""
        self._topics.pop(name, None)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Ids and partition counts of those topics that exist."""
        found = {name: self._topics[name] for name in names if name in self._topics}
        return {name: TopicInfo(topic.topic_id, len(topic.logs)) for name, topic in found.items()}

    def partition_count(self, topic: str) -> int:
        """Number of partitions."""
        return len(self._topic(topic).logs)

    def was_produced_to(self, topic: str) -> bool:
        """Whether a transaction has written records to a topic that readers see."""
        return any(entry.span is not None for log in self._topic(topic).logs for entry in log.readable())

    def log(self, topic: str, partition: int) -> PartitionLog:
        """A partition.

        Raises:
            TopicNotFoundError: The topic or partition does not exist.
        """
        logs = self._topic(topic).logs
        if not 0 <= partition < len(logs):
            raise TopicNotFoundError(topic, partition)
        return logs[partition]

    def _topic(self, name: str) -> Topic:
        if name not in self._topics and self._auto_create:
            self.create_topic(name)
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFoundError(name)
        return topic
