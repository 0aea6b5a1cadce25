"""What the fault drills have in common: applications that run meanwhile, transactional input, small topologies."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions
from rich.console import Console

from state.kafka.admin import KafkaAdmin
from state.kafka.producer import TransactionalProducer
from streams import BytesSerde, Materialized, StreamsBuilder
from streams.spark.progress import Progress
from streams.spark.runner import StreamsApplication
from streams.topology.graph import Topology
from tests.spark.harness import Harness, Sent

_numbers = itertools.count()


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
def running(harness: Harness, topology: Topology, **settings: Any) -> Iterator[Progress]:
    """Runs an application until the end of the block."""
    progress = Progress(harness.application_id, Console(file=io.StringIO()))
    config = harness.config(available_now=False, **settings)
    application = StreamsApplication(topology, config, progress)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            application.run(harness.spark)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield progress
    finally:
        application.stop()
        thread.join(60)
        # Its own error tells more than what was waited for in vain.
        if failures:
            raise failures[0]
    assert not thread.is_alive()


def grow(harness: Harness, topic: str, partitions: int) -> None:
    """Adds partitions to a topic."""
    admin = AdminClient({"bootstrap.servers": harness.servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def eventually(ask: Callable[[], bool], what: str, seconds: float = 150) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def transaction(harness: Harness, topic: str, records: Iterable[Sent], *, commit: bool = True) -> None:
    """Writes records in one transaction, which is then committed or aborted."""
    client = {"bootstrap.servers": harness.servers}
    transactional_id = f"writer-{next(_numbers)}-of-{topic}"
    with TransactionalProducer(client, transactional_id) as producer:
        producer.init_transactions()
        producer.begin()
        for one in records:
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
