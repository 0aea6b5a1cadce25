""""""

from __future__ import annotations

import os
import time
import uuid

import numpy as np
import pyarrow as pa
import pytest

from state.changelog import changelog_config
from state.commit import live
from state.commit.live import LiveKafka
from state.errors import FencedError, KafkaClientError, ProduceError, ProducerStateError, RecordTooLargeError
from state.headers import encode_headers
from state.kafka.admin import KafkaAdmin
from state.kafka.config import ClientConfig
from state.kafka.key_hash import partition_for_key
from state.kafka.native_producer import BulkTransport
from state.kafka.producer import ProducerState, TransactionalProducer
from state.stores.spec import StoreKind, StoreSpec
from streams.broker import EmbeddedBroker
from tests.conftest import TopicFactory

from .rows import Row, commit_rows, eventually, read_rows

QUIET = {"log_level": "0"}


def started(client: ClientConfig, transactional_id: str, bulk: bool, timeout_s: float = 30) -> TransactionalProducer:
    producer = TransactionalProducer({**client, **QUIET}, transactional_id, timeout_s, bulk=bulk)
    producer.init_transactions()
    producer.begin()
    return producer


def test_both_ways_write_the_same_records(client: ClientConfig, topic: TopicFactory) -> None:
    rows = [
        Row(b"k", b"v", 10),
        Row(None, b"v", 20),
        Row(b"k", None, 30),
        Row(b"", b"", 40, [("h", b"1"), ("h", None), ("", b""), ("größe", b"\x00")]),
        Row(None, None, 2**41),
    ]
    columns = (
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
        np.array([row.timestamp for row in rows], np.int64),
        pa.array([encode_headers(row.headers) if row.headers else None for row in rows], pa.binary()),
    )
    read = []
    for bulk in (True, False):
        name = topic()
        producer = started(client, name, bulk)
        producer.send_columns(name, 0, *columns)
        producer.commit()
        producer.close()
        single = topic()
        commit_rows(client, single, rows, bulk)
        read += [read_rows(client, name, 0, 6, False), read_rows(client, single, 0, 6, True)]
    assert len(read[0]) == 5
    assert all(other == read[0] for other in read)
    assert [(r.key, r.value, r.timestamp, r.headers) for r in read[0]] == [(*r[:3], list(r.headers)) for r in rows]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()])
def test_slices_and_kinds_of_columns(client: ClientConfig, topic: TopicFactory, bulk: bool, kind: pa.DataType) -> None:
    name = topic()
    keys = pa.array(["a", None, "ccc", "", "e"], kind).slice(1, 3)
    values = pa.array([None, "v1", None, "v3", "v4"], kind).slice(1, 3)
    with started(client, name, bulk) as producer:
        producer.send_columns(name, 0, keys, values, np.array([1, 2, 3]))
        producer.send_columns(name, 0, None, pa.nulls(1), np.array([4]))
        producer.commit()
    got = [(row.key, row.value) for row in read_rows(client, name, 0, 5, bulk)]
    assert got == [(None, b"v1"), (b"ccc", None), (b"", b"v3"), (None, None)]


