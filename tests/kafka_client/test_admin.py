import ctypes
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from state.errors import HangingTransactionError, KafkaClientError, TopicMismatchError, TopicNotFoundError
from state.kafka.admin import AdminRequests, KafkaAdmin, wait_until_decided
from state.kafka.config import ClientConfig
from state.kafka.librdkafka import CONSUMER, TopicPartitionList, _candidates, library
from state.kafka.producer import TransactionalProducer
from state.kafka.topics import TopicSpec
from tests.conftest import TopicFactory

from .rows import Row, commit_rows, eventually


@pytest.fixture
def names() -> list[str]:
    return [f"admin-{uuid.uuid4()}" for _ in range(2)]


def test_create_describe_delete(admin: KafkaAdmin, names: list[str]) -> None:
    one, two = names
    admin.create_topics([TopicSpec(one, 2, {"cleanup.policy": "compact"}), TopicSpec(two, 1)])
    described = admin.describe_topics([*names, "no-such-topic"])
    assert {name: info.partitions for name, info in described.items()} == {one: 2, two: 1}
    assert admin.topic_config(one)["cleanup.policy"] == "compact"
    assert {one, two} <= set(admin.topic_names())
    admin.create_topics([TopicSpec(one, 2)])
    with pytest.raises(TopicMismatchError, match=f"'{one}' exists with 2 partitions, but 3"):
        admin.create_topics([TopicSpec(one, 3)])
    admin.delete_topics([one, "no-such-topic"])
    assert admin.describe_topics([one]) == {}
    admin.create_topics([TopicSpec(one, 2)])
    assert admin.describe_topics([one])[one].topic_id != described[one].topic_id
    admin.delete_topics(names)


def test_the_brokers_that_are_up_are_counted(admin: KafkaAdmin) -> None:
    assert admin.broker_count() == 1


def test_nothing_asked_nothing_answered(admin: KafkaAdmin) -> None:
    admin.create_topics([])
    admin.delete_topics([])
    assert admin.describe_topics([]) == admin.end_offsets([]) == admin.offsets_for_times({}) == {}
    assert admin.delete_records({}) == {}
    assert admin.group_offsets(f"no-such-group-{uuid.uuid4()}") == {}


