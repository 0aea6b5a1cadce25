"""What the fault drills have in common: applications that run meanwhile, transactional input, small topologies."""

from __future__ import annotations

import io
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession
from rich.console import Console

from state.errors import TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.producer import TransactionalProducer
from streams import BytesSerde, Materialized, StreamsBuilder
from streams.driver.progress import Progress
from streams.driver.runner import StreamsApplication
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent

STOP_TIMEOUT_S = 150.0


def copy_topology(source: str | Sequence[str], target: str) -> Topology:
    """Bytes as they are: what comes out is what was read."""
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(source).to(target)
    return builder.build()


def count_topology(source: str, target: str) -> Topology:
    """Records per key."""
    builder = StreamsBuilder()
    builder.stream(source).group_by_key().count(materialized=Materialized(name="counts")).to_stream().to(target)
    return builder.build()


@contextmanager
def running_in_thread(application: StreamsApplication, session: SparkSession) -> Iterator[Callable[[], None]]:
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
        # Its own error tells more than what was waited for in vain.
        check()
    assert not thread.is_alive(), f"not stopped within {STOP_TIMEOUT_S:g} s"


@contextmanager
def running(harness: Harness, topology: Topology, **settings: Any) -> Iterator[Progress]:
    """Runs an application of the harness until the end of the block."""
    progress = Progress(harness.application_id, Console(file=io.StringIO()))
    config = harness.config(available_now=False, **settings)
    with running_in_thread(StreamsApplication(topology, config, progress), harness.spark):
        yield progress


def grow(harness: Harness, topic: str, partitions: int) -> None:
    """Adds partitions to a topic, and waits until all of them answer."""
    client = AdminClient({"bootstrap.servers": harness.servers})
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(60)
    places = [(topic, number) for number in range(partitions)]

    def there() -> bool:
        with kafka(harness) as admin:
            try:
                return admin.end_offsets(places).keys() == set(places)
            except TopicNotFoundError:
                return False

    eventually(there, f"{partitions} partitions of {topic}")


def eventually(ask: Callable[[], bool], what: str, seconds: float = 240) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def transaction(harness: Harness, topic: str, records: Iterable[Sent], *, commit: bool = True) -> None:
    """Writes records of one topic in one transaction, which is then committed or aborted."""
    write_transaction(harness.servers, ((topic, record) for record in records), commit=commit)


def write_transaction(servers: str, records: Iterable[tuple[str, Sent]], *, commit: bool = True) -> None:
    """Writes records, each with its topic, in one transaction; returns when it is decided."""
    client = {"bootstrap.servers": servers}
    transactional_id = f"writer-{uuid.uuid4().hex}"
    with TransactionalProducer(client, transactional_id) as producer:
        producer.init_transactions()
        producer.begin()
        for topic, one in records:
            producer.send(topic, one.partition, one.key, one.value, one.timestamp, one.headers)
        if commit:
            producer.commit()
        else:
            producer.flush()
    # Aborts what is open; and a commit returns before its control records are written, this waits for them.
    with TransactionalProducer(client, transactional_id) as successor:
        successor.init_transactions()


@contextmanager
def kafka(harness: Harness) -> Iterator[KafkaAdmin]:
    """An admin client."""
    with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
        yield admin
