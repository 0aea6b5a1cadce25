"""Tasks of a backlog stay together in event time, so that a replay drops no record that a reader in order of time keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from state.kafka.partitioner import partition_for_key
from streams import (
    Consumed,
    JoinWindows,
    JsonSerde,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
)
from streams.testing import TopologyTestDriver
from streams.topology.topology import Topology
from tests.live.replay import Replay, records_in

PARTITIONS = 3
SECOND = 1000
WINDOWS = TimeWindows.of_size_and_grace(10 * SECOND, 6 * SECOND)
Record = tuple[str, bytes, bytes, int, int]
"""Topic, key, value, time, partition."""


def source(builder: StreamsBuilder, topic: str):
    return builder.stream(topic, Consumed(StringSerde(), JsonSerde()))


def moved(builder: StreamsBuilder, topic: str, name: str):
    return source(builder, topic).select_key(lambda key, value: value["to"]).repartition(name)


def counted() -> Topology:
    builder = StreamsBuilder()
    moved(builder, "in", "moved").group_by_key().windowed_by(WINDOWS).count(
        materialized=Materialized("windows", caching=False)
    ).to_stream(lambda of, _: of.key).to("out")
    return builder.build()


def beside_another_topic() -> Topology:
    """A repartition topic and a topic from outside, in one task."""
    builder = StreamsBuilder()
    both = moved(builder, "in", "moved").merge(source(builder, "other"))
    both.group_by_key().windowed_by(WINDOWS).count(materialized=Materialized("windows", caching=False)).to_stream(
        lambda of, _: of.key
    ).to("out")
    return builder.build()


def joined() -> Topology:
    """Two repartition topics."""
    builder = StreamsBuilder()
    near = JoinWindows.of_time_difference_and_grace(5 * SECOND, 6 * SECOND)
    left, right = moved(builder, "in", "left"), moved(builder, "other", "right")
    left.join(right, lambda a, b: [a["number"], b["number"]], near, StreamJoined(name="joined")).to("out")
    return builder.build()


def in_a_chain() -> Topology:
    """A topic from outside beside one that is two steps behind another one."""
    builder = StreamsBuilder()
    twice = moved(builder, "in", "first").select_key(lambda key, value: value["then"])
    both = twice.repartition("second").merge(source(builder, "other"))
    both.group_by_key().windowed_by(WINDOWS).count(materialized=Materialized("windows", caching=False)).to_stream(
        lambda of, _: of.key
    ).to("out")
    return builder.build()


def records(topics: list[str], random: Random, count: int = 150) -> list[Record]:
    """Records in order of time; partitions have more and less of them, and gaps."""
    share = [1, 6, 20]
    random.shuffle(share)
    found, time_ms = [], 1_000_000
    for number in range(count):
        time_ms += random.choice((0, 50, 300, 2 * SECOND, 30 * SECOND)) if random.random() < 0.3 else 20
        (partition,) = random.choices(range(PARTITIONS), share)
        key = next(
            key for key in map(str, range(number, 10_000)) if partition_for_key(key.encode(), PARTITIONS) == partition
        )
        value = JsonSerde().serialize(
            "", {"number": number, "to": random.choice("abcdef"), "then": random.choice("xyz")}
        )
        assert value is not None
        found.append((random.choice(topics), key.encode(), value, time_ms, partition))
    return found


def in_order(topology: Topology, given: list[Record]) -> Counter[tuple[bytes | None, bytes | None]]:
    """What a reader leaves behind that takes one record after the other, in order of time."""
    with TopologyTestDriver(topology, partitions=dict.fromkeys(["in", "other", "out"], PARTITIONS)) as driver:
        topics = {topic: driver.create_input_topic(topic) for topic in {topic for topic, *_ in given}}
        for topic, key, value, time_ms, partition in given:
            topics[topic].pipe_bytes(key, value, time_ms, (), partition)
        assert driver.dropped("late") == 0
        return records_in(driver._kafka, ["out"], PARTITIONS)


def replayed(topology: Topology, given: list[Record], random: Random, aligned: bool = True) -> Replay:
    replay = Replay(topology, PARTITIONS, random, aligned)
    for topic, key, value, time_ms, partition in given:
        replay.kafka.append(topic, key, value, time_ms, partition=partition)
    replay.run()
    return replay


PROGRAMS = {
    counted: ["in"],
    beside_another_topic: ["in", "other"],
    joined: ["in", "other"],
    in_a_chain: ["in", "other"],
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_replay_drops_nothing_that_a_reader_in_order_of_time_keeps(
    program: Callable[[], Topology], seed: int
) -> None:
    random = Random(seed)
    given = records(PROGRAMS[program], random)
    replay = replayed(program(), given, random)
    assert replay.late == 0
    assert replay.results() == in_order(program(), given)


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_bounds_records_would_be_late(program: Callable[[], Topology]) -> None:
    random = Random(1)
    assert replayed(program(), records(PROGRAMS[program], random), random, aligned=False).late > 0
