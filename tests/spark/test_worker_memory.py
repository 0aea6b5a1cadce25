"""The memory of a Python worker under a backlog is bounded by its share, not by how long it has worked; no Spark is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from streams.spark.session import MEMORY_ENVIRONMENT

TOPIC, PARTITIONS, RECORDS = "in", 4, 24_000
MOST_MIB = 100
"""About 50 are usual; 150 without `MEMORY_ENVIRONMENT`, and more the longer the worker runs."""


@pytest.fixture
def servers() -> Iterator[str]:
    """librdkafka's own broker within this process, which keeps about 5 MB of each partition, with records of 160 bytes."""
    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": "1", "log_level": "3"})
    (broker,) = cluster.list_topics(timeout=20).brokers.values()
    address = f"{broker.host}:{broker.port}"
    producer = Producer({"bootstrap.servers": address, "linger.ms": "50"})
    for number in range(RECORDS):
        value = (b'{"v":%d,"pad":"' % number).ljust(158, b"x") + b'"}'
        for partition in range(PARTITIONS):
            key = b"key-%04d" % ((number + partition) % 1000)
            producer.produce(TOPIC, value, key, partition, timestamp=1_700_000_000_000 + number)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    yield address
    del cluster


@pytest.mark.slow
def test_a_worker_stays_within_its_memory(servers: str) -> None:
    command = [sys.executable, "-m", "tests.spark.memory_of_a_worker", servers, TOPIC, str(PARTITIONS), str(RECORDS)]
    done = subprocess.run(
        command, env={**os.environ, **MEMORY_ENVIRONMENT}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < MOST_MIB