class CountedRequests:
    """An admin client that notes which requests it was asked for."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self.asked: list[str] = []

    def __getattr__(self, request: str) -> Any:
        self.asked.append(request)
        return getattr(self._client, request)


def test_leaders_are_learned_before_a_request_that_librdkafka_sends_to_leaders(
    admin: KafkaAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = topic(2), topic(1)
    counted = CountedRequests(admin._requests.client)
    monkeypatch.setattr(AdminRequests, "client", counted)
    admin.end_offsets([(one, 0), (one, 1), (other, 0)])
    assert counted.asked == ["list_topics", "list_offsets"]
    admin.delete_records({(one, 1): 0})
    assert counted.asked[2:] == ["delete_records"]
    with pytest.raises(TopicNotFoundError):
        admin.begin_offsets([("no-such-topic", 0)])
    assert counted.asked[3] == "list_topics"


def test_offsets(client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory) -> None:
    name = topic(2)
    both = [(name, 0), (name, 1)]
    commit_rows(client, name, [Row(b"k", b"v", 100 * i) for i in range(1, 6)])
    assert admin.begin_offsets(both) == {(name, 0): 0, (name, 1): 0}
    eventually(lambda: admin.end_offsets(both), {(name, 0): 6, (name, 1): 0})
    assert admin.offsets_for_times({(name, 0): 250, (name, 1): 250}) == {(name, 0): 2, (name, 1): 0}
    assert admin.max_timestamps(both)[name, 1] == -1
    with TransactionalProducer(client, f"open-{name}") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(name, 0, b"open", b"v", 900)
        producer.flush()
        assert admin.end_offsets(both)[name, 0] == 6
        assert admin.end_offsets(both, committed=False)[name, 0] == 7
        producer.commit()
    eventually(lambda: admin.end_offsets(both)[name, 0], 8)
    assert admin.delete_records({(name, 0): 3}) == {(name, 0): 3}
    assert admin.begin_offsets(both)[name, 0] == 3


def test_what_is_not_decided_is_waited_for(client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory) -> None:
    name = topic(2)
    both = [(name, 0), (name, 1)]
    assert wait_until_decided(admin, both, 0) == dict.fromkeys(both, 0)
    with TransactionalProducer(client, f"open-{name}") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(name, 0, b"open", b"v", 900)
        producer.flush()
        with pytest.raises(HangingTransactionError, match=f"writes to {name}-0 was still open after 0.1 s"):
            wait_until_decided(admin, both, 0.1)
        producer.commit()
    wait_until_decided(admin, both, 60)
    assert admin.end_offsets(both) == {(name, 0): 2, (name, 1): 0}


def test_time_after_the_last_record_gives_the_end(client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory) -> None:
    name = topic()
    commit_rows(client, name, [Row(b"k", b"v", 100)])
    eventually(lambda: admin.offsets_for_times({(name, 0): 2**42}), {(name, 0): 2})


def test_control_records_have_timestamps_too(client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory) -> None:
    name = topic()
    for end, timestamp in ((2, 100), (4, 300)):
        commit_rows(client, name, [Row(b"k", b"v", timestamp)])
        eventually(lambda: admin.end_offsets([(name, 0)])[name, 0], end)
    assert admin.offsets_for_times({(name, 0): 200}) == {(name, 0): 1}
    assert admin.max_timestamps([(name, 0)])[name, 0] > 300


def test_missing_topics_and_partitions_are_named(admin: KafkaAdmin, topic: TopicFactory) -> None:
    name = topic()
    with pytest.raises(TopicNotFoundError, match="'no-such-topic'"):
        admin.topic_config("no-such-topic")
    with pytest.raises(TopicNotFoundError, match="partition 0 of topic 'no-such-topic'"):
        admin.end_offsets([("no-such-topic", 0)])
    with pytest.raises(TopicNotFoundError, match=f"partition 4 of topic '{name}'"):
        admin.begin_offsets([(name, 4)])


def test_delete_records_of_a_compacted_topic_is_refused(admin: KafkaAdmin, topic: TopicFactory) -> None:
    name = topic(cleanup_policy="compact")
    with pytest.raises(KafkaClientError, match=f"deleting records of {name}-0 below 0"):
        admin.delete_records({(name, 0): 0})


def test_groups_are_deleted_with_their_offsets(client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory) -> None:
    name = topic()
    group = f"group-of-{name}"
    assert admin.delete_group(group) is False
    with TransactionalProducer(client, f"offsets-{name}") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send_offsets({(name, 0): 3}, group)
        producer.commit()
    eventually(lambda: admin.group_offsets(group, [(name, 0)]), {(name, 0): 3})
    assert admin.delete_group(group) is True
    assert admin.group_offsets(group, [(name, 0)]) == {}
    assert admin.delete_group(group) is False


def test_no_broker_and_closed() -> None:
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, timeout_s=0.5)
    with pytest.raises(KafkaClientError, match="describing topic 't'"):
        admin.describe_topics(["t"])
    admin.close()
    with pytest.raises(KafkaClientError, match="closed"):
        admin.topic_names()


def test_a_client_that_replaces_another_learns_leaders_before_a_request_is_distributed_among_them(
    client: ClientConfig, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, asked = topic(), []
    counts = AdminRequests._counts

    def noting(requests: AdminRequests, admin: AdminClient) -> dict[str, int]:
        asked.append(admin)
        return counts(requests, admin)

    monkeypatch.setattr(AdminRequests, "_counts", noting)
    requests = AdminRequests(client, 30)
    first = requests.client_knowing([name])
    assert requests.client_knowing([name]) is first
    requests.replace_client()
    second = requests.client_knowing([name])
    assert second is not first
    assert asked == [first, second]
    requests.close()


def test_offsets_of_a_group_have_metadata(admin: KafkaAdmin, topic: TopicFactory) -> None:
    name, group = topic(2), f"group-{uuid.uuid4()}"
    admin.commit_group_offsets(group, {(name, 0): (0, "before"), (name, 1): (7, "")})
    admin.commit_group_offsets(group, {(name, 0): (5, '{"batch": 3}')})
    places = [(name, 0), (name, 1)]
    assert admin.group_notes(group, places) == {(name, 0): (5, '{"batch": 3}'), (name, 1): (7, "")}
    assert admin.group_offsets(group, places) == {(name, 0): 5, (name, 1): 7}


def committed_bytes(client: ClientConfig, group: str, topic: str) -> bytes:
    """The metadata of the offset of partition 0, as long as the brokers say."""
    rdkafka = library()
    reading = rdkafka.client(CONSUMER, rdkafka.configuration({**client, "group.id": group}))
    places = rdkafka.topic_partition_list_new(1)
    rdkafka.topic_partition_list_add(places, topic.encode(), 0)
    committed = ctypes.CDLL(str(next(_candidates()))).rd_kafka_committed
    committed.argtypes = (ctypes.c_void_p, ctypes.POINTER(TopicPartitionList), ctypes.c_int)
    try:
        assert committed(reading, places, 30_000) == 0
        found = places.contents.elems[0]
        return ctypes.string_at(found.metadata, found.metadata_size)
    finally:
        rdkafka.topic_partition_list_destroy(places)
        rdkafka.destroy_flags(reading, 0)


def test_metadata_may_be_exact(admin: KafkaAdmin, client: ClientConfig, topic: TopicFactory) -> None:
    """Kafka Streams reads them as base64, and nothing at all if a zero byte follows."""
    name, group = topic(2), f"group-{uuid.uuid4()}"
    admin.commit_group_offsets(group, {(name, 0): (5, "AgAAAaIkcm7o")})
    assert committed_bytes(client, group, name) == b"AgAAAaIkcm7o\0"
    admin.commit_group_offsets(group, {(name, 0): (6, "AgAAAaIkcm7o"), (name, 1): (7, "")}, exact=True)
    assert committed_bytes(client, group, name) == b"AgAAAaIkcm7o"
    assert admin.group_offsets(group, [(name, 0), (name, 1)]) == {(name, 0): 6, (name, 1): 7}
