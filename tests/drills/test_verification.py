"""The model agrees with the engine in a run without faults, and detects lost and duplicate results."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from state.commit.marker import CommitMarker
from state.kafka.topics import TopicSpec
from streams import Processor, Retry, StreamsBuilder
from streams.broker import EmbeddedBroker
from streams.drills import topics as reader
from streams.drills.program import (
    CLOSED,
    GRACE_MS,
    INPUTS,
    KEYS,
    ORDERS,
    OUTPUTS,
    PARTITIONS,
    TOTALS,
    InputEvent,
    build,
    differences,
    expected,
    out_of_order,
    result,
)
from streams.drills.subject import versions_of_steps
from streams.drills.topics import OutsideReader, Read, read_aborted
from streams.drills.users_program import check_nothing_waits, last_per_key, merged
from streams.drills.variants import wrong_joins
from streams.errors import ConfigError
from streams.testing import TopologyTestDriver
from tests.conftest import TopicFactory
from tests.doctor.world import World


def events(seed: int, count: int) -> list[tuple[str, InputEvent]]:
    drawn = random.Random(seed)
    return [
        (
            drawn.choice(INPUTS),
            InputEvent(f"key-{drawn.randrange(KEYS)}", f"id-{n}", 1_000_000 + 100 * n - drawn.randrange(900)),
        )
        for n in range(count)
    ]


def test_the_model_agrees_with_the_engine() -> None:
    given = events(1, 1500)
    end = max(event.time for _, event in given) + 2 * GRACE_MS
    # A key whose last order is long before the end of its task's time.
    given.append((ORDERS, InputEvent("key-99", "only", 1_000_000 + 100 * 1500)))
    given += [(ORDERS, InputEvent(f"key-{n}", f"last-{n}", end)) for n in range(KEYS)]
    with TopologyTestDriver(build(), partitions=dict.fromkeys(INPUTS, PARTITIONS)) as driver:
        with driver.batch():
            for topic, event in given:
                driver.create_input_topic(topic).pipe_input(event.key, {"id": event.id}, event.time)
        found = {}
        for topic in OUTPUTS:
            rows = driver.create_output_topic(topic).read_records_to_list()
            found[topic] = Counter((row.key, *row.value.values()) for row in rows)
    wanted = expected(*([event for topic, event in given if topic == name] for name in INPUTS))
    assert all(wanted.values())
    assert differences(wanted, found) == []


def test_lost_and_duplicate_results_are_reported() -> None:
    wanted = expected([InputEvent("key-1", "a", 5), InputEvent("key-1", "b", 9)], [])
    lost = {**wanted, TOTALS: Counter({("key-1", 1): 2})}
    assert differences(wanted, lost) == [
        "totals: 1 of 2 results missing, such as ('key-1', 2)",
        "totals: 1 of 2 results too many, such as ('key-1', 1)",
    ]
    assert out_of_order(TOTALS, [("a", 1), ("b", 1), ("a", 3)]) == ["totals: a has 3 after 1"]
    assert result(CLOSED, b"key-1", b'{"start":10,"count":2}') == ("key-1", 10, 2)


def test_a_row_that_a_key_no_longer_has_is_reported() -> None:
    def joined(*rows: bytes) -> list[Read]:
        return [Read(0, at, at, b"a", b'{"id":"orders-%d","row":%s}' % (at, row)) for at, row in enumerate(rows)]

    history = {"a": [None, 1, None, 2]}
    assert wrong_joins(history, joined(b"1", b"1", b"2")) == []
    assert wrong_joins(history, joined(b"1", b"null", b"1", b"3")) == [
        "orders-2 of a has the row 1, not one of [None, 2]",
        "orders-3 of a has the row 3, not one of [None, 2]",
    ]


# What drills conclude from logs: which transactions were aborted, and which versions a task's steps have.

FIRST = CommitMarker("q", 0, 1, "hash", 1, 0, "batch", {}, {}, 0, {}, {}, {}, {}, "", 0)


def test_a_record_that_is_committed_between_the_reads_does_not_count_as_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = [Read(0, 0, 0, b"k", b"committed"), Read(0, 1, 0, b"k", b"aborted")]

    def read(client: object, topic: str, isolation: str) -> list[Read]:
        found = [one for one in log if isolation == "read_uncommitted" or one.value != b"aborted"]
        log.append(Read(0, len(log), 0, b"k", b"committed meanwhile"))
        return found

    monkeypatch.setattr(reader, "_read", read)
    assert [one.value for one in read_aborted("servers", "topic")] == [b"aborted"]


def test_the_marker_of_an_adoption_is_no_step_of_its_own() -> None:
    second = replace(FIRST, version=2)
    adoption = replace(second, query_id="other", adopted=2)
    third = replace(adoption, version=3)
    assert versions_of_steps([FIRST, second, adoption, third]) == [1, 2, 3]


# The reader that runs through a drill.


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
    follower = OutsideReader(broker.bootstrap_servers, name, 2)
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


# A user's program as the subject: the order in which its copied input is written, and which results count.


def read(partition: int, offset: int, timestamp: int, key: bytes = b"k") -> Read:
    return Read(partition, offset, timestamp, key, b"%d" % timestamp)


def test_the_input_is_written_in_the_order_in_which_the_engine_merges_partitions() -> None:
    given = {"a": [read(0, 0, 10), read(0, 1, 5), read(0, 2, 30), read(1, 0, 20)], "b": [read(0, 0, 7), read(0, 1, 25)]}
    order = [(topic, one.partition, one.timestamp) for topic, one in merged(given)]
    # The record of time 5 comes with the one that is before it in its partition.
    assert order == [("b", 0, 7), ("a", 0, 10), ("a", 0, 5), ("a", 1, 20), ("b", 0, 25), ("a", 0, 30)]


def test_the_last_result_of_a_key_is_that_of_the_highest_offset_in_any_order_of_arrival() -> None:
    first, second = read(0, 0, 1), read(0, 1, 2)
    assert last_per_key({"out": [first, second]}) == last_per_key({"out": [second, first]}) == {("out", b"k"): b"2"}


def test_a_program_that_retries_is_compared_only_if_nothing_waits_at_the_end(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    retry = Retry((60_000,), dead_letters="dead")
    builder.stream("in").process_values(Processor, named="ship", on_error=retry).to("out")
    world, topic = World(tmp_path, topology=builder.build()), "app-ship-retry-1-repartition"
    world.kafka.create_topics([TopicSpec("dead", 1), TopicSpec(topic, 2)])
    check_nothing_waits(world.plan()[0], world.kafka)  # type: ignore[arg-type]
    world.kafka.append(topic, b"key", b"value", partition=1)
    with pytest.raises(ConfigError, match=f"retries them later: they wait in {topic}, so there are no final results"):
        check_nothing_waits(world.plan()[0], world.kafka)  # type: ignore[arg-type]
    world.kafka.groups["app"] = {(topic, 1): 1}
    check_nothing_waits(world.plan()[0], world.kafka)  # type: ignore[arg-type]
