"""Runs small applications on real Spark and Kafka, and reads their results as an outside consumer would."""

from __future__ import annotations

import io
import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from rich.console import Console

from state.kafka.admin import KafkaAdmin, wait_until_decided
from state.kafka.topics import TopicSpec
from streams.config import Execution, StreamsConfig
from streams.drills.topics import DECIDED_S, Read, read_committed
from streams.driver.progress import Progress
from streams.driver.runner import StreamsApplication
from streams.metrics.application import StepFigures
from streams.topology.topology import Topology

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Sent:
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int = -1
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordedProgress(Progress):
    """Keeps every report.

    Attributes:
        reports: of all steps, in the order in which their micro-batches ended.
    """

    def __init__(self, title: str) -> None:
        super().__init__(title, Console(file=io.StringIO()))
        self.reports: list[StepFigures] = []

    def step(self, sub: str, batch_id: int, steps: Collection[StepFigures]) -> None:
        self.reports += steps
        super().step(sub, batch_id, steps)

    def decisions(self, task: int) -> dict[int, str]:
        """What a task did at each version: it ran the step, or found that it was committed and skipped it."""
        return {step.version: step.decision for step in self.reports if step.task == task}


class Harness:
    """One application id, one folder, unique topics.

    Args:
        micro_batches: Whether its applications run in micro-batches, unless a run says otherwise; else in the default execution.
            A test says so by the marker `micro_batches`, with its reason.
    """

    def __init__(self, servers: str, spark: SparkSession, folder: Path, name: str, micro_batches: bool = False) -> None:
        self.servers = servers
        self.spark = spark
        self.folder = folder
        self.micro_batches = micro_batches
        self.application_id = f"{name}-{next(_numbers)}"
        self.progress: RecordedProgress | None = None

    def topic(self, word: str, partitions: int = 2, **config: str) -> str:
        """Creates a topic of this test."""
        name = f"{self.application_id}.{word}"
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        with KafkaAdmin({"bootstrap.servers": self.servers}) as admin:
            # Ready once this returns: an application that finds no topic ends at once.
            admin.create_topics([TopicSpec(name, partitions, settings, 1)])
        return name

    def send(self, topic: str, records: Iterable[Sent]) -> None:
        """Produces records and waits for all of them."""
        send(self.servers, topic, records)

    def read(self, topic: str) -> list[Read]:
        """All committed records of a topic."""
        return read_committed(self.servers, topic)

    def group_offsets(self) -> dict[tuple[str, int], int]:
        """Committed offsets of the application's group. Those of a commit that is just being finished are waited for."""
        client = {"bootstrap.servers": self.servers, "group.id": self.application_id}
        consumer = Consumer({**client, "isolation.level": "read_committed", "enable.auto.commit": False})
        try:
            topics = consumer.list_topics(timeout=60).topics
            places = [TopicPartition(name, number) for name, of in topics.items() for number in of.partitions]
            found = consumer.committed(places, DECIDED_S)
        finally:
            consumer.close()
        assert not any(one.error for one in found), found
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def config(self, **settings: Any) -> StreamsConfig:
        """Settings of this test's application."""
        given = {"available_now": True, "base_dir": self.folder, **settings}
        if self.micro_batches:
            given.setdefault("execution", Execution.MICRO_BATCH)
        return StreamsConfig(application_id=self.application_id, bootstrap_servers=self.servers, **given)

    def run(self, topology: Topology, **settings: Any) -> RecordedProgress:
        """Runs the application over all that is there, until all that it has committed can be read."""
        self.progress = RecordedProgress(self.application_id)
        StreamsApplication(topology, self.config(**settings), self.progress).run(self.spark)
        with KafkaAdmin({"bootstrap.servers": self.servers}) as admin:
            mine = [name for name in admin.topic_names() if name.startswith(self.application_id)]
            found = admin.describe_topics(mine)
            places = [(name, number) for name, info in found.items() for number in range(info.partitions)]
            wait_until_decided(admin, places, DECIDED_S)
        return self.progress


def send(servers: str, topic: str, records: Iterable[Sent]) -> None:
    """Produces records and waits for all of them."""
    # Idempotent: a retry on a topic that is new must not change the order of the records.
    client = {"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True}
    producer = Producer({**client, "partitioner": "murmur2_random"})
    failures: list[Any] = []
    for one in records:
        producer.produce(
            topic,
            one.value,
            one.key,
            one.partition,
            timestamp=one.timestamp,
            headers=list(one.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    producer.flush()
    assert not failures, failures


def last_per_key(records: Sequence[Read]) -> dict[bytes | None, bytes | None]:
    """The table that a topic amounts to."""
    return {record.key: record.value for record in records}
