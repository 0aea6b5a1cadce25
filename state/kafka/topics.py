"""Topics as values: what exists, and what is to be created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition)."""


@dataclass(frozen=True)
class TopicInfo:
    """A topic that exists.

    Attributes:
        topic_id: Kafka's id of the topic (base64 of a UUID), which changes when a topic is deleted and created again.
        partitions: Number of partitions.
    """

    topic_id: str
    partitions: int


@dataclass(frozen=True)
class TopicSpec:
    """A topic to create.

    Attributes:
        name: Its name.
        partitions: Number of partitions.
        config: Topic configuration.
        replication: Replication factor; -1 = the broker's default.
    """

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication: int = -1
