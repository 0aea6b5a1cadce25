"""Where records have landed by the broker's answers, and what a step asks of logs besides."""

import numpy as np
import pyarrow as pa
import pytest

from state.commit.live import LiveKafka
from state.errors import ProducerStateError
from state.kafka import admin as transactions
from state.kafka.admin import KafkaAdmin
from state.kafka.config import ClientConfig
from state.kafka.producer import TransactionalProducer
from tests.conftest import TopicFactory


def send(producer: TransactionalProducer, topic: str, partition: int, count: int) -> None:
    values = pa.array([b"v%d" % number for number in range(count)], pa.binary())
    producer.send_columns(topic, partition, None, values, np.full(count, 5, np.int64))


def test_offsets_of_the_last_records_are_those_in_the_log(
    client: ClientConfig, topic: TopicFactory, bulk: bool
) -> None:
    name = topic(partitions=3)
    for version, base in enumerate((0, 1002)):
        with TransactionalProducer(client, f"delivered-{name}", bulk=bulk) as producer:
            producer.init_transactions()
            producer.begin()
            send(producer, name, 0, 1000)
            send(producer, name, 1, 3)
            producer.send_columns(
                name, np.array([2], np.int32), None, pa.array([b"v"], pa.binary()), np.array([5], np.int64)
            )
            producer.send(name, 0, b"k", b"the last one", 5)
            producer.flush()
            # Each transaction before has left a control record.
            assert producer.delivered(name, 0) == base + 1000
            assert producer.delivered(name, 1) == version * 4 + 2
            assert producer.delivered(name, 2) is None, "nobody sent to it by its number alone"
            producer.commit()


def test_offsets_are_asked_within_the_transaction(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    with TransactionalProducer(client, topic(), bulk=bulk) as producer:
        producer.init_transactions()
        with pytest.raises(ProducerStateError):
            producer.delivered("t", 0)


def test_an_open_transaction_is_seen_in_the_ends(
    client: ClientConfig, topic: TopicFactory, admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "DECIDE_S", 0.1)
    name = topic(partitions=1)
    kafka = LiveKafka(client, transaction_timeout_ms=100)
    place = (name, 0)
    with TransactionalProducer(client, f"open-{name}") as producer:
        producer.init_transactions()
        producer.begin()
        send(producer, name, 0, 3)
        producer.flush()
        assert kafka.log_ends([place]) == {place: (0, 3)}
        producer.commit()
    monkeypatch.setattr(transactions, "DECIDE_S", 60.0)
    assert kafka.log_ends([place]) == {place: (4, 4)}
    assert kafka.topic_ids([name, "missing"]) == {name: admin.describe_topics([name])[name].topic_id}
    assert kafka.delete_retention_ms(name) == int(admin.topic_config(name)["delete.retention.ms"])
