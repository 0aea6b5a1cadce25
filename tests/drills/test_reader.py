"""The reader that runs through a drill."""

import time

import pytest
from confluent_kafka import Consumer, Producer

from streams.broker import EmbeddedBroker
from streams.drills import topics as reader
from streams.drills.topics import Follower
from tests.conftest import TopicFactory


def test_a_consumer_that_hears_nothing_is_replaced_and_no_record_is_read_twice(
    broker: EmbeddedBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Consumer] = []

    def open_one(config: dict[str, object]) -> Consumer:
        opened.append(Consumer(config))
        return opened[-1]

    monkeypatch.setattr(reader, "SILENT_S", 0.5)
    monkeypatch.setattr(reader, "Consumer", open_one)
    name = topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    follower = Follower(broker.bootstrap_servers, name, 2)
    follower.start()
    for number in range(4):
        for partition in range(2):
            producer.produce(name, value=str(number), partition=partition)
        producer.flush()
        wanted, deadline = 2 * (number + 1), time.monotonic() + 60
        before = len(opened)
        while (len(follower.records) < wanted or len(opened) == before) and time.monotonic() < deadline:
            time.sleep(0.05)
    read = follower.finish()
    assert sorted((one.partition, one.value) for one in read) == [
        (partition, str(number).encode()) for partition in range(2) for number in range(4)
    ]
    assert len(opened) > 3