def test_fifty_thousand_records_over_partitions(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic(3)
    count = 50_000
    keys = pa.array([b"key-%d" % (i % 997) for i in range(count)], pa.binary())
    values = pa.array([b"value-%d" % i for i in range(count)], pa.binary())
    partitions = (np.arange(count) % 3).astype(np.int32)
    with started({**client, "queue.buffering.max.messages": "5000"}, name, bulk) as producer:
        producer.send_columns(name, partitions, keys, values, np.arange(1, count + 1))
        producer.commit()
    for partition in range(3):
        end = len(range(partition, count, 3)) + 1
        rows = read_rows(client, name, 0, end, bulk, partition)
        assert [row.value for row in rows] == [b"value-%d" % i for i in range(partition, count, 3)]
        assert [row.timestamp for row in rows] == list(range(partition + 1, count + 1, 3))


def test_no_partition_means_kafkas_default_partitioner(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic(5)
    keys = [b"key-%d" % i for i in range(40)]
    with started(client, name, bulk) as producer:
        for key in keys:
            producer.send(name, None, key, b"v", 1)
        producer.commit()
    for partition in range(5):
        mine = [key for key in keys if partition_for_key(key, 5) == partition]
        assert [row.key for row in read_rows(client, name, 0, len(mine), bulk, partition)] == mine


def test_offsets_become_visible_to_the_group(
    client: ClientConfig, topic: TopicFactory, admin: KafkaAdmin, bulk: bool
) -> None:
    name, group = topic(2), f"group-{uuid.uuid4()}"
    with started(client, name, bulk) as producer:
        producer.send_offsets({(name, 0): 7, (name, 1): 9}, group)
        producer.send_offsets({}, group)
        assert admin.group_offsets(group) == {}
        producer.commit()
    eventually(lambda: admin.group_offsets(group), {(name, 0): 7, (name, 1): 9})


def test_zombie_is_fenced(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    zombie = started(client, name, bulk)
    zombie.send(name, 0, b"zombie", b"1", 1)
    zombie.flush()
    commit_rows(client, name, [Row(b"heir", b"2")], bulk, transactional_id=name)
    with pytest.raises(FencedError, match=f"'{name}'.*commit marker"):
        zombie.commit()
    assert zombie.state is ProducerState.FAILED
    zombie.close()
    assert [row.key for row in read_rows(client, name, 0, 4, bulk)] == [b"heir"]


def test_zombie_that_still_sends_is_fenced(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    zombie = started(client, name, bulk)
    zombie.send(name, 0, b"zombie", b"1", 1)
    zombie.flush()
    commit_rows(client, name, [Row(b"heir", b"2")], bulk, transactional_id=name)

    def send_and_commit() -> None:
        zombie.send(name, 0, b"zombie", b"3", 1)
        zombie.commit()

    with pytest.raises(FencedError):
        send_and_commit()
    zombie.close()
    assert [row.key for row in read_rows(client, name, 0, 4, bulk)] == [b"heir"]


def test_a_new_producer_per_step_aborts_the_half_step_of_the_old_one(
    client: ClientConfig, topic: TopicFactory, bulk: bool
) -> None:
    name = topic()
    half = started(client, name, bulk)
    half.send(name, 0, b"output without marker", b"1", 1)
    half.flush()
    half.close()
    commit_rows(client, name, [Row(b"output", b"1"), Row(b"marker", b"2")], bulk, transactional_id=name)
    assert [row.key for row in read_rows(client, name, 0, 5, bulk)] == [b"output", b"marker"]


def test_record_too_large_for_the_client(
    client: ClientConfig, topic: TopicFactory, admin: KafkaAdmin, bulk: bool
) -> None:
    name = topic()
    producer = started(client, name, bulk)
    producer.send(name, 0, b"good", b"v", 1)
    with pytest.raises(RecordTooLargeError, match=rf"b'big' \(2000003 bytes\) for {name}-0") as caught:
        producer.send(name, 0, b"big", b"x" * 2_000_000, 1)
    assert (caught.value.topic, caught.value.partition, caught.value.key) == (name, 0, b"big")
    with pytest.raises(ProducerStateError, match="failed"):
        producer.commit()
    producer.close()
    assert admin.end_offsets([(name, 0)])[name, 0] <= 1
    assert read_rows(client, name, 0, 0, bulk) == []


def test_record_too_large_for_the_topic(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic(max_message_bytes=1_000)
    producer = started(client, name, bulk)
    producer.send(name, 0, b"big", os.urandom(5_000), 1)
    with pytest.raises(RecordTooLargeError, match=r"b'big' \(5003 bytes\)"):
        producer.commit()
    assert producer.state is ProducerState.FAILED
    producer.close()


def test_refused_timestamp_and_missing_topic_are_delivery_failures(
    client: ClientConfig, topic: TopicFactory, bulk: bool
) -> None:
    strict = topic(message_timestamp_after_max_ms=1_000)
    with started(client, strict, bulk) as producer:
        producer.send(strict, 0, b"k", b"v", 2**41)
        with pytest.raises(ProduceError, match=r"message.timestamp.after.max.ms.*INVALID_TIMESTAMP") as caught:
            producer.commit()
        assert caught.value.key == b"k"
    with started({**client, "topic.metadata.propagation.max.ms": "500"}, strict, bulk) as producer:
        producer.send("no-such-topic", 0, b"k", b"v", 1)
        with pytest.raises(ProduceError, match=r"no-such-topic.*create it first"):
            producer.flush()


def test_calls_in_a_wrong_order(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    producer = TransactionalProducer(client, name, bulk=bulk)
    with pytest.raises(ProducerStateError, match=r"begin .* 'ready', this one is 'new'"):
        producer.begin()
    producer.init_transactions()
    for early in (lambda: producer.send(name, 0, b"k", b"v", 1), producer.commit, producer.flush):
        with pytest.raises(ProducerStateError):
            early()
    producer.begin()
    producer.send(name, 0, b"k", b"v", 1)
    producer.commit()
    for late in (producer.begin, producer.init_transactions, producer.commit):
        with pytest.raises(ProducerStateError, match="the next attempt needs a new one"):
            late()
    producer.close()
    producer.close()
    with pytest.raises(ProducerStateError, match="'closed'"):
        producer.begin()
    assert [row.key for row in read_rows(client, name, 0, 2, bulk)] == [b"k"]


def test_columns_that_do_not_fit_fail_the_producer(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    values = pa.array([b"v"], pa.binary())
    for partitions, keys, times, message in (
        (0, pa.array([b"a", b"b"], pa.binary()), [1], "2 keys for 1 timestamps"),
        (np.zeros(3, np.int32), None, [1], "3 partitions for 1 timestamps"),
        (0, None, [-5], "record 0 .* timestamp -5"),
    ):
        with started(client, name, bulk) as producer:
            with pytest.raises(ValueError, match=message):
                producer.send_columns(name, partitions, keys, values, np.array(times))
            with pytest.raises(ProducerStateError):
                producer.commit()


def test_timestamp_zero_is_not_replaced_by_the_clock(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    # The only record of its batch, the first and the last of one; with and without what follows a message in memory.
    rows = [Row(b"k", b"v", 0)], [Row(None, None, 0), Row(b"k", b"v", 5), Row(b"", b"x" * 5000, 0, [("h", b"0")])]
    for batch in rows:
        commit_rows(client, name, batch, bulk)
    # The ordinary client cannot be told that 0 is a time.
    zero = 0 if bulk else 1
    assert [row.timestamp for row in read_rows(client, name, 0, 5, bulk)] == [zero, zero, 5, zero]
    assert [row.timestamp for row in read_rows(client, name, 0, 5, not bulk)] == [zero, zero, 5, zero]


def test_a_mark_that_was_not_replaced_is_never_committed(client: ClientConfig, topic: TopicFactory) -> None:
    name = topic()
    with started(client, name, bulk=True) as producer:
        transport = producer._transport
        assert isinstance(transport, BulkTransport)
        transport._zero._about[1] += 1
        with pytest.raises(KafkaClientError, match="cannot write the timestamp 0"):
            producer.send(name, 0, b"k", b"v", 0)
        with pytest.raises(ProducerStateError, match="failed"):
            producer.commit()


def test_transaction_timeout_looks_like_a_fence(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    producer = TransactionalProducer({**client, **QUIET}, name, 2, bulk=bulk)
    producer._timeout_s = 60  # The broker aborts after 2 s; the calls themselves have time.
    producer.init_transactions()
    producer.begin()

    def too_late() -> None:
        producer.send(name, 0, b"late", b"v", 1)
        producer.flush()
        with KafkaAdmin(client) as admin:
            eventually(lambda: admin.end_offsets([(name, 0)])[name, 0] > 0, True)
        producer.commit()

    # Mostly it is the commit that is refused; where this test is held up, what was sent.
    with pytest.raises(FencedError, match="open longer than its timeout"):
        too_late()
    producer.close()
    with KafkaAdmin(client) as admin:
        eventually(lambda: admin.end_offsets([(name, 0)])[name, 0] > 0, True)
        end = admin.end_offsets([(name, 0)])[name, 0]
    assert read_rows(client, name, 0, end, bulk) == []


def test_no_broker_and_a_quick_close(bulk: bool) -> None:
    producer = TransactionalProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, "t", 1, bulk=bulk)
    with pytest.raises(ProduceError, match="init_transactions of transactional id 't' failed"):
        producer.init_transactions()
    begun = time.monotonic()
    producer.close()
    assert time.monotonic() - begun < 30


def test_close_with_an_open_transaction_does_not_wait(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    # What is given up in a minute, far more than a busy machine takes to close.
    producer = started(client, name, bulk, timeout_s=60)
    values = pa.array([b"v" * 1000] * 20_000, pa.binary())
    producer.send_columns(name, 0, None, values, np.ones(20_000, np.int64))
    begun = time.monotonic()
    producer.close()
    assert time.monotonic() - begun < 30


# --- Where records have landed by the broker's answers, and what a step asks of logs besides.


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
    monkeypatch.setattr(live, "DECIDE_S", 0.1)
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
    monkeypatch.setattr(live, "DECIDE_S", 60.0)
    assert kafka.log_ends([place]) == {place: (4, 4)}
    assert kafka.topic_ids([name, "missing"]) == {name: admin.describe_topics([name])[name].topic_id}
    assert kafka.delete_retention_ms(name) == int(admin.topic_config(name)["delete.retention.ms"])


def test_versions_of_long_ago_stay_in_the_segment_of_their_commit(
    client: ClientConfig, broker: EmbeddedBroker, topic: TopicFactory
) -> None:
    """Else they would be a segment of their own, which brokers take for as old as its records, and compact at once."""
    config = changelog_config(StoreSpec("prices", StoreKind.VERSIONED, retention_ms=1000))
    name = topic(**{key.replace(".", "_"): value for key, value in config.items()})
    for at in (1000, 2000):
        with TransactionalProducer(client, name, 30) as producer:
            producer.init_transactions()
            producer.begin()
            producer.send(name, 0, b"apple", b"%d" % at, at)
            producer.flush()
            producer.commit()
    assert len(list(broker.data_dir.glob(f"node-1/data/{name}-0/*.log"))) == 1
