"""What all cases on real Spark and Kafka share, and an application that runs meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from state.kafka.admin import KafkaAdmin
from streams.spark.runner import StreamsApplication

STOP_TIMEOUT_S = 60.0


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

    @cached_property
    def producer(self) -> Producer:
        """Writes the records of the cases; idempotent, for else a retry would change their order."""
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 1, "enable.idempotence": True})

    def create_topics(self, names: list[str]) -> None:
        """Topics with one partition whose records never expire."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        made = admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "-1"}) for name in names])
        for name in names:
            made[name].result(30)

    def read(self, topic: str) -> Iterator[Message]:
        """All committed records of a topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "conformance",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        try:
            while (message := consumer.poll(20)) is not None:
                if message.error():
                    return
                yield message
        finally:
            consumer.close()
        raise TimeoutError(f"nothing came from {topic} within 20 s")


@contextmanager
def running(application: StreamsApplication, session: SparkSession) -> Iterator[Callable[[], None]]:
    """Runs an application until the end of the block; what it gives raises the error by which it ended."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            application.run(session)
        except BaseException as error:
            failures.append(error)

    def check() -> None:
        if failures:
            raise failures[0]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield check
    finally:
        application.stop()
        thread.join(STOP_TIMEOUT_S)
    check()
