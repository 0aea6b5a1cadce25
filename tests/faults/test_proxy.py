"""What the proxy does to requests; and why a producer serves one transaction only: a late commit tears the next one."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from state.errors import ProduceError
from state.kafka.producer import TransactionalProducer
from streams.drills.brokers import END_TXN, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, Proxy, ProxyAction
from streams.drills.topics import read_committed

pytestmark = pytest.mark.kafka


def visible(proxy: Proxy, topic: str) -> list[bytes | None]:
    return [record.value for record in read_committed(proxy.bootstrap_servers, topic)]


def ready(proxy: Proxy, topic: str, *values: bytes, timeout_s: float = 30) -> TransactionalProducer:
    """A producer with records in an open transaction; its id is the topic's name."""
    client = {"bootstrap.servers": proxy.bootstrap_servers, "log_level": "0"}
    producer = TransactionalProducer(client, topic, timeout_s)
    producer.init_transactions()
    producer.begin()
    for value in values:
        producer.send(topic, 0, None, value, 1)
    producer.flush()
    return producer


def test_a_late_commit_tears_the_next_transaction_of_the_same_producer(proxy: Proxy, topic: str) -> None:
    client = {"bootstrap.servers": proxy.bootstrap_servers, "transactional.id": topic, "log_level": "0"}
    producer = Producer(client)
    producer.init_transactions(30)
    late = proxy.on(END_TXN, ProxyAction.HANG_UP, topic.encode())
    producer.begin_transaction()
    producer.produce(topic, b"A1", partition=0)
    producer.commit_transaction(30)  # the first request never arrived, it asks again
    assert late.hit.is_set()
    producer.begin_transaction()
    producer.produce(topic, b"B1", partition=0)
    assert producer.flush(30) == 0
    late.release()
    assert late.error_code() == 0
    producer.produce(topic, b"B2", partition=0)
    producer.flush(30)
    # Half of a transaction that nobody has committed: the state that all this is built to make impossible.
    assert b"B1" in visible(proxy, topic)


def test_a_late_commit_of_a_producer_that_was_replaced_is_refused(proxy: Proxy, topic: str) -> None:
    late = proxy.on(END_TXN, ProxyAction.HANG_UP, topic.encode())
    with ready(proxy, topic, b"A1") as producer:
        producer.commit()
    assert late.hit.is_set()
    with ready(proxy, topic, b"B1") as producer:
        late.release()
        assert late.error_code() in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
        producer.send(topic, 0, None, b"B2", 1)
        producer.commit()
    assert visible(proxy, topic) == [b"A1", b"B1", b"B2"]


def test_a_commit_that_is_held_while_its_sender_gives_up(proxy: Proxy, topic: str) -> None:
    held = proxy.on(END_TXN, ProxyAction.HOLD, topic.encode())
    with ready(proxy, topic, b"A1", timeout_s=2) as producer, pytest.raises(ProduceError, match="commit"):
        producer.commit()
    with ready(proxy, topic, b"A1", b"A2") as producer:
        held.release()
        assert held.error_code() in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
        producer.commit()
    assert visible(proxy, topic) == [b"A1", b"A2"]


def test_the_reply_to_a_commit_is_lost(proxy: Proxy, topic: str) -> None:
    lost = proxy.on(END_TXN, ProxyAction.LOSE_REPLY, topic.encode())
    with ready(proxy, topic, b"A1", timeout_s=2) as producer, pytest.raises(ProduceError, match="commit"):
        producer.commit()
    assert lost.error_code() == 0
    lost.release()
    assert visible(proxy, topic) == [b"A1"]


def test_connections_that_are_cut_are_made_again(proxy: Proxy, topic: str) -> None:
    dropped = proxy.on(END_TXN, ProxyAction.DROP, topic.encode())
    with ready(proxy, topic, b"A1") as producer:
        assert proxy.cut() > 0
        producer.commit()
    assert dropped.hit.is_set()
    assert proxy.seen[END_TXN] > 1
    assert visible(proxy, topic) == [b"A1"]
