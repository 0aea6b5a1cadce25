"""A producer that writes several transactions, and the commit that comes twice: behind a proxy that delays the first copy."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

import state.kafka.producer
from state.errors import FencedError, ProducerStateError
from state.kafka.admin import KafkaAdmin
from state.kafka.config import RESEND_S
from state.kafka.producer import ProducerState, TransactionalProducer
from state.kafka.topics import TopicSpec
from streams.drills.brokers import END_TXN, INVALID_PRODUCER_EPOCH, Proxy, ProxyAction, Rule, proxied_broker
from streams.drills.topics import read_committed

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
TOPIC, HIT_S = "results", 60


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied_broker(tmp_path_factory.mktemp("kafka")) as (_, started):
        yield started


@pytest.fixture
def topic(proxy: Proxy, request: pytest.FixtureRequest) -> str:
    name = f"results-{request.node.name.replace('[', '-').replace(']', '')}"
    with KafkaAdmin({"bootstrap.servers": proxy.bootstrap_servers}) as admin:
        admin.create_topics([TopicSpec(name, 1, {}, 1)])
    return name


def kept(proxy: Proxy, topic: str) -> TransactionalProducer:
    client = {"bootstrap.servers": proxy.bootstrap_servers, "log_level": "0"}
    producer = TransactionalProducer(client, topic, 60, kept=True)
    producer.init_transactions()
    return producer


def values(proxy: Proxy, topic: str) -> list[bytes | None]:
    return [one.value for one in read_committed(proxy.bootstrap_servers, topic)]


def commit_sent_twice(proxy: Proxy, topic: str, producer: TransactionalProducer) -> Rule:
    """Commits a transaction whose EndTxn loses its connection: the client sends another one, and the first is still under way."""
    producer.begin()
    producer.send(topic, 0, b"first", b"1", 1)
    producer.flush()
    rule = proxy.on(END_TXN, ProxyAction.HANG_UP, topic.encode())
    producer.commit()
    assert rule.hit.is_set()
    return rule


def test_transactions_follow_each_other(proxy: Proxy, topic: str) -> None:
    producer = kept(proxy, topic)
    written: list[bytes | None] = []
    for number in range(20):
        producer.begin()
        producer.send(topic, 0, b"k", b"%d" % number, 1)
        producer.commit()
        written.append(b"%d" % number)
        if not producer.again():
            producer.close()
            producer = kept(proxy, topic)
    producer.close()
    assert values(proxy, topic) == written


def test_a_producer_whose_commit_was_sent_twice_is_replaced(proxy: Proxy, topic: str) -> None:
    producer = kept(proxy, topic)
    rule = commit_sent_twice(proxy, topic, producer)
    assert not producer.again()
    producer.close()
    following = kept(proxy, topic)
    following.begin()
    following.send(topic, 0, b"second", b"half", 1)
    following.flush()
    rule.release()
    assert rule.error_code() == INVALID_PRODUCER_EPOCH
    following.close()
    # The next one has the open transaction aborted, for which a reader would otherwise wait until its time is over.
    kept(proxy, topic).close()
    assert values(proxy, topic) == [b"1"]


def test_without_the_rule_the_second_copy_commits_half_of_the_next_transaction(proxy: Proxy, topic: str) -> None:
    """The fault that the rule is there for; if librdkafka learns KIP-890, this test fails, and producers may always be kept."""
    producer = kept(proxy, topic)
    rule = commit_sent_twice(proxy, topic, producer)
    producer.state = ProducerState.READY
    producer.begin()
    producer.send(topic, 0, b"second", b"half", 1)
    producer.flush()
    rule.release()
    assert rule.error_code() == 0
    producer.close()
    assert values(proxy, topic) == [b"1", b"half"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("took_s", "again"), [(0.0, True), (RESEND_S - 0.01, True), (RESEND_S, False), (30.0, False)])
def test_only_a_quick_transaction_is_followed_by_another(proxy: Proxy, topic: str, took_s: float, again: bool) -> None:
    clock = Clock()
    client = {"bootstrap.servers": proxy.bootstrap_servers, "log_level": "0"}
    with TransactionalProducer(client, topic, 60, kept=True, clock=clock) as producer:
        producer.init_transactions()
        producer.begin()
        clock.now += took_s
        producer.send(topic, 0, b"k", b"v", 1)
        producer.commit()
        assert producer.again() is again


def test_a_producer_that_has_written_nothing_is_ready_and_once_fenced_writes_nothing(proxy: Proxy, topic: str) -> None:
    client = {"bootstrap.servers": proxy.bootstrap_servers, "log_level": "0"}
    with TransactionalProducer(client, topic, 60, kept=True) as producer, TransactionalProducer(client, topic) as other:
        assert not producer.again()
        producer.init_transactions()
        assert producer.again()
        assert producer.again()
        other.init_transactions()
        other.begin()
        other.send(topic, 0, b"k", b"other", 1)
        other.commit()
        assert producer.again()
        producer.begin()
        producer.send(topic, 0, b"k", b"late", 1)
        with pytest.raises(FencedError):
            producer.commit()
    assert values(proxy, topic) == [b"other"]


def test_a_producer_of_one_step_writes_one_transaction(proxy: Proxy, topic: str) -> None:
    client = {"bootstrap.servers": proxy.bootstrap_servers, "log_level": "0"}
    with TransactionalProducer(client, topic, 60) as producer:
        producer.init_transactions()
        producer.begin()
        producer.commit()
        assert not producer.again()
        with pytest.raises(ProducerStateError, match="begin"):
            producer.begin()


def test_a_call_that_does_not_come_back_ends_the_process(
    proxy: Proxy, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state.kafka.producer, "STUCK_S", 0.1)
    stuck: queue.Queue[str] = queue.Queue()
    client = {"bootstrap.servers": proxy.bootstrap_servers, "log_level": "0"}
    with TransactionalProducer(client, topic, 60, kept=True, stuck=stuck.put) as producer:
        producer.init_transactions()
        producer.begin()
        monkeypatch.setattr(producer, "_call_s", 0.1)
        monkeypatch.setattr(producer._transport, "send_offsets", lambda *_: stuck.get(timeout=HIT_S))
        producer.send_offsets({("in", 0): 1}, "group")
        monkeypatch.setattr(producer._transport, "send_offsets", lambda *_: None)
        producer.send_offsets({("in", 0): 1}, "group")
    with pytest.raises(queue.Empty):
        stuck.get(timeout=1)
