"""What all cases on real Spark and Kafka share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.drills.topics import Read, read_committed


def prefixed(parts: Sequence[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Nodes or records with topics of a case's own; their order by name stays as it is."""
    return [{**part, "topic": f"{prefix}{part['topic']}"} if "topic" in part else part for part in parts]


@dataclass(frozen=True)
class Cluster:
    """What all cases share.

    Attributes:
        servers: of the broker.
        session: Spark, with the engine's settings.
        folder: for checkpoints and state.
    """

    servers: str
    session: SparkSession
    folder: Path

    @cached_property
    def admin(self) -> KafkaAdmin:
        """Asks the broker."""
        return KafkaAdmin({"bootstrap.servers": self.servers})

    def create_topics(self, names: list[str]) -> None:
        """Topics with one partition whose records never expire."""
        self.admin.create_topics(TopicSpec(name, 1, {"retention.ms": "-1"}, 1) for name in names)

    def read(self, topic: str) -> list[Read]:
        """All committed records of a topic."""
        return read_committed(self.servers, topic)
