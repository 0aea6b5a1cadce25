"""Runs small applications on real Spark and Kafka, and reads their results as an outside consumer would."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from rich.console import Console

from streams.config import StreamsConfig
from streams.spark.progress import Progress
from streams.spark.runner import StreamsApplication
from streams.topology.graph import Topology

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Sent:
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int = -1
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Read:
    """A record as a read_committed consumer sees it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Harness:
    """One application id, one folder, unique topics."""

    def __init__(self, servers: str, spark: SparkSession, folder: Path, name: str) -> None:
        self.servers = servers
        self.spark = spark
        self.folder = folder
        self.application_id = f"{name}-{next(_numbers)}"
        self.progress: Progress | None = None
        self._admin = AdminClient({"bootstrap.servers": servers})

    def topic(self, word: str, partitions: int = 2, **config: str) -> str:
        """Creates a topic of this test."""
        name = f"{self.application_id}.{word}"
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        self._admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()
        return name

    def send(self, topic: str, records: Iterable[Sent]) -> None:
        """Produces records and waits for all of them."""
        # Idempotent: a retry on a topic that is new must not change the order of the records.
        client = {"bootstrap.servers": self.servers, "linger.ms": 5, "enable.idempotence": True}
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

    def read(self, topic: str) -> list[Read]:
        """All committed records of a topic."""
        return read_committed(self.servers, topic)

    def config(self, **settings: Any) -> StreamsConfig:
        """Settings of this test's application."""
        given = {"available_now": True, "base_dir": self.folder, **settings}
        return StreamsConfig(application_id=self.application_id, bootstrap_servers=self.servers, **given)

    def run(self, topology: Topology, **settings: Any) -> Progress:
        """Runs the application over all that is there."""
        console = Console(file=io.StringIO())
        self.progress = Progress(self.application_id, console)
        StreamsApplication(topology, self.config(**settings), self.progress).run(self.spark)
        return self.progress


def read_committed(servers: str, topic: str) -> list[Read]:
    """All committed records of a topic, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "verifier",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # The end of a partition is told with the next answer, for which the broker else waits half a second.
            "fetch.wait.max.ms": 20,
        }
    )
    partitions = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Read] = []
    waiting = set(partitions)
    while waiting:
        message = consumer.poll(20)
        assert message is not None, f"nothing came from {topic} within 20 s"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            waiting.discard(message.partition())
            continue
        found.append(
            Read(
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                tuple(message.headers() or ()),
            )
        )
    consumer.close()
    return sorted(found, key=lambda r: (r.partition, r.offset))


def last_per_key(records: Sequence[Read]) -> dict[bytes | None, bytes | None]:
    """The table that a topic amounts to."""
    return {record.key: record.value for record in records}
