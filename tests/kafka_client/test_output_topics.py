"""What Kafka knows of topics that are written to, and what becomes of it."""

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from state.commit.live import LiveKafka
from state.errors import ClientFailure, KafkaClientError
from state.kafka.admin import KafkaAdmin
from state.kafka.config import ClientConfig
from state.kafka.topics import BATCH_OVERHEAD, MAX_AGE_S, MISSING_MAX_AGE_S, NO_LIMIT, LiveTopics, TopicInfo
from tests.conftest import TopicFactory


@dataclass
class FakeAdmin:
    describe: object = None
    config: object = None
    asked: int = 0
    clock: float = 1_000.0

    def describe_topics(self, names):
        self.asked += 1
        return {names[0]: TopicInfo("id", 3)} if self.describe is None else _answer(self.describe)

    def topic_config(self, name):
        return (
            {"max.message.bytes": "1000", "cleanup.policy": "compact"} if self.config is None else _answer(self.config)
        )


def _answer(answer):
    if isinstance(answer, Exception):
        raise answer
    return answer


def failed(code):
    return KafkaClientError("no", ClientFailure(code, "NAME", "text"))


def topics_of(admin, **client):
    return LiveTopics(admin, client, lambda: admin.clock)


def test_each_topic_is_asked_for_once_in_a_while():
    admin = FakeAdmin()
    topics = topics_of(admin)
    for _ in range(3):
        limits = topics.limits("t")
        assert (limits.partitions, limits.max_bytes, limits.needs_key) == (3, 1000 - BATCH_OVERHEAD, True)
    assert admin.asked == 1
    admin.clock += MAX_AGE_S
    topics.limits("t")
    assert admin.asked == 2


@pytest.mark.parametrize("answer", [{}, failed(KafkaError.TOPIC_AUTHORIZATION_FAILED)])
def test_a_topic_that_is_not_there_is_asked_for_again_soon(answer):
    admin = FakeAdmin(answer)
    topics = topics_of(admin)
    assert topics.limits("t") is None
    assert topics.limits("t") is None
    assert admin.asked == 1
    admin.describe, admin.clock = None, admin.clock + MISSING_MAX_AGE_S
    assert topics.limits("t") is not None


def test_settings_that_may_not_be_read_limit_nothing():
    for code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TIMED_OUT):
        limits = topics_of(FakeAdmin(config=failed(code))).limits("t")
        assert (limits.partitions, limits.max_bytes, limits.needs_key) == (3, NO_LIMIT, False)


def test_no_answer_is_an_error():
    with pytest.raises(KafkaClientError):
        topics_of(FakeAdmin(failed(KafkaError._TIMED_OUT))).limits("t")


def test_what_is_compressed_has_no_size_before():
    assert topics_of(FakeAdmin(), **{"compression.type": "zstd"}).limits("t").max_bytes == NO_LIMIT


@pytest.mark.kafka
def test_limits_of_a_real_topic(client: ClientConfig, topic: TopicFactory, admin: KafkaAdmin) -> None:
    name = topic(partitions=2, cleanup_policy="compact", max_message_bytes=5_000, message_timestamp_after_max_ms=7)
    limits = LiveTopics(admin, client).limits(name)
    assert limits is not None
    found = (limits.partitions, limits.max_bytes, limits.needs_key, limits.after_max_ms, limits.before_max_ms)
    assert found == (2, 5_000 - BATCH_OVERHEAD, True, 7, NO_LIMIT)
    assert LiveTopics(admin, client).limits("no-such-topic") is None


@pytest.mark.kafka
def test_batches_are_no_larger_than_the_topics_take(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name, count = topic(max_message_bytes=10_000), 1_000
    kafka = LiveKafka(client, 60_000, bulk, [name])
    producer = kafka.producer(f"writer-of-{name}")
    producer.init_transactions()
    producer.begin()
    values = pa.array([os.urandom(100) for _ in range(count)], pa.binary())
    producer.send_columns(name, 0, pa.array([b"k"] * count, pa.binary()), values, np.full(count, 5, np.int64))
    producer.commit()
    producer.close()
    assert kafka.end_offsets([(name, 0)]) is not None
