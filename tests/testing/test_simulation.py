"""The simulated Kafka does what Kafka does, as far as the commit protocol depends on it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from state.errors import (
    FencedError,
    KafkaClientError,
    OffsetsLostError,
    ProduceError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from streams.testing.simulation import Crash, Fate, RequestEvent, SimulatedKafka, SimulatedTable
from streams.testing.simulation.kafka import NothingHappens

OUT = ("out", 0)


class At(NothingHappens):
    """Does something at every event of a kind."""

    def __init__(self, kind, before=lambda: Fate.NOW, after=lambda: None):
        self.kind, self.do_before, self.do_after = kind, before, after

    def before(self, event: RequestEvent) -> Fate:
        return self.do_before() if event.kind == self.kind else Fate.NOW

    def after(self, event: RequestEvent) -> None:
        if event.kind == self.kind:
            self.do_after()


def fail(error):
    def raises():
        raise error

    return raises


@pytest.fixture
def kafka():
    return SimulatedKafka({"out": 2})


def ready(kafka, name="tx"):
    producer = kafka.producer(name)
    producer.init_transactions()
    producer.begin()
    return producer


def values(kafka, topic="out", partition=0):
    columns = kafka.columns(topic, partition)
    return [] if columns is None else columns.values.to_pylist()


def test_a_transaction_is_seen_when_it_is_committed_and_its_control_record_takes_an_offset(kafka):
    producer = ready(kafka)
    producer.send("out", 0, b"k", b"v", 5)
    producer.send_offsets({("in", 0): 7}, "group")
    assert (kafka.end_offsets([OUT]), kafka.end_offsets([OUT], committed=False)) == ({OUT: 0}, {OUT: 1})
    assert values(kafka) == []
    assert kafka.groups == {}
    producer.commit()
    assert kafka.end_offsets([OUT]) == {OUT: 2}
    assert values(kafka) == [b"v"]
    assert kafka.groups == {"group": {("in", 0): 7}}
    assert producer.delivered(*OUT) == 0


def test_a_new_producer_fences_the_old_one_and_aborts_what_it_has_open(kafka):
    old = ready(kafka)
    old.send("out", 0, b"k", b"old", 5)
    new = ready(kafka)
    with pytest.raises(FencedError):
        old.send("out", 0, b"k", b"old", 5)
    with pytest.raises(FencedError):
        old.commit()
    new.send_columns("out", 0, pa.array([b"k"]), pa.array([b"new"]), np.array([6]))
    new.commit()
    assert values(kafka) == [b"new"]
    assert kafka.end_offsets([OUT]) == {OUT: 4}, "two records and two control records"


def test_an_open_transaction_hides_what_others_commit_behind_it(kafka):
    first, second = ready(kafka, "a"), ready(kafka, "b")
    first.send("out", 0, b"k", b"first", 5)
    second.send("out", 0, b"k", b"second", 5)
    second.commit()
    assert values(kafka) == []
    with pytest.raises(ReadTimeoutError):
        list(kafka.read("out", 0, 0, 2))
    first.commit()
    assert values(kafka) == [b"first", b"second"]
    hidden = kafka.hang("out", 0)
    kafka.append("out", b"k", b"later", partition=0)
    assert kafka.end_offsets([OUT]) == {OUT: hidden.first}


def test_a_late_commit_commits_half_of_the_same_producers_next_transaction(kafka):
    producer = ready(kafka)
    producer.send("out", 0, b"k", b"one", 5)
    kafka.hook = At("commit", lambda: Fate.LATE)
    with pytest.raises(ProduceError):
        producer.commit()
    kafka.hook = NothingHappens()
    producer.begin()
    producer.send("out", 0, b"k", b"half of two", 5)
    kafka.deliver()
    assert values(kafka) == [b"one", b"half of two"]


def test_a_late_commit_of_a_fenced_producer_is_refused(kafka):
    producer = ready(kafka)
    producer.send("out", 0, b"k", b"one", 5)
    kafka.hook = At("commit", lambda: Fate.LATE)
    with pytest.raises(ProduceError):
        producer.commit()
    kafka.hook = NothingHappens()
    ready(kafka)
    kafka.deliver()
    assert values(kafka) == []
    assert kafka.late == []


def test_lost_replies_crashes_and_control_records_that_come_later(kafka):
    producer = ready(kafka)
    producer.send("out", 0, b"k", b"one", 5)
    kafka.hook = At("control", lambda: Fate.LATE)
    producer.commit()
    assert values(kafka) == [], "decided, but not readable yet"
    kafka.deliver()
    assert values(kafka) == [b"one"]
    kafka.hook = At("commit", after=fail(ProduceError("the reply was lost")))
    again = ready(kafka)
    again.send("out", 0, b"k", b"two", 5)
    with pytest.raises(ProduceError):
        again.commit()
    assert values(kafka) == [b"one", b"two"]
    kafka.hook = At("send", fail(Crash("send")))
    with pytest.raises(Crash):
        ready(kafka).send("out", 0, b"k", b"three", 5)
    assert values(kafka) == [b"one", b"two"]


def test_a_transaction_that_takes_too_long_looks_like_a_fence(kafka):
    producer = ready(kafka)
    producer.send("out", 0, b"k", b"one", 5)
    kafka.time_out("tx")
    with pytest.raises(FencedError):
        producer.commit()
    assert values(kafka) == []


def test_logs_that_have_lost_records(kafka):
    for value in (b"a", b"b", b"c"):
        kafka.append("out", b"k", value, timestamp=9, partition=0)
    kafka.delete_records({OUT: 1})
    assert kafka.begin_offset(OUT) == 1
    with pytest.raises(OffsetsLostError):
        list(kafka.read("out", 0, 0, 2))
    assert [columns.offsets.tolist() for columns in kafka.read("out", 0, 1, 3)] == [[1, 2]]
    with pytest.raises(KafkaClientError):
        kafka.delete_records({OUT: 4})
    kafka.create_topic("table", cleanup_policy="compact")
    with pytest.raises(KafkaClientError):
        kafka.delete_records({("table", 0): 0})


def test_compaction_keeps_the_last_record_of_a_key_and_all_offsets(kafka):
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)):
        kafka.append("out", key, value, partition=0)
    log = kafka.log(*OUT)
    log.compact()
    assert [(entry.offset, entry.value) for entry in log.readable()] == [(2, b"2"), (3, None)]
    log.compact(tombstones=True)
    assert [entry.offset for entry in log.readable()] == [2]
    assert (log.begin, log.end) == (0, 4)
    assert [entry.offset for entry in log.readable(2, 3)] == [2]


def test_a_topic_created_again_has_another_id(kafka):
    before = kafka.describe_topics(["out", "none"])
    assert before.keys() == {"out"}
    assert before["out"].partitions == 2
    kafka.delete_topic("out")
    with pytest.raises(TopicNotFoundError):
        kafka.end_offsets([OUT])
    kafka.create_topic("out")
    assert kafka.describe_topics(["out"])["out"].topic_id != before["out"].topic_id
    with pytest.raises(TopicNotFoundError):
        kafka.append("out", b"k", b"v", partition=1)


def test_times_as_the_planner_asks_for_them(kafka):
    for timestamp in (10, 30, 20):
        kafka.append("out", b"k", b"v", timestamp, partition=0)
    kafka.now_ms = 99
    ready_one = ready(kafka)
    ready_one.send("out", 0, b"k", b"v", 5)
    assert kafka.offsets_for_times({OUT: 15, ("out", 1): 0}) == {OUT: 1, ("out", 1): 0}
    ready_one.commit()
    assert kafka.max_timestamps([OUT, ("out", 1)]) == {OUT: 99, ("out", 1): -1}


def test_what_is_not_flushed_dies_with_the_process():
    table = SimulatedTable()
    table.write([(b"a", b"1"), (b"b", b"1")])
    table.hook = At("flush", fail(Crash("flush")))
    with pytest.raises(Crash):
        table.write([(b"a", b"2"), (b"c", b"2")], [(b"b", b"c")])
    table.crash()
    assert list(table.scan(b"", None)) == [(b"a", b"1"), (b"b", b"1")]


def test_a_torn_write_if_writes_were_not_atomic():
    table = SimulatedTable()
    table.atomic = False
    table.hook = At("write", after=fail(Crash("write")))
    with pytest.raises(Crash):
        table.write([(b"a", b"1"), (b"b", b"1")])
    table.crash()
    assert list(table.scan(b"", None)) == [(b"a", b"1")]
